//! Where the elements of a local buffer lie.
//!
//! Plans speak of dense row-major local buffers. A rank's real source and target may lie otherwise: transposed, channels
//! last, padded. [`Memory`] says how, and compiling rewrites the plan's loop nests accordingly, so that the copies absorb
//! the difference and nothing moves twice.
//!
//! With the row-major index of a local element cut into mixed-radix digits, one per leaf of the memory layout, the element
//! lies at the dot product of its digits with the leaves' strides. A loop of stride `d` is cut where it first carries into
//! a next digit; the pieces advance by fixed amounts unless a *sum* of loops carries, and then the outermost loop is
//! unrolled until none does:
//!
//! ```text
//! P_k = product of the extents below digit k        (r, d):  m = min(r, min over P_k not dividing d of ceil(P_k / (d mod P_k)))
//! exact if   offset mod P_k + sum_j (m_j - 1) (d_j mod P_k) < P_k   for every k
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use reshard_kernels::{Loop, Nest, Side};
use reshard_layout::Layout;
use reshard_sharding::redistribute::Phase;
use smallvec::SmallVec;

use crate::Error;

/// How the ranks lay out their local buffers; the same value on every rank.
///
/// ```
/// use reshard_collectives::Memory;
/// let transposed = Memory::Order(vec![1, 0]); // dim 1 outermost, dim 0 dense
/// assert_eq!(transposed.layout(0, &[2, 3])?.unwrap().to_string(), "(2,3):(1,2)");
/// assert_eq!(Memory::RowMajor.layout(0, &[2, 3])?, None);
/// assert_eq!("order 1,0".parse::<Memory>()?, transposed);
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Dense, the last dim fastest; what plans assume.
    #[default]
    RowMajor,
    /// Dense, with the dims from slowest to fastest: `[1, 0]` is transposed, `[0, 2, 3, 1]` channels last.
    Order(Vec<usize>),
    /// A layout per rank with one mode per dim: local coordinates to elements of the buffer. Ranks that are not
    /// mentioned are row-major.
    Layouts(BTreeMap<usize, Layout>),
}

impl fmt::Display for Memory {
    /// `row_major`, `order 2,0,1`, or `layouts 0=(2,3):(1,2) 4=..`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::RowMajor => f.write_str("row_major"),
            Memory::Order(order) => {
                let dims: Vec<String> = order.iter().map(usize::to_string).collect();
                write!(f, "order {}", dims.join(","))
            }
            Memory::Layouts(layouts) => {
                f.write_str("layouts")?;
                layouts.iter().try_for_each(|(rank, layout)| write!(f, " {rank}={layout}"))
            }
        }
    }
}

impl FromStr for Memory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Memory, Error> {
        let wrong = |what: String| Error::Parse {
            input: text.to_string(),
            message: format!("{what}: write row_major, order 1,0 or layouts 0=(2,3):(1,2)"),
        };
        let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match kind {
            "row_major" if rest.is_empty() => Ok(Memory::RowMajor),
            "order" => {
                let dim = |dim: &str| dim.trim().parse().map_err(|_| wrong(format!("{dim:?} is no dim")));
                let dims = rest.split(',').filter(|dim| !dim.trim().is_empty());
                dims.map(dim).collect::<Result<_, _>>().map(Memory::Order)
            }
            "layouts" => {
                let one = |item: &str| {
                    let (rank, layout) =
                        item.split_once('=').ok_or_else(|| wrong(format!("{item:?} is no rank=layout")))?;
                    let rank = rank.parse().map_err(|_| wrong(format!("{rank:?} is no rank")))?;
                    Ok((rank, layout.parse::<Layout>()?))
                };
                rest.split_whitespace().map(one).collect::<Result<_, Error>>().map(Memory::Layouts)
            }
            _ => Err(wrong(format!("{kind:?} is no memory"))),
        }
    }
}

