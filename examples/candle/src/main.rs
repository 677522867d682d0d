//! Compares the encoder on four ranks, on one, and by candle alone: the differences, and the time of a
//! forward pass.
//!
//!     RESHARD_MINILM=$(scripts/fetch_minilm.sh) cargo run --release --manifest-path examples/candle/Cargo.toml

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reshard_candle::alone::Alone;
use reshard_candle::difference;
use reshard_candle::model::{program, stored_name};
use reshard_candle::ranks::encode;
use reshard_candle::sentences::of_tokens;
use reshard_candle::weights::Checkpoint;

/// The number of turns of the three, so that other load of the machine affects all of them.
const TURNS: usize = 10;
/// Runs of a turn; the first does not count.
const RUNS: usize = 4;
/// The tolerance of ranks.
const ALLOWED: f32 = 1e-5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::var_os("RESHARD_MINILM").map(PathBuf::from);
    let path =
        path.ok_or("RESHARD_MINILM is not set; set it to the path that scripts/fetch_minilm.sh prints")?;
    let (alone, checkpoint) = (Alone::open(&path)?, Checkpoint::open(&path)?);
    let wanted = alone.forward()?;
    let meshes = [(1, 1), (2, 2)];
    let programs = [program(1, 1)?, program(2, 2)?];
    let (mut times, mut off) = ([const { Vec::new() }; 3], [[0_f32; 2]; 2]);
    for _ in 0..TURNS {
        for run in 0..RUNS {
            let begin = Instant::now();
            alone.forward()?;
            count(&mut times[2], run, begin.elapsed());
        }
        for (n, program) in programs.iter().enumerate() {
            let encoded = encode(program, RUNS, &|_, local, bytes| {
                checkpoint.read(&stored_name(&local.name), &local.tensor, bytes)
            })?;
            for (run, took) in encoded.times.into_iter().enumerate() {
                count(&mut times[n], run, took);
            }
            let of_tokens = difference(&of_tokens(&encoded.hidden), &of_tokens(&wanted));
            off[n] = [off[n][0].max(of_tokens), off[n][1].max(difference(&encoded.hidden, &wanted))];
        }
    }

    let threads = candle_core::utils::get_num_threads();
    println!(
        "a forward pass of ten inputs of 32 tokens, {threads} threads for candle's products: the median of"
    );
    println!("{} runs, the minimum, and the largest difference from candle's own model", TURNS * (RUNS - 1));
    println!("candle alone          {}", said(&mut times[2]));
    for (n, (dp, tp)) in meshes.into_iter().enumerate() {
        let [of_tokens, of_all] = off[n];
        let took = said(&mut times[n]);
        println!(
            "reshard, dp={dp},tp={tp}    {took}    {of_tokens:.1e} on tokens, {of_all:.1e} with padding"
        );
    }
    match off.iter().find(|[of_tokens, _]| *of_tokens > ALLOWED) {
        Some([of_tokens, _]) => Err(format!("a number is off by {of_tokens:.1e}").into()),
        None => Ok(()),
    }
}

/// Notes how long a run took, if it counts.
fn count(times: &mut Vec<f64>, run: usize, took: Duration) {
    if run > 0 {
        times.push(took.as_secs_f64() * 1e3);
    }
}

/// The median and the least of these milliseconds.
fn said(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    match (times.get(times.len() / 2), times.first()) {
        (Some(median), Some(least)) => format!("{median:6.1} ms {least:6.1} ms"),
        (_, _) => "not timed".to_owned(),
    }
}
