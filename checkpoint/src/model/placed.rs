//! The distinct regions of a sharding, and the ranks that hold them.
//!
//! Two ranks of a sharding hold the same region or disjoint regions: every axis that splits gives its ranks
//! non-overlapping parts of a dim. So the distinct regions make up the whole tensor, each element once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reshard_sharding::{Interval, Region, Sharding};

use crate::error::Error;

/// The distinct regions of a sharding, with the ranks of each.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The distinct regions, in the order of the first rank that holds each.
    pub(crate) regions: Vec<Region>,
    /// The region of each rank, in the order of the ranks of the mesh.
    pub(crate) of_rank: Vec<usize>,
    /// For each region, the positions in that order of the ranks that hold it.
    pub(crate) holders: Vec<Vec<usize>>,
}

impl Placed {
    /// Returns the regions of a sharding.
    pub(crate) fn of(sharding: &Sharding) -> Result<Self, Error> {
        let regions = sharding.mesh().ranks().map(|rank| sharding.region(rank));
        Ok(Self::held(regions.collect::<Result<Vec<_>, _>>()?))
    }

    /// Returns disjoint regions, each held by a separate position.
    pub(crate) fn apart(regions: Vec<Region>) -> Self {
        let places = 0..regions.len();
        Self {
            of_rank: places.clone().collect(),
            holders: places.map(|place| vec![place]).collect(),
            regions,
        }
    }

    /// Returns the regions that positions hold, in their order; equal ones are replicas.
    pub(crate) fn held(regions: impl IntoIterator<Item = Region>) -> Self {
        let mut this = Self { regions: Vec::new(), of_rank: Vec::new(), holders: Vec::new() };
        let mut known: HashMap<Region, usize> = HashMap::new();
        for (place, region) in regions.into_iter().enumerate() {
            let at = *known.entry(region).or_insert_with_key(|region| {
                this.regions.push(region.clone());
                this.holders.push(Vec::new());
                this.regions.len() - 1
            });
            this.holders[at].push(place);
            this.of_rank.push(at);
        }
        this
    }

    /// Appends a region that is held by `places` new positions.
    pub(crate) fn push(&mut self, region: Region, places: usize) {
        let first = self.of_rank.len();
        self.of_rank.extend(std::iter::repeat_n(self.regions.len(), places));
        self.holders.push((first..first + places).collect());
        self.regions.push(region);
    }

    /// Appends the regions of another, each transformed by `map`, at new positions.
    pub(crate) fn append(&mut self, other: &Self, map: impl Fn(&Region) -> Region) {
        let (places, regions) = (self.of_rank.len(), self.regions.len());
        self.of_rank.extend(other.of_rank.iter().map(|region| region + regions));
        let moved = |holders: &Vec<usize>| holders.iter().map(|place| place + places).collect();
        self.holders.extend(other.holders.iter().map(moved));
        self.regions.extend(other.regions.iter().map(map));
    }

    /// Returns the region of a whole tensor, at one position.
    pub(crate) fn whole(shape: &[usize]) -> Self {
        Self { regions: vec![all(shape)], of_rank: vec![0], holders: vec![vec![0]] }
    }
}

/// A cache of the regions of recent shardings, which many tensors share.
#[derive(Debug, Default)]
pub(crate) struct Known(VecDeque<(Sharding, Arc<Placed>)>);

/// The number of cached shardings.
const KNOWN: usize = 8;

impl Known {
    /// Returns the regions of a sharding, from the cache if possible.
    pub(crate) fn placed(&mut self, sharding: &Sharding) -> Result<Arc<Placed>, Error> {
        if let Some((_, placed)) = self.0.iter().find(|(known, _)| known == sharding) {
            return Ok(Arc::clone(placed));
        }
        let placed = Arc::new(Placed::of(sharding)?);
        self.0.push_front((sharding.clone(), Arc::clone(&placed)));
        self.0.truncate(KNOWN);
        Ok(placed)
    }
}

/// Returns the region that is all of a tensor.
pub(crate) fn all(shape: &[usize]) -> Region {
    let dim = |len: &usize| (*len > 0).then_some(Interval { start: 0, len: *len }).into_iter().collect();
    Region { dims: shape.iter().map(dim).collect() }
}
