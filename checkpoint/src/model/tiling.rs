//! Checks that boxes tile a box: every index in exactly one of them.
//!
//! Represent a box by the function that is 1 on it and 0 elsewhere. Boxes tile the whole exactly if the sum
//! of their functions is that of the whole. A function of `d` indices with finite support is determined by
//! its differences along every dim. Those of a box are `+1` or `-1` at each of its `2^d` corners:
//!
//! ```text
//! one dim:    [start, end)  ->  +1 at start, -1 at end        two dims: the product, +1 -1 / -1 +1
//! ```
//!
//! So the boxes tile the whole exactly if the signed corners add up to those of the whole: inner ones cancel.
//! This takes a constant number of steps per box. A dim that all boxes have in full is left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::error::Error;

/// The largest number of corners that are examined.
const MOST_CORNERS: u64 = 1 << 22;

/// A box: its start and end in every dim.
pub(crate) type Part<'a> = (&'a [usize], &'a [usize]);

/// Returns `true` if boxes with elements, all within a box of this shape, tile it.
pub(crate) fn tiles<'a>(
    shape: &[usize],
    boxes: impl Iterator<Item = Part<'a>> + Clone,
) -> Result<bool, Error> {
    let mut cut = vec![false; shape.len()];
    let mut count = 0_u64;
    for (start, len) in boxes.clone() {
        count += 1;
        for (dim, extent) in shape.iter().enumerate() {
            cut[dim] |= start[dim] != 0 || len[dim] != *extent;
        }
    }
    let cut: Vec<usize> = (0..shape.len()).filter(|dim| cut[*dim]).collect();
    let corners = 1_u64.checked_shl(cut.len() as u32).and_then(|corners| corners.checked_mul(count));
    if cut.len() > 32 || corners.is_none_or(|corners| corners > MOST_CORNERS) {
        let message = format!("{count} chunks that split {} dims are too many to check", cut.len());
        return Err(Error::unsupported("chunks", message));
    }
    let mut sums: HashMap<Box<[usize]>, i64> = HashMap::new();
    let mut add = |start: &dyn Fn(usize) -> usize, end: &dyn Fn(usize) -> usize, sign: i64| {
        for corner in 0..1_u64 << cut.len() {
            let place = cut
                .iter()
                .enumerate()
                .map(|(at, dim)| if corner >> at & 1 == 1 { end(*dim) } else { start(*dim) });
            let sign = if corner.count_ones() % 2 == 1 { -sign } else { sign };
            match sums.entry(place.collect()) {
                Entry::Vacant(new) => drop(new.insert(sign)),
                Entry::Occupied(mut sum) => {
                    *sum.get_mut() += sign;
                    if *sum.get() == 0 {
                        sum.remove();
                    }
                }
            }
        }
    };
    for (start, len) in boxes {
        add(&|dim| start[dim], &|dim| start[dim] + len[dim], 1);
    }
    if !shape.contains(&0) {
        add(&|_| 0, &|dim| shape[dim], -1);
    }
    Ok(sums.is_empty())
}

#[cfg(test)]
mod tests {
    use reshard_test_support::Random;

    use super::tiles;

    /// Random boxes, and true tilings with one box changed, compared with a count of every index.
    #[test]
    fn boxes_tile_where_every_index_is_in_one() {
        let mut r = Random(5);
        let mut found = [0, 0];
        for round in 0..4000 {
            let shape: Vec<usize> = (0..r.below(4)).map(|_| 1 + r.below(4)).collect();
            let mut boxes = vec![(vec![0; shape.len()], shape.clone())];
            for _ in 0..r.below(6) {
                if shape.is_empty() {
                    break;
                }
                let (start, len) = boxes.swap_remove(r.below(boxes.len()));
                let dim = r.below(shape.len());
                let at = r.below(len[dim] + 1);
                let (mut low, mut high, mut moved) = (len.clone(), len.clone(), start.clone());
                low[dim] = at;
                high[dim] -= at;
                moved[dim] += at;
                boxes.push((start, low));
                boxes.push((moved, high));
                boxes.retain(|(_, len)| !len.contains(&0));
            }
            if round % 2 == 1 && !shape.is_empty() {
                let (number, dim) = (r.below(boxes.len()), r.below(shape.len()));
                let one = &mut boxes[number];
                one.0[dim] = r.below(shape[dim]);
                one.1[dim] = 1 + r.below(shape[dim] - one.0[dim]);
            }
            if round % 7 == 0 {
                boxes.pop();
            }
            let numel: usize = shape.iter().product();
            let inside = |at: usize, (start, len): &(Vec<usize>, Vec<usize>)| {
                let mut rest = at;
                (0..shape.len()).rev().all(|dim| {
                    let index = rest % shape[dim];
                    rest /= shape[dim];
                    (start[dim]..start[dim] + len[dim]).contains(&index)
                })
            };
            let expected = (0..numel).all(|at| boxes.iter().filter(|one| inside(at, one)).count() == 1);
            let said = tiles(&shape, boxes.iter().map(|(start, len)| (&start[..], &len[..]))).unwrap();
            assert_eq!(said, expected, "{shape:?} {boxes:?}");
            found[usize::from(said)] += 1;
        }
        assert!(found.iter().all(|count| *count > 500), "{found:?}");
    }
}
