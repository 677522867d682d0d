//! Cost of an exchange, compared with a bare barrier of the same ranks; prints a table.
//!
//! Each is repeated many times in a row by all ranks, in turns. The table has the median and the least turn:
//! the least is the time on an idle machine. With `RESHARD_WRITE=1` it writes `benches/results/overhead.jsonl`.

use std::io::{Write, stdout};
use std::time::Instant;

use reshard_benches::results::{Limit, Measured, Results};
use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

const TURNS: usize = 41;

/// The maximum time of an exchange between two ranks, in microseconds.
const MOST_US: f64 = 2.0;
/// The maximum ratio to a barrier's time between eight ranks.
const MOST_BARRIERS: f64 = 2.0;

/// Repetitions of a turn.
const TIMES: usize = 500;

fn microseconds(turn: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let begin = Instant::now();
    for _ in 0..TIMES {
        turn()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / TIMES as f64)
}

/// Returns for each turn the time of a barrier, and of the exchange, in microseconds.
fn measure(comm: &mut ThreadCommunicator, compiled: &CompiledPlan) -> Result<Vec<(f64, f64)>, Error> {
    let mut scratch = compiled.scratch(comm)?;
    let (source, mut target) = (vec![1; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
    let all: Vec<usize> = (0..comm.size()).collect();
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        comm.barrier(&all)?;
        let barrier = microseconds(&mut || comm.barrier(&all))?;
        comm.barrier(&all)?;
        let exchange = microseconds(&mut || compiled.run(comm, &source, &mut target, &mut scratch))?;
        turns.push((barrier, exchange));
    }
    Ok(turns)
}

fn median_and_least(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let command = "cargo run --release -p reshard-benches --bin overhead";
    let mut results = Results::new("overhead", command, "engines.md")?;
    writeln!(
        stdout(),
        "| exchange of 64 elements per rank | ranks | barrier, us: median, least | exchange | median ratio of a turn |"
    )?;
    writeln!(stdout(), "|---|---|---|---|---|")?;
    for ranks in [2, 4, 8] {
        for (name, from, to) in
            [("all-to-all", "S(0)", "S(1)"), ("all-gather", "S(0)", "R"), ("reduce-scatter", "P", "S(0)")]
        {
            let mesh = Mesh::new([("x", ranks)])?;
            let parse = |text: &str| Sharding::parse(&mesh, &[8, ranks * 8], text);
            let plan = Planner::new().plan(&parse(from)?, &parse(to)?, DType::F32)?;
            let mut world = World::new(ranks)?;
            let of_ranks = world.run(|comm| {
                let compiled = CompiledPlan::new(&plan, comm.rank())?;
                measure(comm, &compiled)
            });
            let turns = of_ranks.into_iter().next().ok_or("no ranks")??;
            let (barrier, exchange): (Vec<f64>, Vec<f64>) = turns.iter().copied().unzip();
            let ratio =
                median_and_least(turns.iter().map(|(barrier, exchange)| exchange / barrier).collect()).0;
            let (barrier, exchange) = (median_and_least(barrier), median_and_least(exchange));
            results.add(&Measured {
                what: format!("{name} of 64 elements per rank, {ranks} ranks as threads"),
                ours: exchange.0,
                peer: Some(("a bare barrier".to_owned(), barrier.0)),
                unit: "us",
                ratio: Some(ratio),
                limit: match ranks {
                    2 => Some(Limit::OursAtMost(MOST_US)),
                    8 => Some(Limit::RatioAtMost(MOST_BARRIERS)),
                    _ => None,
                },
            });
            writeln!(
                stdout(),
                "| {name} | {ranks} | {:.2}, {:.2} | {:.2}, {:.2} | {ratio:.2} |",
                barrier.0,
                barrier.1,
                exchange.0,
                exchange.1
            )?;
        }
    }
    results.write()?;
    Ok(())
}
