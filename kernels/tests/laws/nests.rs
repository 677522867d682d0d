//! Properties of nests, compared with merging and splitting written out loop by loop, slowest first.

use reshard_kernels::{Error, LoopNest, reference};
use reshard_layout::Layout;
use reshard_layout::Mode;
use reshard_test_support::{Arbitrary, Gen, TestResult, properties, property};

/// Extent, source stride, target stride.
type Triple = (i128, i128, i128);

/// Returns the merged loops, by the definition: slowest first, without loops of one iteration.
///
/// They ascend in the target and are sorted by strides, the greatest first; a loop that starts over where the
/// next one ends is merged with it.
fn merged(nest: &LoopNest) -> (i64, i64, Vec<Triple>) {
    let (mut source, mut target) = (nest.source_offset, nest.target_offset);
    let mut loops: Vec<Triple> = Vec::new();
    for mode in nest.modes.iter().rev() {
        let (extent, (mut s, mut t)) = (mode.extent, mode.stride);
        if extent == 0 {
            return (0, 0, vec![(0, 1, 1)]);
        }
        if t < 0 {
            (source, target) = (source + (extent - 1) * s, target + (extent - 1) * t);
            (s, t) = (-s, -t);
        }
        if extent > 1 {
            loops.push((extent.into(), s.into(), t.into()));
        }
    }
    if nest.is_empty() {
        return (0, 0, vec![(0, 1, 1)]);
    }
    loops.sort_by_key(|l| std::cmp::Reverse((l.2, l.1)));
    let mut result: Vec<Triple> = Vec::new();
    for inner in loops {
        match result.last_mut() {
            Some(outer) if outer.1 == inner.1 * inner.0 && outer.2 == inner.2 * inner.0 => {
                *outer = (outer.0 * inner.0, inner.1, inner.2);
            }
            _ => result.push(inner),
        }
    }
    (source, target, result)
}

/// The loops of a nest, slowest first.
fn loops(nest: &LoopNest) -> Vec<Triple> {
    let one = |mode: &Mode<(i64, i64)>| (mode.extent.into(), mode.stride.0.into(), mode.stride.1.into());
    nest.modes.iter().rev().map(one).collect()
}

/// Returns the common loops of two layouts, by the definition; `None` if they do not nest.
fn side_by_side(target: &Layout, source: &Layout) -> Option<Vec<Triple>> {
    let leaves = |layout: &Layout| -> Vec<(i64, i64)> {
        layout.coalesce().leaves().filter(|leaf| leaf.0 > 1).rev().collect()
    };
    let (mut targets, mut sources) = (leaves(target), leaves(source));
    let mut result: Vec<Triple> = Vec::new();
    while let (Some(t), Some(s)) = (targets.pop(), sources.pop()) {
        let extent = t.0.min(s.0);
        if t.0 % extent != 0 || s.0 % extent != 0 {
            return None;
        }
        result.push((extent.into(), s.1.into(), t.1.into()));
        for (rest, leaf) in [(&mut targets, t), (&mut sources, s)] {
            if leaf.0 > extent {
                rest.push((leaf.0 / extent, leaf.1 * extent));
            }
        }
    }
    result.reverse();
    Some(result)
}

/// Any nest: few different strides, so that many modes tie, merge or overlap.
#[derive(Clone, Debug)]
struct AnyNest(LoopNest);

impl Arbitrary for AnyNest {
    fn arbitrary(g: &mut Gen) -> Self {
        let strides = [0, 1, 1, 2, 3, 4, 6, 8, 12, 24, -1, -2, -4, -12];
        let extents = [1, 1, 2, 2, 3, 4, 6];
        let mut modes: Vec<Mode<(i64, i64)>> = Vec::new();
        for _ in 0..u8::arbitrary(g) % 10 {
            let strides = match modes.last() {
                // One that continues where the last one ends, on both sides or only on one.
                Some(last) if bool::arbitrary(g) => {
                    let also = if u8::arbitrary(g) % 4 == 0 { 1 } else { last.extent };
                    (last.stride.0 * also, last.stride.1 * last.extent)
                }
                _ => (*g.choose(&strides).unwrap(), *g.choose(&strides).unwrap()),
            };
            modes.push(Mode::new(*g.choose(&extents).unwrap(), strides));
        }
        if u8::arbitrary(g) % 16 == 0 {
            modes.insert(usize::arbitrary(g) % (modes.len() + 1), Mode::new(0, (1, -1)));
        }
        let offset = |g: &mut Gen| i64::from(i8::arbitrary(g));
        AnyNest(LoopNest::new(offset(g), offset(g), modes))
    }
}

/// Two layouts of one size, which usually nest.
#[derive(Clone, Debug)]
struct Two(Layout, Layout);

impl Arbitrary for Two {
    fn arbitrary(g: &mut Gen) -> Self {
        let strides = [0, 1, 1, 2, 3, 4, 6, 12, -1, -3, -8];
        let primes: Vec<i64> =
            (0..u8::arbitrary(g) % 8).map(|_| *g.choose(&[1, 2, 2, 2, 3, 3]).unwrap()).collect();
        let layout = |g: &mut Gen| {
            let mut primes = primes.clone();
            if bool::arbitrary(g) && primes.len() > 1 {
                let i = 1 + usize::arbitrary(g) % (primes.len() - 1);
                primes.swap(i - 1, i);
            }
            let mut modes: Vec<(i64, i64)> = Vec::new();
            for extent in primes {
                match modes.last_mut() {
                    Some(last) if u8::arbitrary(g) % 4 == 0 => last.0 *= extent,
                    _ => modes.push((extent, *g.choose(&strides).unwrap())),
                }
            }
            // Sometimes modes that coalesce.
            for i in 1..modes.len() {
                if u8::arbitrary(g) % 4 == 0 {
                    modes[i].1 = modes[i - 1].0 * modes[i - 1].1;
                }
            }
            Layout::from_modes(&modes).unwrap()
        };
        Two(layout(g), layout(g))
    }
}

