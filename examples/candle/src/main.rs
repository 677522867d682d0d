//! The sentence encoder on four ranks, on one, and by candle alone: how far apart they are, and how long a forward takes.
//!
//!     RESHARD_MINILM=$(scripts/fetch_minilm.sh) cargo run --release --manifest-path examples/candle/Cargo.toml

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reshard_candle::alone::Alone;
use reshard_candle::model::{program, stored_name};
use reshard_candle::ranks::encode;
use reshard_candle::weights::Checkpoint;
use reshard_candle::{Error, difference};

/// Runs that count, and those before them that do not.
const RUNS: usize = 30;
const BEFORE: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::var_os("RESHARD_MINILM").map(PathBuf::from);
    let path =
        path.ok_or("RESHARD_MINILM does not name the checkpoint: scripts/fetch_minilm.sh prints its path")?;
    let threads = candle_core::utils::get_num_threads();
    println!(
        "ten sentences of 32 tokens, the median and the least of {RUNS} runs, {threads} threads for candle's products"
    );

    let alone = Alone::open(&path)?;
    let mut times = Vec::new();
    for _ in 0..BEFORE + RUNS {
        let begin = Instant::now();
        alone.forward()?;
        times.push(begin.elapsed());
    }
    println!("candle on one device   {}", said(&times));

    let (wanted, checkpoint) = (alone.forward()?, Checkpoint::open(&path)?);
    for (dp, tp) in [(1, 1), (2, 2)] {
        let encoded = encode(&program(dp, tp)?, BEFORE + RUNS, &|_, local, bytes| {
            checkpoint.read(&stored_name(&local.name), &local.tensor, bytes)
        })?;
        let off = difference(&encoded.hidden, &wanted);
        println!("reshard on dp={dp},tp={tp}   {}, off by {off:.1e} at most", said(&encoded.times));
        if off > 1e-5 {
            return Err(Error::Kernel(format!("on dp={dp},tp={tp} a number is off by {off:.1e}")).into());
        }
    }
    Ok(())
}

/// The median and the least of the times that count.
fn said(times: &[Duration]) -> String {
    let mut times: Vec<f64> = times.iter().skip(BEFORE).map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    match (times.get(times.len() / 2), times.first()) {
        (Some(median), Some(least)) => format!("{median:6.1} ms, {least:6.1} at least"),
        (_, _) => "not timed".to_owned(),
    }
}
