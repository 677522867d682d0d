//! The cost model: every formula of what a step costs stands in this folder, once.
//!
//! ```text
//! sharding, step  --load-->  Load { what the worst rank moves, per level and in all }  --CostModel-->  microseconds
//! ```
//!
//! `load` is the only place that counts what a step moves, and [`CostModel`] is all that says how long that takes; a plan
//! adds up whole picoseconds (`totals`). [`Topology`], a network of nested levels, is the model that ships; anybody may bring
//! another, and [`check_cost_model`](crate::check_cost_model) tests it.

pub(crate) mod codes;
pub(crate) mod load;
pub(crate) mod network;
pub(crate) mod topology;
pub(crate) mod totals;

use core::fmt;
use core::hash::Hasher;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Error;
pub use load::{LevelTraffic, StepTraffic};
pub use topology::Topology;

/// One level of the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// How many consecutive ranks are one domain of this level; absent at the last level, which is one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<usize>,
    /// Time of one message round in microseconds.
    pub latency_us: f64,
    /// Gigabytes (10^9 bytes) that a rank receives a second.
    pub gbytes_per_s: f64,
}

/// What the worst rank cannot do without from beyond one level: all that a bound may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinTraffic {
    /// Bytes from beyond the domains of the level below; at level 0 from other ranks.
    pub bytes: f64,
    /// Of how many domains of the level below (at level 0: ranks) its target depends on what they hold, its own included.
    pub domains: u64,
    /// How many of the ranks that take part share such a domain.
    pub domain_size: u64,
}

impl MinTraffic {
    /// So many bytes, from somebody.
    pub fn bytes(bytes: f64) -> MinTraffic {
        MinTraffic { bytes, domains: 1 + u64::from(bytes > 0.0), domain_size: 1 }
    }

    /// A step in which ranks talk to each other, however little they say.
    pub const STEP: [MinTraffic; 1] = [MinTraffic { bytes: 0.0, domains: 2, domain_size: 1 }];
}

/// How long steps take. [`Topology`] is one; anything else that keeps the laws plans as well.
///
/// Requires, and [`check_cost_model`](crate::check_cost_model) tests:
///
/// * `cost_us` is finite, from 0, and **monotone**: no number of a load that grows makes a step cheaper;
/// * `least_us` is a **bound**: no plan that brings `need[l]` over the levels `l` and further out costs less, and it is
///   monotone, and 0 where nothing is needed;
/// * `levels` are domains that consist of the domains below, outer ones neither faster nor earlier, the last without a number;
/// * `text` says everything: **models of equal texts cost the same**. Plans are kept, cached and agreed on by it.
///
/// Only communicating steps are asked about: slices and zero-fills cost nothing under any model. `examples/torus.rs` is a
/// model of a network that has no levels.
pub trait CostModel: Send + Sync + fmt::Debug {
    /// Domains from the inside out: where axes are cut and what bounds tell apart. One level if the network has none.
    fn levels(&self) -> &[Level];
    /// Microseconds of a step of this load.
    fn cost_us(&self, load: &StepTraffic<'_>) -> f64;
    /// Microseconds that no plan can beat which brings `need[l]` over the levels `l` and further out.
    fn lower_bound_us(&self, need: &[MinTraffic]) -> f64;
    /// The model in one line.
    fn cache_key(&self) -> String;
}

/// The model of a planner: the one that ships, or somebody's.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Topology(Topology),
    Other { model: Arc<dyn CostModel>, text: Arc<str> },
}

impl Model {
    /// Anybody's model, if its levels are some.
    pub(crate) fn of(model: Arc<dyn CostModel>) -> Result<Model, Error> {
        topology::check_levels(model.levels())?;
        if let Some(Level { ranks: Some(n), .. }) = model.levels().last() {
            let reason = format!("the last level is one domain of all ranks: leave out its {n} ranks");
            return Err(Error::Topology { reason });
        }
        let text = model.cache_key().into();
        Ok(Model::Other { model, text })
    }

    #[inline]
    pub(crate) fn levels(&self) -> &[Level] {
        match self {
            Model::Topology(t) => t.levels(),
            Model::Other { model, .. } => model.levels(),
        }
    }

    #[inline]
    pub(crate) fn cost_us(&self, load: &StepTraffic<'_>) -> f64 {
        match self {
            Model::Topology(t) => t.cost_us(load),
            Model::Other { model, .. } => model.cost_us(load),
        }
    }

    #[inline]
    pub(crate) fn least_us(&self, need: &[MinTraffic]) -> f64 {
        match self {
            Model::Topology(t) => t.lower_bound_us(need),
            Model::Other { model, .. } => model.lower_bound_us(need),
        }
    }

    /// What an exchange costs at least in which a rank receives so many bytes from so many others, wherever these are.
    #[inline]
    pub(crate) fn least_of_exchange_us(&self, bytes: u64, peers: usize) -> f64 {
        match self {
            Model::Topology(t) => t.least_of_exchange_us(bytes, peers),
            Model::Other { model, .. } => model.lower_bound_us(&[MinTraffic::bytes(bytes as f64)]),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Model::Topology(t) => t.cache_key(),
            Model::Other { text, .. } => text.to_string(),
        }
    }

    /// The innermost level whose domain holds both ranks.
    pub(crate) fn level_of(&self, a: usize, b: usize) -> usize {
        level_of(self.levels(), a, b)
    }

    /// Feeds a hasher: equal models alike.
    pub(crate) fn hash_word(&self, hasher: &mut impl Hasher) {
        match self {
            Model::Topology(t) => {
                hasher.write_u64(t.launch_us().to_bits());
                for l in t.levels() {
                    hasher.write_u64(l.gbytes_per_s.to_bits() ^ l.ranks.unwrap_or(0) as u64);
                }
            }
            Model::Other { text, .. } => hasher.write(text.as_bytes()),
        }
    }
}

/// The innermost level whose domain holds both ranks.
fn level_of(levels: &[Level], a: usize, b: usize) -> usize {
    levels.iter().position(|l| l.ranks.is_none_or(|n| a / n == b / n)).unwrap_or(levels.len() - 1)
}

impl Default for Model {
    fn default() -> Model {
        Model::Topology(Topology::default())
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        match (self, other) {
            (Model::Topology(a), Model::Topology(b)) => a == b,
            (Model::Other { model: a, text: x }, Model::Other { model: b, text: y }) => {
                Arc::ptr_eq(a, b) || x == y
            }
            (Model::Topology(_), Model::Other { .. }) | (Model::Other { .. }, Model::Topology(_)) => false,
        }
    }
}
