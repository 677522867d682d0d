//! A pipeline and a layer of experts, trained on four threads by untyped schedules, compared with one device.
//!
//! Each is trained for twenty steps; the pipeline has two stages. The loss is the same in every step.
//!
//! cargo run -p reshard-reference --example parallel
#![allow(unreachable_pub, reason = "the module of an example")]

mod steps;

use reshard_collectives::threads::World;
use steps::Step;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for step in Step::ALL {
        let alone = steps::on_one_device(step)?;
        let (mut most, mut ranks) = (0f64, 0);
        for losses in World::new(4)?.run(|comm| steps::on_a_rank(step, comm)) {
            let losses = losses?;
            ranks += usize::from(!losses.is_empty());
            for (loss, alone) in losses.iter().zip(&alone) {
                most = most.max((loss - alone).abs() / alone.abs());
            }
        }
        let (first, last) = (alone[0], alone[alone.len() - 1]);
        println!(
            "{step:?}: loss {first:.6} in the first step and {last:.6} in the last, off by {most:.1e} at most on {ranks} ranks"
        );
        if most > steps::ALLOWED || ranks == 0 {
            return Err(format!("{step:?}: a loss is off by {most:.1e}").into());
        }
    }
    Ok(())
}
