//! Properties of zip and split.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck gives every argument by value")]

use reshard_layout::algebra::{split_into, zip};
use reshard_layout::{AxisStride, Boundary, Layout, Mode, Modes};
use reshard_test_support::{TestResult, property};

use crate::drawn::{Drawn, List, check};
use crate::slow::{
    Slow, beside, factorisations, for_each_list, is_list, is_list_of, is_shortest, pairs, read, steps, values,
};

fn flat<S: Slow>(modes: &[Mode<S>]) -> Layout<S> {
    Layout::from_flat(modes.iter().copied().collect()).expect("small")
}

/// All coalesced lists of one size with these strides.
fn coalesced<S: Slow>(size: i64, strides: &[S]) -> Vec<Vec<Mode<S>>> {
    let mut all = Vec::new();
    for extents in factorisations(size) {
        let mut lists: Vec<Vec<Mode<S>>> = vec![Vec::new()];
        for extent in extents {
            let longer = |list: &Vec<Mode<S>>, d: S| [&list[..], &[Mode::new(extent, d)]].concat();
            lists = lists.iter().flat_map(|list| strides.iter().map(move |&d| longer(list, d))).collect();
        }
        all.extend(lists.into_iter().filter(|list| is_shortest(list)));
    }
    all
}

/// The numbers of indices below the ends of the modes.
fn boundaries<S>(modes: &[Mode<S>]) -> Vec<i64> {
    modes
        .iter()
        .scan(1, |below, mode| {
            *below *= mode.extent;
            Some(*below)
        })
        .collect()
}

/// One list ends a mode here, and the mode of the other that goes over it does not divide.
fn is_obstacle(boundary: i64, left: &[i64], right: &[i64]) -> bool {
    let breaks = |one: &[i64], other: &[i64]| {
        let over = other.iter().find(|end| **end > boundary);
        one.contains(&boundary) && over.is_some_and(|end| end % boundary != 0)
    };
    breaks(left, right) || breaks(right, left)
}

/// `zip(A, B)(i) = (A(i), B(i))`, or no list of modes has both functions.
fn zip_law<S: Slow, T: Slow>(a: &[Mode<S>], b: &[Mode<T>]) -> bool {
    let both = beside::<S>(&values(a), &values(b));
    match zip(a, b) {
        Ok(zipped) => {
            assert_eq!(values(&zipped), both, "{a:?}, {b:?}");
            assert!(
                flat(a)
                    .zip(&flat(b))
                    .is_ok_and(|layout| read(&layout) == both && is_shortest_layout(&layout))
            );
            true
        }
        Err(Boundary(boundary)) => {
            assert!(!is_list(&both), "{a:?} and {b:?} have a zip");
            assert!(is_obstacle(boundary, &boundaries(a), &boundaries(b)), "{boundary}: {a:?}, {b:?}");
            assert!(flat(a).zip(&flat(b)).is_err_and(|error| error.code() == "not_nesting"));
            false
        }
    }
}

fn is_shortest_layout<S: Slow>(layout: &Layout<S>) -> bool {
    layout.size() == 1 || is_shortest(layout.flat())
}

#[test]
fn a_zip_is_both_functions_or_there_is_none() {
    let (mut zipped, mut refused) = (0, 0);
    let mut count = |answer: bool| *if answer { &mut zipped } else { &mut refused } += 1;
    let few = [AxisStride::local(0), AxisStride::local(1), AxisStride::along(1, 0), AxisStride::along(2, 0)];
    for size in (1..=12).chain([16, 18]) {
        let (integers, places) = (coalesced(size, &[0, 1, 2]), coalesced(size, &few));
        for a in &integers {
            for b in if size < 16 { &integers[..] } else { &integers[..integers.len().min(60)] } {
                count(zip_law(a, b));
            }
            for b in places.iter().step_by(3) {
                count(zip_law(a, b));
            }
        }
        for a in places.iter().step_by(2) {
            for b in places.iter().step_by(5) {
                count(zip_law(a, b));
            }
        }
    }
    assert!(zipped > 10_000 && refused > 10_000, "{zipped} and {refused}");
}

