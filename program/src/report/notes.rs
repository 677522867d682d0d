//! Notes of a report: facts that no total shows.
//!
//! An axis *does no work* if every op computes the same on all its ranks. For an axis of a mesh that is so if
//! the axis has more than one rank and
//!
//! ```text
//! all ops run on this mesh, and there is one
//! no operand and no result of an op is sharded or partial along the axis
//! ```
//!
//! Then each op has equal operands on the ranks that differ only in this axis, and an op computes equal results
//! from equal operands. Redistributions and inputs do not count: weights that are stored in shards and gathered
//! before use are computed with as replicas.

use core::fmt;

use reshard_sharding::Sharding;

use crate::program::{Program, Statement};

/// A note of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Every op computes the same on all ranks of an axis.
    SameWork {
        /// The name of the axis.
        axis: String,
        /// The name of its mesh; `None` for the first mesh.
        mesh: Option<String>,
        /// The number of ranks of the axis, at least 2.
        ranks: usize,
    },
}

impl Note {
    /// Returns the kind of the note as one identifier, for machines.
    #[doc(hidden)]
    pub fn code(&self) -> &'static str {
        match self {
            Note::SameWork { .. } => "same_work",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note::SameWork { axis, mesh, ranks } = self;
        f.write_str(axis)?;
        if let Some(mesh) = mesh {
            write!(f, " on {mesh}")?;
        }
        write!(f, " computes the same on all {ranks} ranks")
    }
}

impl Program {
    /// Returns the notes, by axis in the order of the mesh.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let mut operands: Vec<&Sharding> = Vec::new();
        for item in &self.statements {
            if let Statement::Op { inputs, outputs, .. } = item {
                operands.extend(inputs.iter().chain(outputs).map(|&v| &self.get(v).ty.value));
            }
        }
        let Some(mesh) = operands.first().map(|first| first.mesh()) else { return Vec::new() };
        // Ops on another mesh run on a part of the ranks, so the ranks of an axis may differ by them.
        if operands.iter().any(|is| is.mesh() != mesh) {
            return Vec::new();
        }
        let mut works = vec![false; mesh.axes().len()];
        for is in &operands {
            for sub in is.cutting().chain(is.partial().iter().map(|p| p.sub)) {
                works[sub.axis] = true;
            }
        }
        let named = (mesh != self.mesh()).then(|| self.meshes.name(mesh).map(str::to_owned)).flatten();
        let idle = mesh.axes().iter().zip(works).filter(|(axis, works)| !works && axis.size() > 1);
        idle.map(|(axis, _)| Note::SameWork {
            axis: axis.name().to_string(),
            mesh: named.clone(),
            ranks: axis.size(),
        })
        .collect()
    }
}
