//! The fast copy against its definition.

use reshard_kernels::{CopySide, LoopNest, PreparedCopy, copy, copy_at, reference};
use reshard_layout::Layout;
use reshard_layout::Mode;
use reshard_test_support::{Arbitrary, Gen, properties};

/// A nest whose target is injective by construction: random extents, a random order, and gaps.
#[derive(Clone, Debug)]
struct Case {
    nest: LoopNest,
    item: usize,
    source_len: usize,
    target_len: usize,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let items = [1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 40, 300];
        let item = *g.choose(&items).unwrap();
        let count = usize::arbitrary(g) % 5;
        let extents = [1, 2, 3, 4, 5, 7, 16, 19, 33, 65, 70];
        let mut modes: Vec<Mode<(i64, i64)>> = Vec::new();
        let mut total = 1;
        for _ in 0..count {
            let extent = *g.choose(&extents).unwrap();
            if total * extent <= 6000 {
                total *= extent;
                modes.push(Mode::new(extent, (0, 0)));
            }
        }
        if bool::arbitrary(g) && bool::arbitrary(g) && bool::arbitrary(g) {
            modes.push(Mode::new(0, (1, 1)));
        }
        // Strides of one side: dense in some order, perhaps with a gap, perhaps broadcast, perhaps backwards.
        let mut strides = |repeats: bool| -> (Vec<i64>, i64) {
            let mut order: Vec<usize> = (0..modes.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, usize::arbitrary(g) % (i + 1));
            }
            let (mut stride, mut result, mut offset) =
                (1, vec![0; modes.len()], i64::from(u8::arbitrary(g) % 3));
            for k in order {
                let extent = modes[k].extent.max(1);
                if repeats && u8::arbitrary(g) % 8 == 0 {
                    continue;
                }
                result[k] = stride;
                if u8::arbitrary(g) % 6 == 0 {
                    offset += (extent - 1) * stride;
                    result[k] = -stride;
                }
                stride = stride * extent + i64::from(u8::arbitrary(g) % 4 == 0) * stride * 3;
            }
            (result, offset)
        };
        let (source, source_offset) = strides(true);
        let (target, target_offset) = strides(false);
        for (mode, strides) in modes.iter_mut().zip(source.into_iter().zip(target)) {
            mode.stride = strides;
        }
        let nest = LoopNest::new(source_offset, target_offset, modes);
        let length = |side| nest.extremes(side).unwrap().map_or(0, |(_, last)| (last as usize + 1) * item);
        let (source_len, target_len) = (length(CopySide::Source), length(CopySide::Target));
        Case { nest, item, source_len, target_len }
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

properties! {
    fn a_nest_copies_as_defined(case: Case) -> bool {
        let copy = PreparedCopy::new(&case.nest, case.item).unwrap();
        let source = bytes(case.source_len);
        let (mut fast, mut slow) = (vec![7; case.target_len + 3], vec![7; case.target_len + 3]);
        let moved = copy.run(&mut fast, &source).unwrap();
        reference::copy_nest(&mut slow, &source, &case.nest, case.item);
        assert!(copy.source_range().end == case.source_len && copy.target_range().end == case.target_len);
        moved == case.nest.len().unwrap() * case.item && moved == copy.bytes() && fast == slow
    }

    fn short_buffers_are_refused_untouched(case: Case) -> bool {
        let copy = PreparedCopy::new(&case.nest, case.item).unwrap();
        let (source, mut target) = (bytes(case.source_len), vec![7; case.target_len]);
        if copy.bytes() == 0 {
            return copy.run(&mut [], &[]) == Ok(0);
        }
        let short_source = copy.run(&mut target, &source[1..]).unwrap_err();
        let short_target = copy.run(&mut target[1..], &source).unwrap_err();
        short_source.code() == "out_of_bounds" && short_target.code() == "out_of_bounds" && target.iter().all(|b| *b == 7)
    }

    fn layouts_copy_as_defined(shape: Vec<u8>, order: Vec<u8>, item: u8) -> bool {
        let shape: Vec<i64> = shape.iter().take(4).map(|e| i64::from(e % 6) + 1).collect();
        let size: i64 = shape.iter().product();
        let row_major = Layout::row_major(&shape).unwrap();
        let mut by: Vec<usize> = (0..shape.len()).collect();
        by.sort_by_key(|k| order.get(*k).copied().unwrap_or(0));
        let (mut stride, mut modes) = (1, vec![(1, 0); shape.len()]);
        for k in by {
            modes[k] = (shape[k], stride);
            stride *= shape[k];
        }
        let permuted = Layout::from_modes(&modes).unwrap();
        let item = usize::from(item % 17) + 1;
        let source = bytes(size as usize * item);
        let (mut fast, mut slow) = (vec![0; source.len()], vec![0; source.len()]);
        copy(&mut fast, &permuted, &source, &row_major, item).unwrap();
        reference::copy(&mut slow, &permuted, &source, &row_major, item);
        fast == slow
    }
}

