//! Elements of a tensor that are not contiguous: transposed, in Fortran order, or a part of a larger storage.
//!
//! The element at index `i` is at offset `first + sum(i[d] * strides[d])` of the storage. Callers see the
//! row-major order, of which any range can be read:
//!
//! ```text
//! a range of the row-major order --> boxes, at most two for each dim and one more
//! a box --> the dims in the order of their strides; the innermost contiguous ones are one read
//! ```
//!
//! A region consists of such boxes too. So of a tensor without other elements between its own, with dims in
//! any order, exactly the requested bytes are read; if there are gaps, short ones are read too.

use std::hash::{Hash, Hasher};

use reshard_layout::internal::counted;
use reshard_sharding::Region;
use reshard_sharding::internal::{Run, shared};

use crate::bytes::{self as bytes, Access, Bytes};
use crate::error::Error;

/// The most bytes of one read.
const BLOCK: usize = 1 << 20;

/// The sparsity limit: gaps are read if at least one element in this number is requested.
const GAPS: usize = 16;

/// Elements in a strided order.
#[derive(Clone)]
pub(crate) struct Strided {
    stored: Bytes,
    item: usize,
    first: usize,
    /// Extents and strides, in elements.
    dims: Vec<Dim>,
    numel: usize,
    /// `true` if no other elements are between its own.
    dense: bool,
}

#[derive(Clone, Copy)]
struct Dim {
    extent: usize,
    stride: usize,
}

/// A dim of a box: the distances between its elements in the storage, and in the row-major order.
#[derive(Clone, Copy)]
struct Side {
    count: usize,
    stride: usize,
    to: usize,
}

/// Returns a tensor's bytes in row-major order, from a strided storage; extents and strides are checked.
pub(crate) fn strided(
    stored: Bytes,
    item: usize,
    first: usize,
    shape: &[usize],
    strides: &[usize],
) -> Result<Bytes, Error> {
    let malformed = |why: String| Err(Error::malformed("strides", why));
    if shape.len() != strides.len() {
        return malformed(format!("shape {shape:?} and strides {strides:?} have different numbers of dims"));
    }
    let numel = shape.iter().try_fold(1_usize, |numel, extent| numel.checked_mul(*extent));
    let too_large = || Error::malformed("strides", format!("shape {shape:?} has more than 2^64 elements"));
    let numel = numel.filter(|numel| numel.checked_mul(item).is_some()).ok_or_else(too_large)?;
    if numel == 0 {
        return Ok(stored.part(0, 0));
    }
    let held = stored.len() / item;
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(first, |last, (extent, stride)| last.checked_add((extent - 1).checked_mul(*stride)?));
    if last.is_none_or(|last| last >= held) {
        return malformed(format!(
            "shape {shape:?} with strides {strides:?} from element {first} on goes past the {held} stored elements"
        ));
    }
    if numel > held {
        let message = format!(
            "shape {shape:?} has {numel}, but only {held} are stored: it was expanded; save it as `.contiguous()`",
            numel = counted(numel, "element", "elements")
        );
        return Err(Error::unsupported("strides", message));
    }
    let mut next = 1;
    let mut row_major = true;
    for (extent, stride) in shape.iter().zip(strides).rev() {
        row_major &= *extent == 1 || *stride == next;
        next *= extent;
    }
    if row_major {
        return Ok(stored.part(first * item, numel * item));
    }
    let dense = last.is_some_and(|last| last - first + 1 == numel);
    let dims = shape.iter().zip(strides);
    let dims = dims.map(|(extent, stride)| Dim { extent: *extent, stride: *stride }).collect();
    Ok(Bytes::Strided(Box::new(Strided { stored, item, first, dims, numel, dense })))
}

/// Returns the elements of a loop nest over a storage, the outermost loop first: extents, and strides in elements.
///
/// A stride of 0 repeats elements.
pub(crate) fn nest(
    stored: Bytes,
    item: usize,
    first: usize,
    loops: &[(usize, usize)],
) -> Result<Bytes, Error> {
    let numel = loops.iter().try_fold(1_usize, |numel, (extent, _)| numel.checked_mul(*extent));
    let last = loops
        .iter()
        .try_fold(first, |last, (extent, stride)| last.checked_add((extent - 1).checked_mul(*stride)?));
    let numel = numel.filter(|numel| numel.checked_mul(item).is_some());
    let (Some(numel), Some(last)) = (numel, last.filter(|last| *last < stored.len() / item)) else {
        return Err(Error::internal(format!(
            "a loop nest {loops:?} from element {first} on goes past the {} stored bytes",
            stored.len()
        )));
    };
    let mut next = 1;
    let row_major = loops.iter().rev().all(|(extent, stride)| {
        let is_next = *stride == next;
        next *= extent;
        is_next
    });
    if row_major && !matches!(stored, Bytes::Strided(_)) {
        return Ok(stored.part(first * item, numel * item));
    }
    let dense = last - first + 1 == numel && loops.iter().all(|(_, stride)| *stride > 0);
    let dims = loops.iter().map(|(extent, stride)| Dim { extent: *extent, stride: *stride }).collect();
    Ok(Bytes::Strided(Box::new(Strided { stored, item, first, dims, numel, dense })))
}

