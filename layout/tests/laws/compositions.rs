//! Compositions as operands of each other: the function by coordinates decides.

use reshard_layout::algebra::{ComposedLayout, Form, SlicePattern, Tiler};
use reshard_layout::{Error, Layout, Swizzle, reference};

use crate::small::{one_in, tiny, up_to_two};
use crate::swizzled::values;

/// A few compositions over layouts of all kinds.
///
/// They have no outer function, one swizzle or another, and begin at 0 or elsewhere.
fn compositions() -> Vec<ComposedLayout> {
    let swizzles = ["Sw<0,0,0>", "Sw<1,0,1>", "Sw<2,0,2>", "Sw<1,1,2>", "Sw<1,0,-2>"];
    let layouts =
        ["4:1", "(2,4):(1,2)", "(4,4):(4,1)", "(2,2):(8,2)", "(3,2):(1,3)", "(2,(2,2)):(1,(8,4))", "2:0"];
    let mut all = Vec::new();
    for swizzle in swizzles.map(|text| text.parse::<Swizzle>().expect("a swizzle")) {
        for layout in layouts.map(|text| text.parse::<Layout>().expect("a layout")) {
            for offset in [0, 2, 16] {
                all.push(ComposedLayout::partial(swizzle.into(), offset, layout.clone()));
            }
        }
    }
    all
}

fn total(composed: &ComposedLayout) -> Vec<i64> {
    values(composed).into_iter().map(|value| value.expect("a value")).collect()
}

/// Applies one function to the values of another one, if all of them are indices.
fn through(f: &[i64], indices: &[i64]) -> Option<Vec<i64>> {
    indices.iter().map(|&i| f.get(usize::try_from(i).ok()?).copied()).collect()
}

/// `f(i) + g(j)` for all `(i, j)`, `i` fastest.
fn sums(f: &[i64], g: &[i64]) -> Vec<i64> {
    g.iter().flat_map(|right| f.iter().map(move |left| left + right)).collect()
}

#[test]
fn parts_beside_each_other_are_their_sum_or_no_one_function_is_applied_last() {
    let (mut there, mut refused) = (0, 0);
    for f in &compositions() {
        for g in &compositions() {
            let sum = sums(&total(f), &total(g));
            match ComposedLayout::concat(&[f.clone(), g.clone()]) {
                Ok(both) => {
                    assert_eq!(total(&both), sum, "({f}, {g})");
                    there += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), "not_representable", "({f}, {g})");
                    // Applied last to the sum of the inner functions it gives other values.
                    let inner = Layout::concat(&[f.inner().clone(), g.inner().clone()]).expect("small");
                    for outer in [f.outer(), g.outer()] {
                        let both =
                            ComposedLayout::partial(outer.clone(), f.offset() + g.offset(), inner.clone());
                        let first = if f.is_from_offset() { g.outer() } else { f.outer() };
                        assert!(outer != first || total(&both) != sum, "({f}, {g})");
                    }
                    refused += 1;
                }
            }
        }
    }
    assert!(there > 1_000 && refused > 1_000, "{there} {refused}");
}

#[test]
fn a_layout_or_composition_after_a_composition_is_one_function_of_the_other() {
    let (mut there, mut refused) = (0, 0);
    let mut taken = one_in(5);
    for g in &compositions() {
        let indices = total(g);
        for a in up_to_two().iter().filter(|a| a.min_value() >= 0) {
            if !taken() {
                continue;
            }
            let expected = through(&reference::values(a), &indices);
            match g.after(a) {
                Ok(after) => {
                    assert_eq!(Some(total(&after)), expected, "{a} o {g}");
                    there += 1;
                }
                Err(error) => {
                    assert!(error.code() != "out_of_domain" || expected.is_none(), "{a} o {g}: {error}");
                    refused += usize::from(expected.is_some());
                }
            }
            // The last leaf without end has a value for all of them.
            match ComposedLayout::from(a.clone()).compose_extended(g) {
                Ok(after) => {
                    let extended: Vec<i64> =
                        indices.iter().map(|&i| a.at_extended(i).expect("an index")).collect();
                    // A last leaf of extent 1 may continue downwards, and a swizzle accepts only non-negative
                    // indices.
                    if extended.iter().all(|&value| value >= 0) {
                        assert_eq!(total(&after), extended, "{a} extended o {g}");
                    }
                }
                Err(error) => {
                    assert!(["not_representable", "inadmissible"].contains(&error.code()), "{error}");
                }
            }
        }
        for f in &compositions() {
            let expected = through(&total(f), &indices);
            match f.compose(g) {
                Ok(after) => assert_eq!(Some(total(&after)), expected, "{f} o {g}"),
                Err(error) => {
                    assert!(error.code() != "out_of_domain" || expected.is_none(), "{f} o {g}: {error}");
                }
            }
        }
    }
    assert!(there > 1_000 && refused > 100, "{there} {refused}");
}

#[test]
fn from_its_first_value_on_a_composition_is_a_layout_or_none() {
    for f in &compositions() {
        let all = total(f);
        match f.from_first_value() {
            Ok((start, layout)) => {
                assert_eq!(start, all[0]);
                assert!(reference::values(&layout).iter().map(|value| start + value).eq(all), "{f}");
            }
            Err(error) => assert_eq!(error.code(), "not_representable", "{f}"),
        }
    }
}

