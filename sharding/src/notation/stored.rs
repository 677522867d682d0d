//! Shardings as they are stored: the mesh, the shape and the notation, texts that people can read, in any
//! serde format.
//!
//! A custom dim partition is stored by its name and arguments, and read with a registry that knows it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::partition::PartitionRegistry;
use crate::sharding::Shape;
use crate::{Error, Mesh, Sharding};

/// A sharding as it is stored, not yet read.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredSharding {
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
    /// Converts a sharding to its stored form.
    pub fn of(s: &Sharding) -> StoredSharding {
        let (mesh, shape) = (s.mesh().clone(), Shape::from_slice(s.shape()));
        StoredSharding { mesh, shape, sharding: s.to_string() }
    }

    /// Returns the sharding, which may use these dim partitions.
    pub fn read(&self, cuts: &PartitionRegistry) -> Result<Sharding, Error> {
        Sharding::parse_with(cuts, &self.mesh, &self.shape, &self.sharding)
    }
}

impl<'de> Deserialize<'de> for Sharding {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sharding, D::Error> {
        Sharding::deserialize_with(&PartitionRegistry::new(), d)
    }
}

impl Sharding {
    /// Reads a stored sharding, which may use these dim partitions.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, PartitionRegistry};
    /// let mesh: Mesh = "cp=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[8], "Z(0)")?;
    /// let stored = serde_json::to_string(&s)?;
    /// let mut json = serde_json::Deserializer::from_str(&stored);
    /// assert_eq!(Sharding::deserialize_with(&PartitionRegistry::new(), &mut json)?, s);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deserialize_with<'de, D: Deserializer<'de>>(
        cuts: &PartitionRegistry,
        d: D,
    ) -> Result<Sharding, D::Error> {
        StoredSharding::deserialize(d)?.read(cuts).map_err(D::Error::custom)
    }
}
