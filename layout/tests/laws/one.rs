//! Properties of one layout.

use std::collections::HashMap;

use reshard_layout::{Answer, Layout, reference};

use crate::small::{for_each_one, nestings, ones};

#[test]
fn at_is_the_dot_product_of_coordinates_and_strides() {
    for_each_one(|a| {
        let values = reference::values(a);
        assert_eq!(a.size(), values.len() as i64);
        assert!((0..a.size()).all(|i| a.at(i) == Ok(values[i as usize])), "{a}");
        assert!(a.values().eq(values.iter().copied()), "{a}");
        assert_eq!(Some(a.max_value()), values.iter().copied().max());
        assert_eq!(Some(a.min_value()), values.iter().copied().min());
        assert!(a.at(-1).is_err() && a.at(a.size()).is_err());
        let coordinates = |i| a.coordinates(i).and_then(|coordinates| a.offset_at(&coordinates));
        assert!((0..a.size()).all(|i| coordinates(i) == a.at(i)), "{a}");
    });
}

#[test]
fn extended_evaluation_continues_the_last_leaf() {
    for_each_one(|a| {
        let last = a.leaves().last().expect("a leaf");
        let below = a.size() / last.0;
        for i in 0..2 * a.size() {
            let expected = a.at(i % below).expect("in the domain") + i / below * last.1;
            assert_eq!(a.at_extended(i), Ok(expected), "{a} at {i}");
        }
    });
}

#[test]
fn coalesce_keeps_the_function_and_is_idempotent_and_shortest() {
    for_each_one(|a| {
        let c = a.coalesce();
        assert_eq!(reference::values(a), reference::values(&c), "{a}");
        assert_eq!(c.coalesce(), c, "{a}");
        assert!(c.leaves().len() <= a.leaves().len() && c.depth() <= 1);
        assert!(c.size() == 1 || c.leaves().all(|(extent, _)| extent > 1), "{a}");
    });
}

#[test]
fn coalesce_is_a_complete_invariant() {
    let mut seen: HashMap<Vec<i64>, Layout> = HashMap::new();
    for_each_one(|a| {
        let c = a.coalesce();
        let other = seen.entry(reference::values(a)).or_insert_with(|| c.clone());
        assert_eq!(*other, c, "{a}");
        assert!(a.is_equivalent(other));
    });
}

#[test]
fn coalesce_by_profile_keeps_the_function_and_the_modes() {
    for_each_one(|a| {
        for a in nestings(a) {
            let c = a.coalesce_by(&ones(a.rank())).expect("as many ones as modes");
            assert_eq!(reference::values(&a), reference::values(&c), "{a}");
            assert_eq!(a.rank(), c.rank());
            assert!(a.modes().zip(c.modes()).all(|(mode, coalesced)| mode.coalesce() == coalesced));
        }
    });
}

