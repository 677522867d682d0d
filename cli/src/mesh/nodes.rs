//! How the groups of a mesh lie on a network: which of them straddle nodes, and whether all lie alike.
//!
//! A group lies as the list of how many members it has on each of its nodes, by lowest member: `5`, or `3+2`. Groups of one
//! axis that lie unlike each other may be reduced in different orders, and so differ in the bits of a sum of floats.

use std::fmt::Write as _;

use reshard_layout::internal::counted;
use reshard_planner::Topology;
use reshard_sharding::{Mesh, ProcessGroups, SubAxis};
use serde::Serialize;

use crate::error::CliError;

/// Groups of more ranks than this are not looked at one by one.
const MOST_RANKS: usize = 1 << 20;

/// More ways to lie than this are not printed.
const MOST_WAYS: usize = 4;

/// The groups on the domains of one level of a network.
#[derive(Debug, Serialize)]
pub(super) struct NodeLines {
    /// How many consecutive ranks a node has.
    ranks: usize,
    groups: Vec<OnNodes>,
}

/// The groups of one axis, or of the axes that were asked for.
#[derive(Debug, Serialize)]
struct OnNodes {
    axes: String,
    /// How many groups there are, and how many of them lie in one node each.
    count: usize,
    inside: Option<usize>,
    /// How many straddle nodes.
    straddling: Option<usize>,
    /// Whether all lie alike.
    alike: Option<bool>,
    /// The different ways to lie: members on each node, and how many groups lie like that.
    ways: Vec<Way>,
}

/// One way to lie.
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
    /// Writes a line for each of the groups, and a warning where they lie unlike each other.
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
                (Some(0), Some(_)) => writeln!(text, "  {axes}: {count} {groups}, each straddles nodes"),
                (Some(inside), Some(straddling)) => {
                    writeln!(
                        text,
                        "  {axes}: {count} {groups}, {inside} in one node, {straddling} straddle nodes"
                    )
                }
                (_, _) => writeln!(text, "  {axes}: {count} {groups}, too many ranks to look at one by one"),
            };
            if on.alike == Some(false) {
                let mut ways: Vec<String> = on.ways.iter().take(MOST_WAYS).map(Way::text).collect();
                if on.ways.len() > MOST_WAYS {
                    ways.push("...".to_owned());
                }
                let _ = writeln!(
                    text,
                    "  warning: groups of {axes} lie unlike each other ({}), so reductions may differ in their bits between them",
                    ways.join(", ")
                );
            }
        }
    }
}

impl Way {
    /// As in `4 as 5, 2 as 3+2`.
    fn text(&self) -> String {
        let shown: Vec<String> = self.members.iter().take(8).map(usize::to_string).collect();
        let more = if self.members.len() > 8 { "+.." } else { "" };
        format!("{} as {}{more}", self.groups, shown.join("+"))
    }
}
