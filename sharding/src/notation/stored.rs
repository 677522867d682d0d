//! Shardings and plans as they are stored: texts that people can read, in any serde format.
//!
//! A sharding is its mesh, shape and notation. A plan is a pure function of its inputs, so those are what is stored, and
//! reading one plans again. What has a cut that somebody brings is stored by the cut's name and arguments, and read with a
//! registry that knows it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cut::CutRegistry;
use crate::redistribute::model::Model;
use crate::redistribute::{Objective, Plan, Planner, Topology};
use crate::sharding::Shape;
use crate::{Error, Group, Mesh, Sharding};

#[derive(Serialize, Deserialize)]
struct StoredSharding {
    mesh: Mesh,
    shape: Shape,
    sharding: String,
}

impl Serialize for Sharding {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        StoredSharding::of(self).serialize(s)
    }
}

impl StoredSharding {
    fn of(s: &Sharding) -> StoredSharding {
        let (mesh, shape) = (s.mesh().clone(), Shape::from_slice(s.shape()));
        StoredSharding { mesh, shape, sharding: s.to_string() }
    }

    fn read(&self, cuts: &CutRegistry) -> Result<Sharding, Error> {
        Sharding::parse_with(cuts, &self.mesh, &self.shape, &self.sharding)
    }
}

impl<'de> Deserialize<'de> for Sharding {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sharding, D::Error> {
        Sharding::deserialize_with(&CutRegistry::new(), d)
    }
}

impl Sharding {
    /// Reads a stored sharding whose cuts may be these.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, cut::CutRegistry};
    /// let mesh: Mesh = "cp=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[8], "Z(0)")?;
    /// let stored = serde_json::to_string(&s)?;
    /// let mut json = serde_json::Deserializer::from_str(&stored);
    /// assert_eq!(Sharding::deserialize_with(&CutRegistry::new(), &mut json)?, s);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deserialize_with<'de, D: Deserializer<'de>>(
        cuts: &CutRegistry,
        d: D,
    ) -> Result<Sharding, D::Error> {
        StoredSharding::deserialize(d)?.read(cuts).map_err(D::Error::custom)
    }
}

/// The version of stored plans that is written, and the last that is read.
const VERSION: u32 = 1;

fn first_version() -> u32 {
    1
}

#[derive(Serialize, Deserialize)]
struct StoredPlan {
    /// Absent in what was stored before there was one.
    #[serde(default = "first_version")]
    version: u32,
    from: StoredSharding,
    to: StoredSharding,
    item_bytes: usize,
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
            item_bytes: self.item_bytes(),
            topology,
            cost_model,
            objective: options.objective().to_string(),
            max_peak_bytes: options.max_peak_bytes(),
            groups: options.groups().map(|g| g.iter().map(ToString::to_string).collect()),
            deterministic: options.is_deterministic(),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Plan, D::Error> {
        Plan::deserialize_with(&CutRegistry::new(), d)
    }
}

impl Plan {
    /// Reads a stored plan between shardings whose cuts may be these.
    pub fn deserialize_with<'de, D: Deserializer<'de>>(cuts: &CutRegistry, d: D) -> Result<Plan, D::Error> {
        let p = StoredPlan::deserialize(d)?;
        if p.version > VERSION {
            let text = format!("a plan of version {}: this reads versions up to {VERSION}", p.version);
            return Err(D::Error::custom(text));
        }
        let topology = match (p.topology, p.cost_model) {
            (Some(topology), None) => topology,
            (None, Some(model)) => {
                let text = format!(
                    "a plan under the cost model {model}, which no text brings back: plan again with it"
                );
                return Err(D::Error::custom(text));
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(D::Error::custom("a plan has a topology or a cost model, and only one"));
            }
        };
        let objective: Objective = p.objective.parse().map_err(D::Error::custom)?;
        let mut planner =
            Planner::new().topology(topology).objective(objective).deterministic(p.deterministic);
        if let Some(bytes) = p.max_peak_bytes {
            planner = planner.max_peak_bytes(bytes);
        }
        if let Some(groups) = p.groups {
            let groups: Result<Vec<Group>, _> = groups.iter().map(|g| g.parse()).collect();
            planner = planner.with_groups(groups.map_err(D::Error::custom)?);
        }
        let (from, to) =
            (p.from.read(cuts).map_err(D::Error::custom)?, p.to.read(cuts).map_err(D::Error::custom)?);
        planner.plan(&from, &to, p.item_bytes).map_err(D::Error::custom)
    }
}
