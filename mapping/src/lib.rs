//! Mappings between checkpoints: rules that rename, fuse, split, stack and rearrange tensors.
//!
//! A [`Mapping`] has rules such as `*.qkv = *.q + *.k + *.v`. Applied to the names, shapes and types of the tensors
//! that exist, it returns the tensors that it makes as loop nests ([`Piece`]): which elements of which source are
//! copied where. The crate reads no file and no element, so the cost of a mapping does not depend on the sizes of
//! the tensors.
//!
//! ```
//! use reshard_mapping::{Dtype, Mapping, SourceTensor};
//!
//! let mapping: Mapping = "wq = rearrange(q, '(h two d) e -> (h d two) e', h=2, two=2)".parse()?;
//! let q = SourceTensor { name: "q", shape: &[12, 5], dtype: Dtype::F32 };
//! let made = mapping.apply(&[q])?.tensors.remove(0);
//! let axes: Vec<_> = made.pieces[0].axes.iter().map(|axis| (axis.extent, axis.target_step, axis.source_step)).collect();
//! assert_eq!(axes, [(2, 6, 6), (3, 2, 1), (2, 1, 3), (5, 1, 1)]); // source row 4 = (0, 1, 1) is target row 3
//! # Ok::<(), reshard_mapping::Error>(())
//! ```
//!
//! # Grammar
//!
//! ```text
//! MAPPING = lines of RULE | "drop" PATTERN ["==" NAME] | "//" TEXT
//! RULE    = SIDE " = " SIDE                        left: made; right: exists
//! SIDE    = PART { "+" PART } ["on" DIM] ["by" BLOCKS]
//!         | PART { "|" PART } ["on" DIM]
//! PART    = [SHARES] PIECE
//! PIECE   = NAME
//!         | PIECE "[" [A] ":" [B] {"," [A] ":" [B]} "]"
//!         | "stack(" PIECE ["on" DIM] ")"          "unstack(" PIECE ["on" DIM] ")"
//!         | "pad(" PIECE "," N ["on" DIM] ")"      "cast(" PIECE "," TYPE ")"
//!         | "rearrange(" PIECE "," 'AXES -> AXES' {"," AXIS=N} ")"
//!         | "cat(" SIDE ")"
//! ```
//!
//! * **Names.** The k-th `*` is the same text in all names of a rule, as short as possible. `{x}` is a text without
//!   dots and slashes. A rule applies once for each set of texts that its first name on the right side matches.
//! * **`+`** concatenates on `DIM` (0). `by N` splits each part into N equal blocks: the first block of each part,
//!   then the second of each, and so on. Shares are the ratio of the parts: `4 q + 1 k + 1 v`.
//! * **`|`** concatenates the shards of the parts on each rank. Whole, it equals `+`; [`MadeTensor::local_parts`] has
//!   the extents, and each part can have separate placements.
//! * **`stack(e.#)`** adds a dim; `#` is 0, 1, .. without a gap. `e.# = unstack(x)` is `stack(e.#) = x`.
//! * **`rearrange`** splits dims into axes, permutes and merges them. An axis only on the right side repeats. An axis
//!   only on the left side has copies, which must be equal ([`Mapped::checks`]). `1` is a dim without an axis.
//! * **`pad(x, 512)`** adds zeros up to the extent 512. `x[0:500]` is a range of each dim.
//! * **`$h`** is a number with a value from `[let]` ([`Mapping::with_number`]).
//! * **The left side** splits: several parts, `stack` and `rearrange` are read backwards; `pad`, slices and `cast` are
//!   errors there. `on` and `by` are at the right end of the rule in this case too.
//! * **`drop`** takes a glob (`*`, `?`, `[a-z]`). With `== NAME` the tensors must be equal.
//! * **Rules** read the sources, never the results of each other.
//!
//! # Truth table
//!
//! With `x = [1 2 3 4 5 6]` and `y = [7 8]`:
//!
//! | rule | result |
//! |---|---|
//! | `z = x + y` | `z = [1 2 3 4 5 6 7 8]` |
//! | `z = 3 x + 1 y by 2` | `z = [1 2 3 7 4 5 6 8]` |
//! | `a + b = x by 3` | `a = [1 3 5]`, `b = [2 4 6]` |
//! | `2 a + 1 b = x` | `a = [1 2 3 4]`, `b = [5 6]` |
//! | `z = y[1:] + x[:2]` | `z = [8 1 2]` |
//! | `z = pad(y, 4)` | `z = [7 8 0 0]` |
//! | `z = rearrange(x, '(a b) -> (b a)', a=2)` | `z = [1 4 2 5 3 6]` |
//! | `z = rearrange(y, 'a -> (a r)', r=2)` | `z = [7 7 8 8]` |
//! | `stack(z.#) = rearrange(x, '(a b) -> a b', a=3)` | `z.0 = [1 2]`, `z.1 = [3 4]`, `z.2 = [5 6]` |
//! | `z = cat(y + y)[1:3]` | `z = [8 7]` |
//!
//! # Twelve examples
//!
//! | model | rule |
//! |---|---|
//! | fused attention of Llama | `d.*.qkv = 4 *.q_proj.weight + 1 *.k_proj.weight + 1 *.v_proj.weight` |
//! | the same on each rank, as vLLM has it | `model.layers.*.qkv_proj.weight = *.q_proj.weight \| *.k_proj.weight \| *.v_proj.weight` |
//! | more ranks than key heads, in one file | `s.*.qkv = 2 *.q + 1 rearrange(*.k, '(g d) e -> (g r d) e', g=2, r=2) + 1 rearrange(*.v, '(g d) e -> (g r d) e', g=2, r=2) by 4` |
//! | query groups of Megatron | `d.*.linear_qkv.weight = 4 *.q.weight + 1 *.k.weight + 1 *.v.weight by 8` |
//! | GPT-NeoX to separate heads | `m.*.q.* + m.*.k.* + m.*.v.* = gpt_neox.*.query_key_value.* by 12` |
//! | gate and up | `*.gate_up.weight = *.gate_proj.weight \| *.up_proj.weight` |
//! | fused experts of Mixtral | `*.w13 = stack(*.experts.#.w1.weight) + stack(*.experts.#.w3.weight) on 1` |
//! | all layers and experts in one tensor, by two mappings | `stack(t.#) = experts.fc2`, then `layers.*.experts.#.down = unstack(rearrange(t.*, 'e o i -> e i o'))` |
//! | rotary pairs | `layers.*.wq.weight = rearrange(*.q_proj.weight, '(h two d) e -> (h d two) e', h=32, two=2)` |
//! | tied embeddings | `drop lm_head.weight == model.embed_tokens.weight` |
//! | padded vocabulary | `word.weight = pad(embed.weight, 512)`, and back `embed.weight = word.weight[0:500]` |
//! | convolutions and patches | `taps = rearrange(conv, 'c 1 k -> c k')`, `lin = rearrange(patch, 'o i h w -> o (i h w)', h=14, w=14)` |
//!
//! The tests parse these rules and run the truth table from this page.
//!
//! # Inverses
//!
//! [`Mapping::inverse`] reads each rule from right to left. It undoes the rule if it makes every source whole: parts
//! of different extents need shares, and each name of the right side must be on the left side once.
//!
//! # Limits
//!
//! Arithmetic is checked, and no input panics. A rule has at most 64 KiB and calls 32 deep; a tensor has at most 64
//! dims, 2^60 elements and 65,536 loop nests. Splits that do not align with the extents result in several nests.
#![forbid(unsafe_code)]

mod apply;
mod axes;
mod digits;
mod dtype;
mod error;
mod evaluate;
mod expr;
mod file;
mod glob;
mod mapped;
mod mapping;
mod name;
mod number;
mod parse;
mod pattern;
mod piece;
mod rule;
mod sources;
mod tokens;
mod value;

pub use error::{Error, ErrorKind};
pub use mapped::{Check, LocalParts, MadeTensor, Mapped, SourceTensor};
pub use mapping::{Mapping, Rest};
pub use piece::{Axis, Piece};
pub use safetensors::Dtype;

/// Internals for the other crates of this project; they may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::digits::split;
    pub use crate::error::shown;
    pub use crate::piece::Side;
}
