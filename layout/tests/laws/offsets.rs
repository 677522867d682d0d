//! Properties of composition from an offset on, and of the gaps between modes.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck gives every argument by value")]

use reshard_layout::algebra::gaps;
use reshard_layout::{Layout, Mode, reference};
use reshard_test_support::{TestResult, property};

use crate::drawn::{List, check};
use crate::slow::{for_each_list, values};
use crate::small::full;

fn flat(modes: &[Mode]) -> Layout {
    Layout::from_flat(modes.iter().copied().collect()).expect("small")
}

/// Returns `true` if `w_k = d_{k+1} - s_k d_k` has both signs over the coalesced modes.
fn has_both_signs(outer: &Layout) -> bool {
    let modes = outer.coalesce();
    let weights: Vec<i64> =
        modes.flat().windows(2).map(|m| m[1].stride - m[0].extent * m[0].stride).collect();
    weights.iter().any(|w| *w > 0) && weights.iter().any(|w| *w < 0)
}

/// `A(offset + B(i)) - A(offset)`, with the payload of the strides; or there are no such modes.
fn offset_law(outer: &[Mode], offset: i64, inner: &[Mode]) -> Result<(), &'static str> {
    let layout = flat(outer);
    let (of_outer, of_inner) = (reference::values(&layout), reference::values(&flat(inner)));
    // A pair with every stride: which index it is.
    let mut below = 1;
    let paired: Vec<Mode<(i64, i64)>> = inner
        .iter()
        .map(|mode| {
            let pair = mode.map(|stride| (stride, below));
            below *= mode.extent;
            pair
        })
        .collect();
    let (alone, carrying) = (layout.compose_at(offset, inner), layout.compose_at(offset, &paired));
    let at = |v: &i64| usize::try_from(offset + v).ok().and_then(|index| of_outer.get(index).copied());
    let moved: Option<Vec<i64>> = of_inner.iter().map(at).collect();
    let Some(moved) = moved.filter(|_| 0 <= offset && offset < layout.size()) else {
        assert_eq!(
            alone.map_err(|error| error.code()),
            Err("out_of_domain"),
            "{layout} from {offset}: {inner:?}"
        );
        assert_eq!(carrying.map_err(|error| error.code()), Err("out_of_domain"));
        return Err("out_of_domain");
    };
    let start = of_outer[offset as usize];
    match (alone, carrying) {
        (Ok((first, modes)), Ok((also_first, pairs))) => {
            assert_eq!((first, also_first), (start, start));
            let expected: Vec<i64> = moved.iter().map(|value| value - start).collect();
            let found: Vec<i64> = values(&modes).iter().map(|place| place[0]).collect();
            assert_eq!(found, expected, "{layout} from {offset}: {inner:?}");
            let pairs: Vec<(i64, i64)> = values(&pairs).iter().map(|place| (place[0], place[1])).collect();
            assert!(pairs.into_iter().eq(expected.into_iter().zip(0..)), "{layout} from {offset}: {inner:?}");
            Ok(())
        }
        (Err(error), Err(also)) => {
            assert_eq!((error.code(), also.code()), ("not_representable", "not_representable"));
            // The same read from the least value on, where every stride is positive.
            let forward: Vec<Mode> = inner.iter().map(|mode| mode.map(i64::abs)).collect();
            let least = offset + of_inner.iter().min().expect("some");
            let from = |start: i64| -> Vec<i64> {
                reference::values(&flat(&forward)).iter().map(|v| of_outer[(start + v) as usize]).collect()
            };
            let (plain, moved, start) = (from(0), from(least), of_outer[least as usize]);
            let extents: Vec<i64> = inner.iter().map(|mode| mode.extent).collect();
            // From 0 on, an error of `compose`; else there is no layout, or the least value carries.
            let carries = moved.iter().zip(&plain).any(|(moved, plain)| *moved != start + plain);
            let none = !reference::is_layout(&plain, &extents);
            assert!(none || carries || has_both_signs(&layout), "{layout} from {offset}: {inner:?}");
            if offset == 0 && least == 0 && !has_both_signs(&layout) {
                assert_eq!(
                    layout.compose(&flat(inner)).map_err(|error| error.code()),
                    Err("not_representable")
                );
            }
            Err("not_representable")
        }
        (alone, carrying) => panic!("{layout} from {offset}: {alone:?} and {carrying:?}"),
    }
}

