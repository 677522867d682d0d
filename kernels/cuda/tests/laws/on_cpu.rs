//! Compares the CUDA sources with the definition, on a CPU: their reads and writes, and the positions of
//! their barriers.

use std::collections::BTreeMap;

use crate::cases::{Case, Misaligned, pattern, same, values};
use crate::emulator::{Emulator, Memory};
use reshard_cuda::{Alignment, Batch, CopyKernel, ElementOp, Program, copies, elementwise, simulate};
use reshard_kernels::{CombineOp, CopySide, DType, LoopNest, PreparedCombine, PreparedDivide, reference};
use reshard_layout::Mode;
use reshard_test_support::{Arbitrary, Sweep, property};

/// Returns the programs of one kind that are sampled in this run, among them an integer's and a float's.
///
/// Each has to be compiled with a sanitizer, which takes seconds.
pub(crate) fn looked_at(kind: impl Fn(Program) -> Option<DType>) -> impl Iterator<Item = (Program, DType)> {
    let all = Program::all().filter_map(move |program| Some((program, kind(program)?)));
    all.enumerate().filter(|(i, _)| Sweep::asked().takes_one_in(6, i + 1)).map(|(_, program)| program)
}

/// Returns the number of drawn cases to run: `cases`, or a third of them in a sample.
fn some_of(cases: usize) -> usize {
    if Sweep::asked().is_exhaustive() { cases } else { cases / 3 }
}

fn element(program: Program) -> Option<DType> {
    if let Program::Element(dtype) = program { Some(dtype) } else { None }
}

fn memory(bytes: &[u8]) -> Memory<'_> {
    Memory { shift: 0, bytes }
}

/// Runs a case in both orders of threads and compares with the definition; returns the names of the kernels.
fn check(emulator: &mut Emulator, case: &Case, alignment: Alignment) -> Vec<String> {
    let launches = copies(&case.nest, case.item, alignment).unwrap();
    let source = pattern(case.bytes(CopySide::Source), 1);
    let before = pattern(case.bytes(CopySide::Target), 2);
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
    if crate::emulator::is_missing() {
        return;
    }
    let mut emulator = Emulator::new(Program::Copy, &[]);
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let count = |used: &mut BTreeMap<String, usize>, names: Vec<String>| {
        for name in names {
            *used.entry(name).or_default() += 1;
        }
    };
    // Transposes of all element sizes around the edges of tiles, plain and batched.
    for item in [1, 2, 4, 8, 16, 12] {
        for (rows, columns) in
            [(8, 8), (16, 64), (64, 64), (65, 63), (96, 40), (32, 128), (33, 8), (129, 130)]
        {
            count(
                &mut used,
                check(
                    &mut emulator,
                    &Case::of(&[rows, columns], &[1, 0], (0, 0), (0, 0), item),
                    Alignment::FULL,
                ),
            );
        }
        count(
            &mut used,
            check(&mut emulator, &Case::of(&[3, 20, 24], &[0, 2, 1], (4, 8), (4, 16), item), Alignment::FULL),
        );
        count(
            &mut used,
            check(&mut emulator, &Case::of(&[20, 3, 24], &[2, 1, 0], (0, 0), (0, 0), item), Alignment::FULL),
        );
    }
    property!().size(30).draws(|g| {
        for i in 0..some_of(600) {
            let shift = |i: usize| [16, 16, 16, 8, 4, 2, 1][i % 7];
            let alignment = Alignment { source: shift(i), target: shift(i / 7) };
            count(&mut used, check(&mut emulator, &Case::arbitrary(g), alignment));
        }
        for i in 0..some_of(400) {
            let alignment = Alignment { source: 1 << (i % 5), target: 1 << (i / 5 % 5) };
            count(&mut used, check(&mut emulator, &Misaligned::arbitrary(g).0, alignment));
        }
        for kernel in CopyKernel::ALL {
            assert!(used.contains_key(&kernel.name()), "{kernel:?} was never chosen: {used:?}");
        }
    });
}

