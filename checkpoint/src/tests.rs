//! Tests that need access to internals: they change a byte between the exchange and its verification.

use std::fs;
use std::path::Path;

use crate::engine::one_process::carry_out;
use crate::error::ErrorClass;
use crate::job::observer::Observer;
use crate::job::report::JobReport;
use crate::job::{Engine, ReshardJob};

fn args(out: &Path) -> ReshardJob {
    ReshardJob { out: Some(out.to_owned()), ..ReshardJob::default() }
}

#[test]
fn the_honest_run_passes() {
    let dir = tempfile::tempdir().unwrap();
    let report = carry_out(&args(&dir.path().join("out")), &mut (), &|_, _, _| {}).unwrap();
    assert!(report.tensors.iter().all(|tensor| tensor.verified));
}

#[test]
fn a_run_on_a_simulated_device_passes_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = |engine, name: &str| {
        let args = ReshardJob { engine, ..args(&folder.path().join(name)) };
        carry_out(&args, &mut (), &|_, _, _| {}).unwrap()
    };
    let (threads, device) = (run(Engine::Threads, "threads"), run(Engine::Cuda, "device"));
    let moved = |report: &JobReport| -> Vec<(String, u64)> {
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
            assert_eq!((error.class(), error.code()), (ErrorClass::Failed, "verification"));
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
        let error = carry_out(&ReshardJob::default(), &mut (), &|name, rank, shard| {
            if (name, rank) == ("embedding.weight", 3) {
                spoil(shard);
            }
        })
        .unwrap_err();
        assert_eq!(error.code(), "verification");
    }
}

/// A change to a file.
type Meddle<'a> = &'a dyn Fn(&Path);

/// Changes a file when the first tensors are about to be read, or later ones.
struct Meddler<'a> {
    tensors: usize,
    meddle: &'a dyn Fn(),
}

impl Observer for Meddler<'_> {
    fn on_tensor(&mut self, _tensor: &str) {
        if self.tensors == 0 {
            (self.meddle)();
        }
        self.tensors = self.tensors.wrapping_sub(1);
    }
}

/// Any change to a file while it is read is an error, and neither a signal nor a partial output.
#[test]
fn an_input_that_changes_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (input, sharded, out) = (path("whole.safetensors"), path("sharded"), path("out"));
    let made =
        ReshardJob { gather: Some(input.clone()), out: Some(sharded.clone()), ..ReshardJob::default() };
    let truncated =
        |path: &Path, len: u64| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
    let rank_file = sharded.join("rank-00003-of-00008.safetensors");
    let meddling: [(Meddle<'_>, &str); 5] = [
        (&|path| truncated(path, 100), "has 100"),
        (&|path| truncated(path, fs::metadata(path).unwrap().len() - 1), "was changed while it was read"),
        (&|path| fs::remove_file(path).unwrap(), "failed"),
        (
            &|path| fs::write(path, vec![0; fs::metadata(path).unwrap().len() as usize]).unwrap(),
            "was changed",
        ),
        (
            &|path| {
                let other = path.with_extension("other");
                fs::copy(path, &other).unwrap();
                fs::rename(other, path).unwrap();
            },
            "was changed",
        ),
    ];
    for (meddle, said) in meddling {
        for tensors in [0, 1, 9] {
            for (from, file) in [(&input, &input), (&sharded, &rank_file)] {
                carry_out(&ReshardJob { force: true, ..made.clone() }, &mut (), &|_, _, _| {}).unwrap();
                let job = ReshardJob {
                    input: Some(from.clone()),
                    mesh: Some("a=3".to_owned()),
                    to: Some("S(0)".to_owned()),
                    out: Some(out.clone()),
                    ..ReshardJob::default()
                };
                let mut meddler = Meddler { tensors, meddle: &|| meddle(file) };
                let error = carry_out(&job, &mut meddler, &|_, _, _| {}).unwrap_err();
                assert_eq!((error.code(), error.class()), ("input", ErrorClass::Failed), "{error}");
                assert!(error.to_string().contains(said), "{said:?} is not in {error}");
                let name = file.file_name().unwrap().to_str().unwrap();
                assert!(error.to_string().contains(name) && !out.exists(), "{error}");
                let _ = (fs::remove_file(&input), fs::remove_dir_all(&sharded));
            }
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
