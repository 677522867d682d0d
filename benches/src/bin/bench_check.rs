//! Measures every promised ratio and exits with 1 if one is missed; `make bench-check`.
//!
//! With `RESHARD_WRITE=1` it writes `benches/results/bench_check.jsonl`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use reshard_benches::results::{Limit, Measured, Results};
use reshard_benches::{Ratios, redistribution};
use reshard_collectives::threads::World;

/// Turns of yardstick and ours; the median of their ratios counts.
const TURNS: usize = 21;

/// Prints a row of the table; returns `true` if the promise holds.
fn row(results: &mut Results, name: &str, ratios: &Ratios, promised: f64) -> std::io::Result<bool> {
    let (low, high) = ratios.quartiles();
    let kept = ratios.median() >= promised;
    writeln!(
        stdout(),
        "| {name} | {:.1} | {:.1} | {:.2} ({low:.2} to {high:.2}) | >= {promised:.2} | {} |",
        ratios.gigabytes_per_second(),
        ratios.yardstick_gigabytes_per_second(),
        ratios.median(),
        if kept { "yes" } else { "NO" }
    )?;
    results.add(&Measured {
        what: name.to_owned(),
        ours: ratios.gigabytes_per_second(),
        peer: Some(("memcpy".to_owned(), ratios.yardstick_gigabytes_per_second())),
        unit: "GB/s",
        ratio: Some(ratios.median()),
        limit: Some(Limit::RatioAtLeast(promised)),
    });
    Ok(kept)
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    writeln!(stdout(), "| what | GB/s | memcpy GB/s | median ratio (quartiles) | promised | reached |")?;
    writeln!(stdout(), "|---|---|---|---|---|---|")?;
    let mut results = Results::new("bench_check", "make bench-check", "engines.md")?;
    let mut kept = true;
    let mut world = World::new(8)?;
    for (from, to) in redistribution::PROMISED {
        let plan = redistribution::plan(&redistribution::SHAPE, from, to)?;
        let ratios = redistribution::measure(&mut world, &plan, TURNS)?;
        kept &= row(
            &mut results,
            &format!("`{from} -> {to}` of 64 MiB, 8 ranks as threads"),
            &ratios,
            redistribution::PROMISED_RATIO,
        )?;
    }
    results.write()?;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
