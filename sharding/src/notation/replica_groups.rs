//! XLA's replica groups: the devices that communicate, in three spellings.
//!
//! ```text
//! {{0,1},{2,3}}                              V1: every group, member by member
//! [2,4]<=[8]   [4,2]<=[2,4]T(1,0)            V2: number of groups, size of each, and a device list
//! mesh['dp'=2,'tp'=4] {'tp':(1)2}            V3: the axes of a mesh that form the groups
//! mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}       of one whose devices are in another order
//! ```
//!
//! The order of members belongs to a step, not to the group: [`ProcessGroups`] keep the members only.

use core::fmt;
use reshard_layout::InlineVec;
use std::str::FromStr;

use reshard_layout::algebra::split_into;
use reshard_layout::{Layout, Mode, Modes};
use smallvec::SmallVec;

use super::cursor::Cursor;
use super::hlo::{DeviceList, join, numbers, product};
use super::{by_tensor, shardy};
use crate::group::ProcessGroups;
use crate::{Error, GroupPattern, Mesh, SubAxis};

const NOTATION: &str = "replica groups";

/// Replica groups in one of XLA's spellings.
///
/// ```
/// use reshard_sharding::notation::ReplicaGroups;
/// let v2: ReplicaGroups = "[4,2]<=[2,4]T(1,0)".parse()?;
/// assert_eq!(v2.groups()?.to_string(), "2:4@0+4:1");
/// assert_eq!(v2.groups()?.replica_groups_v1()?.to_string(), "{{0,4},{1,5},{2,6},{3,7}}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaGroups {
    /// V1.
    Listed(Vec<Vec<usize>>),
    /// V2.
    Iota {
        /// The number of groups.
        count: usize,
        /// The number of members of each.
        size: usize,
        /// The members, group by group.
        devices: DeviceList,
    },
    /// V3.
    Axes {
        /// The mesh.
        mesh: Mesh,
        /// The sub-axes along which members differ, slowest first.
        axes: InlineVec<SubAxis, 4>,
    },
}

impl ReplicaGroups {
    /// Returns the groups.
    ///
    /// Fails with `not_a_layout` where they differ in size.
    pub fn groups(&self) -> Result<ProcessGroups, Error> {
        match self {
            ReplicaGroups::Listed(list) => ProcessGroups::listed(list.iter().cloned()),
            ReplicaGroups::Iota { size, devices, .. } => match groups_of_digits(*size, devices) {
                Some(groups) => Ok(groups),
                None => match devices.listed()? {
                    DeviceList::Listed(list) => {
                        ProcessGroups::listed(list.chunks((*size).max(1)).map(<[usize]>::to_vec))
                    }
                    DeviceList::Iota { .. } => Err(Error::NotALayout {
                        reason: format!("the groups {self} do not share one pattern that is a layout"),
                    }),
                },
            },
            ReplicaGroups::Axes { mesh, axes } => mesh.groups(axes),
        }
    }
}

/// Returns the groups of a device list that splits into a pattern and its firsts.
fn groups_of_digits(size: usize, devices: &DeviceList) -> Option<ProcessGroups> {
    let listed = devices.modes()?;
    let total: i64 = listed.iter().map(|m| m.extent).product();
    let (mut modes, mut ends) = (Modes::new(), Vec::new());
    let parts = [size as i64, total / (size as i64).max(1)];
    split_into(&listed, parts, &mut modes, |end| ends.push(end)).ok()?;
    let (pattern, firsts) = modes.split_at(*ends.first()?);
    let group = |modes: &[Mode]| GroupPattern::of_modes(Modes::from_slice(modes)).ok();
    ProcessGroups::new(group(pattern)?, group(firsts)?, 0).ok()
}

impl ProcessGroups {
    /// Returns the groups in V1, member by member in ascending order.
    ///
    /// Fails with `not_expressible` for more than 2^20 members.
    #[doc(hidden)]
    pub fn replica_groups_v1(&self) -> Result<ReplicaGroups, Error> {
        const MOST: usize = 1 << 20;
        if self.count().checked_mul(self.pattern().size()).is_none_or(|n| n > MOST) {
            return Err(Error::NotRepresentable {
                notation: NOTATION,
                reason: format!("V1 lists every member, and {self} has more than {MOST}; use V2"),
            });
        }
        Ok(ReplicaGroups::Listed(self.iter().map(|g| g.iter().collect()).collect()))
    }

    /// Returns the groups in V2.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
    /// let groups = mesh.groups_of_axes(&["dp", "tp"])?;
    /// assert_eq!(groups.replica_groups_v2()?.to_string(), "[2,8]<=[2,2,4]T(1,0,2)");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_expressible` where the groups do not hold all ranks from 0 on.
    #[doc(hidden)]
    pub fn replica_groups_v2(&self) -> Result<ReplicaGroups, Error> {
        let modes: Modes = self.pattern().modes().chain(self.firsts().modes()).collect();
        let listed = self.pattern().lists().is_some() || self.firsts().lists().is_some();
        let compact = !listed && Layout::from_flat(modes.clone())?.is_compact();
        if !compact || self.lowest() != 0 {
            return Err(Error::NotRepresentable {
                notation: NOTATION,
                reason: format!("V2 must hold all ranks from 0 on, and {self} does not; use V1"),
            });
        }
        Ok(ReplicaGroups::Iota {
            count: self.count(),
            size: self.pattern().size(),
            devices: DeviceList::of_modes(&modes),
        })
    }
}

