//! Properties of two layouts.

use std::collections::BTreeSet;

use reshard_layout::algebra::Tiler;
use reshard_layout::{Answer, Layout, reference};

use crate::small::{for_each_two, full, one_in};

fn extents(layout: &Layout) -> Vec<i64> {
    layout.leaves().map(|(extent, _)| extent).collect()
}

#[test]
fn compose_is_composition_of_functions_or_says_why_not() {
    for_each_two(|a, b| {
        let expected = reference::compose(a, b);
        match (a.compose(b), expected) {
            (Ok(r), Some(expected)) => {
                assert_eq!(reference::values(&r), expected, "{a} o {b} = {r}");
                assert!(b.is_compatible(&r), "the shape of {r} does not refine that of {b}");
            }
            (Err(error), None) => assert_eq!(error.code(), "out_of_domain", "{a} o {b}"),
            (Err(error), Some(expected)) => {
                assert_eq!(error.code(), "not_representable", "{a} o {b}");
                assert!(!reference::is_layout(&expected, &extents(b)), "{a} o {b} exists");
            }
            (Ok(r), None) => panic!("{a} o {b} is out of the domain, and not {r}"),
        }
    });
}

/// `A` with its last leaf as long as it takes for these indices, by adding to it.
fn extended(a: &Layout, reach: i64) -> Layout {
    let mut modes: Vec<(i64, i64)> = a.leaves().collect();
    while modes.iter().map(|(extent, _)| extent).product::<i64>() <= reach {
        modes.last_mut().expect("at least one").0 += 1;
    }
    Layout::from_modes(&modes).expect("small")
}

#[test]
fn compose_extended_agrees_within_the_domain_and_goes_on_beyond() {
    let mut beyond = [0, 0];
    for_each_two(|a, b| {
        let answer = a.compose_extended(b);
        if a.compose(b).is_ok() || b.max_value() < a.size() {
            assert_eq!(answer, a.compose(b), "{a} o {b}");
            return;
        }
        let expected = reference::compose(&extended(a, b.max_value()), b);
        match (answer, expected) {
            (Ok(r), Some(expected)) => {
                assert_eq!(reference::values(&r), expected, "{a} o {b} = {r}");
                assert!(b.is_compatible(&r), "the shape of {r} does not refine that of {b}");
                let goes_on = b.values().map(|value| a.at_extended(value));
                assert!(goes_on.eq(expected.into_iter().map(Ok)), "{a} o {b}");
                beyond[0] += 1;
            }
            (Err(error), None) => assert_eq!(error.code(), "out_of_domain", "{a} o {b}"),
            (Err(error), Some(expected)) => {
                assert_eq!(error.code(), "not_representable", "{a} o {b}");
                assert!(!reference::is_layout(&expected, &extents(b)), "{a} o {b} exists");
                beyond[1] += 1;
            }
            (Ok(r), None) => panic!("{a} o {b} has negative indices, and is not {r}"),
        }
    });
    assert!(beyond.iter().all(|count| *count > 1_000), "{beyond:?}");
}

#[test]
fn a_last_leaf_of_extent_1_goes_on() {
    for (a, b, expected) in [
        ("(4,3,1):(3,1,0)", "24:1", "(4,3,2):(3,1,0)"),
        ("(4,3):(3,1)", "24:1", "(4,6):(3,1)"),
        ("(4,1):(1,7)", "8:1", "(4,2):(1,7)"),
        ("(4,1):(1,4)", "8:1", "8:1"),
        ("((4,1),(3,1)):((3,9),(1,0))", "24:1", "(4,3,2):(3,1,0)"),
        ("1:5", "4:1", "4:5"),
    ] {
        let parse = |text: &str| text.parse::<Layout>().expect("a layout");
        assert_eq!(parse(a).compose_extended(&parse(b)), Ok(parse(expected)), "{a} o {b}");
    }
}

#[test]
fn the_identity_is_neutral() {
    for_each_two(|a, b| {
        if b.size() != 1 {
            return;
        }
        let identity = Layout::scalar(a.size(), 1).expect("small");
        assert_eq!(a.compose(&identity).map(|r| r.coalesce()), Ok(a.coalesce()), "{a} o id");
        if a.min_value() >= 0 {
            let identity = Layout::scalar(a.cosize(), 1).expect("small");
            assert!(identity.compose(a).is_ok_and(|r| r.is_equivalent(a)), "id o {a}");
        }
    });
}

