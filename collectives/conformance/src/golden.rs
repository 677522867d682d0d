//! The redistributions of the planner's golden files, as plans to run.
//!
//! Tensors of millions of elements are replaced by smaller ones here, on a network that is slower by the same
//! factor, so that every cost, and thus every plan, equals that of the golden file.

use std::collections::BTreeMap;

use reshard_kernels::DType;
use reshard_planner::{Error, Objective, Plan, Planner, Profile, Topology};
use reshard_sharding::{Mesh, Sharding};

/// A planning problem of a golden file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Golden {
    /// The name of the golden file, without the profile.
    pub name: &'static str,
    /// The source mesh, and the target mesh unless that differs.
    pub mesh: &'static str,
    /// The target mesh, if it is not [`mesh`](Golden::mesh).
    pub to_mesh: Option<&'static str>,
    /// The factor by which the tensor is smaller here.
    pub shrunk: usize,
    /// The shape used here.
    pub shape: &'static [usize],
    /// The source sharding.
    pub from: &'static str,
    /// The target sharding.
    pub to: &'static str,
}

const fn on(
    name: &'static str,
    mesh: &'static str,
    shape: &'static [usize],
    from: &'static str,
    to: &'static str,
) -> Golden {
    Golden { name, mesh, to_mesh: None, shrunk: 1, shape, from, to }
}

