//! Into a region and out of it where ranks cut a dim into parts of one size that are not blocks.
//!
//! ```text
//! enter   Z(d), SS(d,k), RG, CN     split_shards: the parts of the dim as the indices of a new first dim
//! leave   Z(d), SS(d,k), RG, CN  <- join_shards: the same parts where they were
//! ```
//!
//! Neither moves anything: see the rows of the two. The dim is cut by no other axis. Parts of several sizes, `RG` and `CN`, are the first indices of
//! slices that have room for the largest, or for more, and zeros behind.

use std::sync::Arc;

use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::{Counts, Placement};

use crate::Error;
use crate::along::{Along, Partly, in_order};
use crate::notation::refused;
use crate::region::{ShardMap, ShardMapValue, origin};

/// Which parts of a dim coordinates have: blocks, where only the dim is said, or others.
///
/// ```
/// use reshard_program::{Elaborator, Graph, Parts};
/// let mut graph: Graph = "mesh cp=2\nx: f32[8,3] Z(0)".parse()?;
/// let x = graph.value("x").unwrap();
/// graph.local(&["cp"], &[(x, "Z(0)")], &["R"], |region, v| {
///     let h = region.op("exp", &[&v[0]])?;
///     Ok(vec![region.all_gather(&h, "cp", Parts::zigzag(0), "R")?]) // in the order of x
/// })?;
/// let program = Elaborator::new().elaborate(&graph)?;
/// assert_eq!(program.moves().map(|m| m.forward.received_bytes()).max(), Some(4 * 3 * 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimSlices {
    dim: usize,
    slicing: Option<Slicing>,
}

impl DimSlices {
    /// Two chunks each, one from the front of the dim and one from the back: `Z(dim)`.
    pub fn zigzag(dim: usize) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Zigzag) }
    }

    /// A chunk of each of so many tiles of the dim: `SS(dim,tiles)`.
    pub fn strided(dim: usize, tiles: usize) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Strided(tiles)) }
    }

    /// So many indices of the dim each, the first of a slice that has room for the most: `RG(dim,sizes)`.
    pub fn ragged(dim: usize, sizes: &[usize]) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Ragged(sizes.into())) }
    }

    pub(super) fn along(self) -> Along {
        Along::Cut(self.slicing.as_ref().map_or(Placement::Shard(self.dim), |how| how.placed(self.dim)))
    }
}

impl From<usize> for DimSlices {
    /// A block of the dim each: `S(dim)`.
    fn from(dim: usize) -> DimSlices {
        DimSlices { dim, slicing: None }
    }
}

/// How ranks cut a dim into parts that are not blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slicing {
    /// `Z(d)`: two chunks each, one from the front and one from the back.
    Zigzag,
    /// `SS(d,k)`: a chunk of each of so many tiles.
    Strided(usize),
    /// `RG(d,[..])`: so many indices each.
    Ragged(Arc<[usize]>),
    /// `CN(d,[[..],..])`: of the block of each source so many each. The slices have room for so many, or for the most.
    Counts { counts: Counts, room: Option<usize> },
}

impl Slicing {
    /// That of a placement, if it is one of these.
    pub(super) fn of(placement: &Placement) -> Option<Slicing> {
        match placement {
            Placement::StridedShard { split_factor, .. } => Some(Slicing::Strided(*split_factor)),
            Placement::Custom { dim, .. } if *placement == Placement::zigzag(*dim) => Some(Slicing::Zigzag),
            Placement::Ragged { sizes, .. } => Some(Slicing::Ragged(Arc::clone(sizes))),
            Placement::Custom { .. } | Placement::Replicate | Placement::Shard(_) | Placement::Partial(_) => {
                None
            }
        }
    }

    fn placed(&self, dim: usize) -> Placement {
        match self {
            Slicing::Zigzag => Placement::zigzag(dim),
            Slicing::Strided(split_factor) => Placement::StridedShard { dim, split_factor: *split_factor },
            Slicing::Ragged(sizes) => Placement::ragged(dim, sizes),
            Slicing::Counts { counts, .. } => counts.target_placement(dim),
        }
    }

    /// How many chunks of one size each rank has of the dim.
    fn chunks(&self) -> Option<usize> {
        match self {
            Slicing::Zigzag => Some(2),
            Slicing::Strided(tiles) => Some(*tiles),
            Slicing::Ragged(_) | Slicing::Counts { .. } => None,
        }
    }

