//! How fast a device packs, unpacks and redistributes, beside its own copy of the same bytes in the same run.
//!
//!     cargo run --release -p reshard-device --features cuda --example device_speed [MIB]
//!
//! Prints tables in Markdown. Bytes count once read and once written; figures are medians of runs timed by the device.

use std::collections::BTreeMap;

use reshard_collectives::Compiled;
use reshard_cuda::{Device, DeviceCopy, Error, Memory};
use reshard_device::{Backend, Cuda, Fused};
use reshard_kernels::{DType, Loop, Nest, Side};
use reshard_sharding::redistribute::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RUNS: usize = 15;

fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

fn time(device: &Device, mut enqueue: impl FnMut() -> std::result::Result<(), Error>) -> Result<f32> {
    enqueue()?;
    device.synchronize()?;
    let times =
        (0..RUNS).map(|_| device.time_ms(&mut enqueue)).collect::<std::result::Result<Vec<f32>, Error>>();
    Ok(median(times?))
}

/// A copy whose speed is promised.
struct Case {
    name: String,
    nest: Nest,
    item: usize,
}

/// Bytes that lie together on both sides, and what is promised for them.
fn promise(nest: &Nest, item: usize) -> Result<(usize, f32)> {
    let reduced = nest.reduce()?;
    let run = match reduced.loops.last() {
        Some(l) if (l.source_stride, l.target_stride) == (1, 1) => l.extent * item,
        _ => item,
    };
    let transposed = run <= 16 && reduced.loops.iter().any(|l| l.source_stride == (run / item) as i64);
    let promised = match run {
        512.. => 0.9,
        64..512 => 0.8,
        _ if transposed && item == 4 && reduced.loops.len() <= 3 => 0.9,
        _ if transposed && item == 2 => 0.8,
        _ => 0.7,
    };
    Ok((run, promised))
}

/// Permutes a row-major box.
fn permute(name: &str, extents: &[usize], order: &[usize], item: usize) -> Case {
    let strides = |order: &[usize]| {
        let mut strides = vec![0; extents.len()];
        let mut stride = 1i64;
        for &dim in order.iter().rev() {
            strides[dim] = stride;
            stride *= extents[dim] as i64;
        }
        strides
    };
    let straight: Vec<usize> = (0..extents.len()).collect();
    let (source, target) = (strides(&straight), strides(order));
    let loops = extents.iter().zip(source.iter().zip(&target)).map(|(&e, (&s, &t))| Loop::new(e, s, t));
    Case { name: name.to_owned(), nest: Nest::new(0, 0, loops), item }
}

/// Rows of so many bytes, with as much left out between them in the source.
fn rows(bytes: usize, total: usize, item: usize) -> Case {
    let run = bytes / item;
    let nest = Nest::new(0, 0, [Loop::new(total / bytes, 2 * run as i64, run as i64), Loop::new(run, 1, 1)]);
    Case { name: format!("rows of {bytes} B"), nest, item }
}

fn cases(total: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for item in [4, 2] {
        let n = total / item;
        let side = 1usize << (n.ilog2() / 2);
        all.push(Case { name: "contiguous".to_owned(), nest: Nest::new(0, 0, [Loop::new(n, 1, 1)]), item });
        all.extend([4096, 512, 256, 128, 64, 32, 16].map(|bytes| rows(bytes, total / 2, item)));
        all.push(permute("2-D transpose", &[side, n / side], &[1, 0], item));
        all.push(permute("batched transpose", &[n >> 20, 1 << 10, 1 << 10], &[0, 2, 1], item));
        all.push(permute(
            "(0,2,1,3), 128 B inside",
            &[64, 64, n / 4096 / (128 / item), 128 / item],
            &[0, 2, 1, 3],
            item,
        ));
        all.push(permute("(2,1,0)", &[256, n >> 16, 256], &[2, 1, 0], item));
        all.push(permute("(3,0,1,2)", &[n >> 18, 64, 64, 64], &[3, 0, 1, 2], item));
    }
    all
}

const CHOICES: [&str; 5] = ["R", "S(0)", "S(1)", "SS(0,2)", "SS(1,2)"];

fn shardings(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let texts = mesh.axes().iter().fold(vec![String::new()], |all, _| {
        let grow = |t: &String| CHOICES.map(|c| if t.is_empty() { c.to_owned() } else { format!("{t},{c}") });
        all.iter().flat_map(grow).collect()
    });
    let mut all: Vec<Sharding> = Vec::new();
    for s in texts.iter().filter_map(|t| Sharding::parse(mesh, shape, t).ok()) {
        if !all.contains(&s) {
            all.push(s);
        }
    }
    all
}

