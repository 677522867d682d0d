//! How fast a device packs, unpacks and redistributes, beside its own copy of the same bytes in the same run.
//!
//!     cargo run --release -p reshard-device --features cuda --example device_speed TABLE [MIB]
//!
//! TABLE is `copies`, `packs`, `plans` or `graphs`. Prints tables in Markdown, and behind `ROW` what belongs in the report.
//! Bytes count once read and once written; figures are medians of runs timed by the device. Fails where a promise is missed.

mod copies;
mod plans;

use std::process::ExitCode;

use copies::{Buffers, Ratios};
use reshard_cuda::{Device, Error};
use reshard_device::Cuda;
use reshard_kernels::DType;
use reshard_sharding::{Mesh, Sharding};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RUNS: usize = 15;

/// A row of the report's table.
fn row(what: &str, promised: &str, found: &str) {
    println!("ROW | {what} | {promised} | {found} |");
}

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

const CHOICES: [&str; 5] = ["R", "S(0)", "S(1)", "SS(0,2)", "SS(1,2)"];

/// All shardings of a shape by these placements.
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match tables(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a promise was missed");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a table; whether all that is promised was kept.
fn tables(arguments: &[String]) -> Result<bool> {
    let table = arguments.first().map_or("", String::as_str);
    let mib: usize = arguments.get(1).map_or(Ok(1024), |text| text.parse())?;
    let total = mib << 20;
    let meshes: Vec<Mesh> =
        ["x=2,y=4", "x=2,y=2,z=2"].iter().map(|t| t.parse()).collect::<std::result::Result<_, _>>()?;
    if table == "graphs" {
        return plans::captured();
    }
    if !matches!(table, "copies" | "packs" | "plans") {
        return Err(format!("there is no table `{table}`: copies, packs, plans or graphs").into());
    }
    let device = Cuda::open(0)?;
    println!("{}, {mib} MiB, medians of {RUNS}\n", device.device().name()?);
    if table == "plans" {
        println!("The time of a copy of all targets' bytes over the plan's time.\n");
        println!("| mesh | plans | 0.9 quantile | median | worst |");
        println!("|---|---|---|---|---|");
        meshes.iter().try_for_each(|mesh| plans::fused(&device, mesh, total / 8))?;
        return Ok(true);
    }
    let device = device.device();
    let mut buffers = Buffers { source: device.allocate(2 * total)?, target: device.allocate(2 * total)? };
    let mut ratios = Ratios::new();
    if table == "copies" {
        copies::measure(device, &mut buffers, &copies::cases(total), &mut ratios)?;
        return Ok(copies::report("copies", &mut ratios));
    }
    for dtype in [DType::F32, DType::BF16] {
        for mesh in &meshes {
            println!("\nPacks and unpacks of rank 0 in all plans on {mesh}, {dtype}:\n");
            copies::measure(device, &mut buffers, &copies::packs(mesh, total, dtype)?, &mut ratios)?;
        }
    }
    Ok(copies::report("packs and unpacks", &mut ratios))
}
