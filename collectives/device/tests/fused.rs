//! Plans fused over all ranks, compared with the global tensor of the shards.

use reshard_device::{Backend, Fused, Simulated};
use reshard_kernels::DType;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};

fn shardings(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let choices = ["R", "S(0)", "S(1)", "SS(0,2)", "P"];
    let texts = mesh.axes().iter().fold(vec![String::new()], |all, _| {
        let grow = |t: &String| choices.map(|c| if t.is_empty() { c.to_owned() } else { format!("{t},{c}") });
        all.iter().flat_map(grow).collect()
    });
    texts.iter().filter_map(|t| Sharding::parse(mesh, shape, t).ok()).collect()
}

/// Small integers, different on every rank, whose sums are exact.
fn shard(s: &Sharding, rank: usize) -> Vec<i64> {
    let n: usize = s.local_shape(rank).unwrap().iter().product();
    let seed = if s.is_partial() { rank } else { 0 };
    let whole = s.region(rank).unwrap();
    let mut index = vec![0usize; s.shape().len()];
    let local = s.local_shape(rank).unwrap();
    let dims: Vec<Vec<usize>> = (0..s.shape().len()).map(|d| whole.indices(d).unwrap().collect()).collect();
    (0..n)
        .map(|i| {
            let mut left = i;
            for d in (0..local.len()).rev() {
                index[d] = dims[d][left % local[d]];
                left /= local[d];
            }
            let at = index.iter().zip(s.shape()).fold(0, |at, (i, n)| at * n + i);
            (at * 7 + seed * 131 + 3) as i64
        })
        .collect()
}

fn check<B: Backend>(device: &B, mesh: &str, shape: &[usize], every: usize) -> usize {
    let mesh: Mesh = mesh.parse().unwrap();
    let all = shardings(&mesh, shape);
    let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (from, to)));
    let mut done = 0;
    for (from, to) in pairs.step_by(every) {
        // A replica of a partial tensor must be a replica.
        let values = |rank: usize| -> Vec<i64> {
            let mut first = mesh.coordinate(rank).unwrap();
            for sub in from.replicated_axes() {
                let n = mesh.axes()[sub.axis].size();
                first[sub.axis] -= sub.known_digit(first[sub.axis], n) * sub.known_post(n);
            }
            shard(from, mesh.rank_at(&first).unwrap())
        };
        let plan = Planner::new().objective(Objective::Bytes).plan(from, to, DType::I64).unwrap();
        let mut fused = Fused::new(device, &plan).unwrap();
        let shards: Vec<Vec<i64>> = mesh.ranks().map(values).collect();
        for (rank, shard) in mesh.ranks().zip(&shards) {
            let bytes: Vec<u8> = shard.iter().flat_map(|x| x.to_ne_bytes()).collect();
            fused.write(rank, &bytes).unwrap();
        }
        fused.run().unwrap();
        let got: Vec<Vec<i64>> = mesh
            .ranks()
            .map(|rank| {
                let bytes = fused.read(rank).unwrap();
                bytes.chunks(8).map(|b| i64::from_ne_bytes(b.try_into().unwrap())).collect()
            })
            .collect();
        assert_eq!(to.assemble(&got), from.assemble(&shards), "{plan}");
        let moves = plan.steps().iter().filter(|s| s.op().communicates()).count();
        if !from.is_partial() && !to.is_partial() {
            assert!(fused.launches() <= moves.max(1) * 2, "{plan}");
        }
        done += 1;
    }
    done
}

#[test]
fn fused_plans_mean_what_they_should() {
    let device = Simulated::new();
    let mut done = 0;
    for (mesh, every) in [("x=4", 1), ("x=2,y=3", 3), ("x=2,y=4", 5)] {
        for shape in [&[24, 12][..], &[5, 7]] {
            done += check(&device, mesh, shape, every);
        }
    }
    assert!(done > 400, "{done}");
    assert_eq!(device.allocations(), 0);
}

#[cfg(feature = "cuda")]
#[test]
fn fused_plans_on_a_device_mean_what_they_should() {
    match reshard_device::Cuda::open(0) {
        Ok(device) => {
            for mesh in ["x=4", "x=2,y=3", "x=2,y=4"] {
                check(&device, mesh, &[24, 12], 1);
                check(&device, mesh, &[5, 7], 1);
            }
        }
        Err(e) => {
            assert!(std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "{e}");
            eprintln!("SKIPPED: {e}");
        }
    }
}
