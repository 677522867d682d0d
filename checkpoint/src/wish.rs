//! What a job asks for where it does not say: the mesh of the input, its sharding, and where to.

use reshard_sharding::Axis;
use reshard_sharding::Mesh;

use super::checkpoint::{Checkpoint, Origin};
use super::header::FreeTexts;
use super::job::{OutputFormat, ReshardJob};
use super::objects::Object;
use super::spec::PlacementSpec;
use crate::error::Error;

/// What a job asks for.
pub(crate) struct Wish<'a> {
    pub(crate) mesh: Mesh,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) spec: Option<&'a PlacementSpec>,
    /// Only this tensor.
    pub(crate) tensor: Option<&'a str>,
}

impl<'a> Wish<'a> {
    /// What a job asks for, with the defaults that depend on the input.
    pub(crate) fn of(
        job: &'a ReshardJob,
        origin: &Origin,
        spec: Option<&'a PlacementSpec>,
    ) -> Result<Self, Error> {
        let usage = |message: &str| Error::refused("usage", message);
        let whole = job.format == OutputFormat::Safetensors;
        let mesh = match (&job.mesh, origin) {
            (Some(text), _) => text.parse()?,
            (None, Origin::Sharded(mesh)) => mesh.clone(),
            (None, Origin::Embedded) => Mesh::new([("dp", 2), ("tp", 4)])?,
            (None, Origin::Files) if whole => Mesh::new([("one", 1)])?,
            (None, Origin::Files) => return Err(usage("say over which mesh: --mesh dp=2,tp=4")),
        };
        let from = match (&job.from, origin) {
            (Some(text), _) => Some(text.clone()),
            (None, Origin::Embedded) => Some(fsdp_over_tp(&mesh)),
            (None, Origin::Files | Origin::Sharded(_)) => None,
        };
        let to = match (&job.to, origin) {
            (Some(text), _) => Some(text.clone()),
            (None, _) if spec.is_some() => None,
            (None, _) if whole || job.gather.is_some() => Some(per_axis(&mesh, |_| "R".to_owned())),
            (None, Origin::Embedded) => {
                let last = mesh.axes().len().saturating_sub(1);
                Some(per_axis(&mesh, |axis| format!("S({})", usize::from(axis == last))))
            }
            (None, Origin::Files | Origin::Sharded(_)) => {
                return Err(usage("say how to shard: --to 'S(0),R', one per axis"));
            }
        };
        Ok(Self { mesh, from, to, spec, tensor: job.tensor.as_deref() })
    }

    /// The entries that are not tensors and are wanted: none where it is about one tensor.
    pub(crate) fn objects<'c>(&self, checkpoint: &'c Checkpoint) -> &'c [Object] {
        if self.tensor.is_some() { &[] } else { &checkpoint.objects }
    }

    /// The free texts that are wanted: it is no matter of them where it is about one tensor.
    pub(crate) fn texts<'c>(&self, checkpoint: &'c Checkpoint) -> Option<&'c FreeTexts> {
        checkpoint.free_texts.as_ref().filter(|_| self.tensor.is_none())
    }
}

/// Fully sharded data parallelism over tensor parallelism, all on dim 0: the first axis cuts what the others left, so
/// its digit is the innermost.
fn fsdp_over_tp(mesh: &Mesh) -> String {
    let inner: usize = mesh.axes().iter().skip(1).map(Axis::size).product();
    per_axis(mesh, |axis| if axis == 0 && inner > 1 { format!("SS(0,{inner})") } else { "S(0)".to_owned() })
}

fn per_axis(mesh: &Mesh, placement: impl Fn(usize) -> String) -> String {
    (0..mesh.axes().len()).map(placement).collect::<Vec<_>>().join(",")
}