#[test]
fn what_is_divided_by_a_composition_is_its_function_of_the_tile_and_of_the_rest() {
    let mut there = 0;
    for tile in &compositions() {
        for size in [16, 32, 64] {
            let Ok(rest) = tile.complement(size) else { continue };
            let both = sums(&total(tile), &reference::values(&rest));
            assert!(
                reference::is_injective(&both) || !reference::is_injective(&total(tile)),
                "({tile}, {rest})"
            );
            for a in ["1:0", "4:2", "(4,4):(4,1)"].map(|text| text.parse::<Layout>().expect("a layout")) {
                let a =
                    Layout::concat(&[Layout::scalar(size / a.size(), 64).expect("small"), a]).expect("small");
                let expected = through(&reference::values(&a), &both);
                let extended: Vec<i64> = both.iter().map(|&i| a.at_extended(i).expect("an index")).collect();
                if let Ok(divided) = ComposedLayout::from(a.clone()).divide_extended(tile, Form::Flat) {
                    assert_eq!(total(&divided), extended, "{a} extended / {tile}");
                }
                for form in [Form::Logical, Form::Tiled, Form::Flat] {
                    match ComposedLayout::from(a.clone()).divide(tile, form) {
                        Ok(divided) => {
                            assert_eq!(Some(total(&divided)), expected, "{a} / {tile}");
                            there += 1;
                        }
                        Err(error) => {
                            assert!(expected.is_none() || error.code() != "out_of_domain", "{error}");
                        }
                    }
                }
            }
        }
    }
    assert!(there > 300, "{there}");
}

#[test]
fn what_is_repeated_after_a_composition_begins_with_itself_and_is_injective() {
    let mut there = 0;
    for a in tiny() {
        for pattern in &compositions() {
            match ComposedLayout::from(a.clone()).product(pattern, Form::Logical) {
                Ok(product) => {
                    let (all, of_a) = (total(&product), reference::values(&a));
                    let start = all[0];
                    assert!(
                        all.iter().zip(&of_a).all(|(value, of_a)| value - start == *of_a),
                        "{a} x {pattern}"
                    );
                    let once = reference::is_injective(&of_a) && reference::is_injective(&total(pattern));
                    assert!(!once || reference::is_injective(&all), "{a} x {pattern}");
                    there += 1;
                }
                Err(error) => assert_ne!(error.code(), "parse"),
            }
        }
    }
    assert!(there > 300, "{there}");
}

#[test]
fn tiles_and_parts_of_threads_of_a_composition_are_its_values_there() {
    let tensor: Layout = "(8,12):(12,1)".parse().expect("a layout");
    let tiler: Tiler = "<4,3>".parse().expect("a tiler");
    let threads: Layout = "(2,3):(3,1)".parse().expect("a layout");
    for swizzle in ["Sw<2,0,2>", "Sw<1,1,-2>", "Sw<0,0,0>"].map(|text| text.parse::<Swizzle>().expect("one"))
    {
        for offset in [0, 5] {
            let f = ComposedLayout::partial(swizzle.into(), offset, tensor.clone());
            let all = total(&f);
            let at = |row: i64, column: i64| all[(row + 8 * column) as usize];
            for tile in 0..8 {
                let (down, right) = (tile % 2, tile / 2);
                let pattern: SlicePattern = format!("({down},{right})").parse().expect("a pattern");
                let found = total(&f.local_tile(&tiler, &pattern).expect("inside"));
                let expected = (0..12).map(|i| at(4 * down + i % 4, 3 * right + i / 4));
                assert!(found.into_iter().eq(expected), "{f} {pattern}");
            }
            for thread in 0..6 {
                let (row, column) = (thread / 3, thread % 3);
                let found = total(&f.local_partition(&threads, thread).expect("inside"));
                let expected = (0..16).map(|i| at(row + 2 * (i % 4), column + 3 * (i / 4)));
                assert!(found.into_iter().eq(expected), "{f} {thread}");
            }
        }
    }
}

#[test]
fn what_two_compositions_have_in_common_are_neighbours_in_both() {
    for f in &compositions() {
        for g in &compositions() {
            let common = f.max_common_layout(g).expect("swizzles of layouts");
            for (i, at) in reference::values(&common).into_iter().enumerate() {
                for all in [total(f), total(g)] {
                    assert_eq!(all[at as usize], all[0] + i as i64, "{f} and {g}: {common}");
                }
            }
        }
    }
}

#[test]
fn questions_about_values_are_answered_by_the_values() {
    let yes = |answer: Result<bool, Error>| answer.expect("small");
    for f in &compositions() {
        let mut all = total(f);
        assert_eq!(
            f.is_injective().expect("total").to_string() == "yes",
            reference::is_injective(&all),
            "{f}"
        );
        all.sort_unstable();
        all.dedup();
        for bound in [1, 2, 4, 8, 16] {
            assert_eq!(yes(f.is_surjective_onto(bound)), all.iter().copied().eq(0..bound), "{f}");
        }
        for g in &compositions() {
            assert_eq!(yes(f.is_equivalent(g)), total(f) == total(g), "{f}, {g}");
            let common = total(g).iter().any(|value| *value != 0 && all.contains(value));
            assert_eq!(f.is_disjoint(g).expect("total").to_string() == "no", common, "{f}, {g}");
        }
    }
}
