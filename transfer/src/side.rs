//! A side of a transfer: the tensors of a world, and the ranks that hold them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use reshard_mapping::Dtype;
use reshard_sharding::Mesh;
use serde::{Deserialize, Serialize};

use crate::dtype;
use crate::error::{Error, ErrorKind, shown};

/// The largest number of tensors of a side.
const MOST_TENSORS: usize = 1 << 20;

/// The largest number of ranks of a mesh, and the largest rank.
pub(crate) const MOST_RANKS: usize = 1 << 16;

/// A tensor of a side.
///
/// A tensor is held by the ranks of its mesh. Ranks of the side that are not in the mesh do not hold it, as ranks of
/// other pipeline stages. Placements on some `axes` alone are replicated on the other axes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SideTensor {
    /// Name, unique in the side.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Extents of the whole tensor; `None` for a target whose shape follows from the mapping.
    pub shape: Option<Vec<usize>>,
    /// The ranks that hold it.
    pub mesh: Mesh,
    /// Axes of the mesh that the placements name, if not all.
    pub axes: Option<Vec<String>>,
    /// Placements, in any notation of a sharding, part by part: `S(0) | R`; `None` for those of the mapping.
    pub placements: Option<String>,
    /// Extents of the buffer on every rank, to be checked.
    pub local_shape: Option<Vec<usize>>,
    /// Extents of the buffers of single ranks, to be checked.
    pub local_shapes: BTreeMap<usize, Vec<usize>>,
}

impl SideTensor {
    /// Returns a tensor of this shape, placed on all axes of a mesh.
    pub fn new(name: &str, dtype: Dtype, shape: &[usize], mesh: &Mesh, placements: &str) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            shape: Some(shape.to_vec()),
            mesh: mesh.clone(),
            axes: None,
            placements: Some(placements.to_owned()),
            local_shape: None,
            local_shapes: BTreeMap::new(),
        }
    }
}

impl fmt::Display for SideTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", shown(&self.name), dtype::name(self.dtype))?;
        match (&self.shape, &self.local_shape) {
            (Some(shape), _) => write!(f, "{shape:?}")?,
            (None, Some(local)) => write!(f, " with buffers {local:?}")?,
            (None, None) => {}
        }
        if let Some(placements) = &self.placements {
            write!(f, " {}", shown(placements))?;
        }
        if let Some(axes) = &self.axes {
            write!(f, " of {}", axes.join(","))?;
        }
        write!(f, " on {}", self.mesh)
    }
}

/// The tensors of a trainer or a server, and the ranks that hold them.
///
/// Both sides of a transfer number their ranks in one world, so they can share ranks.
///
/// ```
/// use reshard_transfer::Side;
///
/// let text = r#"{"mesh": "dp=2,tp=2", "tensors": [
///     {"name": "q.weight", "dtype": "f32", "shape": [64, 64], "placements": "S(0),S(1)"},
///     {"name": "norm.weight", "dtype": "f32", "shape": [64], "axes": ["dp"], "placements": "S(0)"}
/// ]}"#;
/// let side = Side::from_json(text)?;
/// assert_eq!(side.tensors()[0].to_string(), "`q.weight` is f32[64, 64] S(0),S(1) on dp=2,tp=2");
/// assert_eq!(Side::from_json(&side.to_json())?, side);
/// # Ok::<(), reshard_transfer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    tensors: Vec<SideTensor>,
}

impl Side {
    /// Returns the side that holds these tensors.
    ///
    /// Errors: a name that occurs twice, and more tensors or ranks than the limits (2^20, 2^16).
    pub fn new(tensors: Vec<SideTensor>) -> Result<Self, Error> {
        if tensors.len() > MOST_TENSORS {
            let message = format!("a side has {} tensors, over the limit of {MOST_TENSORS}", tensors.len());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let mut names = HashSet::with_capacity(tensors.len());
        for tensor in &tensors {
            if tensor.name.is_empty() || tensor.name.contains('\0') {
                let message = format!("the name `{}` is empty or has a null character", shown(&tensor.name));
                return Err(Error::invalid(message));
            }
            if !names.insert(&tensor.name[..]) {
                let message = format!("two tensors are named `{}`; rename one of them", shown(&tensor.name));
                return Err(Error::invalid(message));
            }
            if tensor.mesh.world_size() > MOST_RANKS {
                let message = format!(
                    "`{}` is on ranks up to {}, over the limit of {MOST_RANKS} ranks",
                    shown(&tensor.name),
                    tensor.mesh.world_size() - 1
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        }
        Ok(Self { tensors })
    }

    /// Returns the tensors in their order.
    pub fn tensors(&self) -> &[SideTensor] {
        &self.tensors
    }

    /// Returns the ranks that hold at least one tensor, ascending.
    pub fn ranks(&self) -> Vec<usize> {
        let meshes: HashSet<&Mesh> = self.tensors.iter().map(|tensor| &tensor.mesh).collect();
        let mut ranks: Vec<usize> = meshes.into_iter().flat_map(Mesh::ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Parses the JSON form.
    ///
    /// `mesh` is the mesh of the tensors that have no mesh. A tensor has `name`, `dtype`, `shape`, `placements`, and if
    /// needed `mesh`, `axes`, `local_shape` (of every rank) and `local_shapes` (by rank).
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let read: JsonSide = serde_json::from_str(text)
            .map_err(|error| Error::invalid(format!("a side is not valid JSON: {error}")))?;
        let mut tensors = Vec::with_capacity(read.tensors.len());
        for tensor in read.tensors {
            let Some(mesh) = tensor.mesh.or_else(|| read.mesh.clone()) else {
                let message = format!(
                    "`{}` has no mesh; add \"mesh\" to the tensor or to the side",
                    shown(&tensor.name)
                );
                return Err(Error::invalid(message));
            };
            tensors.push(SideTensor {
                dtype: dtype::named(&tensor.dtype)?,
                name: tensor.name,
                shape: tensor.shape,
                mesh,
                axes: tensor.axes,
                placements: tensor.placements,
                local_shape: tensor.local_shape,
                local_shapes: tensor.local_shapes,
            });
        }
        Self::new(tensors)
    }

    /// Returns the JSON form, which [`Side::from_json`] parses to an equal side.
    pub fn to_json(&self) -> String {
        let mesh = self.tensors.first().map(|tensor| tensor.mesh.clone());
        let tensors = self.tensors.iter().map(|tensor| JsonTensor {
            name: tensor.name.clone(),
            dtype: dtype::name(tensor.dtype),
            shape: tensor.shape.clone(),
            mesh: (Some(&tensor.mesh) != mesh.as_ref()).then(|| tensor.mesh.clone()),
            axes: tensor.axes.clone(),
            placements: tensor.placements.clone(),
            local_shape: tensor.local_shape.clone(),
            local_shapes: tensor.local_shapes.clone(),
        });
        let side = JsonSide { tensors: tensors.collect(), mesh: mesh.clone() };
        // Only maps whose keys are not texts cannot be written.
        serde_json::to_string(&side).unwrap_or_default()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tensors.iter().try_for_each(|tensor| writeln!(f, "{tensor}"))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonSide {
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<Mesh>,
    tensors: Vec<JsonTensor>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonTensor {
    name: String,
    dtype: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<Mesh>,
    #[serde(skip_serializing_if = "Option::is_none")]
    axes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placements: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_shape: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    local_shapes: BTreeMap<usize, Vec<usize>>,
}
