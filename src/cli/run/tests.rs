//! What only a test inside can do: spoil a byte between the exchange and its verification, on the path that `run` takes.

use std::fs;
use std::path::Path;

use super::{RunArgs, carry_out};
use crate::cli::error::Exit;

fn args(out: &Path) -> RunArgs {
    RunArgs { out: Some(out.to_owned()), ..RunArgs::default() }
}

#[test]
fn the_honest_run_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (report, _) = carry_out(&args(&dir.path().join("out")), &mut |_, _| {}).unwrap();
    assert!(report.tensors.iter().all(|tensor| tensor.verified));
}

#[test]
fn a_byte_flipped_after_the_exchange_is_caught_whatever_the_tensor_and_nothing_is_written() {
    for spoilt in ["embedding.weight", "mlp.down.weight", "attention.key.bias", "scale"] {
        for rank in [0, 5, 7] {
            let dir = tempfile::tempdir().unwrap();
            let error = carry_out(&args(&dir.path().join("out")), &mut |name, shards| {
                if name == spoilt {
                    let at = shards[rank].len() - 1;
                    shards[rank][at] ^= 0x10;
                }
            })
            .unwrap_err();
            assert_eq!((error.exit(), error.kind()), (Exit::Failed, "verification"));
            let sentence = error.to_string();
            assert!(sentence.contains(spoilt) && sentence.contains(&format!("rank {rank}")), "{sentence}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn a_run_that_panics_in_the_middle_leaves_nothing_that_looks_whole() {
    let dir = tempfile::tempdir().unwrap();
    let run = std::panic::AssertUnwindSafe(|| {
        carry_out(&args(&dir.path().join("out")), &mut |name, _| assert_ne!(name, "scale", "planted"))
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn shards_that_are_swapped_or_cut_short_are_caught() {
    let spoil: [fn(&mut [Vec<u8>]); 3] = [
        |shards| shards.swap(1, 2),
        |shards| shards[3].truncate(1),
        |shards| {
            shards[4].push(0);
        },
    ];
    for spoil in spoil {
        let error = carry_out(&RunArgs::default(), &mut |name, shards| {
            if name == "embedding.weight" {
                spoil(shards);
            }
        })
        .unwrap_err();
        assert_eq!(error.kind(), "verification");
    }
}
