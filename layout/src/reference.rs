//! The definitions: slow, short, and written without the algebra.
//!
//! Every fast operation is compared with these definitions. A function on `[0, n)` is the list of its values;
//! nothing here coalesces, sorts by stride or reasons about carries. Sizes are small in tests, so these
//! enumerate without bounds: they are for tests and for reading, and take time and memory in proportion to
//! the sizes.

use std::collections::BTreeSet;

use crate::Layout;

/// Returns the values of a layout, from the definition.
///
/// Every index is split into coordinates, leftmost fastest.
///
/// ```
/// use reshard_layout::{Layout, reference};
///
/// assert_eq!(reference::values(&"(2,3):(3,1)".parse::<Layout>()?), [0, 3, 1, 4, 2, 5]);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
pub fn values(layout: &Layout) -> Vec<i64> {
    layout.leaves().fold(vec![0], |below, (extent, stride)| {
        (0..extent).flat_map(|c| below.iter().map(move |value| value + c * stride)).collect()
    })
}

/// Returns the values in lexicographic order: the rightmost coordinate is the fastest.
pub fn values_lexicographic(layout: &Layout) -> Vec<i64> {
    layout.leaves().fold(vec![0], |above, (extent, stride)| {
        above.iter().flat_map(|value| (0..extent).map(move |c| value + c * stride)).collect()
    })
}

/// Returns `outer(inner(i))` for all `i`, or `None` where a value is outside the domain of `outer`.
pub fn compose(outer: &Layout, inner: &Layout) -> Option<Vec<i64>> {
    let outer = values(outer);
    values(inner)
        .iter()
        .map(|value| usize::try_from(*value).ok().and_then(|at| outer.get(at).copied()))
        .collect()
}

/// Returns `true` if a function is a layout whose shape refines these extents.
///
/// That is so if some factorisation of every extent, with the strides that the function has at the steps of
/// the factors, has its values.
///
/// ```
/// use reshard_layout::reference;
///
/// assert!(reference::is_layout(&[0, 1, 10, 11], &[4]));
/// assert!(!reference::is_layout(&[0, 1, 2, 10, 11, 12], &[4, 2]));
/// assert!(!reference::is_layout(&[0, 1, 2, 3, 10, 11], &[6]));
/// ```
pub fn is_layout(function: &[i64], extents: &[i64]) -> bool {
    let at = |index: i64| usize::try_from(index).ok().and_then(|index| function.get(index)).copied();
    // Each leaf alone, then that the leaves add up.
    let mut below = 1;
    let alone = extents.iter().all(|&extent| {
        let leaf: Option<Vec<i64>> = (0..extent).map(|c| at(below * c)).collect();
        below *= extent;
        leaf.is_some_and(|leaf| factorises(&leaf))
    });
    let additive = (0..below).all(|index| {
        let (mut rest, mut below, mut sum) = (index, 1, 0);
        for extent in extents {
            sum += at(below * (rest % extent)).unwrap_or(0);
            rest /= extent;
            below *= extent;
        }
        at(index) == Some(sum)
    });
    alone && additive
}

/// Returns `true` if some layout of one leaf, refined in any manner, has these values.
fn factorises(values: &[i64]) -> bool {
    let size = values.len();
    if size == 1 {
        return values[0] == 0;
    }
    // The first factor and its stride; the rest must factorise in the same manner.
    (2..=size).filter(|factor| size.is_multiple_of(*factor)).any(|factor| {
        let rest: Vec<i64> = values.iter().step_by(factor).copied().collect();
        let linear = |(index, value): (usize, &i64)| {
            *value == (index % factor) as i64 * values[1] + rest[index / factor]
        };
        values.iter().enumerate().all(linear) && factorises(&rest)
    })
}

/// Returns the complement of a set of values that contains 0, from the definition.
///
/// These are the least offsets at which disjoint copies fit, up to `bound`.
///
/// ```
/// use reshard_layout::reference;
///
/// assert_eq!(reference::complement(&[0, 1, 4, 5], 16), [0, 2, 8, 10]);
/// ```
pub fn complement(values: &[i64], bound: i64) -> Vec<i64> {
    let mut covered = BTreeSet::new();
    let mut offsets = Vec::new();
    for offset in 0..bound {
        if values.iter().all(|value| !covered.contains(&(offset + value))) {
            covered.extend(values.iter().map(|value| offset + value));
            offsets.push(offset);
        }
    }
    offsets
}

/// Returns the only index with this value, if there is just one.
pub fn preimage(values: &[i64], value: i64) -> Option<i64> {
    let mut found = values.iter().enumerate().filter(|(_, other)| **other == value);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index as i64),
        (Some(_) | None, _) => None,
    }
}

/// Returns `true` if no value occurs twice.
pub fn is_injective(values: &[i64]) -> bool {
    values.iter().collect::<BTreeSet<_>>().len() == values.len()
}

/// Returns a swizzle, bit by bit.
pub fn swizzle(bits: u8, base: u8, shift: i8, index: i64) -> i64 {
    (0..i64::from(bits)).fold(index, |value, bit| {
        let low = i64::from(base) + bit;
        let distance = i64::from(shift.unsigned_abs());
        let (from, to) = if shift >= 0 { (low + distance, low) } else { (low, low + distance) };
        if index >> from & 1 == 1 { value ^ (1 << to) } else { value }
    })
}