impl Memory {
    /// The layout of a rank's buffer, one mode per dim; `None` if it is dense and row-major, or if it is empty.
    ///
    /// Errors: [`Error::Memory`] if the order is no permutation of the dims, or the layout's modes have other extents
    /// than the local shape, or reach negative elements.
    pub fn layout(&self, rank: usize, local_shape: &[usize]) -> Result<Option<Layout>, Error> {
        let wrong = |message: String| Err(Error::Memory { rank, message });
        if local_shape.contains(&0) {
            return Ok(None);
        }
        match self {
            Memory::RowMajor => Ok(None),
            Memory::Order(order) => {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..local_shape.len()) {
                    return wrong(format!("{order:?} is not an order of {} dims", local_shape.len()));
                }
                let mut modes = vec![(1, 0); local_shape.len()];
                let mut stride = 1i64;
                for &dim in order.iter().rev() {
                    modes[dim] = (local_shape[dim] as i64, stride);
                    let next = stride.checked_mul(local_shape[dim] as i64);
                    stride = next.ok_or(reshard_kernels::Error::Overflow { what: "the size of a buffer" })?;
                }
                Ok(Some(Layout::from_modes(&modes)?))
            }
            Memory::Layouts(layouts) => {
                let Some(layout) = layouts.get(&rank) else { return Ok(None) };
                let extents: Vec<i64> = layout.modes().map(|mode| mode.size()).collect();
                let scalar = local_shape.is_empty() && layout.size() == 1;
                if !scalar && !extents.iter().copied().eq(local_shape.iter().map(|n| *n as i64)) {
                    return wrong(format!(
                        "{layout} has modes of sizes {extents:?}, the shard {local_shape:?}"
                    ));
                }
                if layout.min_value() < 0 {
                    return wrong(format!("{layout} reaches element {}", layout.min_value()));
                }
                Ok(Some(layout.clone()))
            }
        }
    }
}

/// One buffer's memory, ready to map loop nests.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// Digits of the row-major index, slowest first, with their strides; `None` for the identity.
    digits: Option<SmallVec<[(i64, i64); 6]>>,
    /// Where row-major element 0 lies in the tensor's memory.
    start: i64,
    /// Elements of the tensor's memory.
    pub(crate) len: usize,
    /// Where the tensor's memory begins in the buffer.
    base: i64,
}

impl Map {
    /// A dense buffer.
    pub(crate) fn dense(len: usize) -> Map {
        Map { digits: None, start: 0, len, base: 0 }
    }

    /// The same memory, so many elements into a buffer.
    pub(crate) fn at_element(mut self, base: usize) -> Map {
        self.base = base as i64;
        self
    }

    /// Elements that the buffer must have; `None` if there is no such number.
    pub(crate) fn end(&self) -> Option<usize> {
        usize::try_from(self.base).ok()?.checked_add(self.len)
    }

    /// The memory of a rank's shard.
    pub(crate) fn new(memory: &Memory, rank: usize, local_shape: &[usize]) -> Result<Map, Error> {
        let len = local_shape.iter().try_fold(1usize, |n, e| n.checked_mul(*e));
        let len = len.ok_or(reshard_kernels::Error::Overflow { what: "the size of a shard" })?;
        let Some(layout) = memory.layout(rank, local_shape)? else { return Ok(Map::dense(len)) };
        let mut digits = SmallVec::new();
        for mode in layout.modes() {
            digits.extend(mode.leaves().rev().filter(|leaf| leaf.0 > 1));
        }
        Ok(Map { digits: Some(digits), start: 0, len: layout.cosize() as usize, base: 0 })
    }

