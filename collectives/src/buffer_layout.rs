//! Memory layouts of local buffers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use reshard_kernels::{CopySide, LoopNest};
use reshard_layout::Layout;
use reshard_layout::{Mode, Modes};
use reshard_planner::{Block, Phase};
use smallvec::SmallVec;

use crate::Error;

/// The memory layouts of the ranks' local buffers; the same value on every rank.
///
/// Plans assume dense row-major local buffers. A rank's real source and target may be transposed, channels
/// last or padded. [`BufferLayout`] describes this, and compiling rewrites the plan's loop nests accordingly,
/// so that the copies absorb the difference and no element is copied twice.
///
/// A memory layout `A` maps the row-major index of a local element to its offset. A block of a plan is a
/// nest, a layout of pairs, and on one side its values are such indices. The real offsets of its elements are
/// therefore a composition:
///
/// ```text
/// nest(i) = (b(i), t(i))    becomes    (A(b(i)), t(i))               Layout::compose_at, which carries t along
/// ```
///
/// Such a nest does not exist if the modes of `b` jointly carry over a boundary between modes of `A`. Then
/// the slowest mode is unrolled, until each part has one.
///
/// ```
/// use reshard_collectives::BufferLayout;
/// let transposed = BufferLayout::Order(vec![1, 0]); // dim 1 outermost, dim 0 dense
/// assert_eq!("order 1,0".parse::<BufferLayout>()?, transposed);
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BufferLayout {
    /// Dense, the last dim fastest; the layout that plans assume.
    #[default]
    RowMajor,
    /// Dense, with the dims from slowest to fastest: `[1, 0]` is transposed, `[0, 2, 3, 1]` channels last.
    Order(Vec<usize>),
    /// A layout per rank with one mode per dim, from local coordinates to elements of the buffer.
    ///
    /// Ranks that are not listed are row-major.
    Layouts(BTreeMap<usize, Layout>),
}

impl fmt::Display for BufferLayout {
    /// Writes `row_major`, `order 2,0,1`, or `layouts 0=(2,3):(1,2) 4=..`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferLayout::RowMajor => f.write_str("row_major"),
            BufferLayout::Order(order) => {
                let dims: Vec<String> = order.iter().map(usize::to_string).collect();
                write!(f, "order {}", dims.join(","))
            }
            BufferLayout::Layouts(layouts) => {
                f.write_str("layouts")?;
                layouts.iter().try_for_each(|(rank, layout)| write!(f, " {rank}={layout}"))
            }
        }
    }
}

impl FromStr for BufferLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<BufferLayout, Error> {
        let wrong = |what: String| Error::Parse {
            input: text.to_string(),
            message: format!("{what}; expected row_major, order 1,0 or layouts 0=(2,3):(1,2)"),
        };
        let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match kind {
            "row_major" if rest.is_empty() => Ok(BufferLayout::RowMajor),
            "order" => {
                let dim = |dim: &str| dim.trim().parse().map_err(|_| wrong(format!("invalid dim {dim:?}")));
                let dims = rest.split(',').filter(|dim| !dim.trim().is_empty());
                dims.map(dim).collect::<Result<_, _>>().map(BufferLayout::Order)
            }
            "layouts" => {
                let one = |item: &str| {
                    let (rank, layout) =
                        item.split_once('=').ok_or_else(|| wrong(format!("{item:?} is not rank=layout")))?;
                    let rank = rank.parse().map_err(|_| wrong(format!("invalid rank {rank:?}")))?;
                    Ok((rank, layout.parse::<Layout>()?))
                };
                rest.split_whitespace().map(one).collect::<Result<_, Error>>().map(BufferLayout::Layouts)
            }
            _ => Err(wrong(format!("unknown buffer layout {kind:?}"))),
        }
    }
}