#[test]
fn a_zip_does_not_depend_on_how_its_operands_are_written() {
    fn law<S: Drawn, T: Drawn>(both: List<(S, T)>) -> bool {
        // Two layouts that have a zip, written with its modes; and the zip itself.
        let left: Vec<Mode<S>> = both.0.iter().map(|mode| mode.map(|d| d.0)).collect();
        let right: Vec<Mode<T>> = both.0.iter().map(|mode| mode.map(|d| d.1)).collect();
        let (left, right) = (flat(&left), flat(&right));
        left.zip(&right) == Ok(both.layout().coalesce())
            && left.coalesce().zip(&right.coalesce()) == left.zip(&right)
    }
    check(property!(), law as fn(List<(i64, i64)>) -> bool);
    check(property!(), law as fn(List<(AxisStride, AxisStride)>) -> bool);
    check(property!(), law as fn(List<(i64, (AxisStride, i64))>) -> bool);
}

#[test]
fn a_random_zip_is_both_functions_or_there_is_none() {
    fn law<S: Drawn, T: Drawn>(a: List<S>, b: List<T>) -> TestResult {
        // As much of the other as makes the sizes equal.
        let (a, mut b) = (a.layout().coalesce(), b.layout().coalesce());
        let divides = a.size() % b.size() == 0;
        if divides && a.size() > b.size() {
            let rest = Layout::from_flat([Mode::new(a.size() / b.size(), T::ZERO)].into_iter().collect());
            b = Layout::tuple(&[b, rest.expect("small")]).expect("small").coalesce();
        }
        if a.size() == 1 || !divides {
            return TestResult::discard();
        }
        zip_law(a.flat(), b.flat());
        TestResult::passed()
    }
    check(property!(), law as fn(List<i64>, List<i64>) -> TestResult);
    check(property!(), law as fn(List<AxisStride>, List<AxisStride>) -> TestResult);
    check(property!(), law as fn(List<(i64, i64)>, List<AxisStride>) -> TestResult);
}

#[test]
fn layouts_of_different_sizes_have_no_zip() {
    for_each_list(&[1, 2, 3], &[0, 1], 2, &mut |a| {
        for_each_list(&[1, 2, 3], &steps(), 1, &mut |b| {
            let (a, b) = (flat(a), flat(b));
            let answer = a.zip(&b).map(|zipped| zipped.size());
            assert!(if a.size() == b.size() { answer.is_ok() || b.size() > 1 } else { answer.is_err() });
        });
    });
}

/// The parts concatenated are the function, each has its size and is coalesced; or no layout has such parts.
fn split_law<S: Slow>(modes: &[Mode<S>], sizes: &[i64]) -> bool {
    let (layout, function) = (flat(modes), values(modes));
    match layout.split(sizes) {
        Ok(parts) => {
            assert!(
                parts.modes().map(|part| part.size()).eq(sizes.iter().copied()),
                "{modes:?} to {sizes:?}"
            );
            assert!(parts.modes().all(|part| is_shortest_layout(&part)), "{modes:?} to {sizes:?}: {parts:?}");
            assert_eq!(values(parts.flat()), function, "{modes:?} to {sizes:?}: {parts:?}");
            let each: Vec<Layout<S>> = parts.modes().collect();
            assert_eq!(Layout::tuple(&each), Ok(parts));
            true
        }
        Err(error) => {
            assert_eq!(error.code(), "not_nesting", "{modes:?} to {sizes:?}");
            assert!(!is_list_of(&function, sizes), "{modes:?} to {sizes:?} exists");
            false
        }
    }
}

/// All shapes of this size, some with an extent of 1.
fn shapes(size: i64) -> Vec<Vec<i64>> {
    let mut all = factorisations(size);
    all.extend(
        factorisations(size)
            .into_iter()
            .map(|shape| [&shape[..1.min(shape.len())], &[1], &shape[1.min(shape.len())..]].concat()),
    );
    all.retain(|shape| !shape.is_empty());
    all
}

#[test]
fn a_split_is_the_function_in_parts_or_there_is_none() {
    fn all<S: Slow>(strides: &[S], answers: &mut [usize; 2]) {
        for_each_list(&[1, 2, 3, 4], strides, 3, &mut |modes| {
            for shape in shapes(modes.iter().map(|mode| mode.extent).product()) {
                answers[usize::from(split_law(modes, &shape))] += 1;
            }
        });
    }
    let mut answers = [0, 0];
    all(&[0, 1, 2, 4, 6], &mut answers);
    all(
        &[
            AxisStride::local(1),
            AxisStride::local(2),
            AxisStride::along(1, 0),
            AxisStride::along(2, 0),
            AxisStride::along(0, 1),
        ],
        &mut answers,
    );
    all(&pairs(&[0, 1], &[AxisStride::local(2), AxisStride::along(1, 0)]), &mut answers);
    assert!(answers[0] > 10_000 && answers[1] > 10_000, "{answers:?}");
}

