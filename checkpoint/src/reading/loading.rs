//! Loading of shards by the ranks of a job: each rank reads its own, or each byte is read once per node.
//!
//! ```text
//! direct       every rank reads its shard                     a node reads replicated data once per replica
//! once         every rank reads a part of what its node needs, and a plan redistributes the parts
//! ```
//!
//! The data that is read once is a sharding too: the requested one, in which replicating axes split a dim,
//! within its existing splits. Its plan to the requested sharding gathers along those axes. The axes and dims
//! are chosen by cost: the bytes that the busiest node reads, at the read rate of a node, and the time of the
//! plan.

use reshard_collectives::{Communicator, CompiledPlan};
use reshard_planner::{Plan, Planner};
use reshard_sharding::Sharding;

use crate::bytes;
use crate::engine::exchange::opaque;
use crate::error::Error;
use crate::model::checkpoint::{Checkpoint, Tensor};
use crate::model::once::ways;

/// The read rate of a node, and its number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadModel {
    /// The number of consecutive ranks of a node, which share one connection to the files.
    pub node_ranks: usize,
    /// The read rate of a node, in units of 10^9 bytes per second.
    pub gbytes_per_s: f64,
}

/// A strategy to load one tensor: made by [`Checkpoint::plan_load`], executed by [`Checkpoint::load`].
#[derive(Clone, Debug)]
pub struct ShardLoad {
    reads: Sharding,
    wanted: Sharding,
    plan: Option<Plan>,
    node_bytes: u64,
    cost_us: f64,
}

impl ShardLoad {
    /// Returns the sharding that the ranks read; the requested one if each rank reads its own shard.
    ///
    /// Elements that share bytes are counted by the bytes that they share.
    #[doc(hidden)]
    pub fn reads(&self) -> &Sharding {
        &self.reads
    }

    /// Returns the plan to the requested sharding; `None` if each rank reads its own shard.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Returns the bytes that the busiest node reads.
    #[doc(hidden)]
    pub fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    /// Returns the modelled time in microseconds: reading, and the plan.
    #[doc(hidden)]
    pub fn cost_us(&self) -> f64 {
        self.cost_us
    }

    fn new(reads: Sharding, wanted: &Sharding, plan: Option<Plan>, item_bytes: usize, by: ReadModel) -> Self {
        let node_bytes = busiest(&reads, by.node_ranks) * item_bytes as u64;
        let cost_us = node_bytes as f64 / (by.gbytes_per_s * 1e3) + plan.as_ref().map_or(0.0, Plan::cost_us);
        Self { reads, wanted: wanted.clone(), plan, node_bytes, cost_us }
    }
}

impl Checkpoint {
    /// Returns the cheapest strategy by which the ranks of a sharding get their shards of a tensor.
    ///
    /// Only headers are read, and every rank gets the same result for the same request.
    ///
    /// ```
    /// use reshard_checkpoint::{Checkpoint, ReadModel};
    /// use reshard_planner::Planner;
    /// use reshard_sharding::Sharding;
    ///
    /// let block = Checkpoint::open(None)?;
    /// let all = Sharding::parse(&"tp=8".parse()?, &[2003, 256], "R")?;
    /// let slow = ReadModel { node_ranks: 8, gbytes_per_s: 0.1 };
    /// let once = block.plan_load("embedding.weight", &all, &Planner::new(), slow)?;
    /// assert!(once.plan().is_some()); // every byte is read once, then a plan
    /// let fast = ReadModel { node_ranks: 8, gbytes_per_s: 1e6 };
    /// let direct = block.plan_load("embedding.weight", &all, &Planner::new(), fast)?;
    /// assert!(direct.plan().is_none()); // each rank reads its own shard
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: as [`Checkpoint::shard`]; `reading` if the rate or the number of ranks is not positive.
    pub fn plan_load(
        &self,
        tensor: &str,
        sharding: &Sharding,
        planner: &Planner,
        reading: ReadModel,
    ) -> Result<ShardLoad, Error> {
        let ReadModel { node_ranks, gbytes_per_s } = reading;
        if node_ranks == 0 || !gbytes_per_s.is_finite() || gbytes_per_s <= 0.0 {
            let message = format!(
                "invalid read model: {node_ranks} ranks per node that read {gbytes_per_s} GB/s; both must be positive"
            );
            return Err(Error::refused("reading", message));
        }
        let tensor = self.tensor(tensor)?;
        let about = |error: Error| error.about_tensor(tensor.name());
        let units = tensor.units();
        let wanted = tensor.in_units(&units, sharding).map_err(about)?;
        let mut best = ShardLoad::new(wanted.clone(), &wanted, None, units.bytes, reading);
        for reads in ways(&wanted) {
            // Reading alone takes as long as the best strategy so far.
            let alone = ShardLoad::new(reads.clone(), &wanted, None, units.bytes, reading);
            if alone.cost_us >= best.cost_us {
                continue;
            }
            let plan =
                planner.plan(&reads, &wanted, opaque(units.bytes)).map_err(|error| about(error.into()))?;
            let loading = ShardLoad::new(reads, &wanted, Some(plan), units.bytes, reading);
            if loading.cost_us < best.cost_us {
                best = loading;
            }
        }
        Ok(best)
    }