    /// This buffer as seen through a local phase that only picks some of its elements: the phase's target is then not a
    /// buffer but a way to read this one. `None` unless the phase is one block that fills its target in order.
    pub(crate) fn through(&self, phase: &Phase, rank: usize) -> Option<Map> {
        let [message] = phase.receives.as_slice() else { return None };
        let [block] = message.blocks.as_slice() else { return None };
        let picks =
            phase.fill.is_none() && phase.reduce.is_none() && phase.sends.is_empty() && message.peer == rank;
        if !picks || phase.target_len == 0 || block.target_offset != 0 {
            return None;
        }
        let loops = block.modes.iter().filter(|m| m.extent > 1);
        let loops = loops.map(|m| Loop::new(m.extent, m.source_stride as i64, m.target_stride as i64));
        let mut nests = self.within(Nest::new(block.source_offset as i64, 0, loops), Side::Source);
        let mut nest = nests.pop().filter(|_| nests.is_empty())?;
        nest.loops.sort_by_key(|l| std::cmp::Reverse(l.target_stride));
        let mut dense = 1;
        for l in nest.loops.iter().rev() {
            if l.target_stride != dense {
                return None;
            }
            dense *= l.extent as i64;
        }
        let digits = nest.loops.iter().map(|l| (l.extent as i64, l.source_stride)).collect();
        let start = nest.source_offset;
        let map = Map { digits: Some(digits), start, len: self.len, base: self.base };
        (dense == phase.target_len as i64).then_some(map)
    }

    /// Where a row-major index lies, from the start.
    fn at(&self, index: i64) -> i64 {
        let Some(digits) = &self.digits else { return index };
        let (mut left, mut offset) = (index, 0);
        for &(extent, stride) in digits.iter().rev() {
            offset += left % extent * stride;
            left /= extent;
        }
        offset
    }

    /// The nests that reach, on one side, the places of the row-major elements that `nest` reaches; in the same order.
    pub(crate) fn apply(&self, nest: Nest, side: Side) -> Vec<Nest> {
        let mut nests = self.within(nest, side);
        for nest in &mut nests {
            match side {
                Side::Source => nest.source_offset += self.base,
                Side::Target => nest.target_offset += self.base,
            }
        }
        nests
    }

    /// The same in the tensor's memory.
    fn within(&self, nest: Nest, side: Side) -> Vec<Nest> {
        let Some(digits) = &self.digits else { return vec![nest] };
        if nest.is_empty() {
            return Vec::new();
        }
        // The boundaries P_k: products of the faster digits.
        let mut boundaries: SmallVec<[i64; 6]> = SmallVec::new();
        let mut product = 1;
        for &(extent, _) in digits.iter().rev() {
            product *= extent;
            boundaries.push(product);
        }
        boundaries.pop();
        let mut result = Vec::new();
        self.cut(&nest, side, &boundaries, &mut result);
        result
    }

    fn cut(&self, nest: &Nest, side: Side, boundaries: &[i64], result: &mut Vec<Nest>) {
        if let Some(mapped) = self.try_map(nest, side, boundaries) {
            result.push(mapped);
            return;
        }
        // Unroll the outermost loop; with no loop left an element always maps.
        let outermost = nest.loops.iter().position(|l| l.extent > 1).unwrap_or(0);
        let Some(unrolled) = nest.loops.get(outermost).copied() else { return };
        for i in 0..unrolled.extent as i64 {
            let mut part = nest.clone();
            part.loops.remove(outermost);
            part.source_offset += i * unrolled.source_stride;
            part.target_offset += i * unrolled.target_stride;
            self.cut(&part, side, boundaries, result);
        }
    }

