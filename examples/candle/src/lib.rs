//! A framework that embeds reshard: candle computes, reshard determines what each rank computes and
//! exchanges.
//!
//! ```text
//! encoder.txt --model--> Program --compile(rank)--> Schedule --prepare, run--> the last hidden state
//!                                    kernels    the ops of a schedule, by candle's tensors on an arena
//!                                    weights    a rank's shard of each parameter, read from a checkpoint
//!                                    ranks      all ranks as threads
//! sentences    ten sentences as tokens
//! alone        candle's own model on one device, to compare with
//! ```

pub mod alone;
pub mod kernels;
pub mod model;
pub mod ranks;
pub mod sentences;
pub mod weights;

/// The largest difference between two lists of numbers of one length; infinite where one is not a number or the lengths differ.
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return f32::INFINITY;
    }
    let each = a.iter().zip(b).map(|(x, y)| (x - y).abs());
    each.fold(0.0, |most, d| if d.is_nan() { f32::INFINITY } else { most.max(d) })
}
