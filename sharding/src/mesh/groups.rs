//! The groups of a mesh whose ranks are a table.
//!
//! Which coordinates form a group is algebra as ever; which ranks these are is looked up.

use reshard_layout::{At, Mode};

use super::along::for_each_value;
use super::{Mesh, digit};
use crate::Error;
use crate::group::ProcessGroups;

impl Mesh {
    /// The groups of some modes along axes, member by member: one for every coordinate whose digits along them are 0.
    ///
    /// Requires modes that are digits of one number where they are of one axis.
    pub(crate) fn listed_groups(&self, modes: &[Mode<At>]) -> Result<ProcessGroups, Error> {
        let mut groups = Vec::new();
        for i in 0..self.size() {
            let Some(mut c) = self.coordinate_of_index(i) else { continue };
            if modes.iter().all(|&m| digit(&c, m) == 0) {
                let mut group = Vec::new();
                for_each_value(&mut c, modes, &mut |c| group.extend(self.rank_at(c)));
                groups.push(group);
            }
        }
        ProcessGroups::listed(groups)
    }
}
