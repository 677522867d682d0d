//! The cost model: every formula of the cost of a step is in this folder, once.
//!
//! ```text
//! sharding, step  --load-->  StepTraffic { transfers of the worst rank, per level and in all }  --CostModel-->  microseconds
//! ```
//!
//! Only `load` counts the bytes of a step, and only [`CostModel`] converts them to time; a plan adds up whole
//! picoseconds (`totals`). [`Topology`], a network of nested levels, is the included model. Users may provide
//! another one, and [`check_cost_model`](crate::check_cost_model) tests it.

pub(crate) mod codes;
mod curve_bounds;
pub(crate) mod curves;
pub(crate) mod exchange;
pub(crate) mod load;
pub(crate) mod network;
pub(crate) mod profile;
mod shipped;
pub(crate) mod topology;
pub(crate) mod totals;

use core::fmt;
use core::hash::Hasher;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Error;
pub use curves::Curve;
pub use load::{LevelTraffic, StepTraffic};
pub use profile::{Calibration, Compute, Profile, Source};
pub use topology::Topology;

/// One level of the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Number of consecutive ranks of a domain; absent at the last level, which is one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<usize>,
    /// Time of one message round in microseconds.
    pub latency_us: f64,
    /// Bandwidth of a rank in each direction, in gigabytes (10^9 bytes) per second.
    pub gbytes_per_s: f64,
}

/// The data that the worst rank needs from beyond one level: all that a bound may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinTraffic {
    /// Bytes from beyond the domains of the level below; at level 0 from other ranks.
    pub bytes: f64,
    /// Number of domains of the level below on whose data its target depends, its own included.
    ///
    /// At level 0 these are ranks.
    pub domains: u64,
    /// Number of participating ranks that share such a domain.
    pub domain_size: u64,
}

impl MinTraffic {
    /// Returns the need of this number of bytes, from any other rank.
    pub fn bytes(bytes: f64) -> MinTraffic {
        MinTraffic { bytes, domains: 1 + u64::from(bytes > 0.0), domain_size: 1 }
    }

    /// The need of a step in which ranks communicate, however little they send.
    #[doc(hidden)]
    pub const STEP: [MinTraffic; 1] = [MinTraffic { bytes: 0.0, domains: 2, domain_size: 1 }];
}

/// The cost of steps in time. [`Topology`] is one; any other model with these properties works as well.
///
/// Requires, and [`check_cost_model`](crate::check_cost_model) tests:
///
/// * `cost_us` is finite, from 0, and **monotone** in bytes: more of them make no step cheaper. More peers may;
/// * `exchange_floor_us` is at most the cost of an exchange, and monotone in bytes and peers. It is the cost,
///   unless a model defines it;
/// * `lower_bound_us` is a **bound**: no plan that transfers `need[l]` over the levels `l` and further out costs
///   less. It is monotone, and 0 where nothing is needed;
/// * `levels` are domains that consist of the domains below. Outer levels have neither more bandwidth nor
///   less latency, and the last has no number of ranks;
/// * `cache_key` is complete: **models of equal texts cost the same**. Plans are stored, cached and agreed on by
///   it.
///
/// Only communicating steps are priced: slices and zero-fills cost nothing under any model.
/// `examples/torus.rs` is a model of a network that has no levels.
pub trait CostModel: Send + Sync + fmt::Debug {
    /// Returns the domains from the inside out, which split axes and separate bounds.
    ///
    /// There is one level if the network has none.
    fn levels(&self) -> &[Level];
    /// Returns the microseconds of a step with this load.
    fn cost_us(&self, load: &StepTraffic<'_>) -> f64;
    /// Returns at most the microseconds of any exchange with at least these bytes and peers over each level.
    fn exchange_floor_us(&self, load: &StepTraffic<'_>) -> f64 {
        self.cost_us(load)
    }
    /// Returns the least microseconds of any plan that transfers `need[l]` over the levels from `l` on.
    fn lower_bound_us(&self, need: &[MinTraffic]) -> f64;
    /// Returns the model in one line.
    fn cache_key(&self) -> String;
}

/// The model of a planner: the included one, or that of a user.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Topology(Topology),
    Other { model: Arc<dyn CostModel>, text: Arc<str> },
}

impl Model {
    /// Wraps the model of a user, if its levels are valid.
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

    /// Returns at most the cost of any exchange with at least these bytes and peers over each level.
    #[inline]
    pub(crate) fn exchange_floor_us(&self, load: &StepTraffic<'_>) -> f64 {
        match self {
            Model::Topology(t) => t.exchange_floor_us(load),
            Model::Other { model, .. } => model.exchange_floor_us(load),
        }
    }

    /// Returns `true` if fewer bytes never take longer: on one level, unless steps of some kind were measured.
    ///
    /// Then the closed forms are the quickest without partial values.
    #[inline]
    pub(crate) fn is_one_formula(&self) -> bool {
        let has_curves = match self {
            Model::Topology(t) => t.has_curves(),
            Model::Other { .. } => false,
        };
        self.levels().len() == 1 && !has_curves
    }

    /// Returns the least cost of an exchange in which a rank receives `bytes` from `peers` ranks, anywhere.
    #[inline]
    pub(crate) fn least_of_exchange_us(&self, bytes: u64, peers: usize) -> f64 {
        match self {
            Model::Topology(t) => t.least_of_exchange_us(bytes, peers),
            Model::Other { model, .. } => model.lower_bound_us(&[MinTraffic::bytes(bytes as f64)]),
        }
    }

    /// Returns `true` for the model of a user.
    pub(crate) fn is_custom(&self) -> bool {
        match self {
            Model::Topology(_) => false,
            Model::Other { .. } => true,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Model::Topology(t) => t.cache_key(),
            Model::Other { text, .. } => text.to_string(),
        }
    }

    /// Returns where the times come from.
    pub(crate) fn origin(&self) -> String {
        match self {
            Model::Topology(t) => t.origin(),
            Model::Other { text, .. } => format!("{text}: a model of the caller"),
        }
    }

    /// Returns the innermost level whose domain contains both ranks.
    pub(crate) fn level_of(&self, a: usize, b: usize) -> usize {
        level_of(self.levels(), a, b)
    }

    /// Feeds a hasher; equal models feed it equally.
    pub(crate) fn hash_word(&self, hasher: &mut impl Hasher) {
        match self {
            Model::Topology(t) => {
                hasher.write_u64(t.launch_us().to_bits());
                for l in t.levels() {
                    hasher.write_u64(l.gbytes_per_s.to_bits() ^ l.ranks.unwrap_or(0) as u64);
                }
                hasher.write_u64(t.digest().map_or(0, |digest| digest as u64));
            }
            Model::Other { text, .. } => hasher.write(text.as_bytes()),
        }
    }
}

/// Returns the innermost level whose domain contains both ranks.
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
