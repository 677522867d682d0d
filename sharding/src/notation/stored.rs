//! Shardings and plans as they are stored: texts that people can read, in any serde format.
//!
//! A sharding is its mesh, shape and notation. A plan is a pure function of its inputs, so those are what is stored, and
//! reading one plans again.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::redistribute::{Objective, Plan, Planner, Topology};
use crate::sharding::Shape;
use crate::{Group, Mesh, Sharding};

#[derive(Serialize, Deserialize)]
struct StoredSharding {
    mesh: Mesh,
    shape: Shape,
    sharding: String,
}

impl Serialize for Sharding {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let (mesh, shape) = (self.mesh().clone(), Shape::from_slice(self.shape()));
        StoredSharding { mesh, shape, sharding: self.to_string() }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Sharding {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sharding, D::Error> {
        let s = StoredSharding::deserialize(d)?;
        Sharding::parse(&s.mesh, &s.shape, &s.sharding).map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct StoredPlan {
    from: Sharding,
    to: Sharding,
    item_bytes: usize,
    topology: Topology,
    objective: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_peak_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    deterministic: bool,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        StoredPlan {
            from: self.from().clone(),
            to: self.to().clone(),
            item_bytes: self.item_bytes(),
            topology: self.planner().topology.clone(),
            objective: self.planner().objective.to_string(),
            max_peak_bytes: self.planner().max_peak_bytes,
            groups: self.planner().groups.as_ref().map(|g| g.iter().map(ToString::to_string).collect()),
            deterministic: self.planner().deterministic,
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Plan, D::Error> {
        let p = StoredPlan::deserialize(d)?;
        let objective: Objective = p.objective.parse().map_err(D::Error::custom)?;
        let mut planner =
            Planner::new().topology(p.topology).objective(objective).deterministic(p.deterministic);
        planner.max_peak_bytes = p.max_peak_bytes;
        if let Some(groups) = p.groups {
            let groups: Result<Vec<Group>, _> = groups.iter().map(|g| g.parse()).collect();
            planner = planner.with_groups(groups.map_err(D::Error::custom)?);
        }
        planner.plan(&p.from, &p.to, p.item_bytes).map_err(D::Error::custom)
    }
}