#[test]
fn composition_from_an_offset_is_the_function_from_there_on() {
    let mut answers = [0, 0, 0];
    let mut inner = Vec::new();
    for_each_list(&[1, 2, 3, 4], &[-1, 0, 1, 2, 3, 4, 6], 2, &mut |modes| inner.push(modes.to_vec()));
    for_each_list(&[2, 3, 4], &[0, 1, 4, 10], 2, &mut |outer| {
        let size: i64 = outer.iter().map(|mode| mode.extent).product();
        for offset in -1..=size {
            for inner in &inner {
                let answer = offset_law(outer, offset, inner);
                answers[match answer {
                    Ok(()) => 0,
                    Err("out_of_domain") => 1,
                    Err(_) => 2,
                }] += 1;
            }
        }
    });
    assert!(answers.iter().all(|count| *count > 10_000), "{answers:?}");
}

#[test]
fn random_composition_from_an_offset_is_the_function_from_there_on() {
    fn law(a: List<i64>, b: List<i64>, offset: u16) -> TestResult {
        let size: i64 = a.0.iter().map(|mode| mode.extent).product();
        // Strides that stay within the domain where they can.
        let inner: Vec<Mode> = b.0.iter().take(3).map(|mode| mode.map(|d| d.abs() % size.max(2))).collect();
        let greatest: i64 = inner.iter().map(|mode| (mode.extent - 1) * mode.stride).sum();
        let offset = i64::from(offset) % (size - greatest).max(1);
        match offset_law(&a.0, offset, &inner) {
            Ok(()) | Err("not_representable") => TestResult::passed(),
            Err(_) => TestResult::discard(),
        }
    }
    check(property!(), law as fn(List<i64>, List<i64>, u16) -> TestResult);
}

/// Gaps and modes jointly cover `[0, bound)` exactly once if all divisions are exact.
///
/// Otherwise they do not overlap.
fn gaps_law(modes: &[Mode], bound: i64) -> bool {
    let (mut span, mut exact, mut overlap) = (1, true, None);
    for mode in modes {
        exact &= mode.stride % span == 0;
        overlap = overlap.or((mode.stride < span).then_some((mode.stride, span)));
        span = mode.stride * mode.extent;
    }
    exact &= bound % span == 0;
    match gaps(modes, bound) {
        Ok(gaps) => {
            assert_eq!(overlap, None, "{modes:?} overlap");
            let both: Vec<Mode> = [modes, &gaps].concat();
            let mut together = reference::values(&flat(&both));
            assert!(reference::is_injective(&together), "{modes:?} and {gaps:?} overlap");
            together.sort_unstable();
            assert!(!exact || together.into_iter().eq(0..bound), "{modes:?} and {gaps:?} to {bound}");
            exact
        }
        Err(first) => {
            assert_eq!(overlap, Some(first), "{modes:?}");
            false
        }
    }
}

#[test]
fn a_complement_of_modes_fills() {
    let mut filled = 0;
    for_each_list(&[1, 2, 3, 4], &[1, 2, 3, 4, 6, 8, 12, 24], 3, &mut |modes| {
        if modes.is_sorted_by_key(|mode| mode.stride) {
            for bound in [1, 6, 24, 48, 72, 96] {
                filled += usize::from(gaps_law(modes, bound));
            }
        }
    });
    assert!(filled > 1_000, "{filled}");
}

#[test]
fn random_gaps_are_the_other_digits() {
    fn law(extents: Vec<u8>, taken: Vec<bool>) -> TestResult {
        // The digits of a mixed radix number: some are taken, the others are the gaps.
        let (mut step, mut modes, mut others) = (1_i64, Vec::new(), Vec::new());
        for (extent, taken) in extents.iter().zip(&taken).take(8) {
            let mode = Mode::new(i64::from(extent % 4) + 2, step);
            if step * mode.extent <= 1 << if full() { 14 } else { 10 } {
                if *taken {
                    modes.push(mode);
                } else {
                    others.push(mode);
                }
                step *= mode.extent;
            }
        }
        let others = flat(&others).coalesce();
        let gaps = gaps(&modes, step)
            .map(|gaps| if gaps.is_empty() { Layout::unit() } else { flat(&gaps).coalesce() });
        TestResult::from_bool(gaps_law(&modes, step) && gaps == Ok(others))
    }
    check(property!(), law as fn(Vec<u8>, Vec<bool>) -> TestResult);
}
