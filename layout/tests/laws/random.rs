//! The same properties over random layouts of up to eight leaves, with shrinking.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck gives every argument by value")]

use reshard_layout::algebra::{ComposedLayout, Tiler};
use reshard_layout::{Layout, Swizzle, reference};
use reshard_test_support::{Arbitrary, Gen, Property, Sweep, TestResult, Testable, property};

/// The greatest size of a random layout, so that enumerating its values stays quick.
const MAX_SIZE: i64 = 2048;

/// A random layout: strides are products of extents, as in practice, or anything.
#[derive(Clone, Debug)]
struct Random(Layout);

fn below(g: &mut Gen, bound: u64) -> i64 {
    (u64::arbitrary(g) % bound) as i64
}

/// Nests random neighbouring modes.
fn nest(g: &mut Gen, mut modes: Vec<Layout>) -> Layout {
    while modes.len() > 1 && below(g, 3) > 0 {
        let start = below(g, modes.len() as u64) as usize;
        let end = (start + 1 + below(g, 3) as usize).min(modes.len());
        let group = Layout::concat(&modes[start..end]).expect("small");
        modes.splice(start..end, [group]);
    }
    match &modes[..] {
        [one] => one.clone(),
        _ => Layout::concat(&modes).expect("small"),
    }
}

impl Arbitrary for Random {
    fn arbitrary(g: &mut Gen) -> Self {
        let count = 1 + below(g, 8);
        let (mut size, mut leaves) = (1, Vec::new());
        for _ in 0..count {
            let extent = [1, 2, 2, 3, 4, 4, 6, 8][below(g, 8) as usize];
            if size * extent <= MAX_SIZE {
                size *= extent;
                leaves.push((extent, 0));
            }
        }
        // The steps of a compact layout in a random order, padded now and then.
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, below(g, at as u64 + 1) as usize);
        }
        let mut step = 1;
        for at in order {
            leaves[at].1 = match below(g, 12) {
                0 => 0,
                1 => below(g, 40) - 8,
                _ => step,
            };
            step *= leaves[at].0 + i64::from(below(g, 8) == 0);
        }
        let scalars =
            leaves.into_iter().map(|(extent, stride)| Layout::scalar(extent, stride).expect("small"));
        let modes: Vec<Layout> = scalars.collect();
        Self(nest(g, modes))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let leaves: Vec<(i64, i64)> = self.0.leaves().collect();
        let fewer = (0..leaves.len()).map({
            let leaves = leaves.clone();
            move |at| {
                let mut leaves = leaves.clone();
                leaves.remove(at);
                leaves
            }
        });
        let smaller = (0..leaves.len()).flat_map({
            move |at| {
                let leaves = leaves.clone();
                let (extent, stride) = leaves[at];
                [(extent - 1, stride), (extent / 2, stride), (extent, stride / 2), (extent, 0)].map(
                    move |leaf| {
                        let mut leaves = leaves.clone();
                        leaves[at] = leaf;
                        leaves
                    },
                )
            }
        });
        let this = self.0.to_string();
        let flat = fewer.chain(smaller).filter(|leaves| !leaves.is_empty());
        Box::new(
            flat.filter_map(|leaves| Layout::from_modes(&leaves).ok())
                .filter(move |layout| layout.to_string() != this)
                .map(Self),
        )
    }
}

fn check(property: Property, law: impl Testable) {
    property.tests(Sweep::asked().count(5_000, 200_000)).holds(law);
}

#[test]
fn notation_round_trips() {
    fn law(a: Random) -> bool {
        a.0.to_string().parse().as_ref() == Ok(&a.0)
            && serde_json::to_string(&a.0)
                .is_ok_and(|json| serde_json::from_str::<Layout>(&json).is_ok_and(|b| b == a.0))
    }
    check(property!(), law as fn(Random) -> bool);
}

#[test]
fn coalesce_keeps_the_function() {
    fn law(a: Random) -> bool {
        reference::values(&a.0) == reference::values(&a.0.coalesce())
            && a.0.coalesce().coalesce() == a.0.coalesce()
    }
    check(property!(), law as fn(Random) -> bool);
}

#[test]
fn compose_is_composition_of_functions_or_says_why_not() {
    fn law(a: Random, b: Random) -> TestResult {
        let (a, b) = (a.0, b.0);
        let Some(expected) = reference::compose(&a, &b) else {
            return TestResult::from_bool(a.compose(&b).is_err_and(|error| error.code() == "out_of_domain"));
        };
        match a.compose(&b) {
            Ok(r) => TestResult::from_bool(reference::values(&r) == expected && b.is_compatible(&r)),
            Err(error) => {
                let extents: Vec<i64> = b.leaves().map(|leaf| leaf.0).collect();
                let lazy = ComposedLayout::new(a.into(), 0, b).expect("in the domain");
                let same = (0..lazy.size()).all(|i| lazy.at(i) == Ok(expected[i as usize]));
                let right = error.code() == "not_representable" && !reference::is_layout(&expected, &extents);
                TestResult::from_bool(same && right)
            }
        }
    }
    check(property!(), law as fn(Random, Random) -> TestResult);
}

