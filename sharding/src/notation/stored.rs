//! Shardings as they are stored: the mesh, the shape and the notation, texts that people can read, in any serde format.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