    fn try_map(&self, nest: &Nest, side: Side, boundaries: &[i64]) -> Option<Nest> {
        let offset = match side {
            Side::Source => nest.source_offset,
            Side::Target => nest.target_offset,
        };
        let mut need: SmallVec<[i64; 6]> = boundaries.iter().map(|p| offset % p).collect();
        let mut mapped = Nest::new(nest.source_offset, nest.target_offset, []);
        for l in &nest.loops {
            let mut pieces: SmallVec<[Loop; 4]> = SmallVec::new();
            let (mut left, mut source, mut target) = (l.extent as i64, l.source_stride, l.target_stride);
            if left == 1 {
                continue;
            }
            loop {
                let stride = match side {
                    Side::Source => source,
                    Side::Target => target,
                };
                let first_carry = |p: &i64| {
                    let rest = stride % p;
                    (rest != 0).then(|| (p + rest - 1) / rest)
                };
                let extent = boundaries.iter().filter_map(first_carry).fold(left, i64::min);
                if left % extent != 0 {
                    return None;
                }
                for (need, p) in need.iter_mut().zip(boundaries) {
                    *need += (extent - 1) * (stride % p);
                }
                let place = self.at(stride);
                pieces.push(match side {
                    Side::Source => Loop::new(extent as usize, place, target),
                    Side::Target => Loop::new(extent as usize, source, place),
                });
                left /= extent;
                if left <= 1 {
                    break;
                }
                (source, target) = (source * extent, target * extent);
            }
            mapped.loops.extend(pieces.into_iter().rev());
        }
        if need.iter().zip(boundaries).any(|(need, p)| need >= p) {
            return None;
        }
        match side {
            Side::Source => mapped.source_offset = self.start + self.at(offset),
            Side::Target => mapped.target_offset = self.start + self.at(offset),
        }
        Some(mapped)
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::{TestResult, quickcheck};
    use reshard_kernels::reference::pairs;

    use super::*;

    quickcheck! {
        /// Every element of the mapped nests is the memory's image of the row-major one, in order.
        fn mapping_keeps_the_elements(shape: Vec<u8>, order: Vec<u8>, loops: Vec<(u8, u8)>, offset: u8) -> TestResult {
            let shape: Vec<usize> = shape.iter().take(3).map(|e| usize::from(e % 5) + 1).collect();
            let size: usize = shape.iter().product();
            let mut by: Vec<usize> = (0..shape.len()).collect();
            by.sort_by_key(|k| order.get(*k).copied().unwrap_or(0));
            let map = Map::new(&Memory::Order(by), 0, &shape).unwrap();
            let loops: Vec<Loop> = loops
                .iter()
                .take(3)
                .map(|(e, d)| Loop::new(usize::from(e % 4) + 1, i64::from(d % 13), 1))
                .collect();
            let nest = Nest::new(i64::from(offset % 9), 5, loops);
            if nest.extremes(Side::Source).unwrap().is_some_and(|(_, last)| last as usize >= size) {
                return TestResult::discard();
            }
            let mapped: Vec<(i64, i64)> = map.apply(nest.clone(), Side::Source).iter().flat_map(pairs).collect();
            let direct: Vec<(i64, i64)> = pairs(&nest).into_iter().map(|(s, t)| (map.at(s), t)).collect();
            TestResult::from_bool(mapped == direct)
        }
    }

    #[test]
    fn memories_print_and_parse() {
        for text in ["row_major", "order 2,0,1", "order ", "layouts", "layouts 0=(2,3):(1,2) 7=(4,1):(3,0)"] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!(memory.to_string(), text);
            assert_eq!(memory.to_string().parse::<Memory>(), Ok(memory));
        }
        let message = "columns".parse::<Memory>().unwrap_err().to_string();
        assert_eq!(
            message,
            "\"columns\" is no memory: write row_major, order 1,0 or layouts 0=(2,3):(1,2), not \"columns\""
        );
        assert!("order 0,x".parse::<Memory>().is_err() && "layouts 0".parse::<Memory>().is_err());
    }

    #[test]
    fn memory_that_does_not_fit_says_why() {
        let message = |memory: Memory, shape: &[usize]| memory.layout(3, shape).unwrap_err().to_string();
        assert_eq!(
            message(Memory::Order(vec![0, 0]), &[2, 3]),
            "memory of rank 3: [0, 0] is not an order of 2 dims"
        );
        let layouts = Memory::Layouts(BTreeMap::from([(3, "(2,4):(1,2)".parse().unwrap())]));
        assert_eq!(
            message(layouts, &[2, 3]),
            "memory of rank 3: (2,4):(1,2) has modes of sizes [2, 4], the shard [2, 3]"
        );
    }
}