#[test]
fn splitting_gives_the_parts_of_a_concatenation_back() {
    fn law<S: Drawn>(parts: Vec<List<S>>) -> TestResult {
        let parts: Vec<Layout<S>> = parts.iter().take(4).map(|part| part.layout().coalesce()).collect();
        let sizes: Vec<i64> = parts.iter().map(Layout::size).collect();
        if parts.is_empty() || sizes.iter().product::<i64>() > 1 << 20 {
            return TestResult::discard();
        }
        let whole = Layout::tuple(&parts).expect("small");
        TestResult::from_bool(
            whole.split(&sizes) == Ok(whole.clone()) && whole.coalesce().split(&sizes) == Ok(whole.clone()),
        )
    }
    check(property!(), law as fn(Vec<List<i64>>) -> TestResult);
    check(property!(), law as fn(Vec<List<AxisStride>>) -> TestResult);
    check(property!(), law as fn(Vec<List<(AxisStride, AxisStride)>>) -> TestResult);
    // All parts of up to two modes.
    let mut parts: Vec<Layout<AxisStride>> = Vec::new();
    for_each_list(&[2, 3], &steps(), 2, &mut |modes| parts.push(flat(modes).coalesce()));
    for a in &parts {
        for b in parts.iter().step_by(7) {
            let whole = Layout::tuple(&[a.clone(), b.clone()]).expect("small");
            assert_eq!(whole.split(&[a.size(), b.size()]), Ok(whole));
        }
    }
}

#[test]
fn what_is_left_of_a_split_is_dropped() {
    for_each_list(&[2, 3, 4], &[1, 2, 4], 3, &mut |modes| {
        let size = modes.iter().map(|mode| mode.extent).product();
        for shape in shapes(size) {
            let (mut all, mut ends) = (Modes::new(), Vec::new());
            let Ok(()) =
                split_into(flat(modes).coalesce().flat(), shape.clone(), &mut all, |end| ends.push(end))
            else {
                continue;
            };
            assert_eq!(ends.len(), shape.len());
            for parts in 0..shape.len() {
                let (mut some, mut stops) = (Modes::new(), Vec::new());
                let sizes = shape[..parts].iter().copied();
                assert_eq!(
                    split_into(flat(modes).coalesce().flat(), sizes, &mut some, |end| stops.push(end)),
                    Ok(())
                );
                assert_eq!(stops, ends[..parts]);
                assert_eq!(some.as_slice(), &all[..stops.last().copied().unwrap_or(0)]);
            }
        }
    });
}

#[test]
fn a_view_is_a_composition() {
    let law = |modes: &[Mode]| {
        let a = flat(modes);
        for shape in shapes(a.size()) {
            let composed = a.compose(&Layout::column_major(&shape).expect("small"));
            match (a.split(&shape), composed) {
                (Ok(view), Ok(composed)) => {
                    assert!(view.is_equivalent(&composed), "{a} as {shape:?}");
                    assert!(view.modes().zip(composed.modes()).all(|(v, c)| v.is_equivalent(&c)));
                }
                (Err(view), Err(composed)) => {
                    assert_eq!(
                        (view.code(), composed.code()),
                        ("not_nesting", "not_representable"),
                        "{a} as {shape:?}"
                    );
                }
                (view, composed) => panic!("{a} as {shape:?}: {view:?} and {composed:?}"),
            }
        }
    };
    for_each_list(&[1, 2, 3, 4], &[-1, 0, 1, 2, 3, 4, 8], 3, &mut |modes| law(modes));
    check(
        property!(),
        (|a: List<i64>| {
            let a = a.layout();
            // Extents in another order split elsewhere.
            let mut shape: Vec<i64> = a.leaves().map(|leaf| leaf.0).collect();
            shape.rotate_left(1);
            let composed = a.compose(&Layout::column_major(&shape).expect("small"));
            match a.split(&shape) {
                Ok(view) => {
                    composed.is_ok_and(|composed| composed.is_equivalent(&view)) && view.is_equivalent(&a)
                }
                Err(_) => composed.is_err(),
            }
        }) as fn(List<i64>) -> bool,
    );
}
