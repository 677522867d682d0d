//! The checkpoint of a run without an input: one small transformer block, made by code from a seed.
//!
//! It covers the interesting cases: a vocabulary that no mesh divides, matrices, vectors and a scalar, and
//! two element types. The values are uniform noise, so that every misplaced block is detected.

use half::bf16;
use safetensors::Dtype;

use crate::bytes::Bytes;
use crate::model::checkpoint::{Checkpoint, Data, Origin, Tensor};
use crate::model::stored::FreeTexts;

const SEED: u64 = 0x5eed;
const VOCABULARY: usize = 2003;
const MODEL: usize = 256;
const HIDDEN: usize = 1024;

/// The block: about 4 MB in 18 tensors.
pub(crate) fn checkpoint() -> Checkpoint {
    let matrices = [
        ("embedding.weight", Dtype::F32, vec![VOCABULARY, MODEL]),
        ("attention.query.weight", Dtype::BF16, vec![MODEL, MODEL]),
        ("attention.key.weight", Dtype::BF16, vec![MODEL, MODEL]),
        ("attention.value.weight", Dtype::BF16, vec![MODEL, MODEL]),
        ("attention.output.weight", Dtype::BF16, vec![MODEL, MODEL]),
        ("mlp.up.weight", Dtype::BF16, vec![HIDDEN, MODEL]),
        ("mlp.down.weight", Dtype::BF16, vec![MODEL, HIDDEN]),
    ];
    let vectors = [
        ("attention.query.bias", Dtype::BF16, vec![MODEL]),
        ("attention.key.bias", Dtype::BF16, vec![MODEL]),
        ("attention.value.bias", Dtype::BF16, vec![MODEL]),
        ("attention.output.bias", Dtype::BF16, vec![MODEL]),
        ("attention.norm.weight", Dtype::F32, vec![MODEL]),
        ("attention.norm.bias", Dtype::F32, vec![MODEL]),
        ("mlp.up.bias", Dtype::BF16, vec![HIDDEN]),
        ("mlp.down.bias", Dtype::BF16, vec![MODEL]),
        ("mlp.norm.weight", Dtype::F32, vec![MODEL]),
        ("mlp.norm.bias", Dtype::F32, vec![MODEL]),
        ("scale", Dtype::F32, vec![]),
    ];
    let mut noise = Noise(SEED);
    let tensors = matrices
        .into_iter()
        .chain(vectors)
        .map(|(name, dtype, shape)| {
            let elements = shape.iter().product();
            let bytes = if dtype == Dtype::BF16 {
                noise
                    .take(elements)
                    .flat_map(|value| bf16::from_f32(value).to_le_bytes())
                    .collect::<Vec<u8>>()
            } else {
                noise.take(elements).flat_map(f32::to_le_bytes).collect()
            };
            Tensor {
                name: name.to_owned(),
                path: None,
                dtype,
                stored: dtype,
                shape,
                data: Data::Whole(Bytes::from(bytes)),
                sums: Vec::new(),
                parts: None,
            }
        })
        .collect();
    let mut free_texts = FreeTexts::new();
    free_texts.insert("made_by".to_owned(), "reshard".to_owned());
    Checkpoint::of_tensors(tensors, Origin::Embedded, Some(free_texts))
}

/// `SplitMix64`, as numbers in [-1, 1).
struct Noise(u64);

impl Noise {
    fn take(&mut self, count: usize) -> impl Iterator<Item = f32> + use<'_> {
        (0..count).map(|_| {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            (z >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
    }
}
