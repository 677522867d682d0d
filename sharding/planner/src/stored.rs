//! Stored plans: texts that people can read, in any serde format.
//!
//! A plan is a pure function of its inputs, so only these are stored, and deserializing makes the plan again.

use reshard_kernels::DType;
use reshard_sharding::internal::StoredSharding;
use reshard_sharding::{GroupPattern, PartitionRegistry};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::arithmetic::Arithmetic;
use crate::budget::SearchBudget;
use crate::model::{Model, Topology};
use crate::objective::Objective;
use crate::plan::Plan;
use crate::planner::Planner;

/// The version of stored plans that is written, and the last that can be read.
const VERSION: u32 = 2;

fn first_version() -> u32 {
    1
}

#[derive(Serialize, Deserialize)]
struct StoredPlan {
    /// Absent in plans that were stored before there were versions.
    #[serde(default = "first_version")]
    version: u32,
    from: StoredSharding,
    to: StoredSharding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<DType>,
    /// Version 1 has this in place of the type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item_bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topology: Option<Topology>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_model: Option<String>,
    objective: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_peak_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    deterministic: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arithmetic: Option<Arithmetic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
}

impl StoredPlan {
    /// Returns the element type.
    ///
    /// Version 1 stored its bytes only: then it is some type of that size, if nothing is reduced.
    fn dtype(&self, reduces: bool) -> Result<DType, String> {
        match (self.dtype, self.item_bytes) {
            (Some(dtype), None) => Ok(dtype),
            (None, Some(1)) if !reduces => Ok(DType::U8),
            (None, Some(2)) if !reduces => Ok(DType::U16),
            (None, Some(4)) if !reduces => Ok(DType::U32),
            (None, Some(8)) if !reduces => Ok(DType::U64),
            (None, Some(bytes)) => {
                Err(format!("a stored plan for elements of {bytes} bytes without a dtype; plan again"))
            }
            (Some(_), Some(_)) | (None, None) => {
                Err("a stored plan must have `dtype`, and not `item_bytes`".to_owned())
            }
        }
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let options = self.options();
        let (topology, cost_model) = match &options.model {
            Model::Topology(topology) => (Some(topology.clone()), None),
            Model::Other { text, .. } => (None, Some(text.to_string())),
        };
        StoredPlan {
            version: VERSION,
            from: StoredSharding::of(self.from()),
            to: StoredSharding::of(self.to()),
            dtype: Some(self.dtype()),
            item_bytes: None,
            topology,
            cost_model,
            objective: options.objective().to_string(),
            max_peak_bytes: options.max_peak_bytes(),
            groups: options.groups().map(|g| g.iter().map(ToString::to_string).collect()),
            deterministic: options.is_deterministic(),
            arithmetic: Some(options.arithmetic()).filter(|&a| a != Arithmetic::default()),
            budget: Some(options.budget()).filter(|&b| b != SearchBudget::default()).map(|b| b.to_string()),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Plan, D::Error> {
        Plan::deserialize_with(&PartitionRegistry::new(), d)
    }
}

impl Plan {
    /// Deserializes a stored plan between shardings that may use these dim partitions.
    #[doc(hidden)]
    pub fn deserialize_with<'de, D: Deserializer<'de>>(
        cuts: &PartitionRegistry,
        d: D,
    ) -> Result<Plan, D::Error> {
        let p = StoredPlan::deserialize(d)?;
        if p.version > VERSION {
            let text =
                format!("a stored plan of version {}; versions up to {VERSION} are supported", p.version);
            return Err(D::Error::custom(text));
        }
        let read = |s: &StoredSharding| s.read(cuts).map_err(D::Error::custom);
        let (from, to) = (read(&p.from)?, read(&p.to)?);
        let reduces = from.is_partial() || to.is_partial();
        let dtype = p.dtype(reduces).map_err(D::Error::custom)?;
        let topology = match (p.topology, p.cost_model) {
            (Some(topology), None) => topology,
            (None, Some(model)) if model.parse::<Topology>().is_ok() => {
                model.parse().map_err(D::Error::custom)?
            }
            (None, Some(model)) => {
                let text = format!(
                    "a stored plan under the cost model {model}, which cannot be restored from text; plan again with \
                     it"
                );
                return Err(D::Error::custom(text));
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(D::Error::custom("a stored plan must have either `topology` or `cost_model`"));
            }
        };
        let objective: Objective = p.objective.parse().map_err(D::Error::custom)?;
        let mut planner =
            Planner::new().topology(topology).objective(objective).deterministic(p.deterministic);
        planner = planner.arithmetic(p.arithmetic.unwrap_or_default());
        if let Some(budget) = p.budget {
            planner = planner.budget(budget.parse().map_err(D::Error::custom)?);
        }
        if let Some(bytes) = p.max_peak_bytes {
            planner = planner.max_peak_bytes(bytes);
        }
        if let Some(groups) = p.groups {
            let groups: Result<Vec<GroupPattern>, _> = groups.iter().map(|g| g.parse()).collect();
            planner = planner.with_groups(groups.map_err(D::Error::custom)?);
        }
        planner.plan(&from, &to, dtype).map_err(D::Error::custom)
    }
}
