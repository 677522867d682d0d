//! Shardings and plans as they are stored: texts that people can read, in any serde format.
//!
//! A sharding is its mesh, shape and notation. A plan is a pure function of its inputs, so those are what is stored, and
//! reading one plans again.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::redistribute::{Objective, Plan, Planner, Topology};
use crate::sharding::Shape;
use crate::{Mesh, Sharding};

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
    topology: String,
    objective: String,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        StoredPlan {
            from: self.from().clone(),
            to: self.to().clone(),
            item_bytes: self.item_bytes(),
            topology: self.planner().topology.to_string(),
            objective: self.planner().objective.to_string(),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Plan, D::Error> {
        let p = StoredPlan::deserialize(d)?;
        let topology: Topology = p.topology.parse().map_err(D::Error::custom)?;
        let objective: Objective = p.objective.parse().map_err(D::Error::custom)?;
        let planner = Planner::new().topology(topology).objective(objective);
        planner.plan(&p.from, &p.to, p.item_bytes).map_err(D::Error::custom)
    }
}