    /// Loads this rank's shard: reads its part, and runs the plan, if any, with all other ranks.
    ///
    /// A rank that cannot read does not participate; the others fail when their communicator times out.
    ///
    /// ```
    /// use reshard_checkpoint::{Checkpoint, ReadModel};
    /// use reshard_collectives::threads::World;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::Sharding;
    ///
    /// let block = Checkpoint::open(None)?;
    /// let wanted = Sharding::parse(&"dp=2,tp=2".parse()?, &[2003, 256], "R,S(1)")?;
    /// let nodes = ReadModel { node_ranks: 4, gbytes_per_s: 1.0 }; // 4 ranks per node, 1 GB/s per node
    /// let loading = block.plan_load("embedding.weight", &wanted, &Planner::new(), nodes)?;
    /// assert!(loading.plan().is_some()); // every byte is read once, then a plan along dp
    /// let shards = World::new(4)?.run(|comm| block.load("embedding.weight", &loading, comm)); // or the ranks of an MPI job
    /// assert_eq!(shards.len(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load<C: Communicator<Buffer = [u8]>>(
        &self,
        tensor: &str,
        loading: &ShardLoad,
        comm: &mut C,
    ) -> Result<Vec<u8>, Error> {
        let tensor = self.tensor(tensor)?;
        let about = |error: Error| error.about_tensor(tensor.name());
        let (units, rank) = (tensor.units(), comm.rank());
        if loading.wanted.shape() != units.shape() {
            let (is, of) = (units.shape(), loading.wanted.shape());
            let message = format!("its shape in units is {is:?}, but the load was planned for {of:?}");
            return Err(about(Error::refused("shape", message)));
        }
        let part = if loading.reads.mesh().contains(rank) {
            loading
                .reads
                .region(rank)
                .map_err(Error::from)
                .and_then(|region| tensor.read_units(&units, &region))
        } else {
            Ok(Vec::new())
        };
        let part = part.map_err(about)?;
        let Some(plan) = &loading.plan else { return Ok(part) };
        if !loading.wanted.mesh().contains(rank) {
            return Ok(part);
        }
        let compiled = CompiledPlan::new(plan, rank)?;
        let mut scratch = compiled.scratch(comm)?;
        let mut shard = Vec::new();
        bytes::resize(&mut shard, compiled.target_bytes()).map_err(about)?;
        compiled.run(comm, &part, &mut shard, &mut scratch)?;
        Ok(shard)
    }
}

impl Tensor {
    /// Converts a sharding of the tensor to units; an error if files could not have it.
    pub(crate) fn in_units(
        &self,
        units: &crate::model::units::Units,
        sharding: &Sharding,
    ) -> Result<Sharding, Error> {
        if sharding.shape() != self.shape() {
            let message =
                format!("its shape is {:?}, but the sharding is for {:?}", self.shape(), sharding.shape());
            return Err(Error::refused("shape", message));
        }
        if sharding.is_partial() {
            let message =
                format!("`{sharding}` has a partial sum, but files hold complete values; use R or S there");
            return Err(Error::refused("partial_target", message));
        }
        units.sharding(sharding).map_err(|why| Error::refused("packed", why))
    }
}

/// Returns the elements that the busiest node holds, each as often as its ranks hold it.
fn busiest(sharding: &Sharding, node_ranks: usize) -> u64 {
    let (mut node, mut elements, mut most) = (None, 0, 0);
    for rank in sharding.mesh().ranks() {
        if node != Some(rank / node_ranks) {
            (node, elements) = (Some(rank / node_ranks), 0);
        }
        elements += sharding.local_numel(rank) as u64;
        most = elements.max(most);
    }
    most
}
