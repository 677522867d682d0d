//! The distinct regions of a sharding, and who holds them.
//!
//! Two ranks of a sharding hold the same region or regions that have no element in common: every axis that cuts gives its ranks
//! parts of a dim without overlap. So the regions, each once, make the whole tensor, each element once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reshard_sharding::{Interval, Region, Sharding};

use crate::error::Error;

/// Who holds what.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Each region once, in the order of the first rank that holds it.
    pub(crate) regions: Vec<Region>,
    /// The region of each rank, in the order of the ranks of the mesh.
    pub(crate) of_rank: Vec<usize>,
    /// The places, in that order, of the ranks that hold a region.
    pub(crate) holders: Vec<Vec<usize>>,
}

impl Placed {
    /// The regions of a sharding.
    pub(crate) fn of(sharding: &Sharding) -> Result<Self, Error> {
        let mut this = Self { regions: Vec::new(), of_rank: Vec::new(), holders: Vec::new() };
        let mut known: HashMap<Region, usize> = HashMap::new();
        for (place, rank) in sharding.mesh().ranks().enumerate() {
            let region = sharding.region(rank)?;
            let at = *known.entry(region).or_insert_with_key(|region| {
                this.regions.push(region.clone());
                this.holders.push(Vec::new());
                this.regions.len() - 1
            });
            this.holders[at].push(place);
            this.of_rank.push(at);
        }
        Ok(this)
    }

    /// Regions that have nothing in common, each in a place of its own.
    pub(crate) fn apart(regions: Vec<Region>) -> Self {
        let places = 0..regions.len();
        Self {
            of_rank: places.clone().collect(),
            holders: places.map(|place| vec![place]).collect(),
            regions,
        }
    }

    /// One more region, in so many more places, which are behind those that there are.
    pub(crate) fn push(&mut self, region: Region, places: usize) {
        let first = self.of_rank.len();
        self.of_rank.extend(std::iter::repeat_n(self.regions.len(), places));
        self.holders.push((first..first + places).collect());
        self.regions.push(region);
    }

    /// The regions of another, each made another one by `map`, in places behind those that there are.
    pub(crate) fn append(&mut self, other: &Self, map: impl Fn(&Region) -> Region) {
        let (places, regions) = (self.of_rank.len(), self.regions.len());
        self.of_rank.extend(other.of_rank.iter().map(|region| region + regions));
        let moved = |holders: &Vec<usize>| holders.iter().map(|place| place + places).collect();
        self.holders.extend(other.holders.iter().map(moved));
        self.regions.extend(other.regions.iter().map(map));
    }

    /// All of a tensor, in one place.
    pub(crate) fn whole(shape: &[usize]) -> Self {
        Self { regions: vec![all(shape)], of_rank: vec![0], holders: vec![vec![0]] }
    }
}

/// What was worked out for the last shardings: many tensors have the same.
#[derive(Debug, Default)]
pub(crate) struct Known(VecDeque<(Sharding, Arc<Placed>)>);

/// So many shardings are remembered.
const KNOWN: usize = 8;

impl Known {
    /// The regions of a sharding.
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

/// The region that is all of a tensor.
pub(crate) fn all(shape: &[usize]) -> Region {
    let dim = |len: &usize| (*len > 0).then_some(Interval { start: 0, len: *len }).into_iter().collect();
    Region { dims: shape.iter().map(dim).collect() }
}
