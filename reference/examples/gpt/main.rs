//! A small GPT trained for twenty steps on four threads, by untyped schedules, compared with one device.
//!
//! The loss is the same in every step, for every storage of the parameters.
//!
//! cargo run -p reshard-reference --example gpt
#![allow(unreachable_pub, reason = "the modules of an example")]

mod model;
mod training;

use model::{Gpt, Kept};
use reshard_collectives::threads::World;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpt = Gpt { batch: 4, sequence: 8, width: 16, heads: 4, vocabulary: 32, layers: 2 };
    let alone = training::on_one_device(&gpt)?;
    println!(
        "loss on one device: {:.6} in the first step, {:.6} in the last",
        alone[0],
        alone[alone.len() - 1]
    );
    for kept in [Kept::Everywhere, Kept::Updated, Kept::Sharded] {
        let losses = World::new(4)?.run(|comm| training::on_a_rank(&gpt, kept, comm));
        let mut most = 0f64;
        for losses in losses {
            for (loss, alone) in losses?.iter().zip(&alone) {
                most = most.max((loss - alone).abs() / alone.abs());
            }
        }
        println!("{kept:?}, dp=2,tp=2: off by {most:.1e} at most, in {} steps", alone.len());
        if most > training::ALLOWED {
            return Err(format!("{kept:?}: a loss is off by {most:.1e}").into());
        }
    }
    Ok(())
}