impl Strided {
    pub(crate) fn len(&self) -> usize {
        self.numel * self.item
    }

    pub(crate) fn hash_place(&self, hasher: &mut impl Hasher) {
        self.stored.hash_place(hasher);
        let dims: Vec<(usize, usize)> = self.dims.iter().map(|dim| (dim.extent, dim.stride)).collect();
        (2, self.item, self.first, dims).hash(hasher);
    }

    pub(crate) fn stored(&self) -> &Bytes {
        &self.stored
    }

    /// Reads a range of the row-major order, which must be within it.
    pub(crate) fn read_at(&self, access: &Access<'_>, at: usize, room: &mut [u8]) -> Result<(), Error> {
        if !at.is_multiple_of(self.item) || !room.len().is_multiple_of(self.item) {
            let message = format!(
                "requested {} at offset {at}, but elements have {} bytes",
                counted(room.len(), "byte", "bytes"),
                self.item
            );
            return Err(Error::internal(message));
        }
        let elements = at / self.item..(at + room.len()) / self.item;
        self.stretch(access, 0, self.first, elements.start, elements.end, room)
    }

    /// Returns `true` if its dims are those of a region.
    pub(crate) fn is_of(&self, held: &Region) -> bool {
        self.dims.iter().map(|dim| dim.extent).eq(held.local_shape().iter().copied())
    }

    /// Reads the intersection of two regions: from these elements of `held` to their offsets in `wanted`.
    pub(crate) fn read_shared(
        &self,
        access: &Access<'_>,
        held: &Region,
        wanted: &Region,
        room: &mut [u8],
    ) -> Result<(), Error> {
        let runs: Vec<Vec<Run>> =
            held.dims.iter().zip(&wanted.dims).map(|(held, wanted)| shared(held, wanted)).collect();
        let mut to = vec![1; self.dims.len()];
        for dim in (1..to.len()).rev() {
            to[dim - 1] = to[dim] * wanted.dims[dim].iter().map(|x| x.len).sum::<usize>();
        }
        self.product(access, &runs, &to, &mut Vec::new(), self.first, room)
    }

    /// Reads every combination of the runs of the dims.
    fn product(
        &self,
        access: &Access<'_>,
        runs: &[Vec<Run>],
        to: &[usize],
        sides: &mut Vec<Side>,
        base: usize,
        room: &mut [u8],
    ) -> Result<(), Error> {
        let dim = self.dims.len() - runs.len();
        let Some((of_dim, runs)) = runs.split_first() else {
            return self.boxed(access, &mut sides.clone(), base, room);
        };
        let (stride, to_stride) = (self.dims[dim].stride, to[dim]);
        for run in of_dim {
            sides.push(Side { count: run.len, stride, to: to_stride });
            sides.push(Side {
                count: run.count,
                stride: stride * run.source_step,
                to: to_stride * run.target_step,
            });
            let room = &mut room[run.target * to_stride * self.item..];
            self.product(access, runs, to, sides, base + run.source * stride, room)?;
            sides.truncate(sides.len() - 2);
        }
        Ok(())
    }

    /// Reads the elements from `begin` to `end` of the dims from `depth` on, whose first is stored at `base`.
    fn stretch(
        &self,
        access: &Access<'_>,
        depth: usize,
        base: usize,
        begin: usize,
        end: usize,
        room: &mut [u8],
    ) -> Result<(), Error> {
        if begin == end {
            return Ok(());
        }
        let rest: usize = self.dims.iter().skip(depth + 1).map(|dim| dim.extent).product();
        let Some(dim) = self.dims.get(depth) else {
            return self.boxed(access, &mut Vec::new(), base, room);
        };
        let (first, last) = (begin / rest, (end - 1) / rest);
        let at = |index: usize| base + index * dim.stride;
        if first == last && end - begin < rest {
            return self.stretch(
                access,
                depth + 1,
                at(first),
                begin - first * rest,
                end - first * rest,
                room,
            );
        }
        // A row that is begun, rows that are whole, and a row that ends early.
        let whole = begin.div_ceil(rest)..end / rest;
        let (head, tail) = room.split_at_mut((whole.start * rest - begin) * self.item);
        let (body, tail) = tail.split_at_mut(whole.len() * rest * self.item);
        if !head.is_empty() {
            self.stretch(access, depth + 1, at(first), begin - first * rest, rest, head)?;
        }
        if !whole.is_empty() {
            let mut sides = Vec::with_capacity(self.dims.len() - depth);
            let mut to = 1;
            for (number, dim) in self.dims.iter().enumerate().skip(depth).rev() {
                let count = if number == depth { whole.len() } else { dim.extent };
                sides.push(Side { count, stride: dim.stride, to });
                to *= count;
            }
            self.boxed(access, &mut sides, at(whole.start), body)?;
        }
        if !tail.is_empty() {
            self.stretch(access, depth + 1, at(whole.end), 0, end - whole.end * rest, tail)?;
        }
        Ok(())
    }

