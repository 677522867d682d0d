//! What only a test inside can do: spoil a byte between the exchange and its verification, on the path that a job takes.

use std::fs;
use std::path::Path;

use super::error::Class;
use super::job::{Engine, Job};
use super::one_process::carry_out;
use super::report::Report;

fn args(out: &Path) -> Job {
    Job { out: Some(out.to_owned()), ..Job::default() }
}

#[test]
fn the_honest_run_passes() {
    let dir = tempfile::tempdir().unwrap();
    let report = carry_out(&args(&dir.path().join("out")), &mut (), &|_, _, _| {}).unwrap();
    assert!(report.tensors.iter().all(|tensor| tensor.verified));
}

/// With the feature `cuda` the device is a real one, and there may be none.
#[test]
#[cfg_attr(feature = "cuda", ignore = "needs a device")]
fn a_run_on_a_simulated_device_passes_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = |engine, name: &str| {
        let args = Job { engine, ..args(&folder.path().join(name)) };
        carry_out(&args, &mut (), &|_, _, _| {}).unwrap()
    };
    let (threads, device) = (run(Engine::Threads, "threads"), run(Engine::Cuda, "device"));
    let moved = |report: &Report| -> Vec<(String, u64)> {
        report.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.received_bytes)).collect()
    };
    assert_eq!(moved(&threads), moved(&device));
    for file in fs::read_dir(folder.path().join("threads")).unwrap() {
        let file = file.unwrap().path();
        let other = folder.path().join("device").join(file.file_name().unwrap());
        assert_eq!(fs::read(&file).unwrap(), fs::read(other).unwrap(), "{file:?}");
    }
}

#[test]
fn a_byte_flipped_after_the_exchange_is_caught_whatever_the_tensor_and_nothing_is_written() {
    for spoilt in ["embedding.weight", "mlp.down.weight", "attention.key.bias", "scale"] {
        for rank in [0, 5, 7] {
            let dir = tempfile::tempdir().unwrap();
            let error = carry_out(&args(&dir.path().join("out")), &mut (), &|name, of, shard| {
                if (name, of) == (spoilt, rank) {
                    let at = shard.len() - 1;
                    shard[at] ^= 0x10;
                }
            })
            .unwrap_err();
            assert_eq!((error.class(), error.kind()), (Class::Failed, "verification"));
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
        carry_out(&args(&dir.path().join("out")), &mut (), &|name, _, _| {
            assert_ne!(name, "scale", "planted");
        })
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn shards_that_are_turned_or_cut_short_are_caught() {
    let spoil: [fn(&mut Vec<u8>); 3] =
        [|shard| shard.rotate_left(1), |shard| shard.truncate(1), |shard| shard.push(0)];
    for spoil in spoil {
        let error = carry_out(&Job::default(), &mut (), &|name, rank, shard| {
            if (name, rank) == ("embedding.weight", 3) {
                spoil(shard);
            }
        })
        .unwrap_err();
        assert_eq!(error.kind(), "verification");
    }
}
