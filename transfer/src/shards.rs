//! A sharding by its regions: who holds which indices, dim by dim.
//!
//! A region is a product of index lists, one per dim. An index list is a few regular families of ranges ([`Family`]),
//! so its size does not depend on the extents.

use std::collections::HashMap;

use reshard_sharding::{Intervals, Placement, Placements, Sharding};

use crate::error::{Error, ErrorKind, shown};
use crate::side::SideTensor;

/// The largest number of ranges of an index list.
const MOST_RANGES: usize = 1 << 16;

/// Ranges of `len` indices, each `step` after the one before; their local indices are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) count: usize,
    pub(crate) step: usize,
    /// Local index of the first one.
    pub(crate) local: usize,
}

impl Family {
    /// Returns the index after the last one.
    pub(crate) fn end(&self) -> usize {
        self.start + (self.count - 1) * self.step + self.len
    }
}

/// Joins the ranges of an index list to families.
fn families(list: &Intervals) -> Vec<Family> {
    let mut all: Vec<Family> = Vec::new();
    let mut local = 0;
    for one in list {
        let joined = all.last_mut().is_some_and(|last| {
            let step = one.start.checked_sub(last.start + (last.count - 1) * last.step);
            let Some(step) = step.filter(|step| last.len == one.len && *step > last.len) else {
                return false;
            };
            if last.count > 1 && step != last.step {
                return false;
            }
            (last.step, last.count) = (step, last.count + 1);
            true
        });
        if !joined {
            all.push(Family { start: one.start, len: one.len, count: 1, step: 0, local });
        }
        local += one.len;
    }
    all
}

/// The different index lists of a dim, in the order of their first indices.
#[derive(Debug, Default)]
pub(crate) struct DimLists {
    pub(crate) lists: Vec<Vec<Family>>,
    /// For each list, the largest end of it and all lists before it.
    ends: Vec<usize>,
}

impl DimLists {
    /// Returns the numbers of the lists that may have an index in `start .. stop`.
    pub(crate) fn near(&self, start: usize, stop: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.ends.partition_point(|end| *end <= start);
        let bounds = |k: usize| {
            let list = &self.lists[k];
            list.first().map_or((0, 0), |one| (one.start, list.iter().map(Family::end).max().unwrap_or(0)))
        };
        (first..self.lists.len())
            .take_while(move |k| bounds(*k).0 < stop)
            .filter(move |k| bounds(*k).1 > start)
    }
}

/// The ranks that hold one region.
#[derive(Debug)]
pub(crate) struct Held {
    /// The number of its index list, by dim.
    pub(crate) lists: Vec<usize>,
    /// Ranks, ascending.
    pub(crate) ranks: Vec<usize>,
    /// Extents of the local tensor.
    pub(crate) shape: Vec<usize>,
}

/// A sharding by its regions.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(crate) dims: Vec<DimLists>,
    pub(crate) held: Vec<Held>,
    by_lists: HashMap<Vec<usize>, usize>,
    by_rank: HashMap<usize, usize>,
    /// Extents of the local tensor, if they are the same on all ranks.
    pub(crate) common_shape: Option<Vec<usize>>,
}