properties! {
    /// `reduce` merges exactly the loops that can be merged.
    fn reduce_is_merging_loop_by_loop(nest: AnyNest) -> bool {
        let reduced = nest.0.reduce().unwrap();
        (reduced.source_offset, reduced.target_offset, loops(&reduced)) == merged(&nest.0)
    }

    /// `pairs(reduce(N)) = pairs(N)`, in some order.
    fn reduce_keeps_the_pairs(nest: AnyNest) -> bool {
        let sorted = |nest: &LoopNest| { let mut pairs = reference::pairs(nest); pairs.sort_unstable(); pairs };
        sorted(&nest.0.reduce().unwrap()) == sorted(&nest.0)
    }

    /// `reduce(reduce(N)) = reduce(N)`.
    fn reduce_is_idempotent(nest: AnyNest) -> bool {
        let reduced = nest.0.reduce().unwrap();
        reduced.reduce().unwrap() == reduced
    }

    /// `reduce` is independent of the order of modes if no two of them write the same element.
    fn reduce_forgets_the_order(nest: AnyNest, keys: Vec<u8>) -> TestResult {
        if nest.0.check_target_is_injective().is_err() {
            return TestResult::discard();
        }
        let mut shuffled = nest.0.clone();
        let mut by: Vec<usize> = (0..shuffled.modes.len()).collect();
        by.sort_by_key(|k| keys.get(*k).copied().unwrap_or(0));
        shuffled.modes = by.into_iter().map(|k| nest.0.modes[k]).collect();
        TestResult::from_bool(shuffled.reduce() == nest.0.reduce())
    }

    /// `scale(reduce(N)) = reduce(scale(N))`.
    fn reduce_commutes_with_scale(nest: AnyNest, factor: u8) -> TestResult {
        if factor == 0 || nest.0.is_empty() {
            return TestResult::discard();
        }
        let factor = usize::from(factor);
        let (first, last) = (nest.0.scale(factor).unwrap().reduce(), nest.0.reduce().unwrap().scale(factor));
        TestResult::from_bool(first == last)
    }

    /// `between` splits at the boundaries of both layouts, and returns `None` if they do not nest.
    fn between_is_cutting_loop_by_loop(two: Two) -> bool {
        let nest = LoopNest::between(&two.0, &two.1).unwrap();
        nest.as_ref().map(loops) == side_by_side(&two.0, &two.1)
            && nest.is_none_or(|nest| (nest.source_offset, nest.target_offset) == (0, 0))
    }

    /// `between(A, B)(i) = (B(i), A(i))`, in order.
    fn between_is_both_layouts_side_by_side(two: Two) -> TestResult {
        let Some(nest) = LoopNest::between(&two.0, &two.1).unwrap() else { return TestResult::discard() };
        TestResult::from_bool(reference::pairs(&nest).into_iter().eq(two.1.values().zip(two.0.values())))
    }
}

/// The cases that the random nests and layouts above must include.
#[test]
fn the_laws_are_not_empty() {
    property!().size(30).draws(|g| {
        let (mut merge, mut tie, mut empty, mut refused, mut nests) = (0, 0, 0, 0, 0);
        for _ in 0..2000 {
            let AnyNest(nest) = AnyNest::arbitrary(g);
            let longer = nest.modes.iter().filter(|mode| mode.extent > 1).count();
            let reduced = nest.reduce().unwrap();
            empty += usize::from(nest.is_empty());
            merge += usize::from(!nest.is_empty() && reduced.modes.len() < longer);
            tie += usize::from(reduced.modes.windows(2).any(|pair| pair[0].stride == pair[1].stride));
            let two = Two::arbitrary(g);
            match LoopNest::between(&two.0, &two.1).unwrap() {
                None => refused += 1,
                Some(nest) => nests += usize::from(nest.modes.len() > 1),
            }
        }
        let counts = [merge, tie, empty, refused, nests];
        assert!(counts.into_iter().zip([300, 10, 50, 30, 300]).all(|(n, least)| n > least), "{counts:?}");
    });
}

/// Modes that would merge into more than 64 bits stay separate; the error of the copy is the real one.
#[test]
fn extents_beyond_64_bits_do_not_merge() {
    let half = 1 << 40;
    let nest = LoopNest::new(0, 0, [Mode::new(half, (1, 1)), Mode::new(half, (half, half))]);
    assert_eq!(nest.reduce().unwrap(), nest);
    let error = nest.check_target_is_injective().unwrap_err();
    assert_eq!(error, Error::Overflow { what: "an offset of a copy" });
    let nest = LoopNest::new(0, 0, [Mode::new(half, (0, 0)), Mode::new(half, (0, 0))]);
    assert_eq!(nest.check_target_is_injective().unwrap_err().code(), "overlap");
}