    /// For how many ranks sizes are said.
    fn ranks(&self) -> Option<usize> {
        match self {
            Slicing::Zigzag | Slicing::Strided(_) => None,
            Slicing::Ragged(sizes) => Some(sizes.len()),
            Slicing::Counts { counts, .. } => Some(counts.ranks()),
        }
    }

    /// How many indices all parts have together.
    fn total(&self) -> Option<usize> {
        match self {
            Slicing::Zigzag | Slicing::Strided(_) => None,
            Slicing::Ragged(sizes) => Some(sizes.iter().sum()),
            Slicing::Counts { counts, .. } => Some(counts.total()),
        }
    }

    fn call(&self, name: &str, dim: usize, at: usize) -> OpCall {
        let number = |n: usize| Argument::Number(n as i64);
        let list =
            |list: &mut dyn Iterator<Item = &usize>| Argument::Numbers(list.map(|&n| n as i64).collect());
        let word = |word: &str| Argument::Word(word.to_owned());
        let call = OpCall::new(name).with("dim", number(dim)).with("at", number(at));
        match self {
            Slicing::Zigzag => call,
            Slicing::Strided(tiles) => call.with("cut", word("strided")).with("tiles", number(*tiles)),
            Slicing::Ragged(sizes) => {
                call.with("cut", word("ragged")).with("counts", list(&mut sizes.iter()))
            }
            Slicing::Counts { counts, .. } => {
                call.with("cut", word("counts")).with("counts", list(&mut counts.rows().flatten()))
            }
        }
    }
}

/// The first of some axes that cuts a dim so: the axis, how, and which dim; and the others.
pub(super) fn sliced(words: &[(usize, Along)]) -> Option<((usize, Slicing, usize), Partly)> {
    let found = words.iter().enumerate().find_map(|(i, (axis, along))| match along {
        Along::Cut(placement) => Some((i, (*axis, Slicing::of(placement)?, placement.dim()?))),
        Along::Different | Along::Same | Along::Terms => None,
    });
    let (at, first) = found?;
    Some((first, words.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, word)| word.clone()).collect()))
}