#[test]
fn layouts_that_do_not_nest_copy_too() {
    let (source, target): (Layout, Layout) = ("(2,3):(3,1)".parse().unwrap(), "(3,2):(2,1)".parse().unwrap());
    let data = bytes(12);
    let (mut fast, mut slow) = ([0; 12], [0; 12]);
    assert_eq!(copy(&mut fast, &target, &data, &source, 2), Ok(12));
    reference::copy(&mut slow, &target, &data, &source, 2);
    assert_eq!(fast, slow);
    assert_eq!(copy(&mut fast[..11], &target, &data, &source, 2).unwrap_err().code(), "out_of_bounds");
    let overlapping: Layout = "(3,2):(1,1)".parse().unwrap();
    assert_eq!(copy(&mut fast, &overlapping, &data, &source, 2).unwrap_err().code(), "overlap");
}

#[test]
fn large_transposes_take_the_streaming_path() {
    let whole = [(2048, 1024, 4), (4096, 2048, 1), (512, 640, 16), (1000, 1300, 4), (700, 800, 8)];
    let odd = [(1031, 2053, 2), (2063, 2053, 1), (1031, 1033, 4), (733, 739, 8), (521, 523, 16)];
    let long = [(65, 70_001, 1), (70_001, 65, 1), (17, 70_001, 4), (70_001, 17, 4), (40, 53_001, 2)];
    let short = [(7, 200_001, 4), (200_001, 7, 4), (3, 400_001, 4), (1_400_001, 3, 1), (5, 120_001, 8)];
    for (rows, columns, item) in [whole, odd, long, short].as_flattened().iter().copied() {
        // Rows of the target next to each other, and from an odd element on with gaps between them.
        for (offset, gap) in [(0, 0), (3, 5)] {
            let modes = [Mode::new(rows, (columns, 1)), Mode::new(columns, (1, rows + gap))];
            let nest = LoopNest::new(0, offset, modes);
            let source = bytes((rows * columns) as usize * item);
            let target = vec![7; (offset + columns * (rows + gap)) as usize * item];
            let (mut fast, mut slow) = (target.clone(), target);
            PreparedCopy::new(&nest, item).unwrap().run(&mut fast, &source).unwrap();
            reference::copy_nest(&mut slow, &source, &nest, item);
            assert!(fast == slow, "{rows} x {columns} of {item}, {offset} and {gap}");
        }
    }
}

#[test]
fn large_transposes_of_backward_and_repeated_rows() {
    for (item, stride) in [(1, -2113), (2, -2113), (4, 0), (16, -2113)] {
        let first = if stride < 0 { 1030 * 2113 } else { 0 };
        let nest = LoopNest::new(first, 1, [Mode::new(1031, (stride, 1)), Mode::new(2111, (1, 1035))]);
        let source = bytes(1031 * 2113 * item);
        let target = vec![7; (1 + 2111 * 1035) * item];
        let (mut fast, mut slow) = (target.clone(), target);
        PreparedCopy::new(&nest, item).unwrap().run(&mut fast, &source).unwrap();
        reference::copy_nest(&mut slow, &source, &nest, item);
        assert!(fast == slow, "{item} {stride}");
    }
}

#[test]
fn bad_requests_are_errors_that_say_why() {
    let message = |result: Result<usize, reshard_kernels::Error>| result.unwrap_err().to_string();
    let layout = |text: &str| text.parse::<Layout>().unwrap();
    let (source, mut target) = ([0; 8], [0; 8]);
    assert_eq!(
        message(copy(&mut target, &layout("(2,2):(1,1)"), &source, &layout("4:1"), 1)),
        "loops (2:1,2:1) write some element of the target more than once"
    );
    assert_eq!(
        message(copy(&mut target, &layout("4:1"), &source, &layout("4:-1"), 1)),
        "the source is accessed from byte -3 to byte 1, before its start"
    );
    assert_eq!(
        message(copy_at(&mut target, 5, &layout("4:1"), &source, 0, &layout("4:1"), 1)),
        "the target is accessed from byte 5 to byte 9 but has 8 bytes"
    );
    assert_eq!(
        message(copy(&mut target, &layout("4:1"), &source, &layout("4:1"), 0)),
        "an element has 0 bytes"
    );
    let far = layout("2:4611686018427387904");
    assert_eq!(
        message(copy(&mut target, &layout("2:1"), &source, &far, 4)),
        "a byte offset of a copy does not fit 64 bits"
    );
}