impl Shards {
    /// Returns the shards of a tensor of this shape, or of a part of one.
    pub(crate) fn new(tensor: &SideTensor, shape: &[usize], text: &str) -> Result<Self, Error> {
        let in_tensor = |error: String| Error::invalid(format!("`{}`: {error}", shown(&tensor.name)));
        let sharding = sharding(tensor, shape, text).map_err(in_tensor)?;
        if sharding.is_partial() {
            let error = format!("{} is partial, so its elements are not final; reduce it first", shown(text));
            return Err(in_tensor(error));
        }
        for dim in 0..shape.len() {
            let ranges = ranges(&sharding, dim);
            if ranges > MOST_RANGES {
                let message = format!(
                    "`{}`: {} splits dim {dim} into up to {ranges} ranges per rank, over the limit of {MOST_RANGES}",
                    shown(&tensor.name),
                    shown(text)
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        }
        Self::of(&sharding).map_err(|error| in_tensor(error.to_string()))
    }

    fn of(sharding: &Sharding) -> Result<Self, reshard_sharding::Error> {
        let dims = sharding.shape().len();
        let mut lists: Vec<Vec<Intervals>> = vec![Vec::new(); dims];
        let mut numbers: Vec<HashMap<Intervals, usize>> = vec![HashMap::new(); dims];
        let mut of_ranks: Vec<(usize, Vec<usize>)> = Vec::new();
        for rank in sharding.mesh().ranks() {
            let region = sharding.region(rank)?;
            let number = |(dim, list): (usize, &Intervals)| {
                *numbers[dim].entry(list.clone()).or_insert_with(|| {
                    lists[dim].push(list.clone());
                    lists[dim].len() - 1
                })
            };
            of_ranks.push((rank, region.dims.iter().enumerate().map(number).collect()));
        }
        // From here on, lists are numbered by their first indices.
        let mut renumbered: Vec<Vec<usize>> = Vec::with_capacity(dims);
        let mut sorted: Vec<DimLists> = Vec::with_capacity(dims);
        for lists in &lists {
            let families: Vec<Vec<Family>> = lists.iter().map(families).collect();
            let mut order: Vec<usize> = (0..lists.len()).collect();
            order.sort_by_key(|k| families[*k].first().map_or(0, |one| one.start));
            let mut numbers = vec![0; lists.len()];
            let mut dim = DimLists::default();
            for (new, old) in order.into_iter().enumerate() {
                numbers[old] = new;
                let end = families[old].iter().map(Family::end).max().unwrap_or(0);
                dim.ends.push(dim.ends.last().map_or(end, |before| end.max(*before)));
                dim.lists.push(families[old].clone());
            }
            renumbered.push(numbers);
            sorted.push(dim);
        }
        let mut shards = Self {
            dims: sorted,
            held: Vec::new(),
            by_lists: HashMap::new(),
            by_rank: HashMap::new(),
            common_shape: None,
        };
        for (rank, lists) in of_ranks {
            let lists: Vec<usize> = lists.iter().zip(&renumbered).map(|(k, numbers)| numbers[*k]).collect();
            let number = if let Some(number) = shards.by_lists.get(&lists) {
                *number
            } else {
                let extent =
                    |(dim, k): (&DimLists, &usize)| dim.lists[*k].iter().map(|one| one.len * one.count).sum();
                let shape = shards.dims.iter().zip(&lists).map(extent).collect();
                shards.held.push(Held { lists: lists.clone(), ranks: Vec::new(), shape });
                shards.by_lists.insert(lists, shards.held.len() - 1);
                shards.held.len() - 1
            };
            shards.held[number].ranks.push(rank);
            shards.by_rank.insert(rank, number);
        }
        for held in &mut shards.held {
            held.ranks.sort_unstable();
        }
        let first = shards.held.first().map(|held| held.shape.clone());
        shards.common_shape = first.filter(|shape| shards.held.iter().all(|held| held.shape == *shape));
        Ok(shards)
    }

    /// Returns the region with these index lists.
    pub(crate) fn with_lists(&self, lists: &[usize]) -> Option<usize> {
        self.by_lists.get(lists).copied()
    }

    /// Returns the region of a rank.
    pub(crate) fn of_rank(&self, rank: usize) -> Option<usize> {
        self.by_rank.get(&rank).copied()
    }

    /// Returns `true` if all ranks hold all indices of a dim.
    pub(crate) fn is_whole(&self, dim: usize) -> bool {
        self.dims[dim].lists.len() == 1
    }
}

/// Returns an upper bound of the ranges of an index list, before any is listed.
fn ranges(sharding: &Sharding, dim: usize) -> usize {
    let mut ranges: usize = 1;
    match sharding.dim_modes(dim) {
        Some(modes) => {
            // The local modes above the fastest mode of an axis, each index of which starts another range.
            let above = modes.iter().skip_while(|mode| mode.stride.is_local());
            for mode in above.filter(|mode| mode.stride.is_local()) {
                ranges = ranges.saturating_mul(mode.extent as usize);
            }
        }
        None => {
            for cut in sharding.dim_cuts(dim) {
                ranges = ranges.saturating_mul(cut.cut.pieces().max(1));
            }
        }
    }
    ranges
}

fn sharding(tensor: &SideTensor, shape: &[usize], text: &str) -> Result<Sharding, String> {
    let Some(axes) = &tensor.axes else {
        return Sharding::parse(&tensor.mesh, shape, text).map_err(|error| error.to_string());
    };
    let given = Placements::parse_with_dims(shape.len(), text).map_err(|error| error.to_string())?;
    if given.len() != axes.len() {
        return Err(format!("{} placements for the axes {}; give one per axis", given.len(), axes.join(",")));
    }
    let mut all = vec![Placement::Replicate; tensor.mesh.axes().len()];
    for (axis, placement) in axes.iter().zip(given.iter()) {
        let axis = tensor.mesh.axis(axis).map_err(|error| error.to_string())?;
        all[axis] = placement.clone();
    }
    Sharding::new(&tensor.mesh, shape, &all).map_err(|error| error.to_string())
}
