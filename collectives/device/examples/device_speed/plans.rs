//! Whole plans of all ranks on one device, compared with the minimum bytes at copy speed, and the gain of
//! capture.

use std::time::Instant;

use reshard_cuda::Device;
use reshard_device::{Backend, Cuda, Fused};
use reshard_kernels::DType;
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};

use super::{Clock, Result, row, shardings};

/// Maximum number of plans of a mesh that are timed.
const MOST_PLANS: usize = 600;

/// Times the plans between all shardings of a matrix of `total` bytes, or an even sample of them.
pub(crate) fn fused(device: &Cuda, mesh: &Mesh, total: usize) -> Result<()> {
    let item = 4;
    let side = 1usize << ((total / item).ilog2() / 2);
    let all = shardings(mesh, &[side, total / item / side]);
    let mut ratios: Vec<(f32, String)> = Vec::new();
    let pairs: Vec<_> =
        all.iter().flat_map(|from| all.iter().map(move |to| (from, to))).filter(|(a, b)| a != b).collect();
    // A step that does not divide the number of shardings reaches all targets.
    let mut step = pairs.len().div_ceil(MOST_PLANS);
    while step > 1 && all.len().is_multiple_of(step) {
        step += 1;
    }
    let mut clock = Clock::new(device.device())?;
    for &(from, to) in pairs.iter().step_by(step) {
        let plan = Planner::new().objective(Objective::Bytes).plan(from, to, DType::F32)?;
        let mut plan_of_all = Fused::new(device, &plan)?;
        let target: usize = mesh
            .ranks()
            .map(|r| to.local_shape(r).map(|s| s.iter().product::<usize>()))
            .sum::<std::result::Result<usize, reshard_sharding::Error>>()?
            * item;
        let (mut a, b) = (device.allocate(target)?, device.allocate(target)?);
        let (ours, theirs) =
            clock.both(&mut || plan_of_all.enqueue(), &mut || device.device().copy_all(&mut a, &b))?;
        ratios.push((theirs / ours, format!("{from} -> {to}, {} launches", plan_of_all.launches())));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = ratios.len();
    let of_all = pairs.len();
    let worst = format!("{n} of {of_all} plans, worst {:.2}, median {:.2}", ratios[0].0, ratios[n / 2].0);
    row(&format!("whole plans of all ranks on {mesh}"), "a table", &worst);
    println!(
        "| {mesh} | {n} | {:.2} | {:.2} | {:.2} ({}) |",
        ratios[n * 9 / 10].0,
        ratios[n / 2].0,
        ratios[0].0,
        ratios[0].1
    );
    Ok(())
}

/// Plans in which each of a few kernels is launched for each rank or for all.
const CAPTURED: [(&str, &str, &str); 5] = [
    ("x=2,y=4", "S(0),S(1)", "S(1),S(0)"),
    ("x=2,y=4", "R,P", "R,S(0)"),
    ("x=2,y=4", "P,P", "R,R"),
    ("x=2,y=2,z=2", "P,P,P", "S(0),S(1),R"),
    ("x=2,y=2,z=2", "S(0),S(1),P", "R,S(0),S(1)"),
];
/// Consecutive runs of a plan, of which the time per run is taken.
const REPEATS: u32 = 200;

/// Returns microseconds per run: until the host has enqueued it, and until the device has completed it.
fn per_run(
    device: &Device,
    mut enqueue: impl FnMut() -> std::result::Result<(), reshard_cuda::Error>,
) -> Result<[f64; 2]> {
    enqueue()?;
    device.synchronize()?;
    let mut best = [f64::INFINITY; 2];
    for _ in 0..5 {
        let start = Instant::now();
        (0..REPEATS).try_for_each(|_| enqueue())?;
        let enqueued = start.elapsed();
        device.synchronize()?;
        for (best, time) in best.iter_mut().zip([enqueued, start.elapsed()]) {
            *best = best.min(time.as_secs_f64() * 1e6 / f64::from(REPEATS));
        }
    }
    Ok(best)
}

/// Measures the gain of capture and replay for matrices of 64 KiB, where launches dominate.
pub(crate) fn captured() -> Result<bool> {
    // A device of one stream: events between streams cannot be captured.
    let device = Cuda::on(Device::open_for_one_stream(0)?);
    println!(
        "| plan, matrix of 64 KiB | launches | us, separate launches: enqueued | done | us, replayed: enqueued | done | saved per launch |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut saved = Vec::new();
    for (mesh, from, to) in CAPTURED {
        let mesh: Mesh = mesh.parse()?;
        let sharding = |text: &str| Sharding::parse(&mesh, &[128, 128], text);
        let plan =
            Planner::new().objective(Objective::Bytes).plan(&sharding(from)?, &sharding(to)?, DType::F32)?;
        let mut plan_of_all = Fused::new(&device, &plan)?;
        let launches = plan_of_all.launches();
        let values = |turn: usize, rank: usize| -> Result<Vec<u8>> {
            let elements: usize = plan.from().local_shape(rank)?.iter().product();
            Ok((0..elements).flat_map(|i| ((i * 7 + rank * 131 + turn * 17) as f32).to_ne_bytes()).collect())
        };
        // Both variants compute the same result from the sources.
        let mut wanted = Vec::new();
        for turn in 0..2 {
            mesh.ranks()
                .try_for_each(|rank| -> Result<()> { Ok(plan_of_all.write(rank, &values(turn, rank)?)?) })?;
            plan_of_all.run()?;
            let all = mesh
                .ranks()
                .map(|rank| plan_of_all.read(rank))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            wanted.push(all);
        }
        let single = per_run(device.device(), || plan_of_all.enqueue())?;
        let mut graph = plan_of_all.capture()?;
        let replayed = per_run(device.device(), || graph.enqueue())?;
        for (turn, wanted) in wanted.iter().enumerate() {
            for rank in mesh.ranks() {
                graph.fused().write(rank, &values(turn, rank)?)?;
            }
            graph.enqueue()?;
            device.device().synchronize()?;
            for (rank, wanted) in mesh.ranks().zip(wanted) {
                if graph.fused().read(rank)? != *wanted {
                    return Err(format!("rank {rank} differs where {from} -> {to} is replayed").into());
                }
            }
        }
        let a_launch = (single[0] - replayed[0]) / launches as f64;
        saved.push(single[1] / replayed[1]);
        println!(
            "| {mesh}: {from} -> {to} | {launches} | {:.1} | {:.1} | {:.1} | {:.1} | {a_launch:.2} |",
            single[0], single[1], replayed[0], replayed[1]
        );
    }
    saved.sort_by(f64::total_cmp);
    let found = format!(
        "{} plans: done in 1/{:.2} to 1/{:.2} of the time, same bytes",
        saved.len(),
        saved[0],
        saved[saved.len() - 1]
    );
    row("captured plans against separate launches", "the same bytes; a table", &found);
    Ok(true)
}
