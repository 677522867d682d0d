//! Compares the MPI engine with the bare MPI calls, in turns in one job; exits with 1 if a promised ratio is
//! missed.
//!
//! ```text
//! mpirun -n 4 target/release/mpi_against_bare
//! ```
//!
//! Every rank's large buffer has 64 MiB. A turn is a barrier, then the call; its time is that of the slowest
//! rank. The result is the median of the ratios of neighbouring turns; the order of the two alternates. With
//! `RESHARD_WRITE=1` rank 0 writes `benches/results/mpi_against_bare.jsonl`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use mpi::collective::SystemOperation;
use mpi::traits::CommunicatorCollectives;
use reshard_benches::results::{Limit, Measured, Results};
use reshard_collectives::{Communicator, CompiledPlan};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

/// Turns of the bare call and ours.
const TURNS: usize = 31;
/// Elements of the large buffer: 64 MiB of f32.
const LARGE: usize = 16 << 20;
/// The maximum ratio to the bare call's time.
const PROMISED: f64 = 1.2;

/// A bare call.
type Bare = fn(&mpi::topology::SimpleCommunicator, &[f32], &mut [f32]);

struct Case {
    name: &'static str,
    /// The name of the bare call.
    call: &'static str,
    shape: Vec<usize>,
    from: &'static str,
    to: &'static str,
    bare: Bare,
    promised: bool,
}

fn cases(ranks: usize) -> Vec<Case> {
    let gather: Bare = |world, source, target| world.all_gather_into(source, target);
    let scatter: Bare =
        |world, source, target| world.reduce_scatter_block_into(source, target, SystemOperation::sum());
    let all_to_all: Bare = |world, source, target| world.all_to_all_into(source, target);
    let all_reduce: Bare =
        |world, source, target| world.all_reduce_into(source, target, SystemOperation::sum());
    let whole = vec![LARGE / 1024, 1024];
    let blocks = vec![ranks, ranks, LARGE / ranks];
    let matrix = vec![LARGE / 4096 * ranks, 4096];
    let case = |name, call, shape: &[usize], from, to, bare, promised| Case {
        name,
        call,
        shape: shape.to_vec(),
        from,
        to,
        bare,
        promised,
    };
    vec![
        case("all-gather", "MPI_Allgather", &whole, "S(0)", "R", gather, true),
        case("reduce-scatter", "MPI_Reduce_scatter_block", &whole, "P", "S(0)", scatter, true),
        case("all-to-all of blocks", "MPI_Alltoall", &blocks, "S(0)", "S(1)", all_to_all, true),
        case("all-to-all of rows to columns", "MPI_Alltoall", &matrix, "S(0)", "S(1)", all_to_all, false),
        case("all-reduce", "MPI_Allreduce", &whole, "P", "R", all_reduce, false),
    ]
}

/// Bytes per element.
const ITEM: usize = size_of::<f32>();

/// Returns milliseconds of one turn, of the slowest rank.
fn turn(comm: &mut Comm, call: impl FnOnce(&mut Comm)) -> f64 {
    let all: Vec<usize> = (0..comm.size()).collect();
    comm.barrier(&all).expect("all ranks come");
    let begin = Instant::now();
    call(comm);
    let nanoseconds = begin.elapsed().as_nanos() as u64;
    let all = comm.share(&[nanoseconds]).expect("all ranks come");
    all.concat().into_iter().max().unwrap_or(0) as f64 / 1e6
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn bytes_of(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut comm = Comm::world()?;
    let world = mpi::topology::SimpleCommunicator::world();
    let (rank, ranks) = (comm.rank(), comm.size());
    if rank == 0 {
        writeln!(stdout(), "{ranks} ranks, {TURNS} turns, {}", mpi::environment::library_version()?)?;
        writeln!(stdout(), "| what | bare ms | ours ms | ratio | promised | reached |")?;
        writeln!(stdout(), "|---|---|---|---|---|---|")?;
    }
    let mut results = Results::new("mpi_against_bare", "make mpi-bench", "engines.md")?;
    let version = mpi::environment::library_version()?;
    results.version("MPI", version.split(',').next().unwrap_or_default());
    let mut kept = true;
    for case in cases(ranks) {
        let mesh = Mesh::new([("tp", ranks)])?;
        let from = Sharding::parse(&mesh, &case.shape, case.from)?;
        let to = Sharding::parse(&mesh, &case.shape, case.to)?;
        let plan = Planner::new().plan(&from, &to, DType::F32)?;
        let compiled = CompiledPlan::new(&plan, rank)?;
        let source: Vec<f32> =
            (0..compiled.source_bytes() / ITEM).map(|i| ((i * 7 + rank * 131) % 1000) as f32).collect();
        let mut bare_target = vec![0f32; compiled.target_bytes() / ITEM];
        let source_bytes = bytes_of(&source);
        let mut target = vec![0; compiled.target_bytes()];
        let mut scratch = compiled.scratch(&mut comm)?;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for number in 0..=TURNS {
            for ours_now in [number % 2 == 0, number % 2 == 1] {
                if ours_now {
                    ours.push(turn(&mut comm, |comm| {
                        compiled.run(comm, &source_bytes, &mut target, &mut scratch).expect("the plan runs");
                    }));
                } else {
                    bare.push(turn(&mut comm, |_| (case.bare)(&world, &source, &mut bare_target)));
                }
            }
        }
        // Sums of small integers are exact in any order; a bare call does not produce the columns of a
        // matrix.
        let same = !case.promised || bytes_of(&bare_target) == target;
        let same = comm.share(&[u64::from(same)])?.concat().into_iter().all(|same| same == 1);
        // The first turn warms up.
        let mut ratios: Vec<f64> = bare[1..].iter().zip(&ours[1..]).map(|(bare, ours)| ours / bare).collect();
        let (bare, ours, ratio) = (median(&mut bare[1..]), median(&mut ours[1..]), median(&mut ratios));
        let is_kept = same && ratio <= PROMISED;
        kept &= is_kept || !case.promised;
        if rank == 0 {
            let promise = if case.promised { format!("<= {PROMISED}") } else { "-".to_string() };
            let verdict = match (case.promised, is_kept) {
                (false, _) => "-",
                (true, true) => "yes",
                (true, false) => "NO",
            };
            let name = format!("{} `{} -> {}` of {:?}", case.name, case.from, case.to, case.shape);
            results.add(&Measured {
                what: name.clone(),
                ours,
                peer: Some((case.call.to_owned(), bare)),
                unit: "ms",
                ratio: Some(ratio),
                limit: case.promised.then_some(Limit::RatioAtMost(PROMISED)),
            });
            writeln!(stdout(), "| {name} | {bare:.1} | {ours:.1} | {ratio:.2} | {promise} | {verdict} |")?;
        }
    }
    if rank == 0 {
        results.write()?;
    }
    comm.finish()?;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
