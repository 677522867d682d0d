//! Reads arbitrary meshes and groups: no panic, and parsed values round-trip.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use reshard_sharding::notation::ReplicaGroups;
use reshard_sharding::{AxisName, Error, GroupPattern, Mesh, ProcessGroup, ProcessGroups};

/// Checks that a parsed value round-trips.
fn comes_back<T: FromStr<Err = Error> + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(&value));
            Some(value)
        }
        Err(error) => {
            assert!(!error.code().is_empty() && !error.to_string().is_empty());
            None
        }
    }
}

/// Checks a text, and returns `true` if it is any of them.
pub(crate) fn run(text: &str) -> bool {
    let groups = [
        comes_back::<ReplicaGroups>(text).is_some(),
        comes_back::<ProcessGroups>(text).is_some(),
        comes_back::<ProcessGroup>(text).is_some(),
        comes_back::<GroupPattern>(text).is_some(),
        AxisName::new(text).is_ok(),
    ];
    let Some(mesh) = comes_back::<Mesh>(text) else { return groups.contains(&true) };
    if let Ok(text) = mesh.to_shardy() {
        assert_eq!(text.parse::<Mesh>().as_ref(), Ok(&mesh));
    }
    if let Some(rank) = mesh.ranks().next() {
        assert!(mesh.coordinate(rank).is_some());
    }
    true
}