    /// Reads a box, whose first element is stored at `base`, to its offsets in the row-major order.
    fn boxed(
        &self,
        access: &Access<'_>,
        sides: &mut Vec<Side>,
        base: usize,
        room: &mut [u8],
    ) -> Result<(), Error> {
        sides.retain(|side| side.count > 1);
        sides.sort_by_key(|side| side.stride);
        // The innermost dims that are read at once.
        let (mut inner, mut span, mut count) = (0, 1, 1);
        for side in &*sides {
            let longer = span + (side.count - 1) * side.stride;
            let more = count * side.count;
            let over_gaps = !self.dense && inner == 0 && longer <= more.saturating_mul(GAPS);
            if (longer != more && !over_gaps) || longer * self.item > BLOCK {
                break;
            }
            (inner, span, count) = (inner + 1, longer, more);
        }
        let (inner, outer) = sides.split_at(inner);
        let mut block = Vec::new();
        bytes::resize(&mut block, span * self.item)?;
        self.outer(access, inner, outer, base, 0, &mut block, room)
    }

    #[allow(clippy::too_many_arguments, reason = "the positions in the stored data and in the read data")]
    fn outer(
        &self,
        access: &Access<'_>,
        inner: &[Side],
        outer: &[Side],
        base: usize,
        to: usize,
        block: &mut [u8],
        room: &mut [u8],
    ) -> Result<(), Error> {
        if let Some((side, outer)) = outer.split_last() {
            for index in 0..side.count {
                let (base, to) = (base + index * side.stride, to + index * side.to);
                self.outer(access, inner, outer, base, to, block, room)?;
            }
            return Ok(());
        }
        access.read_at(base * self.item, block)?;
        scatter(inner, self.item, block, 0, to, room);
        Ok(())
    }
}

/// Copies the elements of a block to their target offsets.
fn scatter(sides: &[Side], item: usize, block: &[u8], at: usize, to: usize, room: &mut [u8]) {
    let Some((side, inner)) = sides.split_last() else {
        room[to * item..(to + 1) * item].copy_from_slice(&block[at * item..(at + 1) * item]);
        return;
    };
    for index in 0..side.count {
        scatter(inner, item, block, at + index * side.stride, to + index * side.to, room);
    }
}

#[cfg(test)]
mod tests {
    use super::strided;
    use crate::bytes::Bytes;

    /// Every tensor of up to three dims over a small storage: each range equals its separate elements.
    #[test]
    fn stretches_are_the_elements_in_row_major_order() {
        let stored: Vec<u8> = (0..96).collect();
        let (held, item) = (48, 2);
        let shapes = [&[][..], &[5], &[3, 4], &[4, 3], &[2, 3, 4], &[1, 3, 2], &[2, 1, 5], &[3, 0]];
        let mut tried = 0;
        for shape in shapes {
            for code in 0..7_usize.pow(shape.len() as u32) {
                let strides: Vec<usize> = (0..shape.len())
                    .map(|dim| [0, 1, 2, 3, 4, 6, 12][code / 7_usize.pow(dim as u32) % 7])
                    .collect();
                for first in [0, 5] {
                    let numel: usize = shape.iter().product();
                    let index = |mut at: usize| {
                        let mut place = first;
                        for (extent, stride) in shape.iter().zip(&strides).rev() {
                            place += at % extent * stride;
                            at /= extent;
                        }
                        place
                    };
                    let bytes = strided(Bytes::from(stored.clone()), item, first, shape, &strides);
                    let fits = (0..numel).all(|at| index(at) < held);
                    let Ok(bytes) = bytes else {
                        assert!(!fits || numel > held, "{shape:?} {strides:?} {first}");
                        continue;
                    };
                    assert!(fits && bytes.len() == numel * item);
                    let whole: Vec<u8> =
                        (0..numel).flat_map(|at| stored[index(at) * item..][..item].to_vec()).collect();
                    let access = bytes.access().unwrap();
                    for begin in 0..=numel {
                        for end in begin..=numel {
                            let mut room = vec![0; (end - begin) * item];
                            access.read_at(begin * item, &mut room).unwrap();
                            assert_eq!(
                                room,
                                whole[begin * item..end * item],
                                "{shape:?} {strides:?} {first}"
                            );
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert!(tried > 10_000, "{tried}");
    }

    #[test]
    fn sizes_that_go_past_what_is_stored_are_refused() {
        let wrong: [(usize, &[usize], &[usize]); 6] = [
            (0, &[49], &[1]),
            (1, &[48], &[1]),
            (0, &[2, 2], &[1]),
            (0, &[usize::MAX, 3], &[0, 0]),
            (0, &[2, 2], &[usize::MAX, 1]),
            (0, &[100], &[0]),
        ];
        for (first, shape, strides) in wrong {
            let refused = strided(Bytes::from(vec![0; 96]), 2, first, shape, strides);
            assert_eq!(refused.err().unwrap().code(), "strides", "{shape:?} {strides:?}");
        }
    }
}