impl BufferLayout {
    /// Returns the layout of a rank's buffer, one mode per dim.
    ///
    /// `None` if the buffer is dense and row-major, or empty. Errors: [`Error::Memory`] if the order is not a
    /// permutation of the dims, or the layout's modes have other extents than the local shape, or reach
    /// negative elements.
    ///
    /// ```
    /// use reshard_collectives::BufferLayout;
    /// let transposed = BufferLayout::Order(vec![1, 0]);
    /// assert_eq!(transposed.layout(0, &[2, 3])?.unwrap().to_string(), "(2,3):(1,2)");
    /// assert_eq!(BufferLayout::RowMajor.layout(0, &[2, 3])?, None);
    /// # Ok::<(), reshard_collectives::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn layout(&self, rank: usize, local_shape: &[usize]) -> Result<Option<Layout>, Error> {
        let wrong = |message: String| Err(Error::Memory { rank, message });
        if local_shape.contains(&0) {
            return Ok(None);
        }
        match self {
            BufferLayout::RowMajor => Ok(None),
            BufferLayout::Order(order) => {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..local_shape.len()) {
                    return wrong(format!("{order:?} is not a permutation of {} dims", local_shape.len()));
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
            BufferLayout::Layouts(layouts) => {
                let Some(layout) = layouts.get(&rank) else { return Ok(None) };
                let extents: Vec<i64> = layout.modes().map(|mode| mode.size()).collect();
                let scalar = local_shape.is_empty() && layout.size() == 1;
                if !scalar && !extents.iter().copied().eq(local_shape.iter().map(|n| *n as i64)) {
                    return wrong(format!(
                        "{layout} has modes of sizes {extents:?}, but the shard has shape {local_shape:?}"
                    ));
                }
                if layout.min_value() < 0 {
                    return wrong(format!(
                        "{layout} reaches element {}, before the buffer",
                        layout.min_value()
                    ));
                }
                Ok(Some(layout.clone()))
            }
        }
    }
}

/// The memory of one buffer, prepared to map nests.
#[derive(Clone, Debug)]
pub(crate) struct BufferMap {
    /// From the row-major index to offsets in the tensor's memory, from `start` on; `None` for the identity.
    layout: Option<Layout>,
    /// Offset of row-major element 0 in the tensor's memory.
    start: i64,
    /// Number of elements of the tensor's memory.
    pub(crate) len: usize,
    /// Offset of the tensor's memory in the buffer, in elements.
    base: i64,
}

/// A few nests, usually one.
pub(crate) type Nests = SmallVec<[LoopNest; 1]>;

/// Converts a block of a plan to a nest.
pub(crate) fn nest_of(block: &Block) -> LoopNest {
    LoopNest::new(block.source_offset as i64, block.target_offset as i64, block.modes.iter().copied())
}

impl BufferMap {
    /// Returns the map of a dense buffer.
    pub(crate) fn dense(len: usize) -> BufferMap {
        BufferMap { layout: None, start: 0, len, base: 0 }
    }

    /// Returns the same memory, offset by `base` elements into a buffer.
    pub(crate) fn at_element(mut self, base: usize) -> BufferMap {
        self.base = base as i64;
        self
    }

    /// Returns the number of elements that the buffer must have; `None` on overflow.
    pub(crate) fn end(&self) -> Option<usize> {
        usize::try_from(self.base).ok()?.checked_add(self.len)
    }

    /// Returns the memory of a rank's shard.
    pub(crate) fn new(memory: &BufferLayout, rank: usize, local_shape: &[usize]) -> Result<BufferMap, Error> {
        let len = local_shape.iter().try_fold(1usize, |n, e| n.checked_mul(*e));
        let len = len.ok_or(reshard_kernels::Error::Overflow { what: "the size of a shard" })?;
        let Some(layout) = memory.layout(rank, local_shape)? else { return Ok(BufferMap::dense(len)) };
        // The last dim is the fastest of the row-major index.
        let dims: SmallVec<[&[Mode]; 8]> = layout.flat_modes().collect();
        let by_index: Modes = dims.into_iter().rev().flatten().copied().collect();
        let len = layout.cosize() as usize;
        Ok(BufferMap { layout: Some(Layout::from_flat(by_index.coalesce())?), start: 0, len, base: 0 })
    }

    /// Returns this buffer as seen through a local phase that only picks some of its elements.
    ///
    /// The phase's target is then not a buffer but a view of this one. `None` unless the phase is one block
    /// that fills its target in order.
    pub(crate) fn through(&self, phase: &Phase, rank: usize) -> Option<BufferMap> {
        let [message] = phase.receives.as_slice() else { return None };
        let [block] = message.blocks.as_slice() else { return None };
        let picks = phase.fill_identity.is_none()
            && phase.reduce.is_none()
            && phase.sends.is_empty()
            && message.peer == rank;
        if !picks || phase.target_len == 0 || block.target_offset != 0 {
            return None;
        }
        let mut nest = nest_of(block);
        nest.modes.retain(|mode| mode.extent > 1);
        let (start, mut modes) = match &self.layout {
            None => (nest.source_offset, nest.modes),
            Some(layout) => layout.compose_at(nest.source_offset, &nest.modes).ok()?,
        };
        // Each index of the target occurs once: its modes, in their order, are those of a compact layout.
        modes.sort_by_key(|mode| mode.stride.1);
        let mut dense = 1;
        for mode in &modes {
            if mode.stride.1 != dense {
                return None;
            }
            dense *= mode.extent;
        }
        let by_index: Modes = modes.iter().map(|mode| mode.map(|(source, _)| source)).collect();
        let layout = Layout::from_flat(by_index.coalesce()).ok()?;
        let map = BufferMap { layout: Some(layout), start: self.start + start, ..*self };
        (dense == phase.target_len as i64).then_some(map)
    }

