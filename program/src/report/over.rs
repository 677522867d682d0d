//! Scope of a communicating step: axes of a mesh, or a pair of meshes.

use core::fmt;

use reshard_planner::Step;

use crate::Meshes;
use crate::report::{CommCost, PerPass, Report};

/// The scope of a communicating step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommScope {
    /// Axes of the first mesh, like `tp` or `dp,tp`.
    Axes(String),
    /// Axes of another mesh, and its name: `ep on experts`.
    AxesOf {
        /// The axes.
        axes: String,
        /// The name of the mesh.
        mesh: String,
    },
    /// From ranks of one mesh to ranks of another, by mesh names: `default to experts`.
    BetweenMeshes {
        /// The mesh before.
        from: String,
        /// The mesh after.
        to: String,
    },
}

impl CommScope {
    pub(crate) fn of(meshes: &Meshes, step: &Step) -> CommScope {
        let [before, after] = [&step.before, &step.after].map(|s| s.mesh());
        let name = |mesh| meshes.name(mesh).map_or_else(|| format!("{mesh}"), str::to_owned);
        let axes = step.axis_names().join(",");
        if before != after {
            CommScope::BetweenMeshes { from: name(before), to: name(after) }
        } else if before == meshes.first() {
            CommScope::Axes(axes)
        } else {
            CommScope::AxesOf { axes, mesh: name(before) }
        }
    }

    /// Returns the axes; empty between two meshes.
    #[doc(hidden)]
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        let axes = match self {
            CommScope::Axes(axes) | CommScope::AxesOf { axes, .. } => Some(axes),
            CommScope::BetweenMeshes { .. } => None,
        };
        axes.into_iter().flat_map(|axes| axes.split(','))
    }

    /// Returns the mesh names; empty for axes of the first mesh.
    #[doc(hidden)]
    pub fn meshes(&self) -> Vec<&str> {
        match self {
            CommScope::Axes(_) => Vec::new(),
            CommScope::AxesOf { mesh, .. } => vec![mesh],
            CommScope::BetweenMeshes { from, to } => vec![from, to],
        }
    }
}

impl fmt::Display for CommScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommScope::Axes(axes) => f.write_str(axes),
            CommScope::AxesOf { axes, mesh } => write!(f, "{axes} on {mesh}"),
            CommScope::BetweenMeshes { from, to } => write!(f, "{from} to {to}"),
        }
    }
}

impl Report {
    /// Returns the communication over these axes or meshes.
    ///
    /// They are given as printed: `tp`, `ep on experts` or `default to experts`.
    pub fn over(&self, text: &str) -> PerPass<CommCost> {
        // If two have the same text, the last one counts.
        let found = self.by_axes.iter().rev().find(|(over, _)| over.to_string() == text);
        found.map(|(_, traffic)| *traffic).unwrap_or_default()
    }
}
