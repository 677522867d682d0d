//! Speed of packs, unpacks and redistributions on a device, relative to its own copy of the same bytes.
//!
//!     cargo run --release -p reshard-device --features cuda --example device_speed TABLE [MIB]
//!
//! TABLE is `copies`, `packs`, `plans` or `graphs`. Prints tables in Markdown, and the lines of the report
//! after `ROW`. Both sides are measured in the same run. Bytes count once read and once written; figures are
//! medians of runs timed by the device, for copies and plans with nothing left in its caches. Fails if a
//! promise is missed.

mod copies;
mod plans;

use std::process::ExitCode;

use copies::{Buffers, Ratios};
use reshard_cuda::{Device, DeviceCombine, DeviceMemory, Error};
use reshard_device::Cuda;
use reshard_kernels::{CombineOp, DType, LoopNest};
use reshard_layout::Mode;
use reshard_sharding::{Mesh, Sharding};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RUNS: usize = 15;

/// Prints a row of the report's table.
fn row(what: &str, promised: &str, found: &str) {
    println!("ROW | {what} | {promised} | {found} |");
}

/// Bytes that are read before a timed run: more than the caches of a device hold.
const CACHES: usize = 256 << 20;
/// Bytes that this read writes, since a kernel has to write something.
const SINK: usize = 4 << 20;

/// A clock for enqueued work with cold caches.
///
/// No data that the work reads or writes is still in a cache. Little data in the caches waits to be written,
/// which would slow the next run by up to a tenth.
struct Clock<'a> {
    device: &'a Device,
    caches: DeviceMemory,
    sink: DeviceMemory,
    reads: Vec<DeviceCombine>,
}

type Enqueue<'f> = &'f mut dyn FnMut() -> std::result::Result<(), Error>;

impl<'a> Clock<'a> {
    fn new(device: &'a Device) -> Result<Clock<'a>> {
        let (caches, sink) = (device.allocate(CACHES)?, device.allocate(SINK)?);
        let item = DType::U32.element_bytes()?;
        let read = |at: usize| {
            let nest = LoopNest::new((at / item) as i64, 0, [Mode::new((SINK / item) as i64, (1, 1))]);
            DeviceCombine::new(&nest, DType::U32, CombineOp::Max)
        };
        let reads = (0..CACHES).step_by(SINK).map(read).collect::<std::result::Result<_, Error>>()?;
        Ok(Clock { device, caches, sink, reads })
    }

    /// Returns the medians of some runs of both, in turns, in milliseconds.
    fn both(&mut self, ours: Enqueue<'_>, theirs: Enqueue<'_>) -> Result<(f32, f32)> {
        ours()?;
        theirs()?;
        let (mut a, mut b) = (Vec::with_capacity(RUNS), Vec::with_capacity(RUNS));
        for _ in 0..RUNS {
            a.push(self.once(ours)?);
            b.push(self.once(theirs)?);
        }
        Ok((median(a), median(b)))
    }

    fn once(&mut self, enqueue: Enqueue<'_>) -> std::result::Result<f32, Error> {
        for read in &self.reads {
            read.run(self.device, &mut self.sink, &self.caches)?;
        }
        self.device.time_ms(enqueue)
    }
}

fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

const CHOICES: [&str; 5] = ["R", "S(0)", "S(1)", "SS(0,2)", "SS(1,2)"];

/// Returns all shardings of a shape by these placements.
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

/// Prints a table; returns `true` if all promises hold.
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
        return Err(format!("unknown table `{table}`; expected one of: copies, packs, plans, graphs").into());
    }
    let device = Cuda::open(0)?;
    println!("{}, {mib} MiB, medians of {RUNS} with cold caches\n", device.device().name()?);
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