    /// Maps nests, on one side, from row-major elements to the offsets of these elements, in the same order.
    ///
    /// Errors: indices that are outside of this memory.
    pub(crate) fn apply(&self, nests: &mut Nests, side: CopySide) -> Result<(), Error> {
        if side == CopySide::Target {
            nests.iter_mut().for_each(swap);
        }
        if let Some(layout) = &self.layout {
            let mut composed = Nests::with_capacity(nests.len());
            for nest in nests.iter().filter(|nest| !nest.is_empty()) {
                compose(layout, nest, &mut composed)?;
            }
            *nests = composed;
        }
        for nest in nests {
            nest.source_offset += self.base + self.start;
            if side == CopySide::Target {
                swap(nest);
            }
        }
        Ok(())
    }
}

/// Swaps source and target.
fn swap(nest: &mut LoopNest) {
    std::mem::swap(&mut nest.source_offset, &mut nest.target_offset);
    nest.modes.iter_mut().for_each(|mode| *mode = mode.map(|(source, target)| (target, source)));
}

/// Maps the source of a nest through a layout; unrolls the slowest mode if a single nest does not exist.
fn compose(layout: &Layout, nest: &LoopNest, composed: &mut Nests) -> Result<(), Error> {
    let carry = match layout.compose_at(nest.source_offset, &nest.modes) {
        Ok((source_offset, modes)) => {
            composed.push(LoopNest { source_offset, modes, ..*nest });
            return Ok(());
        }
        Err(carry @ reshard_layout::Error::NotRepresentable { .. }) => carry,
        Err(error) => return Err(error.into()),
    };
    let mut part = nest.clone();
    let Some(slowest) = part.modes.pop() else { return Err(carry.into()) };
    for i in 0..slowest.extent {
        part.source_offset = nest.source_offset + i * slowest.stride.0;
        part.target_offset = nest.target_offset + i * slowest.stride.1;
        compose(layout, &part, composed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reshard_kernels::reference::pairs;
    use reshard_test_support::{TestResult, properties};

    use super::*;

    properties! {
        /// `apply(N)(i) = (A(b(i)), t(i))` with `N(i) = (b(i), t(i))`, in order, on either side.
        fn applying_is_composition(shape: Vec<u8>, order: Vec<u8>, modes: Vec<(u8, u8, i8)>, offset: u8) -> TestResult {
            let Some((shape, memory, nest)) = drawn(&shape, &order, &modes, offset) else { return TestResult::discard() };
            let map = BufferMap::new(&memory, 0, &shape).unwrap().at_element(100);
            let direct = || pairs(&nest).into_iter().map(|(s, t)| (100 + place(&memory, &shape, s), t));
            let mut back = nest.clone();
            swap(&mut back);
            let there = applied(&map, nest.clone(), CopySide::Source).unwrap();
            let back = applied(&map, back, CopySide::Target).unwrap();
            let all = |nests: &[LoopNest]| -> Vec<(i64, i64)> { nests.iter().flat_map(pairs).collect() };
            let swapped: Vec<(i64, i64)> = all(&back).into_iter().map(|(s, t)| (t, s)).collect();
            TestResult::from_bool(all(&there) == direct().collect::<Vec<_>>() && swapped == all(&there))
        }
    }

    fn applied(map: &BufferMap, nest: LoopNest, side: CopySide) -> Result<Vec<LoopNest>, Error> {
        let mut nests = Nests::from_iter([nest]);
        map.apply(&mut nests, side)?;
        Ok(nests.into_vec())
    }

    /// Draws a shape, a dense or padded memory of it, and a nest whose source is within it.
    fn drawn(
        shape: &[u8],
        order: &[u8],
        modes: &[(u8, u8, i8)],
        offset: u8,
    ) -> Option<(Vec<usize>, BufferLayout, LoopNest)> {
        let shape: Vec<usize> = shape.iter().take(3).map(|e| usize::from(e % 5) + 1).collect();
        let mut by: Vec<usize> = (0..shape.len()).collect();
        by.sort_by_key(|k| order.get(*k).copied().unwrap_or(0));
        let mut memory = BufferLayout::Order(by);
        if let Some(layout) = memory.layout(0, &shape).unwrap()
            && !shape.is_empty()
            && offset.is_multiple_of(3)
        {
            // Gaps between the elements, and dims of 4 with the odd coordinates after the even ones.
            let halves = |(extent, stride): (i64, i64)| match extent {
                4 => Layout::from_modes(&[(2, 6 * stride), (2, 3 * stride)]).unwrap(),
                _ => Layout::scalar(extent, 3 * stride).unwrap(),
            };
            let dims: Vec<Layout> = layout.leaves().map(halves).collect();
            memory = BufferLayout::Layouts(BTreeMap::from([(0, Layout::concat(&dims).unwrap())]));
        }
        let modes = modes.iter().take(3);
        let modes = modes.map(|(e, d, t)| Mode::new(i64::from(e % 5), (i64::from(d % 13), i64::from(*t))));
        let nest = LoopNest::new(i64::from(offset % 9), 5, modes);
        let last = nest.extremes(CopySide::Source).unwrap().map_or(0, |(_, last)| last);
        (last < shape.iter().product::<usize>() as i64).then_some((shape, memory, nest))
    }

    /// The definition: the coordinates of a row-major index, and the offset of each by its mode.
    fn place(memory: &BufferLayout, shape: &[usize], index: i64) -> i64 {
        let layout = memory.layout(0, shape).unwrap().unwrap();
        let (mut left, mut place) = (index, 0);
        for (dim, extent) in shape.iter().enumerate().rev() {
            place += layout.mode(dim).unwrap().at(left % *extent as i64).unwrap();
            left /= *extent as i64;
        }
        place
    }

    #[test]
    fn a_nest_that_carries_is_unrolled_as_far_as_it_must_be() {
        let map = BufferMap::new(&BufferLayout::Order(vec![1, 0]), 0, &[4, 6]).unwrap();
        let apply = |nest| applied(&map, nest, CopySide::Source).unwrap();
        // Rows 1 and 2; 4 elements from the middle of a row on; twice 3 elements, the second time across the
        // end of a row.
        assert_eq!(
            apply(LoopNest::new(6, 0, [Mode::new(12, (1, 1))])),
            [LoopNest::new(1, 0, [Mode::new(6, (4, 1)), Mode::new(2, (1, 6))])]
        );
        assert_eq!(apply(LoopNest::new(4, 0, [Mode::new(4, (1, 1))])).len(), 4);
        let nests = apply(LoopNest::new(0, 0, [Mode::new(3, (1, 1)), Mode::new(2, (4, 3))]));
        assert_eq!(nests.iter().map(|nest| nest.len().unwrap()).collect::<Vec<_>>(), [3, 1, 1, 1]);
    }

    #[test]
    fn indices_outside_of_the_memory_are_errors() {
        let map = BufferMap::new(&BufferLayout::Order(vec![1, 0]), 0, &[2, 3]).unwrap();
        let error = applied(&map, LoopNest::new(6, 0, []), CopySide::Source).unwrap_err();
        assert!(matches!(error, Error::Layout(_)), "{error}");
    }

    #[test]
    fn memories_print_and_parse() {
        for text in ["row_major", "order 2,0,1", "order ", "layouts", "layouts 0=(2,3):(1,2) 7=(4,1):(3,0)"] {
            let memory: BufferLayout = text.parse().unwrap();
            assert_eq!(memory.to_string(), text);
            assert_eq!(memory.to_string().parse::<BufferLayout>(), Ok(memory));
        }
        let message = "columns".parse::<BufferLayout>().unwrap_err().to_string();
        assert_eq!(
            message,
            "cannot parse \"columns\": unknown buffer layout \"columns\"; \
             expected row_major, order 1,0 or layouts 0=(2,3):(1,2)"
        );
        assert!("order 0,x".parse::<BufferLayout>().is_err() && "layouts 0".parse::<BufferLayout>().is_err());
    }

    #[test]
    fn memory_that_does_not_fit_says_why() {
        let message =
            |memory: BufferLayout, shape: &[usize]| memory.layout(3, shape).unwrap_err().to_string();
        assert_eq!(
            message(BufferLayout::Order(vec![0, 0]), &[2, 3]),
            "memory of rank 3: [0, 0] is not a permutation of 2 dims"
        );
        let layouts = BufferLayout::Layouts(BTreeMap::from([(3, "(2,4):(1,2)".parse().unwrap())]));
        assert_eq!(
            message(layouts, &[2, 3]),
            "memory of rank 3: (2,4):(1,2) has modes of sizes [2, 4], but the shard has shape [2, 3]"
        );
    }
}