#[test]
fn batches_are_their_copies() {
    if crate::emulator::is_missing() {
        return;
    }
    let mut emulator = Emulator::new(Program::Copy, &[]);
    property!().size(30).draws(|g| {
        for n in (1..40).step_by(if Sweep::asked().is_exhaustive() { 1 } else { 4 }) {
            let case = |i| if i % 3 == 2 { Misaligned::arbitrary(g).0 } else { Case::arbitrary(g) };
            let cases: Vec<Case> = (0..n).map(case).collect();
            // The cases are contiguous in both buffers.
            let (mut source_at, mut target_at) = (0, 0);
            let (mut launches, mut shifted) = (Vec::new(), Vec::new());
            for case in &cases {
                let bytes = |side| (case.bytes(side) as i64 + 15) / 16 * 16;
                let mut nest = case.nest.scale(case.item).unwrap();
                if case.item > 1 {
                    nest.modes.insert(0, Mode::new(case.item as i64, (1, 1)));
                }
                nest.source_offset += source_at;
                nest.target_offset += target_at;
                (source_at, target_at) =
                    (source_at + bytes(CopySide::Source), target_at + bytes(CopySide::Target));
                launches.extend(copies(&nest, 1, Alignment::FULL).unwrap());
                shifted.push(nest);
            }
            let batch = Batch::new(launches).unwrap();
            let (source, before) = (pattern(source_at as usize, n), pattern(target_at as usize, n + 1));
            let mut want = before.clone();
            for nest in &shifted {
                reference::copy_nest(&mut want, &source, nest, 1);
            }
            let got = emulator.batch(&batch, n % 2 == 0, memory(&source), memory(&before));
            assert!(got.expect("the sanitizer objects") == want, "{cases:?}");
        }
        // More jobs than a block has threads, of one block and of several; all equal, and with one that
        // differs.
        for (n, odd) in [(1, false), (255, false), (256, true), (257, false), (300, true), (700, false)] {
            let mut nests: Vec<(usize, usize)> = Vec::new();
            let mut total = 0;
            for i in 0..n {
                let bytes = 16 * if i % 50 == 7 { 1100 } else { 1 + i % 3 };
                nests.push((total, bytes - usize::from(odd && i == n / 2)));
                total += bytes;
            }
            let (source, before) = (pattern(total, n), pattern(total, n + 1));
            let mut want = before.clone();
            let mut launches = Vec::new();
            // In reverse order in the target.
            for (from, bytes) in nests {
                let to = total - from - bytes.next_multiple_of(16);
                want[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
                let nest = LoopNest::new(from as i64, to as i64, [Mode::new(bytes as i64, (1, 1))]);
                launches.extend(copies(&nest, 1, Alignment::FULL).unwrap());
            }
            let batch = Batch::new(launches).unwrap();
            let got = emulator.batch(&batch, odd, memory(&source), memory(&before));
            assert!(got.expect("the sanitizer objects") == want, "{n} jobs");
        }
    });
}

#[test]
fn a_missing_barrier_is_found() {
    if crate::emulator::is_missing() {
        return;
    }
    let mut emulator = Emulator::new(Program::Copy, &["PLANT_MISSING_BARRIER"]);
    for item in [1, 2, 4, 8, 16] {
        let case = Case::of(&[64, 64], &[1, 0], (0, 0), (0, 0), item);
        let launches = copies(&case.nest, item, Alignment::FULL).unwrap();
        assert!(matches!(launches[0].kernel, CopyKernel::Transpose { .. }), "{launches:?}");
        let source = pattern(case.bytes(CopySide::Source), 1);
        let before = pattern(case.bytes(CopySide::Target), 2);
        let mut want = before.clone();
        reference::copy_nest(&mut want, &source, &case.nest, item);
        let wrong = [false, true].into_iter().any(|descending| {
            emulator.copy(&launches, descending, memory(&source), memory(&before)).expect("no sanitizer")
                != want
        });
        assert!(wrong, "elements of {item} bytes need no barrier?");
    }
}

#[test]
fn transposes_have_no_bank_conflicts() {
    if crate::emulator::is_missing() {
        return;
    }
    let (ours, planted) = (
        crate::emulator::worst_bank_conflicts(&[]),
        crate::emulator::worst_bank_conflicts(&["PLANT_BANK_CONFLICTS"]),
    );
    for kernel in CopyKernel::ALL {
        let transposes = matches!(kernel, CopyKernel::Transpose { .. });
        assert_eq!(ours[&kernel.name()], usize::from(transposes), "{kernel:?}");
        // The planted tiles have no padding between their rows.
        assert_eq!(planted[&kernel.name()] > 1, transposes, "{kernel:?}");
    }
}

/// Returns the operations of a dtype, with one norm for each algorithm.
fn all_of(dtype: DType) -> Vec<CombineOp> {
    let all =
        CombineOp::ALL.into_iter().chain(CombineOp::NORMS).chain([CombineOp::Norm("0.5".parse().unwrap())]);
    all.filter(|op| dtype.check_combine(*op).is_ok()).collect()
}

#[test]
fn combinations_are_those_of_the_host_bit_for_bit() {
    if crate::emulator::is_missing() {
        return;
    }
    for (program, dtype) in looked_at(element) {
        let mut emulator = Emulator::new(program, &[]);
        // A dense run, rows with gaps, and a transpose.
        let nests = [
            LoopNest::new(0, 0, [Mode::new(3000, (1, 1))]),
            LoopNest::new(3, 1, [Mode::new(33, (1, 1)), Mode::new(20, (40, 37))]),
            LoopNest::new(0, 0, [Mode::new(40, (30, 1)), Mode::new(30, (1, 40))]),
        ];
        for nest in &nests {
            let size = |side| nest.extremes(side).unwrap().unwrap().1 as usize + 1;
            let (source, before) =
                (values(dtype, size(CopySide::Source), 1), values(dtype, size(CopySide::Target), 2));
            for op in all_of(dtype) {
                let mut want = before.clone();
                PreparedCombine::new(nest, dtype, op).unwrap().run(&mut want, &source).unwrap();
                for l in elementwise(nest, dtype, ElementOp::Combine(op), Alignment::FULL).unwrap() {
                    let name = l.kernel.name();
                    let got = emulator.run(
                        &name,
                        l.blocks,
                        false,
                        l.kernel.exponent().unwrap_or(0.0),
                        bytemuck::bytes_of(&l.job),
                        &[],
                        memory(&source),
                        memory(&before),
                    );
                    let got = got.expect("the sanitizer objects");
                    assert!(same(dtype, &got, &want), "{dtype} {op} {nest:?}");
                }
            }
            if dtype.check_average().is_ok() {
                for divisor in [1, 2, 3, 7, 1000] {
                    let mut want = before.clone();
                    PreparedDivide::new(nest, dtype, divisor).unwrap().run(&mut want).unwrap();
                    for l in elementwise(nest, dtype, ElementOp::Divide, Alignment::FULL).unwrap() {
                        let (name, by) = (l.kernel.name(), divisor as f64);
                        let got = emulator.run(
                            &name,
                            l.blocks,
                            false,
                            by,
                            bytemuck::bytes_of(&l.job),
                            &[],
                            memory(&[]),
                            memory(&before),
                        );
                        let got = got.expect("the sanitizer objects");
                        assert!(same(dtype, &got, &want), "{dtype} / {divisor} {nest:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn reductions_are_those_of_the_host_bit_for_bit() {
    if crate::emulator::is_missing() {
        return;
    }
    for (program, dtype) in looked_at(element) {
        let item = dtype.element_bytes().unwrap();
        let mut emulator = Emulator::new(program, &[]);
        // Partial values of 1200 elements at consecutive offsets; a run, and rows.
        for (nest, terms) in [
            (LoopNest::new(0, 0, [Mode::new(1200, (1, 1))]), 5),
            (LoopNest::new(3, 1, [Mode::new(33, (1, 1)), Mode::new(20, (40, 37))]), 3),
            (LoopNest::new(0, 0, [Mode::new(40, (30, 1)), Mode::new(30, (1, 40))]), 1),
        ] {
            let all: Vec<Vec<u8>> = (0..terms).map(|t| values(dtype, 1200, t)).collect();
            let bases: Vec<i64> = (0..terms).map(|t| (t * 1200 * item) as i64).collect();
            let size = nest.extremes(CopySide::Target).unwrap().unwrap().1 as usize + 1;
            let before = values(dtype, size, 9);
            let divisors = if dtype.check_average().is_ok() { vec![1, 6] } else { vec![1] };
            for (op, divisor) in
                all_of(dtype).into_iter().flat_map(|op| divisors.iter().map(move |d| (op, *d)))
            {
                if op.is_of_floats() && divisor > 1 {
                    continue;
                }
                let mut want = before.clone();
                reference::copy_nest(&mut want, &all[0], &nest, item);
                for term in &all[1..] {
                    PreparedCombine::new(&nest, dtype, op).unwrap().run(&mut want, term).unwrap();
                }
                if divisor > 1 {
                    PreparedDivide::new(&nest, dtype, divisor).unwrap().run(&mut want).unwrap();
                }
                for l in elementwise(&nest, dtype, ElementOp::Reduce(op), Alignment::FULL).unwrap() {
                    let (source, by) = (all.concat(), l.kernel.exponent().unwrap_or(divisor as f64));
                    let name = l.kernel.name();
                    let got = emulator
                        .run(
                            &name,
                            l.blocks,
                            false,
                            by,
                            bytemuck::bytes_of(&l.job),
                            &bases,
                            memory(&source),
                            memory(&before),
                        )
                        .expect("the sanitizer objects");
                    assert!(same(dtype, &got, &want), "{dtype} {op} {nest:?}");
                    // The simulation has the same result.
                    let mut arena: Vec<u8> = [source, before.clone()].concat();
                    let mut job = l.job;
                    job.target += (arena.len() - before.len()) as i64;
                    simulate::elementwise(&mut arena, l.kernel, &job, &bases, divisor).unwrap();
                    assert!(same(dtype, &arena[arena.len() - want.len()..], &want), "{dtype} {op} {nest:?}");
                }
            }
        }
    }
}

#[test]
fn simulated_copies_are_the_definition() {
    property!().size(30).draws(|g| {
        for i in 0..some_of(2000) {
            let case = if i % 4 == 3 { Misaligned::arbitrary(g).0 } else { Case::arbitrary(g) };
            let source = pattern(case.bytes(CopySide::Source), 1);
            let before = pattern(case.bytes(CopySide::Target), 2);
            let mut want = before.clone();
            reference::copy_nest(&mut want, &source, &case.nest, case.item);
            let start = source.len().next_multiple_of(16);
            let mut arena = source.clone();
            arena.resize(start, 0);
            arena.extend(&before);
            for l in copies(&case.nest, case.item, Alignment::FULL).unwrap() {
                let mut job = l.job;
                job.target += start as i64;
                simulate::copy(&mut arena, &job).unwrap();
            }
            assert!(arena[start..] == want, "{case:?}");
        }
    });
}