/// The packs and unpacks of rank 0 in all plans of a mesh, the distinct ones.
fn packs(mesh: &Mesh, total: usize, dtype: DType) -> Result<Vec<Case>> {
    let item = dtype.item_bytes()?;
    let side = 1usize << ((total / item).ilog2() / 2);
    let shape = [side, total / item / side];
    let mut seen: BTreeMap<String, Case> = BTreeMap::new();
    let all = shardings(mesh, &shape);
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        let plan = Planner::new().objective(Objective::Bytes).plan(from, to, item)?;
        let compiled = Compiled::new(&plan, 0, dtype)?;
        for exchange in compiled.exchanges().filter(|exchange| exchange.communicates()) {
            let sends = exchange
                .sends()
                .iter()
                .flat_map(reshard_collectives::Send::pieces)
                .map(|p| (Side::Source, p));
            let receives = exchange.receives().iter().flat_map(reshard_collectives::Receive::pieces);
            for (side, piece) in sends.chain(receives.map(|p| (Side::Target, p))) {
                // On the other side the message is dense.
                let mut nest = match side {
                    Side::Source => piece.dense(Side::Target),
                    Side::Target => piece.dense(Side::Source),
                };
                (nest.source_offset, nest.target_offset) = (0, 0);
                let nest = nest.reduce()?;
                let what = if side == Side::Source { "pack" } else { "unpack" };
                let loops: Vec<String> = nest
                    .loops
                    .iter()
                    .map(|l| format!("{}:{}:{}", l.extent, l.source_stride, l.target_stride))
                    .collect();
                let name = format!("{what} on {mesh}: {}", loops.join(" "));
                seen.entry(name.clone()).or_insert(Case { name, nest, item });
            }
        }
    }
    Ok(seen.into_values().collect())
}

struct Buffers {
    source: Memory,
    target: Memory,
}

fn copies(device: &Device, buffers: &mut Buffers, cases: &[Case]) -> Result<(usize, usize)> {
    println!("| copy | item | run | kernel | bytes | GB/s | of the device's copy | promised | |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut kept, mut missed) = (0, 0);
    for case in cases {
        let bytes = case.nest.len()? * case.item;
        let (run, promised) = promise(&case.nest, case.item)?;
        let copy = DeviceCopy::new(&case.nest, case.item)?;
        let ours = time(device, || copy.run(device, &mut buffers.target, &buffers.source))?;
        let mut small = device.allocate(bytes)?;
        let base = device.allocate(bytes)?;
        let theirs = time(device, || device.copy_all(&mut small, &base))?;
        let kernel = copy.launches().first().map_or_else(String::new, |l| l.kernel.name());
        let ratio = theirs / ours;
        let ok = ratio >= promised;
        (kept, missed) = (kept + usize::from(ok), missed + usize::from(!ok));
        let speed = 2.0 * bytes as f32 / ours / 1e6;
        let Case { name, item, .. } = case;
        let verdict = if ok { "" } else { "missed" };
        println!(
            "| {name} | {item} | {run} | {kernel} | {bytes} | {speed:.0} | {ratio:.2} | {promised:.2} | {verdict} |"
        );
    }
    Ok((kept, missed))
}

fn fused(device: &Cuda, mesh: &Mesh, total: usize) -> Result<()> {
    let item = 4;
    let side = 1usize << ((total / item).ilog2() / 2);
    let all = shardings(mesh, &[side, total / item / side]);
    let mut ratios: Vec<(f32, String)> = Vec::new();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))).filter(|(a, b)| a != b)
    {
        let plan = Planner::new().objective(Objective::Bytes).plan(from, to, item)?;
        let mut plan_of_all = Fused::new(device, &plan, DType::F32)?;
        let target: usize = mesh
            .ranks()
            .map(|r| to.local_shape(r).map(|s| s.iter().product::<usize>()))
            .sum::<std::result::Result<usize, reshard_sharding::Error>>()?
            * item;
        let ours = time(device.device(), || plan_of_all.enqueue())?;
        let (mut a, b) = (device.allocate(target)?, device.allocate(target)?);
        let theirs = time(device.device(), || device.device().copy_all(&mut a, &b))?;
        ratios.push((theirs / ours, format!("{from} -> {to}, {} launches", plan_of_all.launches())));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = ratios.len();
    println!(
        "| {mesh} | {n} | {:.2} | {:.2} | {:.2} ({}) |",
        ratios[n * 9 / 10].0,
        ratios[n / 2].0,
        ratios[0].0,
        ratios[0].1
    );
    Ok(())
}

fn main() -> std::process::ExitCode {
    match tables() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn tables() -> Result<()> {
    let mib: usize = std::env::args().nth(1).map_or(Ok(1024), |text| text.parse())?;
    let total = mib << 20;
    let device = Cuda::open(0)?;
    println!("{}, {mib} MiB, medians of {RUNS}\n", device.device().name()?);
    let mut buffers = Buffers {
        source: device.device().allocate(2 * total)?,
        target: device.device().allocate(2 * total)?,
    };
    let (mut kept, mut missed) = copies(device.device(), &mut buffers, &cases(total))?;
    let meshes: Vec<Mesh> =
        ["x=2,y=4", "x=2,y=2,z=2"].iter().map(|t| t.parse()).collect::<std::result::Result<_, _>>()?;
    for dtype in [DType::F32, DType::BF16] {
        for mesh in &meshes {
            println!("\nPacks and unpacks of rank 0 in all plans on {mesh}, {dtype}:\n");
            let (k, m) = copies(device.device(), &mut buffers, &packs(mesh, total, dtype)?)?;
            (kept, missed) = (kept + k, missed + m);
        }
    }
    println!("\n{kept} promises kept, {missed} missed\n");
    drop(buffers);
    println!(
        "Whole plans of all ranks at once: the time of a copy of all targets' bytes over the plan's time.\n"
    );
    println!("| mesh | plans | 0.9 quantile | median | worst |");
    println!("|---|---|---|---|---|");
    for mesh in &meshes {
        fused(&device, mesh, total / 8)?;
    }
    Ok(())
}