#[test]
fn divide_is_a_permutation_when_the_tile_tiles() {
    for_each_two(|a, t| {
        let tiler = Tiler::Layout(t.clone());
        match a.logical_divide(&tiler) {
            Ok(r) => {
                let rest = t.complement(a.size()).expect("divided");
                assert!(a.compose(t).is_ok_and(|tile| r.mode(0).is_ok_and(|mode| mode.is_equivalent(&tile))));
                assert!(
                    a.compose(&rest).is_ok_and(|rest| r.mode(1).is_ok_and(|mode| mode.is_equivalent(&rest)))
                );
                if t.tiles(a.size()) == Ok(true) {
                    let (mut left, mut right) = (reference::values(&r), reference::values(a));
                    left.sort_unstable();
                    right.sort_unstable();
                    assert_eq!(left, right, "{a} / {t}");
                }
                for variant in [a.zipped_divide(&tiler), a.tiled_divide(&tiler), a.flat_divide(&tiler)] {
                    assert!(variant.is_ok_and(|variant| variant.is_equivalent(&r)), "{a} / {t}");
                }
            }
            Err(error) => assert!(
                ["inadmissible", "out_of_domain", "not_representable"].contains(&error.code()),
                "{a} / {t}: {error}"
            ),
        }
    });
}

#[test]
fn product_begins_with_its_first_operand_and_repeats_it() {
    // Of a sample every other pair: five products of each are many values.
    let mut taken = one_in(2);
    for_each_two(|a, b| {
        if !taken() {
            return;
        }
        let tiler = Tiler::Layout(b.clone());
        let Ok(r) = a.logical_product(&tiler) else { return };
        assert_eq!(r.mode(0).as_ref(), Ok(a));
        let values = reference::values(&r);
        assert_eq!(values.len() as i64, a.size() * b.size());
        if reference::is_injective(&reference::values(a)) && reference::is_injective(&reference::values(b)) {
            assert!(reference::is_injective(&values), "{a} x {b} = {r}");
        }
        let sorted = |layout: &Layout| {
            let mut values = reference::values(layout);
            values.sort_unstable();
            values
        };
        for other in
            [a.blocked_product(b), a.raked_product(b), a.flat_product(&tiler), a.tiled_product(&tiler)]
        {
            assert!(other.is_ok_and(|other| sorted(&other) == sorted(&r)), "{a} x {b}");
        }
    });
}

#[test]
fn lexicographic_order_is_reversed_colexicographic_order() {
    let lex = reference::values_lexicographic;
    for_each_two(|a, b| {
        assert_eq!(lex(&a.reversed()), reference::values(a));
        assert_eq!(lex(&a.coalesce().reversed()), lex(&a.reversed()));
        if let Ok(r) = a.compose(b) {
            let outer = lex(&a.reversed());
            let expected: Vec<i64> = lex(&b.reversed()).iter().map(|v| outer[*v as usize]).collect();
            assert_eq!(lex(&r.reversed()), expected, "{a} o {b}");
        }
        if let Ok(r) = a.logical_divide(&Tiler::Layout(b.clone())) {
            assert_eq!(lex(&r.reversed()), reference::values(&r));
        }
        if b.size() == 1 {
            let inverse = a.right_inverse().expect("always exists").reversed();
            let outer = lex(&a.reversed());
            assert!(lex(&inverse).iter().enumerate().all(|(i, v)| outer[*v as usize] == i as i64));
        }
    });
}

#[test]
fn common_layout_is_the_identity_through_both() {
    for_each_two(|a, b| {
        let r = a.max_common_layout(b).expect("always exists");
        let (left, right) = (reference::values(a), reference::values(b));
        let both = |(i, j): (usize, &i64)| left[*j as usize] == i as i64 && right[*j as usize] == i as i64;
        assert!(reference::values(&r).iter().enumerate().all(both), "{a}, {b}: {r}");
        if reference::is_injective(&left) && reference::is_injective(&right) {
            // One more element is not next in both memories at the same position, or the result is not a
            // layout.
            let next = r.size();
            let (i, j) = (reference::preimage(&left, next), reference::preimage(&right, next));
            let goes_on = i.is_some() && i == j;
            let inverse = a.right_inverse().expect("always exists");
            assert!(
                !goes_on
                    || r.size() == inverse.size()
                    || r.size() == b.right_inverse().expect("exists").size()
            );
        }
    });
}

#[test]
fn disjoint_says_what_the_values_say() {
    for_each_two(|a, b| {
        let other: BTreeSet<i64> = reference::values(b).into_iter().collect();
        let disjoint = reference::values(a).iter().all(|value| *value == 0 || !other.contains(value));
        assert_eq!(a.is_disjoint(b), Answer::from(disjoint), "{a}, {b}");
    });
}

#[test]
fn tile_to_shape_covers_the_shape() {
    for_each_two(|a, b| {
        let counts = extents(b);
        if a.rank() > counts.len() || !(full() || b.leaves().all(|leaf| leaf.1 == 1)) {
            return;
        }
        let shape: Vec<i64> =
            (0..counts.len()).map(|k| counts[k] * a.mode(k).map_or(1, |mode| mode.size())).collect();
        let Ok(r) = a.tile_to_shape(&shape) else { return };
        assert!(r.modes().map(|mode| mode.size()).eq(shape.iter().copied()), "{a} to {shape:?}");
        if reference::is_injective(&reference::values(a)) {
            assert!(reference::is_injective(&reference::values(&r)), "{a} to {shape:?}: {r}");
        }
    });
}
