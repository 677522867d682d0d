//! The CUDA sources against the definition, on a CPU: what they read and write, and that their barriers are where they
//! must be.

mod emulator;

use std::collections::BTreeMap;

use emulator::{Emulator, Memory};
use quickcheck::{Arbitrary, Gen};
use reshard_cuda::{Alignment, CopyKernel, ElementOp, Program, batch, copies, elementwise};
use reshard_kernels::{Combine, CombineOp, DType, Divide, Loop, Nest, Side, reference};

/// A nest whose target is injective, drawn as a permuted box with gaps, and an element size.
#[derive(Clone, Debug)]
struct Case {
    nest: Nest,
    item: usize,
}

impl Case {
    /// Extents of a box, an order of its dims in the target, gaps behind rows on both sides, and offsets.
    fn of(extents: &[usize], order: &[usize], gaps: (usize, usize), offsets: (i64, i64), item: usize) -> Case {
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
        let loops = extents.iter().zip(source.iter().zip(&target)).map(|(&e, (&s, &t))| Loop::new(e, s, t));
        Case { nest: Nest::new(offsets.0, offsets.1, loops), item }
    }

    fn bytes(&self, side: Side) -> usize {
        let last = self.nest.extremes(side).unwrap().map_or(0, |(_, last)| last + 1);
        last as usize * self.item
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
        // Sometimes a loop runs backwards in the source, or reads one element again and again.
        let i = usize::arbitrary(g) % dims;
        match u8::arbitrary(g) % 8 {
            0 => {
                let l = &mut case.nest.loops[i];
                case.nest.source_offset += l.source_stride * (l.extent as i64 - 1);
                l.source_stride = -l.source_stride;
            }
            1 => case.nest.loops[i].source_stride = 0,
            _ => {}
        }
        case
    }
}

fn memory(bytes: &[u8]) -> Memory<'_> {
    Memory { shift: 0, bytes }
}

fn pattern(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| ((i * 2_654_435_761 + seed * 40503) >> 7) as u8).collect()
}

/// Runs a case in both orders of threads and compares with the definition; the names of the kernels.
fn check(emulator: &mut Emulator, case: &Case, alignment: Alignment) -> Vec<String> {
    let launches = copies(&case.nest, case.item, alignment).unwrap();
    let source = pattern(case.bytes(Side::Source), 1);
    let before = pattern(case.bytes(Side::Target), 2);
    let mut want = before.clone();
    reference::copy_nest(&mut want, &source, &case.nest, case.item);
    for descending in [false, true] {
        let source = Memory { shift: alignment.source % 16, bytes: &source };
        let target = Memory { shift: alignment.target % 16, bytes: &before };
        let got = emulator.copy(&launches, descending, source, target);
        let got = got.unwrap_or_else(|| panic!("the sanitizer objects to {case:?} {launches:?}"));
        assert!(got == want, "{case:?} {launches:?}");
    }
    launches.iter().map(|l| l.kernel.name()).collect()
}

#[test]
fn copies_are_the_definition() {
    let mut emulator = Emulator::new(Program::Copy, &[]);
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |names: Vec<String>| names.into_iter().for_each(|n| *used.entry(n).or_default() += 1);
    // Transposes of all element sizes around the edges of tiles, plain and batched.
    for item in [1, 2, 4, 8, 16, 12] {
        for (rows, columns) in [(8, 8), (16, 64), (64, 64), (65, 63), (96, 40), (32, 128), (33, 8), (129, 130)] {
            count(check(&mut emulator, &Case::of(&[rows, columns], &[1, 0], (0, 0), (0, 0), item), Alignment::FULL));
        }
        count(check(&mut emulator, &Case::of(&[3, 20, 24], &[0, 2, 1], (4, 8), (4, 16), item), Alignment::FULL));
        count(check(&mut emulator, &Case::of(&[20, 3, 24], &[2, 1, 0], (0, 0), (0, 0), item), Alignment::FULL));
    }
    let mut g = Gen::new(30);
    for i in 0..600 {
        let shift = |i: usize| [16, 16, 16, 8, 4, 2, 1][i % 7];
        let alignment = Alignment { source: shift(i), target: shift(i / 7) };
        count(check(&mut emulator, &Case::arbitrary(&mut g), alignment));
    }
    for kernel in CopyKernel::ALL {
        assert!(used.contains_key(&kernel.name()), "{kernel:?} was never chosen: {used:?}");
    }
}