/// Builds a problem with a tensor that is `shrunk` times smaller than in the golden file.
const fn large(
    name: &'static str,
    mesh: &'static str,
    (shape, shrunk): (&'static [usize], usize),
    from: &'static str,
    to: &'static str,
) -> Golden {
    Golden { name, mesh, to_mesh: None, shrunk, shape, from, to }
}

const fn between(
    name: &'static str,
    mesh: &'static str,
    to_mesh: &'static str,
    shape: &'static [usize],
    from: &'static str,
    to: &'static str,
) -> Golden {
    Golden { name, mesh, to_mesh: Some(to_mesh), shrunk: 1, shape, from, to }
}

/// The golden problems, each planned with the profiles `uniform` and `h100`.
pub const GOLDEN: &[Golden] = &[
    large("all_of_both_axes", "x=2,y=2", (&[4096], 4096), "P,P", "R,R"),
    large("reduce_to_the_middle", "x=2,y=2,z=2", (&[4096], 4096), "P,P,P", "R,S(0),R"),
    large("reduce_around_a_shard", "x=2,y=2,z=2", (&[4096], 4096), "P,S(0),P", "R,R,R"),
    large("reduce_beside_a_shard", "x=2,y=2,z=2", (&[4096], 4096), "P,P,S(0)", "S(0),S(0),S(0)"),
    large("scatter_both", "x=2,y=2", (&[4096], 4096), "P,P", "S(0),S(0)"),
    large("scatter_around_a_shard", "x=2,y=2,z=2", (&[4096], 4096), "P,S(0),P", "S(0),S(0),S(0)"),
    large("sum_and_average", "x=2,y=2", (&[4096], 4096), "P,P(avg)", "R,R"),
    on("scatter_uneven", "x=2,y=3", &[4], "P,P", "S(0),S(0)"),
    on("small_scatter_then_gather", "x=2,y=2", &[1024], "P,P", "R,S(0)"),
    large("kept_terms", "x=2,y=4", (&[64, 64], 64), "P,P", "P,R"),
    on("embed_a_shard", "x=2,y=2", &[64, 64], "S(0),S(1)", "P,S(1)"),
    on("another_op", "x=2,y=2", &[64, 64], "P(max),R", "R,P(sum)"),
    on("transpose", "x=2,y=4", &[64, 64], "S(0),S(1)", "S(1),S(0)"),
    on("swap_nested", "x=2,y=4", &[64, 64], "S(0),S(0)", "[{y,x},{}]"),
    on("rows_to_columns", "x=4", &[256, 256], "S(0)", "S(1)"),
    on("replicas_move_in", "x=2,y=2", &[64, 64], "S(0),R", "R,S(0)"),
    on("fsdp_over_tp", "dp=2,tp=4", &[1024], "SS(0,4),S(0)", "R,S(0)"),
    on("strided_to_plain", "dp=2,tp=4", &[1024], "SS(0,4),S(0)", "S(0),S(0)"),
    on("uneven_rows", "x=2,y=4", &[5, 7], "S(0),S(1)", "S(1),S(0)"),
    on("not_nesting", "x=6", &[12], "SS(0,2)", "S(0)"),
    on("sub_axes", "x=4", &[16, 16], "[{x:(1)2},{x:(2)2}]", "[{x:(2)2},{x:(1)2}]"),
    on("nothing", "x=2,y=2", &[8, 8], "S(0),P", "S(0),P"),
    large("gather_across_nodes", "dp=16,tp=8", (&[25600], 1000), "S(0),S(0)", "R,R"),
    large("reduce_across_nodes", "dp=16,tp=8", (&[25600], 1000), "P,P", "R,R"),
    large("slice_before_a_slow_hop", "dp=4,tp=8", (&[4096], 4096), "S(0),R", "R,R"),
    large("straddling_nodes", "dp=8,fsdp=5", (&[5 << 10], 1024), "R,S(0)", "R,R"),
    large("one_axis_over_nodes", "x=32", (&[4096], 4096), "S(0)", "R"),
    large("gather_axis_by_axis", "dp=16,tp=8", (&[25600], 1000), "S(0),S(0)", "R,R"),
    large("scatter_axis_by_axis", "dp=16,tp=8", (&[25600], 1000), "P,P", "S(0),S(0)"),
    on("least_bytes", "x=2,y=2", &[1024], "P,P", "R,S(0)"),
    on("least_peak", "x=2,y=2", &[64, 64], "S(0),R", "R,S(0)"),
    on("in_rank_order", "x=2,y=2", &[1024], "P,P", "R,S(0)"),
    between("elastic_tp", "dp=8,tp=2", "dp=4,tp=4", &[64, 64], "S(0),S(1)", "S(0),S(1)"),
    between("eight_to_six", "x=8", "x=6", &[48, 4], "S(0)", "S(0)"),
    between("trainer_to_inference", "dp=4,tp=2", "tp=4@8", &[64, 64], "S(0),S(1)", "S(1)"),
    between("terms_to_elsewhere", "x=2,y=2", "z=4@4", &[64, 64], "P,S(0)", "S(1)"),
];

impl Golden {
    /// Returns the number of ranks that an engine needs to run it.
    pub fn world(&self) -> Result<usize, Error> {
        let world = |mesh: &str| Ok::<usize, Error>(mesh.parse::<Mesh>()?.world_size());
        Ok(world(self.mesh)?.max(self.to_mesh.map_or(Ok(0), world)?))
    }

    /// Returns the plan for a network.
    pub fn plan(&self, topology: &Topology) -> Result<Plan, Error> {
        let mesh: Mesh = self.mesh.parse()?;
        let to_mesh: Mesh = self.to_mesh.unwrap_or(self.mesh).parse()?;
        let from = Sharding::parse(&mesh, self.shape, self.from)?;
        let to = Sharding::parse(&to_mesh, self.shape, self.to)?;
        let planner =
            Planner::new().topology(self.slower(topology)?).deterministic(self.name == "in_rank_order");
        let planner = planner.objective(match self.name {
            "least_peak" => Objective::Peak,
            "least_bytes" => Objective::Bytes,
            _ => Objective::Time,
        });
        let planner = if self.name.ends_with("axis_by_axis") {
            planner.with_groups([mesh.group_of_axes(&["dp"])?, mesh.group_of_axes(&["tp"])?])
        } else {
            planner
        };
        planner.plan(&from, &to, DType::F32)
    }

    /// Returns the network on which the smaller tensor takes the time of the whole one.
    fn slower(&self, topology: &Topology) -> Result<Topology, Error> {
        let mut profile = Profile::from(topology.clone());
        for level in &mut profile.levels {
            level.gbytes_per_s /= self.shrunk as f64;
        }
        for curve in &mut profile.curves {
            // Of the sizes that become equal, the largest has the time.
            let times: BTreeMap<u64, f64> = curve
                .bytes
                .iter()
                .map(|bytes| (bytes / self.shrunk as u64).max(1))
                .zip(curve.us.clone())
                .collect();
            (curve.bytes, curve.us) = times.into_iter().unzip();
        }
        Topology::try_from(profile)
    }
}
