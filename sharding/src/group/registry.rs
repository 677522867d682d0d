//! The groups that a program has made, and whether one of them already serves.

use super::process_groups::ProcessGroups;
use crate::{Error, Mesh, SubAxis};

/// Groups that exist, each under the name it was made with.
///
/// A wanted set of groups is served by one that exists if each wanted group has exactly the members of one of
/// those, whatever mesh, view or order of axes it was made from.
///
/// ```
/// use reshard_sharding::{Mesh, GroupRegistry};
/// let world: Mesh = "dp=2,pp=2,tp=4".parse()?;
/// let mut registry = GroupRegistry::new();
/// registry.add_axes(&world)?;
/// registry.add("dp_tp", world.groups_of_axes(&["dp", "tp"])?);
/// let stage = world.at(&[("pp", 1)])?;
/// assert_eq!(registry.find(&stage.groups_of_axes(&["tp", "dp"])?), Some("dp_tp"));
/// assert_eq!(registry.find(&stage.groups_of_axes(&["tp"])?), Some("tp"));
/// assert_eq!(registry.find(&world.groups_of_axes(&["dp", "pp"])?), None);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRegistry {
    list: Vec<(String, ProcessGroups)>,
}

impl GroupRegistry {
    /// Returns an empty registry.
    pub fn new() -> GroupRegistry {
        GroupRegistry::default()
    }

    /// Adds groups under a name.
    pub fn add(&mut self, name: impl Into<String>, groups: ProcessGroups) {
        self.list.push((name.into(), groups));
    }

    /// Adds the groups of each axis of a mesh, and of the whole mesh.
    ///
    /// Their names are the axes' names and the mesh's text.
    pub fn add_axes(&mut self, mesh: &Mesh) -> Result<(), Error> {
        for (i, a) in mesh.axes().iter().enumerate() {
            self.add(a.name().as_str(), mesh.groups(&[mesh.known_whole(i)])?);
        }
        let all: Vec<SubAxis> = mesh.whole_axes().collect();
        self.add(mesh.to_string(), mesh.groups(&all)?);
        Ok(())
    }

    /// Adds the group of all ranks `0..world`.
    ///
    /// Fails with `mesh` for a world of no ranks.
    pub fn add_world(&mut self, world: usize) -> Result<(), Error> {
        let mesh = Mesh::new([("world", world)])?;
        self.add("world", mesh.groups(&[mesh.known_whole(0)])?);
        Ok(())
    }

    /// Returns the name of the first groups that serve all of the wanted ones, if any do.
    pub fn find(&self, wanted: &ProcessGroups) -> Option<&str> {
        self.list.iter().find(|(_, has)| wanted.is_subset_of(has)).map(|(name, _)| name.as_str())
    }

    /// Returns all of them, in the order they were added.
    #[doc(hidden)]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ProcessGroups)> {
        self.list.iter().map(|(name, groups)| (name.as_str(), groups))
    }
}
