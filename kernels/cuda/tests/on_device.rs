//! Compares the kernels on a device with the definition. Skips with a note if there is no device.
#![cfg(feature = "cuda")]

#[path = "laws/cases/mod.rs"]
mod cases;

use cases::{Case, Misaligned, pattern, same, values};
use reshard_cuda::{Device, DeviceBatch, DeviceCombine, DeviceCopy, DeviceDraw, Program};
use reshard_kernels::random::{Draw, Generator, IndexRun, Key, fill};
use reshard_kernels::{CombineOp, CopySide, LoopNest, PreparedCombine, PreparedDivide, reference};
use reshard_layout::Mode;
use reshard_test_support::{Arbitrary, Gen, property};

fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(e) => {
            assert!(std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "{e}");
            assert!(!e.to_string().is_empty());
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

/// Cases of all kinds.
fn random(g: &mut Gen, count: usize) -> Vec<Case> {
    let case = |i: usize| if i % 4 == 3 { Misaligned::arbitrary(g).0 } else { Case::arbitrary(g) };
    (0..count).map(case).collect()
}

#[test]
fn copies_are_the_definition() {
    let Some(device) = device() else { return };
    property!().size(30).draws(|g| {
        let edges = [1, 2, 4, 8, 16, 12].into_iter().flat_map(|item| {
            [(8, 8), (64, 64), (65, 63), (96, 40), (1000, 513), (512, 2048)]
                .map(|(rows, columns)| Case::of(&[rows, columns], &[1, 0], (0, 0), (0, 0), item))
        });
        for case in edges.chain(random(g, 4000)) {
            let source = pattern(case.bytes(CopySide::Source), 1);
            let before = pattern(case.bytes(CopySide::Target), 2);
            let mut want = before.clone();
            reference::copy_nest(&mut want, &source, &case.nest, case.item);
            let copy = DeviceCopy::new(&case.nest, case.item).unwrap();
            let (source, mut target) = (device.upload(&source).unwrap(), device.upload(&before).unwrap());
            copy.run(&device, &mut target, &source).unwrap();
            let got = device.download(&target).unwrap();
            assert!(got[..want.len()] == want, "{case:?} {:?}", copy.launches());
        }
    });
}

#[test]
fn batches_are_their_copies() {
    let Some(device) = device() else { return };
    property!().size(30).draws(|g| {
        for n in 1..100 {
            let (mut source_at, mut target_at) = (0, 0);
            let mut nests = Vec::new();
            for case in random(g, n) {
                let bytes = |side| (case.bytes(side) as i64 + 15) / 16 * 16;
                let mut nest = case.nest.scale(case.item).unwrap();
                nest.modes.insert(0, Mode::new(case.item as i64, (1, 1)));
                nest.source_offset += source_at;
                nest.target_offset += target_at;
                (source_at, target_at) =
                    (source_at + bytes(CopySide::Source), target_at + bytes(CopySide::Target));
                nests.push(nest);
            }
            let (source, before) = (pattern(source_at as usize, n), pattern(target_at as usize, n + 1));
            let mut want = before.clone();
            for nest in &nests {
                reference::copy_nest(&mut want, &source, nest, 1);
            }
            let batch = DeviceBatch::new(&device, &nests, 1).unwrap();
            let (source, mut target) = (device.upload(&source).unwrap(), device.upload(&before).unwrap());
            batch.run(&device, &mut target, &source).unwrap();
            assert!(device.download(&target).unwrap()[..want.len()] == want, "{nests:?}");
        }
    });
}

#[test]
fn combinations_are_those_of_the_host_bit_for_bit() {
    let Some(device) = device() else { return };
    for program in Program::all() {
        let Program::Element(dtype) = program else { continue };
        for nest in [
            LoopNest::new(0, 0, [Mode::new(300_000, (1, 1))]),
            LoopNest::new(3, 1, [Mode::new(33, (1, 1)), Mode::new(20, (40, 37))]),
            LoopNest::new(0, 0, [Mode::new(400, (300, 1)), Mode::new(300, (1, 400))]),
        ] {
            let size = |side| nest.extremes(side).unwrap().unwrap().1 as usize + 1;
            let (source, before) =
                (values(dtype, size(CopySide::Source), 1), values(dtype, size(CopySide::Target), 2));
            let on_device = device.upload(&source).unwrap();
            let run = |combine: DeviceCombine| {
                let mut target = device.upload(&before).unwrap();
                combine.run(&device, &mut target, &on_device).unwrap();
                device.download(&target).unwrap()
            };
            let all = CombineOp::ALL.into_iter().chain(CombineOp::NORMS);
            for op in all.filter(|op| dtype.check_combine(*op).is_ok()) {
                let mut want = before.clone();
                PreparedCombine::new(&nest, dtype, op).unwrap().run(&mut want, &source).unwrap();
                let got = run(DeviceCombine::new(&nest, dtype, op).unwrap());
                assert!(same(dtype, &got, &want), "{dtype} {op} {nest:?}");
            }
            for divisor in [1, 2, 3, 7, 1000].into_iter().filter(|_| dtype.check_average().is_ok()) {
                let mut want = before.clone();
                PreparedDivide::new(&nest, dtype, divisor).unwrap().run(&mut want).unwrap();
                let got = run(DeviceCombine::divide(&nest, dtype, divisor).unwrap());
                assert!(same(dtype, &got, &want), "{dtype} / {divisor} {nest:?}");
            }
        }
    }
}

#[test]
fn drawn_elements_are_those_of_the_host_bit_for_bit() {
    let Some(device) = device() else { return };
    // A column of [100000,3], drawn with the same values as the whole.
    let (shape, rows) = ([100_000, 3], 100_000usize);
    let nest = LoopNest::new(1, 0, [Mode::new(rows as i64, (3, 1))]);
    let column = [IndexRun { start: 1, len: rows as u64, stride: 3 }];
    let draws = Draw::STANDARD.into_iter().chain([
        Draw::Uniform { low: -0.3, high: 2.7 },
        Draw::Normal { mean: -2.0, std: 0.75 },
        Draw::RandInt { low: 3, high: 101 },
    ]);
    for (draw, program) in draws.flat_map(|draw| Program::all().map(move |program| (draw, program))) {
        let Program::Random(dtype) = program else { continue };
        for generator in Generator::ALL {
            let key = Key::with(generator, 7).fold_in(1);
            let Ok(drawn) = DeviceDraw::new(&nest, &key, draw, dtype) else { continue };
            let mut want = vec![0; rows * dtype.element_bytes().unwrap()];
            fill(&key, draw, dtype, &mut want, &shape, column).unwrap();
            let mut target = device.allocate(want.len()).unwrap();
            drawn.run(&device, &mut target).unwrap();
            let got = device.download(&target).unwrap();
            assert!(got[..want.len()] == want, "{key} {draw} {dtype}");
        }
    }
}

#[test]
fn a_buffer_that_is_too_short_is_refused() {
    let Some(device) = device() else { return };
    let copy = DeviceCopy::new(&LoopNest::new(0, 0, [Mode::new(100, (1, 1))]), 4).unwrap();
    let (source, mut target) = (device.allocate(400).unwrap(), device.allocate(399).unwrap());
    assert_eq!(copy.run(&device, &mut target, &source).unwrap_err().code(), "out_of_bounds");
}

/// Without a device, the result is an error of one line, not a panic.
#[test]
fn what_is_missing_is_said() {
    if let Err(e) = Device::open(0) {
        assert!(matches!(e.code(), "library" | "driver"), "{e}");
        assert!(!e.to_string().contains('\n'), "{e}");
    }
}
