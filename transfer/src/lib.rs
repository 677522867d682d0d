//! Live transfer of a whole model between two worlds: planned once, proved, and exported for each rank.
//!
//! A trainer holds a model on one mesh, a server holds it on another one, with other names, fused tensors and types.
//! [`Transfer::plan`] takes both [sides](Side) and a [mapping](reshard_mapping::Mapping) between their tensors. Each
//! rank executes its [part](RankPart) of the plan: boxes of elements that it sends, receives, or fills with zeros. No
//! element is read to plan, and the cost does not depend on the extents of the tensors.
//!
//! # The rule
//!
//! **A target tensor is a disjoint union of boxes. Each box is an affine view of one source tensor, or zeros.**
//!
//! A mapping defines a target as loop nests `j` (`P_j` maps positions of the nest to target indices, `M_j` to source
//! indices). `src` maps an index of a source to a rank and an offset in its buffer, `dst` does the same for a target:
//!
//! ```text
//! box(j, s, t) = { i of nest j : M_j(i) held by rank s, P_j(i) wanted by rank t }
//! descriptor   = ( src_s . M_j , dst_t . P_j ) restricted to box(j, s, t)         two layouts of one shape
//! ```
//!
//! * **Held and wanted.** A rank holds a product of index lists, one per dim. A list is a few families of ranges: range
//!   `q` starts at `start + q step` and has `len` indices. The restriction of a nest splits the dim by `step` and limits
//!   the remainder to `len`, so the offset in the buffer stays affine. A nest that does not align with a family results
//!   in a head, a body and a tail. Nothing is listed by element.
//! * **Parts on each rank.** A target of `q | k | v` is concatenated on every rank, and each part has placements. Part
//!   `j` of rank `r` begins at the sum of the local extents of the parts before it. With fewer KV heads than ranks, `q`
//!   is `S(0),S(0)` on `kv=2,rep=2`, and `k` and `v` are `S(0),R`.
//! * **Descriptors.** Source and target layout are coalesced jointly. Layers that differ only in base addresses share a
//!   template, so a box is a template and two bases: 20 bytes.
//! * **Senders.** Ranks that hold the same region share the requests for it, so that each sends `L / k` of its `L` bytes.
//!   A rank that holds an element itself copies it.
//! * **Types.** A type changes only if the mapping converts it. An element is sent in the smaller of the two types: the
//!   sender converts if the target type is smaller, the receiver otherwise.
//!
//! # The proof
//!
//! [`check()`] proves exported parts, without the planner: the boxes of each buffer are disjoint and have as many elements
//! as the buffer, and both ranks of each message list the same boxes. [`Transfer::certificate`] adds the bytes of each
//! rank next to the bounds.
//!
//! # Limits
//!
//! A side has at most 2^20 tensors and ranks below 2^16. Sources hold no partial values. Tensors that a mapping requires
//! to be equal are not compared.
#![forbid(unsafe_code)]

mod binary;
mod boxes;
mod buckets;
mod certificate;
mod check;
mod class;
mod compiled;
mod copies;
mod cover;
mod dtype;
mod error;
mod extract;
mod frame;
mod hash;
mod matched;
mod merge;
mod names;
mod part;
mod part_json;
mod senders;
mod shards;
mod side;
mod transfer;

pub use certificate::{Certificate, RankBytes};
pub use check::{Coverage, check};
pub use compiled::{Commit, CompiledTransfer, TransferBuffer};
pub use error::{Error, ErrorKind};
pub use merge::Agreement;
pub use part::{BoxCopy, Loop, RankPart};
pub use side::{Side, SideTensor};
pub use transfer::{Options, Transfer};
