//! Test data of the kernels, with or without a device: nests, bytes and values.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::wildcard_enum_match_arm, reason = "all dtypes other than floats are handled in one arm")]

use reshard_kernels::{CopySide, DType, LoopNest};
use reshard_layout::Mode;
use reshard_test_support::{Arbitrary, Gen};

/// A nest whose target is injective, drawn as a permuted box with gaps, and an element size.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) nest: LoopNest,
    pub(crate) item: usize,
}

impl Case {
    /// Creates a case of a box, the order of its dims in the target, gaps after rows, and offsets.
    pub(crate) fn of(
        extents: &[usize],
        order: &[usize],
        gaps: (usize, usize),
        offsets: (i64, i64),
        item: usize,
    ) -> Case {
        let strides = |order: &mut dyn Iterator<Item = usize>, gap: usize| {
            let mut stride = 1i64;
            let mut out = vec![0; extents.len()];
            for dim in order {
                out[dim] = stride;
                stride = stride * extents[dim] as i64 + gap as i64;
            }
            out
        };
        let source = strides(&mut (0..extents.len()).rev(), gaps.0);
        let target = strides(&mut order.iter().rev().copied(), gaps.1);
        let modes = extents.iter().zip(source.into_iter().zip(target));
        let modes = modes.rev().map(|(&extent, strides)| Mode::new(extent as i64, strides));
        Case { nest: LoopNest::new(offsets.0, offsets.1, modes), item }
    }

    /// Returns the bytes that it needs of a buffer.
    pub(crate) fn bytes(&self, side: CopySide) -> usize {
        let last = self.nest.extremes(side).unwrap().map_or(0, |(_, last)| last + 1);
        last as usize * self.item
    }
}

/// Rows of bytes or pairs of bytes at any offset, like the remainders of uneven dims.
#[derive(Clone, Debug)]
pub(crate) struct Misaligned(pub(crate) Case);

impl Arbitrary for Misaligned {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut below = |n: usize| usize::arbitrary(g) % n;
        let item = 1 + below(2);
        let (rows, run) = (1 + below(5), 64 / item + below(300));
        let gaps = (below(20), below(20));
        let offsets = (below(20) as i64, below(20) as i64);
        let mut case = Case::of(&[rows, run], &[0, 1], gaps, offsets, item);
        if below(4) == 0 {
            // The last row first.
            backwards(&mut case.nest, 1);
        }
        Misaligned(case)
    }
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let dims = 1 + usize::arbitrary(g) % 4;
        let mut extents: Vec<usize> = (0..dims)
            .map(|_| *g.choose(&[1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33, 64, 70]).unwrap())
            .collect();
        while extents.iter().product::<usize>() > 6000 {
            let i = usize::arbitrary(g) % dims;
            extents[i] = extents[i].div_ceil(2);
        }
        let mut order: Vec<usize> = (0..dims).collect();
        for i in (1..dims).rev() {
            order.swap(i, usize::arbitrary(g) % (i + 1));
        }
        let gap = |g: &mut Gen| *g.choose(&[0, 0, 0, 1, 4, 8]).unwrap();
        let offset = |g: &mut Gen| *g.choose(&[0, 0, 0, 1, 2, 16]).unwrap();
        let gaps = (gap(g), gap(g));
        let offsets = (offset(g), offset(g));
        let item = *g.choose(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16]).unwrap();
        let mut case = Case::of(&extents, &order, gaps, offsets, item);
        // Sometimes a mode runs backwards in the source, or reads one element repeatedly.
        let i = usize::arbitrary(g) % dims;
        match u8::arbitrary(g) % 8 {
            0 => backwards(&mut case.nest, i),
            1 => case.nest.modes[i].stride.0 = 0,
            _ => {}
        }
        case
    }
}

/// Reverses a mode in the source.
fn backwards(nest: &mut LoopNest, at: usize) {
    let mode = &mut nest.modes[at];
    nest.source_offset += mode.stride.0 * (mode.extent - 1);
    mode.stride.0 = -mode.stride.0;
}

pub(crate) fn pattern(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| ((i * 2_654_435_761 + seed * 40503) >> 7) as u8).collect()
}

/// Returns values of every kind for a dtype: random bits, and for floats zeros, infinities, NaN and extremes.
pub(crate) fn values(dtype: DType, n: usize, seed: usize) -> Vec<u8> {
    let item = dtype.element_bytes().unwrap();
    let mut bytes = pattern(n * item, seed);
    let special: Vec<Vec<u8>> = match dtype {
        DType::F16 => [0u16, 0x8000, 0x7c00, 0xfc00, 0x7e00, 1, 0x83ff, 0x7bff, 0x3c00, 0x0400]
            .map(|x| x.to_ne_bytes().to_vec())
            .to_vec(),
        DType::BF16 => [0u16, 0x8000, 0x7f80, 0xff80, 0x7fc0, 1, 0x807f, 0x7f7f, 0x3f80, 0x0080]
            .map(|x| x.to_ne_bytes().to_vec())
            .to_vec(),
        DType::F32 => [0.0f32, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX, 1.0]
            .map(|x| x.to_ne_bytes().to_vec())
            .to_vec(),
        DType::F64 => [0.0f64, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, f64::MAX, 1.0]
            .map(|x| x.to_ne_bytes().to_vec())
            .to_vec(),
        _ => Vec::new(),
    };
    // Every special value with every other one.
    for (i, x) in bytes.chunks_exact_mut(item).enumerate().take(special.len() * special.len()) {
        let at = if seed.is_multiple_of(2) { i / special.len() } else { i % special.len() };
        x.copy_from_slice(&special[at]);
    }
    bytes
}

/// Returns `true` if all values are the same to the bit, or both NaN.
pub(crate) fn same(dtype: DType, got: &[u8], want: &[u8]) -> bool {
    let item = dtype.element_bytes().unwrap();
    let pairs = got.chunks(item).zip(want.chunks(item));
    got.len() >= want.len() && pairs.into_iter().all(|(a, b)| a == b || is_nan(dtype, a) && is_nan(dtype, b))
}

fn is_nan(dtype: DType, x: &[u8]) -> bool {
    let half = || u16::from_ne_bytes([x[0], x[1]]) & 0x7fff;
    match dtype {
        DType::F16 => half() > 0x7c00,
        DType::BF16 => half() > 0x7f80,
        DType::F32 => f32::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        DType::F64 => f64::from_ne_bytes(x.try_into().unwrap()).is_nan(),
        _ => false,
    }
}
