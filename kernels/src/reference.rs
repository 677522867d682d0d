//! Reference definitions of the kernels: short, slow, and compared with the fast ones by the tests.

use reshard_layout::Layout;

use crate::{CombineOp, LoopNest};

/// Copies `target(i) = source(i)` for every index `i` of the two layouts, in elements of `item_bytes` bytes.
///
/// Requires layouts of equal size whose values are within the buffers; panics otherwise, being a definition
/// for tests.
pub fn copy(dst: &mut [u8], dst_layout: &Layout, src: &[u8], src_layout: &Layout, item_bytes: usize) {
    for (to, from) in dst_layout.values().zip(src_layout.values()) {
        for byte in 0..item_bytes {
            dst[to as usize * item_bytes + byte] = src[from as usize * item_bytes + byte];
        }
    }
}

/// Copies the pairs of a nest.
///
/// Requires offsets within the buffers; panics otherwise.
pub fn copy_nest(dst: &mut [u8], src: &[u8], nest: &LoopNest, item_bytes: usize) {
    for (from, to) in pairs(nest) {
        let (from, to) = (from as usize * item_bytes, to as usize * item_bytes);
        dst[to..to + item_bytes].copy_from_slice(&src[from..from + item_bytes]);
    }
}

/// Returns all (source, target) pairs of a nest in order, the leftmost mode fastest.
pub fn pairs(nest: &LoopNest) -> Vec<(i64, i64)> {
    let start = vec![(nest.source_offset, nest.target_offset)];
    nest.modes.iter().rev().fold(start, |pairs, mode| {
        let step = |(s, t)| (0..mode.extent).map(move |i| (s + i * mode.stride.0, t + i * mode.stride.1));
        pairs.into_iter().flat_map(step).collect()
    })
}

/// Returns `a op b` on real numbers with NaN, which every floating-point dtype computes and then rounds.
///
/// NaN takes precedence; -0.0 is below 0.0.
pub fn combine_f64(a: f64, b: f64, op: CombineOp) -> f64 {
    match op {
        CombineOp::Sum => a + b,
        CombineOp::Prod => a * b,
        CombineOp::Min | CombineOp::Max | CombineOp::Norm(_) if a.is_nan() || b.is_nan() => f64::NAN,
        CombineOp::Min => {
            if a.total_cmp(&b).is_le() {
                a
            } else {
                b
            }
        }
        CombineOp::Max => {
            if a.total_cmp(&b).is_ge() {
                a
            } else {
                b
            }
        }
        CombineOp::Norm(p) => {
            let (p, a, b) = (p.value(), a.abs(), b.abs());
            let most = a.max(b);
            if most == 0.0 || most.is_infinite() || p.is_infinite() {
                most
            } else {
                most * ((a / most).powf(p) + (b / most).powf(p)).powf(1.0 / p)
            }
        }
    }
}

/// Returns `a op b` on integers, to be truncated to the dtype's width by the caller.
///
/// Integers have no norms: for these it is the magnitude of `a`.
pub fn combine_int(a: i128, b: i128, op: CombineOp) -> i128 {
    match op {
        CombineOp::Sum => a.wrapping_add(b),
        CombineOp::Prod => a.wrapping_mul(b),
        CombineOp::Min => a.min(b),
        CombineOp::Max => a.max(b),
        CombineOp::Norm(_) => a.abs(),
    }
}
