//! Levels of a network of nodes, and the spread of a group over them.

use reshard_planner::Topology;

use crate::error::Error;
use crate::points::Point;

/// The ranks of a node; `None` for a network of one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nodes(pub(crate) Option<usize>);

impl Nodes {
    /// Returns the given ranks of a node, or else the most that any group of several nodes has in each.
    ///
    /// Groups of one node alone, or of one rank in each node, need no second level. Nodes of one rank are not a
    /// level either.
    pub(crate) fn of(points: &[Point], given: Option<usize>) -> Nodes {
        let several = points.iter().any(|p| p.nodes > 1);
        let most = points.iter().map(|p| p.ranks / p.nodes).max().filter(|_| several);
        Nodes(given.filter(|&ranks| ranks > 1).or(most).filter(|&ranks| ranks > 1))
    }

    /// Returns the nodes of a network of one or two levels.
    pub(crate) fn of_topology(topology: &Topology) -> Result<Nodes, Error> {
        match topology.levels() {
            [_] => Ok(Nodes(None)),
            [node, _] => Ok(Nodes(node.ranks)),
            levels => Err(Error::Levels { levels: levels.len() }),
        }
    }

    /// Returns the ranks of the group in a node, and the number of nodes, without a factor of 1 at the end.
    pub(crate) fn spread(self, point: &Point) -> Result<Vec<usize>, Error> {
        let in_node = point.ranks / point.nodes;
        match self.0 {
            None if in_node == 1 || point.nodes == 1 => Ok(vec![point.ranks]),
            None => Err(Error::Levels { levels: 1 }),
            Some(node) if in_node > node => Err(Error::Node { ranks: in_node, node }),
            Some(_) if point.nodes == 1 => Ok(vec![in_node]),
            Some(_) => Ok(vec![in_node, point.nodes]),
        }
    }
}
