//! The groups of a mesh on a network: the groups that span nodes, and whether all are distributed equally.
//!
//! The distribution of a group is its number of members on each of its nodes, by lowest member: `5`, or
//! `3+2`. Groups of one axis with different distributions may be reduced in different orders, and so differ
//! in the bits of a sum of floats.

use std::fmt::Write as _;

use reshard_layout::internal::counted;
use reshard_planner::Topology;
use reshard_sharding::{Mesh, ProcessGroups, SubAxis};
use serde::Serialize;

use crate::error::CliError;

/// For meshes of more ranks than this the groups are not examined separately.
const MOST_RANKS: usize = 1 << 20;

/// At most this many distributions are printed.
const MOST_WAYS: usize = 4;

/// The groups on the domains of one level of a network.
#[derive(Debug, Serialize)]
pub(super) struct NodeLines {
    /// The number of consecutive ranks of a node.
    ranks: usize,
    groups: Vec<OnNodes>,
}

/// The groups of one axis, or of the requested axes.
#[derive(Debug, Serialize)]
struct OnNodes {
    axes: String,
    /// The number of groups; `inside` counts those that are within one node each.
    count: usize,
    inside: Option<usize>,
    /// The number of groups that span nodes.
    straddling: Option<usize>,
    /// `true` if all groups are distributed equally.
    alike: Option<bool>,
    /// The distinct distributions.
    ways: Vec<Way>,
}

/// A distribution: the members on each node, and the number of groups with it.
#[derive(Debug, Serialize)]
struct Way {
    members: Vec<usize>,
    groups: usize,
}

/// The groups of these axes on the nodes of every level of a network.
pub(super) fn lines(
    mesh: &Mesh,
    axes: &[(String, Vec<SubAxis>)],
    topology: &Topology,
) -> Result<Vec<NodeLines>, CliError> {
    let nodes = topology.levels().iter().filter_map(|level| level.ranks);
    nodes
        .map(|ranks| {
            let of = |(axes, subs): &(String, Vec<SubAxis>)| {
                Ok(on_nodes(axes, &mesh.groups(subs)?, mesh.size(), ranks))
            };
            Ok(NodeLines { ranks, groups: axes.iter().map(of).collect::<Result<_, CliError>>()? })
        })
        .collect()
}

fn on_nodes(axes: &str, groups: &ProcessGroups, size: usize, node: usize) -> OnNodes {
    let count = groups.count();
    let mut ways: Vec<Way> = Vec::new();
    if let Some((inside, across)) = groups.split_at_node(node) {
        ways.push(Way { members: vec![inside.size(); across.size().min(MOST_RANKS)], groups: count });
    } else if size <= MOST_RANKS {
        for group in groups.iter() {
            let mut members: Vec<usize> = Vec::new();
            let mut last = None;
            for of in group.iter().map(|rank| rank / node) {
                match members.last_mut() {
                    Some(n) if last == Some(of) => *n += 1,
                    Some(_) | None => members.push(1),
                }
                last = Some(of);
            }
            match ways.iter_mut().find(|way| way.members == members) {
                Some(way) => way.groups += 1,
                None => ways.push(Way { members, groups: 1 }),
            }
        }
    }
    let known = !ways.is_empty();
    let inside = ways.iter().filter(|way| way.members.len() == 1).map(|way| way.groups).sum::<usize>();
    OnNodes {
        axes: axes.to_owned(),
        count,
        inside: known.then_some(inside),
        straddling: known.then_some(count - inside),
        alike: known.then_some(ways.len() == 1),
        ways,
    }
}

impl NodeLines {
    /// Writes a line for each of the groups, and a warning if their distributions differ.
    pub(super) fn write(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "on nodes of {}:", counted(self.ranks, "rank", "ranks"));
        for on in &self.groups {
            let (axes, count) = (&on.axes, on.count);
            let groups = if count == 1 { "group" } else { "groups" };
            let _ = match (on.inside, on.straddling) {
                (Some(inside), Some(0)) => {
                    writeln!(text, "  {axes}: {inside} {groups}, each in one node")
                }
                (Some(0), Some(_)) => writeln!(text, "  {axes}: {count} {groups}, each spans nodes"),
                (Some(inside), Some(straddling)) => {
                    writeln!(
                        text,
                        "  {axes}: {count} {groups}, {inside} in one node, {straddling} span nodes"
                    )
                }
                (_, _) => writeln!(text, "  {axes}: {count} {groups}, not examined: too many ranks"),
            };
            if on.alike == Some(false) {
                let mut ways: Vec<String> = on.ways.iter().take(MOST_WAYS).map(Way::text).collect();
                if on.ways.len() > MOST_WAYS {
                    ways.push("...".to_owned());
                }
                let _ = writeln!(
                    text,
                    "  warning: groups of {axes} are split unequally over nodes ({}), so their reductions may round differently",
                    ways.join(", ")
                );
            }
        }
    }
}

impl Way {
    /// Prints the distribution with its number of groups; `4 as 5, 2 as 3+2` joins two of them.
    fn text(&self) -> String {
        let shown: Vec<String> = self.members.iter().take(8).map(usize::to_string).collect();
        let more = if self.members.len() > 8 { "+.." } else { "" };
        format!("{} as {}{more}", self.groups, shown.join("+"))
    }
}