/// The same with strides for which carries of opposite weight can cancel.
#[test]
fn compose_is_exact_where_weights_have_both_signs() {
    fn law(a: Random, b: Random, signs: Vec<bool>) -> TestResult {
        let signs = signs.iter().copied().chain(std::iter::repeat(false));
        let modes: Vec<(i64, i64)> =
            a.0.leaves().zip(signs).map(|((s, d), minus)| (s, if minus { -d } else { d })).collect();
        let Ok(a) = Layout::from_modes(&modes) else { return TestResult::discard() };
        match reference::compose(&a, &b.0) {
            None => TestResult::discard(),
            Some(expected) => match a.compose(&b.0) {
                Ok(r) => TestResult::from_bool(reference::values(&r) == expected),
                Err(error) => {
                    let extents: Vec<i64> = b.0.leaves().map(|leaf| leaf.0).collect();
                    let none = !reference::is_layout(&expected, &extents);
                    TestResult::from_bool(error.code() == "not_representable" && none)
                }
            },
        }
    }
    check(property!(), law as fn(Random, Random, Vec<bool>) -> TestResult);
}

#[test]
fn complement_tiles() {
    fn law(a: Random, bound: u16) -> TestResult {
        let bound = i64::from(bound % 4096) + 1;
        let Ok(c) = a.0.complement(bound) else { return TestResult::discard() };
        let both = Layout::concat(&[a.0.filter(), c]).expect("small");
        let mut values = reference::values(&both);
        values.sort_unstable();
        let injective = values.windows(2).all(|pair| pair[0] < pair[1]);
        let exact = values.iter().copied().eq(0..bound) && reference::is_injective(&reference::values(&a.0));
        TestResult::from_bool(injective && a.0.tiles(bound) == Ok(exact))
    }
    check(property!(), law as fn(Random, u16) -> TestResult);
}

#[test]
fn inverses_invert() {
    fn law(a: Random) -> bool {
        let values = reference::values(&a.0);
        let r = a.0.right_inverse().expect("always exists");
        let right = reference::values(&r).iter().enumerate().all(|(i, j)| values[*j as usize] == i as i64);
        let left =
            a.0.left_inverse()
                .is_ok_and(|l| values.iter().all(|v| l.at(*v).map(|i| values[i as usize]) == Ok(*v)));
        right && (left || !a.0.is_compact())
    }
    check(property!(), law as fn(Random) -> bool);
}

#[test]
fn divide_is_a_permutation_when_the_tile_tiles() {
    fn law(a: Random, t: Random) -> TestResult {
        let (a, t) = (a.0, t.0);
        let tiles = t.tiles(a.size()) == Ok(true);
        match a.logical_divide(&Tiler::Layout(t)) {
            Ok(r) if tiles => {
                let (mut left, mut right) = (reference::values(&r), reference::values(&a));
                left.sort_unstable();
                right.sort_unstable();
                TestResult::from_bool(left == right)
            }
            Ok(_) | Err(_) => TestResult::discard(),
        }
    }
    check(property!(), law as fn(Random, Random) -> TestResult);
}

#[test]
fn swizzles_are_what_they_do_to_bits() {
    fn law(bits: u8, base: u8, shift: i8, index: u16) -> bool {
        let (bits, base, shift, index) = (bits % 8, base % 8, shift % 9, i64::from(index));
        let swizzle = Swizzle::new(bits, base, shift).expect("few bits");
        let value = swizzle.at(index).expect("not negative");
        let expected = if shift == 0 {
            index & !(((1_i64 << bits) - 1) << base)
        } else if i64::from(shift.unsigned_abs()) >= i64::from(bits) {
            reference::swizzle(bits, base, shift, index)
        } else {
            value
        };
        let involution = shift.unsigned_abs() < bits || swizzle.at(value) == Ok(index);
        value == expected && involution && swizzle.to_string().parse() == Ok(swizzle)
    }
    check(property!(), law as fn(u8, u8, i8, u16) -> bool);
}

#[test]
fn swizzles_compose_to_what_they_do_one_after_the_other() {
    fn law(a: (u8, u8, i8), b: (u8, u8, i8), inner: Random) -> bool {
        let make = |s: (u8, u8, i8)| Swizzle::new(s.0 % 4, s.1 % 4, s.2 % 5).expect("few bits");
        let (a, b) = (make(a), make(b));
        let chain = |i| b.at(i).and_then(|j| a.at(j));
        let after = a.after(b).is_none_or(|c| (0..1 << 10).all(|i| c.at(i) == chain(i)));
        let inner = inner.0;
        let layout = inner.min_value() < 0
            || a.compose(&inner).is_ok_and(|r| r.values().zip(inner.values()).all(|(v, i)| a.at(i) == Ok(v)))
            || a.compose(&inner).is_err_and(|error| {
                let values: Vec<i64> = inner.values().filter_map(|i| a.at(i).ok()).collect();
                let extents: Vec<i64> = inner.leaves().map(|leaf| leaf.0).collect();
                error.code() == "not_representable" && !reference::is_layout(&values, &extents)
            });
        after && layout
    }
    check(property!(), law as fn((u8, u8, i8), (u8, u8, i8), Random) -> bool);
}