impl ShardMap<'_> {
    /// Takes a value, of which nothing is said along an axis, as its parts along that.
    pub(super) fn enter_sliced(
        &mut self,
        value: &ShardMapValue,
        (axis, how, dim): (usize, Slicing, usize),
        others: &[(usize, Along)],
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let before = value.varies().len();
        let called = name.unwrap_or(self.graph.name(value.value)).to_owned();
        self.cuts_alone(&called, self.shape(value).len(), (axis, dim), others)?;
        let (extent, parts) = (self.shape(value)[dim], self.size(axis));
        if let Some(each) = how.chunks() {
            let chunks = parts.saturating_mul(each);
            if !extent.is_multiple_of(chunks.max(1)) {
                return refused(format!(
                    "{called} has {extent} indices along dim {dim}, which {} does not cut into {chunks} chunks of one size: a region runs the same code on all of them, so pad the dim",
                    self.axis_name(axis)
                ));
            }
        }
        self.fits(&called, &how, axis)?;
        if let Some(total) = how.total().filter(|total| *total != extent) {
            return refused(format!(
                "{called} has {extent} indices along dim {dim}, and the sizes of its parts over {} are {total} together",
                self.axis_name(axis)
            ));
        }
        let at_hand = self.name(None);
        let lies = Along::Cut(how.placed(before + dim));
        let moved = self.graph.moved_along(value.value, &at_hand, vec![(axis, lies.clone())], self.wire)?;
        let mut local = value.clone();
        local.kinds.push((axis, origin(Some(dim))));
        self.sort(&mut local.kinds);
        let at = local.varies().iter().position(|&known| known == axis).unwrap_or_default();
        let mut split =
            how.call("split_shards", before + dim, at).with("parts", Argument::Number(parts as i64));
        if let Slicing::Counts { room: Some(room), .. } = &how {
            split = split.with("room", Argument::Number(*room as i64));
        }
        local.value = self.emit(&split, &[moved], &name.into_iter().collect::<Vec<_>>())?[0];
        let mut from = value.along();
        from.push((axis, lies));
        self.graph.strategy_along(local.value, vec![in_order(from), local.along()]);
        Ok(local)
    }

    /// Gives back what varies over an axis as the parts of a dim.
    pub(super) fn leave_sliced(
        &mut self,
        value: &ShardMapValue,
        (axis, how, dim): (usize, Slicing, usize),
        others: &[(usize, Along)],
        called: &str,
    ) -> Result<ShardMapValue, Error> {
        self.cuts_alone(called, self.shape(value).len(), (axis, dim), others)?;
        let own = self.shape(value)[dim];
        if let Some(each) = how.chunks().filter(|each| !own.is_multiple_of(*each)) {
            return refused(format!(
                "{called} has {own} indices along dim {dim} on each coordinate of {}, which are not {each} chunks of one size",
                self.axis_name(axis)
            ));
        }
        self.fits(called, &how, axis)?;
        let mut left = value.clone();
        left.kinds.retain(|(known, _)| *known != axis);
        let (at, before) = (value.varies().iter().position(|&known| known == axis), left.varies().len());
        let join = how.call("join_shards", before + dim, at.unwrap_or_default());
        left.value = self.emit(&join, &[value.value], &[])?[0];
        let mut made = left.along();
        made.push((axis, Along::Cut(how.placed(before + dim))));
        self.graph.strategy_along(left.value, vec![value.along(), in_order(made)]);
        Ok(left)
    }

    /// Whether sizes are said for as many ranks as an axis has.
    fn fits(&self, called: &str, how: &Slicing, axis: usize) -> Result<(), Error> {
        match how.ranks().filter(|ranks| *ranks != self.size(axis)) {
            Some(ranks) => refused(format!(
                "{called}: sizes of {ranks} parts are said, and {} has {} ranks",
                self.axis_name(axis),
                self.size(axis)
            )),
            None => Ok(()),
        }
    }

    /// Gives what each coordinate has for each other, the first indices of a dim in the order of whom they are for, and takes what it gets from
    /// them in the order of whom it is from, as the first indices of slices with room for so many, or for the most.
    pub(super) fn sent(
        &mut self,
        value: &ShardMapValue,
        (axis, dim): (usize, usize),
        counts: &Counts,
        room: Option<usize>,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let called = self.graph.name(value.value).to_owned();
        if counts.sources() != self.size(axis) || counts.ranks() != self.size(axis) {
            return refused(format!(
                "{called}: counts of {} sources for {} ranks are said, and {} has {} of both",
                counts.sources(),
                counts.ranks(),
                self.axis_name(axis),
                self.size(axis)
            ));
        }
        let counts = match room {
            Some(room) => counts.clone().within(room)?,
            None => counts.clone(),
        };
        let sizes: Arc<[usize]> = counts.rows().map(|row| row.iter().sum()).collect();
        self.cuts_alone(&called, self.shape(value).len(), (axis, dim), &[])?;
        let own = self.shape(value)[dim];
        if let Some((source, n)) = sizes.iter().enumerate().find(|(_, n)| **n > own) {
            return refused(format!(
                "{called}: coordinate {source} of {} sends {n} indices of dim {dim}, which has {own}",
                self.axis_name(axis)
            ));
        }
        let sent = Slicing::Ragged(sizes);
        self.claims(value, axis, &Along::Cut(sent.placed(dim)), &called)?;
        let left = self.leave_sliced(value, (axis, sent, dim), &[], &called)?;
        self.enter_sliced(&left, (axis, Slicing::Counts { counts, room }, dim), &[], name)
    }

    /// Whether a dim is there, and of these axes cut by this one alone.
    fn cuts_alone(
        &self,
        called: &str,
        dims: usize,
        (axis, dim): (usize, usize),
        others: &[(usize, Along)],
    ) -> Result<(), Error> {
        if dim >= dims {
            return refused(format!(
                "{called} has {dims} dims in this region, and none is dim {dim}, which {} is to cut",
                self.axis_name(axis)
            ));
        }
        let same = |(_, along): &&(usize, Along)| match along {
            Along::Cut(other) => other.dim() == Some(dim),
            Along::Different | Along::Same | Along::Terms => false,
        };
        match others.iter().find(same) {
            Some((other, _)) => refused(format!(
                "{called}: {} and {} cut dim {dim}, of which one not into blocks; a region takes that where it is the only one",
                self.axis_name(axis),
                self.axis_name(*other)
            )),
            None => Ok(()),
        }
    }
}
