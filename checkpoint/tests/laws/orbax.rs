//! Checkpoints of Orbax, in each form that is read.
//!
//! `scripts/make_orbax_facts.py` writes `tests/data/orbax`: the same arrays four times, and as a safetensors file.

use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, Object, ReshardJob, Tensor, diff};
use reshard_sharding::Sharding;
use reshard_test_support::Random;

use crate::files::{Tensors, draw_sharding, job, read, slice};
use crate::reading::{draw_region, opened};
use crate::torch::data;

const FORMS: [&str; 4] = ["zarr2", "zarr3", "folders", "levels"];

fn contents() -> Tensors {
    read(&data("orbax/contents.safetensors"))
}

fn copied(form: &str, to: &Path) {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
            if from.is_dir() {
                copy(&from, &to);
            } else {
                fs::copy(from, to).unwrap();
            }
        }
    }
    copy(&data("orbax").join(form), to);
}

#[test]
fn what_orbax_wrote_is_what_is_read() {
    let mut r = Random(51);
    for form in FORMS {
        let checkpoint = opened(&data("orbax").join(form));
        let held = contents();
        let names: Vec<&str> = checkpoint.tensors().iter().map(Tensor::name).collect();
        assert_eq!(names, held.keys().map(String::as_str).collect::<Vec<_>>(), "{form}");
        for (name, whole) in &held {
            let tensor = checkpoint.tensor(name).unwrap();
            assert_eq!(
                (tensor.shape(), tensor.dtype()),
                (&whole.shape[..], whole.dtype.to_string()),
                "{name}"
            );
            let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
            assert_eq!(checkpoint.shard(name, &all, 0).unwrap(), whole.bytes, "{form} {name}");
            for _ in 0..20 {
                let region = draw_region(&mut r, &whole.shape, false);
                assert_eq!(checkpoint.read(name, &region).unwrap(), slice(whole, &region), "{form} {name}");
            }
        }
        assert_eq!(checkpoint.tensor("w").unwrap().chunks(), Some(12));
        let others: Vec<&str> = checkpoint.objects().iter().map(Object::name).collect();
        assert_eq!(others, ["l.1", "none", "s"], "{form}");
        assert!(checkpoint.verify(&mut ()).unwrap().problems.is_empty());
    }
}

#[test]
fn they_are_resharded_from_files_to_files_and_through_an_engine() {
    let mut r = Random(52);
    let mut done = 0;
    for form in FORMS {
        for through_engine in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            let (mesh, to) = draw_sharding(&mut r);
            let input = data("orbax").join(form);
            let job = ReshardJob { out: Some(out.clone()), ..job(&input, mesh, to, through_engine) };
            if let Err(error) = job.run(&mut ()) {
                assert!(matches!(error.code(), "no_such_dim" | "placement"), "{form} {to} {error}");
                continue;
            }
            done += 1;
            let difference = diff(&opened(&out), &opened(&input), &mut ()).unwrap();
            assert_eq!(
                (difference.only_first.len(), difference.different.len()),
                (0, 0),
                "{form} {mesh} {to}"
            );
        }
    }
    assert!(done >= 4, "{done}");
}

/// A manager of checkpoints writes the arrays into a folder below that of the step.
#[test]
fn the_folder_of_a_step_is_its_only_item() {
    let folder = tempfile::tempdir().unwrap();
    copied("zarr2", &folder.path().join("default"));
    fs::create_dir(folder.path().join("metrics")).unwrap();
    assert_eq!(opened(folder.path()).tensors().len(), 5);
    copied("zarr3", &folder.path().join("state"));
    let error = Checkpoint::open(Some(folder.path())).err().unwrap();
    assert!(error.to_string().contains("2 checkpoints of Orbax, default to state"), "{error}");
}

#[test]
fn what_is_missing_or_damaged_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |form: &str| {
        let error = Checkpoint::open(Some(&path(form))).err().expect(form);
        assert!(error.status() == 2 && !error.to_string().contains('\n'), "{error}");
        error.to_string()
    };
    copied("folders", &path("folders"));
    fs::remove_file(path("folders/w/1.3")).unwrap();
    // Orbax stores all chunks, so a chunk that is not there is lost.
    assert!(refused("folders").contains("`w`: chunk 1.3: it is missing"), "{}", refused("folders"));
    fs::remove_file(path("folders/w/.zarray")).unwrap();
    assert!(refused("folders").contains("it has no .zarray"));
    // An older writer leaves out chunks of the fill value, here zero.
    copied("folders", &path("older"));
    let metadata = fs::read_to_string(path("older/_METADATA")).unwrap();
    let older = metadata.replace("\"store_array_data_equal_to_fill_value\": true", "\"other\": 1");
    assert_ne!(older, metadata);
    fs::write(path("older/_METADATA"), older).unwrap();
    fs::remove_file(path("older/w/1.3")).unwrap();
    let (expected, filled) = (contents(), opened(&path("older")));
    let all = Sharding::replicated(&"a=1".parse().unwrap(), &[4, 6]).unwrap();
    let bytes = filled.shard("w", &all, 0).unwrap();
    let chunk = filled.tensor("w").unwrap();
    assert_eq!(chunk.chunks(), Some(12));
    let different = bytes.chunks(4).zip(expected["w"].bytes.chunks(4)).filter(|(a, b)| a != b);
    let different: Vec<&[u8]> = different.map(|(found, _)| found).collect();
    assert!(!different.is_empty() && different.iter().all(|element| **element == [0; 4]), "{different:?}");
    copied("zarr2", &path("zarr2"));
    fs::remove_file(path("zarr2/manifest.ocdbt")).unwrap();
    assert!(refused("zarr2").contains("has no manifest.ocdbt"));
    copied("zarr3", &path("zarr3"));
    fs::write(path("zarr3/_METADATA"), "{}").unwrap();
    assert!(refused("zarr3").contains("not the metadata of an Orbax checkpoint"));
}

/// Every byte of the files, changed: an error when it is opened or read, or bytes of the same length.
#[test]
fn no_damaged_byte_makes_it_panic() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("levels");
    copied("levels", &dir);
    let mut files: Vec<_> = [dir.clone(), dir.join("d"), dir.join("ocdbt.process_0/d")]
        .iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let (mut errors, mut read) = (0, 0);
    for file in files {
        let good = fs::read(&file).unwrap();
        for at in (0..good.len()).step_by(3) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            fs::write(&file, bad).unwrap();
            match Checkpoint::open(Some(&dir)) {
                Err(_) => errors += 1,
                Ok(checkpoint) => {
                    for tensor in checkpoint.tensors() {
                        let all = Sharding::replicated(&"a=1".parse().unwrap(), tensor.shape()).unwrap();
                        match checkpoint.shard(tensor.name(), &all, 0) {
                            Err(_) => errors += 1,
                            Ok(bytes) => {
                                assert_eq!(bytes.len() as u64, tensor.byte_len());
                                read += 1;
                            }
                        }
                    }
                }
            }
        }
        fs::write(&file, good).unwrap();
    }
    assert!(errors > 300 && read > 300, "{errors} {read}");
}
