//! Entering and leaving a shard map along axes that shard a dim into slices that are not equal blocks.
//!
//! ```text
//! enter   Z(d), SS(d,k), RG, CN     split_shards: the slices of the dim become a new first dim
//! leave   Z(d), SS(d,k), RG, CN  <- join_shards: the slices return to the dim
//! ```
//!
//! Neither communicates: see the rows of the two. No other axis may shard the dim. Slices of several sizes,
//! `RG` and `CN`, are padded at the end with zeros, to the size of the largest or more.

use std::sync::Arc;

use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::{Counts, Placement};

use crate::Error;
use crate::local_type::{Along, Partly, in_order};
use crate::notation::refused;
use crate::shard_map::{ShardMap, ShardMapValue, origin};

/// The slices of a dim that coordinates have: blocks if only the dim is given, or others.
///
/// ```
/// use reshard_program::{ShardingSolver, Graph, DimSlices};
/// let mut graph: Graph = "mesh cp=2\nx: f32[8,3] Z(0)".parse()?;
/// let x = graph.value("x").unwrap();
/// graph.shard_map(&["cp"], &[(x, "Z(0)")], &["R"], |region, v| {
///     let h = region.op("exp", &[&v[0]])?;
///     Ok(vec![region.all_gather(&h, "cp", DimSlices::zigzag(0), "R")?]) // in the order of x
/// })?;
/// let program = ShardingSolver::new().solve(&graph)?;
/// assert_eq!(program.redistributions().map(|m| m.forward.received_bytes()).max(), Some(4 * 3 * 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimSlices {
    dim: usize,
    slicing: Option<Slicing>,
}

impl DimSlices {
    /// Returns two chunks for each coordinate, one from the front of the dim and one from the back: `Z(dim)`.
    pub fn zigzag(dim: usize) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Zigzag) }
    }

    /// Returns one chunk of each of `tiles` tiles of the dim for each coordinate: `SS(dim,tiles)`.
    pub fn strided(dim: usize, tiles: usize) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Strided(tiles)) }
    }

    /// Returns `sizes[i]` indices of the dim for coordinate `i`: `RG(dim,sizes)`.
    ///
    /// The slices are padded to the largest size.
    pub fn ragged(dim: usize, sizes: &[usize]) -> DimSlices {
        DimSlices { dim, slicing: Some(Slicing::Ragged(sizes.into())) }
    }

    pub(super) fn along(self) -> Along {
        Along::Varying(self.slicing.as_ref().map_or(Placement::Shard(self.dim), |how| how.placed(self.dim)))
    }
}

impl From<usize> for DimSlices {
    /// Returns one block of the dim for each coordinate: `S(dim)`.
    fn from(dim: usize) -> DimSlices {
        DimSlices { dim, slicing: None }
    }
}

/// A split of a dim into slices that are not equal blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slicing {
    /// `Z(d)`: two chunks each, one from the front and one from the back.
    Zigzag,
    /// `SS(d,k)`: a chunk of each of `k` tiles.
    Strided(usize),
    /// `RG(d,[..])`: the number of indices of each coordinate.
    Ragged(Arc<[usize]>),
    /// `CN(d,[[..],..])`: the number of indices of each source's block for each target.
    ///
    /// The slices are padded to `room` indices, or to the largest number.
    Counts { counts: Counts, room: Option<usize> },
}

impl Slicing {
    /// Returns the slicing of a placement, or `None` for other placements.
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

    /// Returns the number of equal chunks of the dim that each rank has.
    fn chunks(&self) -> Option<usize> {
        match self {
            Slicing::Zigzag => Some(2),
            Slicing::Strided(tiles) => Some(*tiles),
            Slicing::Ragged(_) | Slicing::Counts { .. } => None,
        }
    }

    /// Returns the number of ranks for which sizes are given.
    fn ranks(&self) -> Option<usize> {
        match self {
            Slicing::Zigzag | Slicing::Strided(_) => None,
            Slicing::Ragged(sizes) => Some(sizes.len()),
            Slicing::Counts { counts, .. } => Some(counts.ranks()),
        }
    }

    /// Returns the total number of indices of all slices.
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

/// Returns the first sliced axis with its slicing and dim, and the other axes.
pub(super) fn sliced(words: &[(usize, Along)]) -> Option<((usize, Slicing, usize), Partly)> {
    let found = words.iter().enumerate().find_map(|(i, (axis, along))| match along {
        Along::Varying(placement) => Some((i, (*axis, Slicing::of(placement)?, placement.dim()?))),
        Along::Replicated | Along::Invariant | Along::Partial => None,
    });
    let (at, first) = found?;
    Some((first, words.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, word)| word.clone()).collect()))
}

