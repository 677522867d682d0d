//! Arguments that several subcommands take, each declared once: as a flag, and as the key of that name in a request.
//!
//! A request names them as fields, so that it still knows all its keys; the subcommand flattens each into its flags, and
//! where the general help text would mislead, overrides it (`mut_arg`).

use std::path::{Path, PathBuf};

use clap::Args;
use reshard_checkpoint::Checkpoint;
use reshard_sharding::Mesh;
use reshard_sharding::notation::inlined_mesh;
use serde::Deserialize;

use super::error::CliError;
use super::listed::Listed;
use super::required;
use super::shape::Shape;

/// `--json`.
#[derive(Clone, Copy, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct Format {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--mesh`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct MeshArg {
    /// Mesh, like dp=2,tp=4, or x=2,y=2@[1,2,3,0] with an explicit rank order
    #[arg(long)]
    pub(crate) mesh: Option<String>,
}

/// `--source`.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct SourceArg {
    /// TOML file that describes input files which do not describe their parts: [source] with files, mesh and
    /// placements
    #[arg(long, value_name = "FILE")]
    pub(crate) source: Option<PathBuf>,
}

impl SourceArg {
    /// Opens a checkpoint, by its source if there is one.
    pub(crate) fn open(&self, path: &Path) -> Result<Checkpoint, CliError> {
        let opened = Checkpoint::open_described(path, self.source.as_deref());
        opened.map_err(|error| CliError::from(&error))
    }
}

/// `--shape`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct ShapeArg {
    /// Shape of the tensor, like 1024,4096
    #[arg(long, allow_hyphen_values = true)]
    shape: Option<Shape>,
}

/// `--placements`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct PlacementsArg {
    /// Sharding of the tensor: a placement per mesh axis, like S(0),R; or axes per dim, like [{dp},{tp}]; or
    /// in the notation of PyTorch, JAX, Shardy or HLO
    #[arg(long)]
    placements: Option<String>,
}

/// `--shapes`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct ShapesArg {
    /// Shapes of the inputs, like '64,32;32,16'; an empty one is a scalar
    #[arg(long, allow_hyphen_values = true)]
    shapes: Option<Listed<Shape>>,
}

/// `--out-shapes`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct OutShapesArg {
    /// Shapes of the outputs, if the inputs do not determine them
    #[arg(long, allow_hyphen_values = true)]
    out_shapes: Option<Listed<Shape>>,
}

impl MeshArg {
    /// Returns the mesh; an error if there is none.
    pub(crate) fn required(&self) -> Result<Mesh, CliError> {
        Ok(required("mesh", self.mesh.as_deref())?.parse()?)
    }

    /// Returns the mesh, or else the first in a sharding, as in `#sdy.sharding<mesh<["x"=2]>, [{"x"}]>`.
    pub(crate) fn or_inlined<'a>(
        &self,
        shardings: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Result<Mesh, CliError> {
        if self.mesh.is_none() {
            for text in shardings.into_iter().flatten() {
                if let Some(mesh) = inlined_mesh(text)? {
                    return Ok(mesh);
                }
            }
        }
        self.required()
    }
}

impl ShapeArg {
    /// Returns the sizes of the dims; an error if there is no shape.
    pub(crate) fn required(&self) -> Result<Vec<usize>, CliError> {
        required("shape", self.shape.as_ref())?.dims()
    }
}

impl PlacementsArg {
    /// Returns the text, if there is one.
    pub(crate) fn text(&self) -> Option<&str> {
        self.placements.as_deref()
    }

    /// Returns the text; an error if there is none.
    pub(crate) fn required(&self) -> Result<&str, CliError> {
        required("placements", self.placements.as_deref())
    }
}

impl ShapesArg {
    /// Returns the dims of every input, if they were given.
    pub(crate) fn dims(&self) -> Result<Option<Vec<Vec<usize>>>, CliError> {
        self.shapes.as_ref().map(dims).transpose()
    }

    pub(crate) fn is_given(&self) -> bool {
        self.shapes.is_some()
    }
}

impl OutShapesArg {
    /// Returns the dims of every output, if they were given.
    pub(crate) fn dims(&self) -> Result<Option<Vec<Vec<usize>>>, CliError> {
        self.out_shapes.as_ref().map(dims).transpose()
    }

    pub(crate) fn is_given(&self) -> bool {
        self.out_shapes.is_some()
    }
}

fn dims(listed: &Listed<Shape>) -> Result<Vec<Vec<usize>>, CliError> {
    listed.each().iter().map(Shape::dims).collect()
}
