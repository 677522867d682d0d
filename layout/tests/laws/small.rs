//! All small layouts.

use std::slice::from_ref;

use reshard_layout::{IntTuple, Layout};
use reshard_test_support::Sweep;

/// Returns `true` if the larger spaces are requested, or an eighth of them.
pub(crate) fn full() -> bool {
    Sweep::asked().is_exhaustive()
}

/// Selects one case in `n` where a property is expensive, unless the larger spaces are requested.
pub(crate) fn one_in(n: u32) -> impl FnMut() -> bool {
    let mut case = 0;
    move || {
        case += 1;
        full() || case % n == 0
    }
}

/// Keeps the cases that the sweep takes, of all that it is called with.
fn taken() -> impl FnMut() -> bool {
    let (sweep, mut case) = (Sweep::asked(), 0);
    move || {
        case += 1;
        sweep.takes(case - 1)
    }
}

/// All leaves with these extents and strides.
fn leaves(extents: std::ops::RangeInclusive<i64>, strides: std::ops::RangeInclusive<i64>) -> Vec<(i64, i64)> {
    extents.flat_map(|extent| strides.clone().map(move |stride| (extent, stride))).collect()
}

/// Calls `law` with every flat layout of one up to `count` of these leaves; one leaf is a scalar.
fn for_each(leaves: &[(i64, i64)], count: usize, law: &mut impl FnMut(&Layout)) {
    fn extend(
        leaves: &[(i64, i64)],
        count: usize,
        modes: &mut Vec<(i64, i64)>,
        law: &mut impl FnMut(&Layout),
    ) {
        for &leaf in leaves {
            modes.push(leaf);
            match modes[..] {
                [(extent, stride)] => law(&Layout::scalar(extent, stride).expect("small")),
                _ => law(&Layout::from_modes(modes).expect("small")),
            }
            if count > 1 {
                extend(leaves, count - 1, modes, law);
            }
            modes.pop();
        }
    }
    extend(leaves, count, &mut Vec::new(), law);
}

/// All layouts of up to three leaves, extents to 4, strides to 8, and some negative ones.
pub(crate) fn for_each_one(mut law: impl FnMut(&Layout)) {
    let least = if full() { -8 } else { -1 };
    let (sweep, mut case) = (Sweep::asked(), 0);
    for_each(&leaves(1..=4, least..=8), 3, &mut |layout| {
        case += 1;
        if sweep.picks(4, case) {
            law(layout);
        }
    });
}

/// All layouts of up to two leaves, extents to 4, strides to 8.
pub(crate) fn up_to_two() -> Vec<Layout> {
    let mut all = Vec::new();
    for_each(&leaves(1..=4, if full() { -2 } else { 0 }..=8), 2, &mut |layout| all.push(layout.clone()));
    all
}

/// Calls `law` with pairs of layouts of up to two leaves each: one in seventeen, or all.
pub(crate) fn for_each_two(mut law: impl FnMut(&Layout, &Layout)) {
    let all = up_to_two();
    assert!(full() || !all.len().is_multiple_of(17), "the sample has every layout on both sides");
    let (mut taken, mut sampled) = (taken(), one_in(17));
    let mut pairs = 0_u64;
    for a in &all {
        for b in &all {
            if sampled() && taken() {
                law(a, b);
                pairs += 1;
            }
        }
    }
    assert!(pairs > Sweep::asked().least(100_000, 1_700_000), "{pairs}");
}

/// All layouts of up to two leaves, extents 2 and 3, strides to 4.
pub(crate) fn tiny() -> Vec<Layout> {
    let mut all = Vec::new();
    for_each(&leaves(2..=3, 0..=4), 2, &mut |layout| all.push(layout.clone()));
    all
}

/// The same leaves in every nesting of up to three of them, one-tuples included.
pub(crate) fn nestings(layout: &Layout) -> Vec<Layout> {
    let scalar = |leaf: (i64, i64)| Layout::scalar(leaf.0, leaf.1).expect("small");
    let tuple = |modes: &[Layout]| Layout::concat(modes).expect("small");
    let leaves: Vec<Layout> = layout.leaves().map(scalar).collect();
    match &leaves[..] {
        [a] => vec![a.clone(), tuple(from_ref(a)), tuple(&[tuple(from_ref(a))])],
        [a, b] => {
            let flat = tuple(&[a.clone(), b.clone()]);
            vec![flat.clone(), tuple(&[flat]), tuple(&[tuple(from_ref(a)), b.clone()])]
        }
        [a, b, c] => vec![
            tuple(&leaves),
            tuple(&[tuple(&[a.clone(), b.clone()]), c.clone()]),
            tuple(&[a.clone(), tuple(&[b.clone(), c.clone()])]),
            tuple(&[a.clone(), tuple(&[tuple(from_ref(b))]), c.clone()]),
        ],
        _ => vec![layout.clone()],
    }
}

/// The profile under which a layout does not merge its modes.
pub(crate) fn ones(rank: usize) -> IntTuple {
    IntTuple::flat(&vec![1; rank]).expect("at least one")
}
