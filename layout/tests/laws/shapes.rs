//! Arithmetic of shapes, and how they nest.

use reshard_layout::{IntTuple, Layout};
use reshard_test_support::properties;

/// Every tuple of up to two components of these numbers, which may be pairs.
fn small() -> Vec<IntTuple> {
    let numbers: Vec<IntTuple> = (1..=6).map(IntTuple::scalar).collect();
    let pair = |a: &IntTuple, b: &IntTuple| IntTuple::tuple(&[a.clone(), b.clone()]).expect("two");
    let pairs: Vec<IntTuple> = numbers.iter().flat_map(|a| numbers.iter().map(|b| pair(a, b))).collect();
    let mut all = numbers.clone();
    all.extend(pairs.iter().cloned());
    all.extend(pairs.iter().step_by(5).flat_map(|a| numbers.iter().map(|b| pair(b, a))));
    all
}

/// The number, or the tuple, at the position of every leaf of `a`.
///
/// `None` if `b` is not nested like `a`, or deeper.
fn places(a: &IntTuple, b: &IntTuple) -> Option<Vec<(i64, i64)>> {
    match a.as_scalar() {
        Some(leaf) => Some(vec![(leaf, b.product().expect("small"))]),
        None if b.as_scalar().is_some() || a.rank() != b.rank() => None,
        None => {
            let parts: Option<Vec<_>> = a.modes().zip(b.modes()).map(|(a, b)| places(&a, &b)).collect();
            parts.map(|parts| parts.concat())
        }
    }
}

#[test]
fn relations_of_shapes_hold_leaf_by_leaf() {
    for a in &small() {
        for b in &small() {
            let places = places(a, b);
            let all = |holds: fn(&(i64, i64)) -> bool| {
                places.as_ref().is_some_and(|places| places.iter().all(holds))
            };
            assert_eq!(a.is_weakly_congruent(b), places.is_some(), "{a} {b}");
            assert_eq!(a.is_compatible(b), all(|(a, b)| a == b), "{a} {b}");
            assert_eq!(a.is_weakly_compatible(b), all(|(a, b)| b % a == 0), "{a} {b}");
            assert_eq!(a.is_softly_compatible(b), all(|(a, b)| a % b == 0), "{a} {b}");
            assert_eq!(a.is_congruent(b), a.is_weakly_congruent(b) && b.is_weakly_congruent(a), "{a} {b}");
            let scaled = a.elem_scale(b).map(|scaled| scaled.leaves().to_vec());
            let expected = places.map(|places| places.iter().map(|(a, b)| a * b).collect());
            assert_eq!(scaled.ok(), expected, "{a} {b}");
        }
    }
}

#[test]
fn division_of_shapes_is_from_the_left_and_leaf_by_leaf() {
    for a in small().iter().filter(|a| a.depth() == 1 && a.rank() == 2) {
        let [x, y] = a.leaves()[..] else { continue };
        for by in 1..=12_i64 {
            // As many as the first takes, and then the rest of the divisor.
            let first = (1..=x).find(|parts| parts * by >= x).expect("enough");
            let rest = (1..=by).find(|parts| parts * x >= by).expect("enough");
            let second = (1..=y).find(|parts| parts * rest >= y).expect("enough");
            assert_eq!(
                a.ceil_div(&by.into()).map(|q| q.leaves().to_vec()),
                Ok(vec![first, second]),
                "{a} / {by}"
            );
            let exact = |a: i64, b: i64| {
                (1..=a).find(|q| q * b == a).or_else(|| (1..=b).any(|q| q * a == b).then_some(1))
            };
            let expected =
                exact(x, by).zip(exact(by, x)).and_then(|(q, rest)| Some(vec![q, exact(y, rest)?]));
            assert_eq!(
                a.shape_div(&by.into()).ok().map(|q| q.leaves().to_vec()).is_some(),
                expected.is_some() && exact(exact(by, x).unwrap_or(1), y).is_some()
            );
            if let (Ok(q), Some(expected)) = (a.shape_div(&by.into()), expected) {
                assert_eq!(q.leaves(), expected, "{a} / {by}");
            }
        }
        for b in small().iter().filter(|b| b.rank() == 2 && b.depth() == 1) {
            let parts: Vec<i64> = a.leaves().iter().zip(b.leaves()).map(|(a, b)| (a + b - 1) / b).collect();
            assert_eq!(a.ceil_div(b).map(|q| q.leaves().to_vec()), Ok(parts), "{a} / {b}");
        }
    }
    let zero: IntTuple = "(4,0)".parse().expect("a tuple");
    assert_eq!(zero.ceil_div(&2.into()).map_err(|error| error.code()), Err("bad_extent"));
    assert_eq!(IntTuple::scalar(4).shape_div(&zero).map_err(|error| error.code()), Err("bad_extent"));
}

#[test]
fn an_index_and_its_coordinate_are_each_others() {
    for shape in small() {
        let size = shape.product().expect("small");
        let whole = Layout::column_major_of(&shape).expect("small");
        for index in 0..size {
            let coordinate = shape.coordinate(&index.into()).expect("inside");
            assert!(coordinate.is_congruent(&shape));
            assert_eq!(whole.offset_at(&coordinate), Ok(index));
            assert_eq!(shape.coordinate(&coordinate).as_ref(), Ok(&coordinate));
            assert_eq!(coordinate.inner_product(&whole.stride()), Ok(index));
            assert_eq!(whole.digits(index), Ok(coordinate));
        }
        assert_eq!(shape.coordinate(&size.into()).map_err(|error| error.code()), Err("out_of_domain"));
    }
}

properties! {
    fn arithmetic_of_any_numbers_is_answered_or_refused(a: Vec<i64>, b: Vec<i64>, c: i64) -> bool {
        let (Ok(a), Ok(b)) = (IntTuple::flat(&a), IntTuple::flat(&b)) else { return true };
        for other in [&b, &IntTuple::scalar(c)] {
            let _ = (a.ceil_div(other), a.shape_div(other), a.elem_scale(other), a.inner_product(other));
            let _ = (a.coordinate(other), a.product_each(), Layout::make_ordered(&a, other), a.append(other));
            let _ = (a.is_weakly_compatible(other), a.is_softly_compatible(other), a.is_weakly_congruent(other));
            let _ = Layout::domain_distribute(&a, c);
        }
        true
    }
}