impl Mesh {
    /// Returns the groups of some sub-axes in V3.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let v3 = mesh.replica_groups_v3(&mesh.sub_axes("tp:(1)2")?)?;
    /// assert_eq!(v3.to_string(), "mesh['dp'=2,'tp'=4] {'tp':(1)2}");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Mesh::groups`].
    #[doc(hidden)]
    pub fn replica_groups_v3(&self, subs: &[SubAxis]) -> Result<ReplicaGroups, Error> {
        self.groups(subs)?;
        Ok(ReplicaGroups::Axes { mesh: self.clone(), axes: InlineVec::from_slice(subs) })
    }

    /// Returns the sub-axes of a text such as `dp,tp:(1)2`, each at most once.
    #[doc(hidden)]
    pub fn sub_axes(&self, text: &str) -> Result<InlineVec<SubAxis, 4>, Error> {
        let mut r = Cursor::new("list of axes", text);
        let subs = read_sub_axes(&mut r, self, "")?;
        r.finish()?;
        Ok(subs)
    }
}

/// Reads sub-axes with commas between, up to `close` or the end.
fn read_sub_axes(r: &mut Cursor<'_>, mesh: &Mesh, close: &str) -> Result<InlineVec<SubAxis, 4>, Error> {
    let mut used = SmallVec::new();
    let mut subs = InlineVec::new();
    loop {
        let ended = if close.is_empty() { r.is_done() } else { r.rest().starts_with(close) };
        if ended && subs.is_empty() {
            return Ok(subs);
        }
        subs.push(by_tensor::read_sub_axis(r, mesh, &mut used)?);
        if !r.eat(",") {
            return Ok(subs);
        }
    }
}

/// Returns the devices of a mesh in the shortest form: `[4,2]T(1,0)`, or `0,2,1` where they are not a layout.
fn devices_of(mesh: &Mesh) -> String {
    let digits = if mesh.offset() == 0 { mesh.flat_layout().ok() } else { None };
    let digits = digits.filter(Layout::is_compact);
    match digits {
        Some(layout) => {
            DeviceList::of_modes(&layout.flat().iter().copied().collect()).to_string().replacen("<=", "", 1)
        }
        None => join(&mesh.ranks().collect::<Vec<_>>()),
    }
}

impl fmt::Display for ReplicaGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicaGroups::Listed(list) => {
                let groups: Vec<String> = list.iter().map(|g| format!("{{{}}}", join(g))).collect();
                write!(f, "{{{}}}", groups.join(","))
            }
            ReplicaGroups::Iota { count, size, devices } => write!(f, "[{count},{size}]{devices}"),
            ReplicaGroups::Axes { mesh, axes } => {
                let quoted = |a: &crate::Axis| format!("'{}'={}", a.name(), a.size());
                let sizes: Vec<String> = mesh.axes().iter().map(quoted).collect();
                write!(f, "mesh[{}]", sizes.join(","))?;
                if !mesh.is_row_major() || mesh.offset() > 0 {
                    write!(f, ", device_ids=({})", devices_of(mesh))?;
                }
                let names: Vec<String> = axes.iter().map(|&s| shardy::quoted(mesh, s, '\'')).collect();
                write!(f, " {{{}}}", names.join(","))
            }
        }
    }
}

impl FromStr for ReplicaGroups {
    type Err = Error;

    fn from_str(text: &str) -> Result<ReplicaGroups, Error> {
        let mut r = Cursor::new(NOTATION, text);
        let groups = if r.eat("{") {
            let mut list = Vec::new();
            let mut seen = std::collections::HashSet::new();
            loop {
                r.expect("{")?;
                let at = r.here();
                let group = numbers(&mut r, "a device")?;
                if !group.iter().all(|&x| seen.insert(x)) {
                    return Err(r.error_at(at, "devices that are in no other group"));
                }
                r.expect("}")?;
                list.push(group);
                if !r.eat(",") {
                    break;
                }
            }
            r.expect("}")?;
            ReplicaGroups::Listed(list)
        } else if r.eat("[") {
            let at = r.here();
            let sizes = numbers(&mut r, "the number of groups")?;
            r.expect("]")?;
            let place = r.here();
            if !r.rest().starts_with("<=") {
                return Err(r.error_at(place, "<=[..]"));
            }
            let devices = DeviceList::read(&mut r)?;
            match sizes[..] {
                [count, size] if product(&sizes).is_some() && product(&sizes) == devices.len() => {
                    ReplicaGroups::Iota { count, size, devices }
                }
                _ => {
                    return Err(
                        r.error_at(at, "the number of groups and their size, which multiply to the devices")
                    );
                }
            }
        } else {
            let mesh = shardy::read_mesh(&mut r)?;
            r.expect("{")?;
            let axes = read_sub_axes(&mut r, &mesh, "}")?;
            r.expect("}")?;
            mesh.groups(&axes)?;
            ReplicaGroups::Axes { mesh, axes }
        };
        r.finish()?;
        Ok(groups)
    }
}
