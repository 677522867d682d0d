//! The request of a job, with defaults for the mesh, the source sharding and the target sharding.

use reshard_sharding::Axis;
use reshard_sharding::Mesh;

use crate::error::Error;
use crate::job::{OutputFormat, Replicas, ReshardJob};
use crate::model::checkpoint::Origin;
use crate::select::spec::PlacementSpec;

/// The request of a job, with all defaults filled in.
pub(crate) struct Wish<'a> {
    pub(crate) mesh: Mesh,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) spec: Option<&'a PlacementSpec>,
    pub(crate) replicas: Replicas,
}

impl<'a> Wish<'a> {
    /// Returns the request of a job, with the defaults that depend on the input.
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
            (None, Origin::Files) => return Err(usage("no mesh given; pass e.g. `--mesh dp=2,tp=4`")),
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
                return Err(usage("no target sharding given; pass e.g. `--to 'S(0),R'`, one per axis"));
            }
        };
        Ok(Self { mesh, from, to, spec, replicas: job.replicas.in_files(job.format) })
    }
}

/// Returns the sharding for fully sharded data parallelism over tensor parallelism, all on dim 0.
///
/// The first axis splits the shards of the others, so its digit is the innermost.
fn fsdp_over_tp(mesh: &Mesh) -> String {
    let inner: usize = mesh.axes().iter().skip(1).map(Axis::size).product();
    per_axis(mesh, |axis| if axis == 0 && inner > 1 { format!("SS(0,{inner})") } else { "S(0)".to_owned() })
}

fn per_axis(mesh: &Mesh, placement: impl Fn(usize) -> String) -> String {
    (0..mesh.axes().len()).map(placement).collect::<Vec<_>>().join(",")
}