#[test]
fn filter_keeps_the_set_of_values() {
    for_each_one(|a| {
        let set = |layout: &Layout| {
            reference::values(layout).into_iter().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(set(a), set(&a.filter()), "{a}");
        assert!(a.filter().size() == 1 || a.filter().leaves().all(|(_, stride)| stride != 0), "{a}");
    });
}

#[test]
fn complement_tiles_and_is_the_least_that_fits() {
    for_each_one(|a| {
        let filtered = a.filter();
        let values = reference::values(&filtered);
        for bound in [1, 5, 12, 24] {
            let Ok(c) = a.complement(bound) else { continue };
            let both = Layout::concat(&[filtered.clone(), c.clone()]).expect("small");
            let mut together = reference::values(&both);
            assert!(reference::is_injective(&together), "{a} and {c} overlap");
            together.sort_unstable();
            let exact =
                together.iter().copied().eq(0..bound) && reference::is_injective(&reference::values(a));
            assert_eq!(a.tiles(bound), Ok(exact), "{a} to {bound}");
            if exact {
                assert_eq!(reference::values(&c), reference::complement(&values, bound), "{a} to {bound}");
            }
        }
    });
}

#[test]
fn complement_is_refused_exactly_for_overlapping_or_negative_modes() {
    for_each_one(|a| {
        let mut leaves: Vec<(i64, i64)> =
            a.leaves().filter(|(extent, stride)| *extent > 1 && *stride != 0).collect();
        leaves.sort_by_key(|(extent, stride)| (*stride, *extent));
        let apart = leaves.windows(2).all(|pair| pair[1].1 >= pair[0].0 * pair[0].1);
        let positive = leaves.iter().all(|(_, stride)| *stride > 0);
        let answer = a.complement(24).map(|_| ()).map_err(|error| error.code());
        assert_eq!(answer, if apart && positive { Ok(()) } else { Err("inadmissible") }, "{a}");
    });
}

#[test]
fn complement_twice_is_the_sorted_layout() {
    for_each_one(|a| {
        for bound in [12, 24, 64] {
            if a.tiles(bound) == Ok(true) {
                let twice =
                    a.complement(bound).and_then(|c| c.complement(bound)).expect("a complement is sorted");
                let mut leaves: Vec<(i64, i64)> = a.leaves().filter(|(extent, _)| *extent > 1).collect();
                leaves.sort_by_key(|leaf| leaf.1);
                let sorted = Layout::from_modes(&leaves).expect("small").coalesce();
                assert_eq!(twice, sorted, "{a} to {bound}");
            }
        }
    });
}

#[test]
fn right_inverse_finds_the_index_of_each_value() {
    for_each_one(|a| {
        let r = a.right_inverse().expect("always exists");
        let values = reference::values(a);
        assert!(
            reference::values(&r).iter().enumerate().all(|(i, j)| values[*j as usize] == i as i64),
            "{a}, {r}"
        );
    });
}

#[test]
fn right_inverse_of_an_injective_layout_without_negative_strides_is_the_longest() {
    for_each_one(|a| {
        let values = reference::values(a);
        if reference::is_injective(&values) && a.min_value() == 0 {
            let r = a.right_inverse().expect("always exists");
            // A longer one would have the size of the next mode at least, and begin with these values.
            for factor in 2..=a.size() / r.size() {
                let longer: Option<Vec<i64>> =
                    (0..r.size() * factor).map(|value| reference::preimage(&values, value)).collect();
                let refined =
                    longer.is_some_and(|longer| reference::is_layout(&longer, &[r.size() * factor]));
                assert!(!refined, "{a}: {r} is not the longest");
            }
        }
    });
}

#[test]
fn left_inverse_finds_the_index_of_each_index() {
    for_each_one(|a| {
        let values = reference::values(a);
        let zero = a.leaves().any(|(extent, stride)| extent > 1 && stride == 0);
        match a.left_inverse() {
            Ok(r) if zero => {
                assert!(values.iter().all(|v| r.at(*v).map(|i| values[i as usize]) == Ok(*v)), "{a}, {r}");
            }
            Ok(r) => {
                assert!(values.iter().enumerate().all(|(i, v)| r.at(*v) == Ok(i as i64)), "{a}, {r}");
            }
            Err(error) => {
                assert_eq!(error.code(), "inadmissible");
                assert!(!a.is_compact(), "{a} is a permutation and must have an inverse");
            }
        }
    });
}

#[test]
fn inverses_of_a_permutation_agree() {
    for_each_one(|a| {
        if a.is_compact() {
            let (left, right) = (a.left_inverse().expect("compact"), a.right_inverse().expect("compact"));
            assert_eq!(left, right, "{a}");
            assert!(left.left_inverse().expect("compact").is_equivalent(a), "{a}");
        }
    });
}

#[test]
fn nullspace_is_what_modes_of_stride_zero_map_to_zero() {
    for_each_one(|a| {
        let n = a.nullspace();
        let indices = reference::values(&n);
        assert!(reference::is_injective(&indices) && indices.iter().all(|i| a.at(*i) == Ok(0)), "{a}, {n}");
        if a.filter().is_injective() == Answer::Yes {
            let zeros = reference::values(a).iter().filter(|value| **value == 0).count();
            // Leaves of extent 1 and equal strides do not matter; filtering may have dropped equal leaves.
            let moving: i64 = a.leaves().filter(|leaf| leaf.1 != 0).map(|leaf| leaf.0).product();
            if moving == a.filter().size() {
                assert_eq!(zeros as i64, n.size(), "{a}, {n}");
            }
        }
    });
}

#[test]
fn upcast_undoes_downcast() {
    for_each_one(|a| {
        for width in [1, 2, 3, 8] {
            if let Ok(narrow) = a.downcast(width) {
                assert_eq!(narrow.upcast(width).as_ref(), Ok(a), "by {width}");
                let mut expected: Vec<i64> = reference::values(a)
                    .iter()
                    .flat_map(|o| (0..width).map(move |k| o * width + k))
                    .collect();
                let mut values = reference::values(&narrow);
                expected.sort_unstable();
                values.sort_unstable();
                assert_eq!(values, expected, "{a} by {width}");
            }
        }
    });
}

#[test]
fn predicates_say_what_the_values_say() {
    for_each_one(|a| {
        let values = reference::values(a);
        assert_eq!(a.is_injective(), reference::is_injective(&values).into(), "{a}");
        assert!(!a.is_orthogonal() || reference::is_injective(&values), "{a}");
        let mut sorted = values;
        sorted.sort_unstable();
        assert_eq!(a.is_compact(), sorted.iter().copied().eq(0..a.size()), "{a}");
        sorted.dedup();
        for bound in 1..=20 {
            assert_eq!(a.is_surjective_onto(bound), sorted.iter().copied().eq(0..bound), "{a} onto {bound}");
        }
    });
}