impl ShardMap<'_> {
    /// Enters a value, which has no placement along an axis yet, as its slices along that axis.
    pub(super) fn enter_sliced(
        &mut self,
        value: &ShardMapValue,
        (axis, how, dim): (usize, Slicing, usize),
        others: &[(usize, Along)],
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let before = value.varies().len();
        let called = name.unwrap_or(self.shown(value.value)).to_owned();
        self.cuts_alone(&called, self.shape(value).len(), (axis, dim), others)?;
        let (extent, parts) = (self.shape(value)[dim], self.size(axis));
        if let Some(each) = how.chunks() {
            let chunks = parts.saturating_mul(each);
            if !extent.is_multiple_of(chunks.max(1)) {
                return refused(format!(
                    "`{called}` has {extent} indices along dim {dim}, which {} does not split into {chunks} equal chunks; pad the dim, because all coordinates run the same code",
                    self.axis_name(axis)
                ));
            }
        }
        self.fits(&called, &how, axis)?;
        if let Some(total) = how.total().filter(|total| *total != extent) {
            return refused(format!(
                "`{called}` has {extent} indices along dim {dim}, but the sizes of its parts over {} add up to {total}",
                self.axis_name(axis)
            ));
        }
        let at_hand = self.name(None);
        let lies = Along::Varying(how.placed(before + dim));
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

    /// Leaves a value that varies over an axis as the slices of a dim.
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
                "`{called}` has {own} indices along dim {dim} on each coordinate of {}, which cannot be split into {each} equal chunks",
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
        made.push((axis, Along::Varying(how.placed(before + dim))));
        self.graph.strategy_along(left.value, vec![value.along(), in_order(made)]);
        Ok(left)
    }

    /// Checks that sizes are given for as many ranks as an axis has.
    fn fits(&self, called: &str, how: &Slicing, axis: usize) -> Result<(), Error> {
        match how.ranks().filter(|ranks| *ranks != self.size(axis)) {
            Some(ranks) => refused(format!(
                "`{called}`: {ranks} sizes are given, but {} has {} ranks; give one size for each",
                self.axis_name(axis),
                self.size(axis)
            )),
            None => Ok(()),
        }
    }

    /// Sends the first indices of a dim, ordered by target, and receives them ordered by source.
    ///
    /// The received indices are the first of slices with `room` indices, or as many as the largest number.
    pub(super) fn sent(
        &mut self,
        value: &ShardMapValue,
        (axis, dim): (usize, usize),
        counts: &Counts,
        room: Option<usize>,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let called = self.shown(value.value).to_owned();
        if counts.sources() != self.size(axis) || counts.ranks() != self.size(axis) {
            return refused(format!(
                "`{called}`: counts are given for {} sources and {} targets, but {} has {} of both",
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
                "`{called}`: coordinate {source} of {} sends {n} indices of dim {dim}, which has {own}",
                self.axis_name(axis)
            ));
        }
        let sent = Slicing::Ragged(sizes);
        self.claims(value, axis, &Along::Varying(sent.placed(dim)), &called)?;
        let left = self.leave_sliced(value, (axis, sent, dim), &[], &called)?;
        self.enter_sliced(&left, (axis, Slicing::Counts { counts, room }, dim), &[], name)
    }

    /// Checks that a dim exists, and that of these axes only this one shards it.
    fn cuts_alone(
        &self,
        called: &str,
        dims: usize,
        (axis, dim): (usize, usize),
        others: &[(usize, Along)],
    ) -> Result<(), Error> {
        if dim >= dims {
            return refused(format!(
                "`{called}` has {dims} dims inside `local`, so {} cannot shard dim {dim}; dims are counted from 0",
                self.axis_name(axis)
            ));
        }
        let same = |(_, along): &&(usize, Along)| match along {
            Along::Varying(other) => other.dim() == Some(dim),
            Along::Replicated | Along::Invariant | Along::Partial => false,
        };
        match others.iter().find(same) {
            Some((other, _)) => refused(format!(
                "`{called}`: {} and {} both shard dim {dim}, and one of them not into blocks; use S({dim}) for both, or shard it along one axis only",
                self.axis_name(axis),
                self.axis_name(*other)
            )),
            None => Ok(()),
        }
    }
}