#[test]
fn batches_are_their_copies() {
    let mut emulator = Emulator::new(Program::Copy, &[]);
    let mut g = Gen::new(30);
    for n in 1..40 {
        let cases: Vec<Case> = (0..n).map(|_| Case::arbitrary(&mut g)).collect();
        // One after the other in both buffers.
        let (mut source_at, mut target_at) = (0, 0);
        let (mut launches, mut shifted) = (Vec::new(), Vec::new());
        for case in &cases {
            let bytes = |side| (case.bytes(side) as i64 + 15) / 16 * 16;
            let mut nest = case.nest.scale(case.item).unwrap();
            if case.item > 1 {
                nest.loops.push(Loop::new(case.item, 1, 1));
            }
            nest.source_offset += source_at;
            nest.target_offset += target_at;
            (source_at, target_at) = (source_at + bytes(Side::Source), target_at + bytes(Side::Target));
            launches.extend(copies(&nest, 1, Alignment::FULL).unwrap());
            shifted.push(nest);
        }
        let (jobs, blocks) = batch(launches).unwrap();
        let (source, before) = (pattern(source_at as usize, n), pattern(target_at as usize, n + 1));
        let mut want = before.clone();
        for nest in &shifted {
            reference::copy_nest(&mut want, &source, nest, 1);
        }
            let got = emulator.run("copy_jobs", blocks, n % 2 == 0, 0.0, &jobs, memory(&source), memory(&before));
        assert!(got.expect("the sanitizer objects") == want, "{cases:?}");
    }
}

#[test]
fn a_missing_barrier_is_found() {
    let mut emulator = Emulator::new(Program::Copy, &["PLANT_MISSING_BARRIER"]);
    for item in [1, 2, 4, 8, 16] {
        let case = Case::of(&[64, 64], &[1, 0], (0, 0), (0, 0), item);
        let launches = copies(&case.nest, item, Alignment::FULL).unwrap();
        assert!(matches!(launches[0].kernel, CopyKernel::Transpose { .. }), "{launches:?}");
        let source = pattern(case.bytes(Side::Source), 1);
        let before = pattern(case.bytes(Side::Target), 2);
        let mut want = before.clone();
        reference::copy_nest(&mut want, &source, &case.nest, item);
        let wrong = [false, true].into_iter().any(|descending| {
            emulator.copy(&launches, descending, memory(&source), memory(&before)).expect("no sanitizer") != want
        });
        assert!(wrong, "elements of {item} bytes need no barrier?");
    }
}

/// Values of every kind for a dtype: random bits, and of floats zeros, infinities, NaN, subnormal and great ones.
fn values(dtype: DType, n: usize, seed: usize) -> Vec<u8> {
    let item = dtype.item_bytes().unwrap();
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
    // Every special value beside every other one.
    for (i, x) in bytes.chunks_exact_mut(item).enumerate().take(special.len() * special.len()) {
        let at = if seed % 2 == 0 { i / special.len() } else { i % special.len() };
        x.copy_from_slice(&special[at]);
    }
    bytes
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

#[test]
fn combinations_are_those_of_the_host_bit_for_bit() {
    for program in Program::all() {
        let Program::Element(dtype) = program else { continue };
        let item = dtype.item_bytes().unwrap();
        let mut emulator = Emulator::new(program, &[]);
        let same = |got: &[u8], want: &[u8]| {
            got.chunks(item).zip(want.chunks(item)).all(|(a, b)| a == b || is_nan(dtype, a) && is_nan(dtype, b))
        };
        // A dense run, rows with gaps, and a transpose.
        let nests = [
            Nest::new(0, 0, [Loop::new(3000, 1, 1)]),
            Nest::new(3, 1, [Loop::new(20, 40, 37), Loop::new(33, 1, 1)]),
            Nest::new(0, 0, [Loop::new(30, 1, 40), Loop::new(40, 30, 1)]),
        ];
        for nest in &nests {
            let size = |side| nest.extremes(side).unwrap().unwrap().1 as usize + 1;
            let (source, before) = (values(dtype, size(Side::Source), 1), values(dtype, size(Side::Target), 2));
            for op in CombineOp::ALL {
                let mut want = before.clone();
                Combine::new(nest, dtype, op).unwrap().run(&mut want, &source).unwrap();
                for l in elementwise(nest, dtype, ElementOp::Combine(op), Alignment::FULL).unwrap() {
                    let name = l.kernel.name();
                    let got = emulator.run(&name, l.blocks, false, 0.0, &[l.job], memory(&source), memory(&before));
                    let got = got.expect("the sanitizer objects");
                    assert!(same(&got, &want), "{dtype} {op} {nest:?}");
                }
            }
            if dtype.check_average().is_ok() {
                for divisor in [1, 2, 3, 7, 1000] {
                    let mut want = before.clone();
                    Divide::new(nest, dtype, divisor).unwrap().run(&mut want).unwrap();
                    for l in elementwise(nest, dtype, ElementOp::Divide, Alignment::FULL).unwrap() {
                        let (name, by) = (l.kernel.name(), divisor as f64);
                        let got = emulator.run(&name, l.blocks, false, by, &[l.job], memory(&[]), memory(&before));
                        let got = got.expect("the sanitizer objects");
                        assert!(same(&got, &want), "{dtype} / {divisor} {nest:?}");
                    }
                }
            }
        }
    }
}
