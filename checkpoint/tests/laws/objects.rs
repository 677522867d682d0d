//! Entries that are not tensors: copied if the output can hold them, else named; compared and verified.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::{Checkpoint, CheckpointWriter, JobReport, Key, OutputFormat, ReshardJob, diff};
use reshard_sharding::{Mesh, Sharding};

use crate::reading::opened;
use crate::torch::{copied, data};

const NAMES: [&str; 3] = ["optimizer.groups.lr", "optimizer.state.0.name", "step"];

/// Returns a job from a checkpoint of PyTorch, on three ranks.
fn job(input: &Path, out: &Path, format: OutputFormat) -> ReshardJob {
    let whole = format == OutputFormat::Safetensors;
    ReshardJob {
        input: Some(input.to_owned()),
        out: Some(out.to_owned()),
        format,
        mesh: (!whole).then(|| "a=3".to_owned()),
        to: (!whole).then(|| "S(0)".to_owned()),
        ..ReshardJob::default()
    }
}

fn run(job: &ReshardJob) -> JobReport {
    job.run(&mut ()).unwrap().unwrap()
}

/// Returns names, paths and bytes of all objects.
fn objects(checkpoint: &Checkpoint) -> Vec<(String, Option<Vec<Key>>, Vec<u8>)> {
    let all = checkpoint.objects().iter();
    all.map(|one| {
        (one.name().into(), one.path().map(<[Key]>::to_vec), checkpoint.object(one.name()).unwrap())
    })
    .collect()
}

/// Returns names and paths of all tensors.
fn paths(checkpoint: &Checkpoint) -> Vec<(String, Option<Vec<Key>>)> {
    let all = checkpoint.tensors().iter();
    let mut paths: Vec<_> = all.map(|one| (one.name().into(), one.path().map(<[Key]>::to_vec))).collect();
    paths.sort();
    paths
}

#[test]
fn objects_go_from_dcp_to_dcp_with_their_bytes_and_all_paths() {
    let folder = tempfile::tempdir().unwrap();
    let [out, ranks, engine, back] = ["out", "ranks", "engine", "back"].map(|name| folder.path().join(name));
    for name in ["dcp", "dcp_files"] {
        let input = opened(&data(name));
        let expected = (objects(&input), paths(&input));
        assert!(expected.0.iter().all(|(_, path, bytes)| path.is_some() && bytes.starts_with(b"PK")));
        for unchecked in [false, true] {
            let force = |job: ReshardJob| ReshardJob { force: true, verify: !unchecked, ..job };
            let report = run(&force(job(&data(name), &out, OutputFormat::Dcp)));
            assert_eq!(report.others.carried.len(), expected.0.len());
            assert_eq!((objects(&opened(&out)), paths(&opened(&out))), expected, "{name}");
            assert!(diff(&input, &opened(&out), &mut ()).unwrap().equal);
            run(&force(job(&data(name), &ranks, OutputFormat::RankFiles)));
            assert_eq!((objects(&opened(&ranks)), paths(&opened(&ranks))), expected, "{name}");
            run(&force(job(&ranks, &back, OutputFormat::Dcp)));
            assert_eq!((objects(&opened(&back)), paths(&opened(&back))), expected, "{name}");
        }
        let through = ReshardJob {
            through_engine: true,
            force: true,
            ..job(&data(name), &engine, OutputFormat::RankFiles)
        };
        let report = run(&through);
        assert_eq!(
            (objects(&opened(&engine)), report.others.carried.len()),
            (expected.0.clone(), expected.0.len())
        );
    }
    let text = |text: &str| Key::Text(text.to_owned());
    let step = opened(&out)
        .objects()
        .iter()
        .find(|one| one.name() == "step")
        .map(|one| one.path().unwrap().to_vec());
    assert!(step.is_none_or(|path| path == [text("step")]));
    let nested = opened(&data("dcp"));
    let lr = nested.objects().iter().find(|one| one.name() == NAMES[0]).unwrap();
    assert_eq!(lr.path().unwrap(), [text("optimizer"), text("groups"), text("lr")]);
}

#[test]
fn what_is_left_out_is_named_and_strict_rejects_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let left_out =
        |report: &JobReport| report.others.not_carried.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let whole = || ReshardJob {
        out: None,
        gather: Some(folder.path().join("w.safetensors")),
        ..job(&data("dcp"), &out, OutputFormat::RankFiles)
    };
    for asked in [
        job(&data("dcp"), &out, OutputFormat::Safetensors),
        ReshardJob {
            only: ["boxes", "optimizer.*", "step"].map(str::to_owned).to_vec(),
            ..job(&data("dcp"), &out, OutputFormat::DcpSafetensors)
        },
        whole(),
        ReshardJob { through_engine: true, ..whole() },
    ] {
        let error = ReshardJob { strict: true, ..asked.clone() }.run(&mut ()).unwrap_err();
        assert_eq!((error.code(), error.status()), ("not_carried", 2), "{error}");
        assert!(NAMES.iter().all(|name| error.to_string().contains(name)), "{error}");
        assert!(error.to_string().contains("`--format dcp` keeps"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
        let report = run(&asked);
        assert_eq!((left_out(&report), report.others.carried.len()), (NAMES.map(str::to_owned).to_vec(), 0));
        let lines = report.others.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("3 non-tensor entries are not in "), "{lines:?}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["others"]["not_carried"][2]["name"], "step");
        let written = asked.out.as_ref().or(asked.gather.as_ref()).unwrap();
        let difference = diff(&opened(&data("dcp")), &opened(written), &mut ()).unwrap();
        assert!(
            !difference.equal && NAMES.iter().all(|name| difference.only_first.contains(&(*name).to_owned()))
        );
        if written.is_dir() {
            fs::remove_dir_all(written).unwrap();
        } else {
            fs::remove_file(written).unwrap();
        }
    }
    // Parts of one pickle are not carried to any format, and are reported.
    let asked = job(&data("state.pt"), &out, OutputFormat::Dcp);
    assert_eq!(ReshardJob { strict: true, ..asked.clone() }.run(&mut ()).unwrap_err().status(), 2);
    let report = run(&asked);
    assert!(left_out(&report).contains(&"epoch".to_owned()) && report.others.carried.is_empty());
    let difference = diff(&opened(&data("state.pt")), &opened(&out), &mut ()).unwrap();
    assert!(difference.equal && difference.not_compared.contains(&"epoch".to_owned()), "{difference:?}");
    // If one tensor was requested, or there is no output, nothing is lost.
    let one = ReshardJob {
        only: vec!["boxes".to_owned()],
        force: true,
        strict: true,
        ..job(&data("dcp"), &out, OutputFormat::DcpSafetensors)
    };
    fs::remove_dir_all(&out).unwrap();
    assert!(run(&one).others.lines().is_empty());
    let nowhere = ReshardJob { out: None, strict: true, ..job(&data("dcp"), &out, OutputFormat::RankFiles) };
    assert!(run(&nowhere).others.not_carried.is_empty());
}

#[test]
fn patterns_and_new_names_are_of_objects_too() {
    let input = opened(&data("dcp"));
    let names =
        |one: &Checkpoint| one.objects().iter().map(|object| object.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&input.filter(["optimizer.*"]).unwrap()), NAMES[..2]);
    let only = input.filter(["step"]).unwrap();
    assert_eq!((names(&only), only.tensors().len()), (vec!["step".to_owned()], 0));
    assert!(input.filter(["steps"]).err().unwrap().to_string().contains("3 non-tensor entries"));
    let renamed = input.renamed("s/^optimizer/a/").unwrap();
    assert_eq!(names(&renamed)[..2], ["a.groups.lr", "a.state.0.name"]);
    assert_eq!(renamed.object("a.groups.lr").unwrap(), input.object(NAMES[0]).unwrap());
    assert!(input.renamed("s/^step$/boxes/").err().unwrap().to_string().contains("would be named `boxes`"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    run(&ReshardJob { only: vec!["step".to_owned()], ..job(&data("dcp"), &out, OutputFormat::Dcp) });
    assert_eq!((names(&opened(&out)), opened(&out).tensors().len()), (vec!["step".to_owned()], 0));
}

/// Returns the file and the offset of an object's bytes in its folder.
fn place(folder: &Path, bytes: &[u8]) -> (PathBuf, usize) {
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let all = fs::read(&path).unwrap();
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            return (path, at);
        }
    }
    panic!("the bytes are in no file of {}", folder.display());
}

#[test]
fn a_changed_object_is_found_by_verify_and_by_diff() {
    let folder = tempfile::tempdir().unwrap();
    let [dcp, ranks] = ["dcp", "ranks"].map(|name| folder.path().join(name));
    copied("dcp", &dcp);
    run(&job(&data("dcp"), &ranks, OutputFormat::RankFiles));
    for dir in [&dcp, &ranks] {
        let before = opened(dir);
        let verified = before.verify(&mut ()).unwrap();
        assert_eq!((verified.problems.len(), verified.others, verified.checksums), (0, 3, true));
        let bytes = before.object("step").unwrap();
        let (path, at) = place(dir, &bytes);
        let whole = fs::read(&path).unwrap();
        // A byte of the pickle, of the signature of the archive, and of the end of its directory.
        let pickle = bytes.windows(2).position(|window| window == b"\x80\x02").unwrap();
        for (byte, in_diff) in [(pickle + 2, true), (bytes.len() - 22, true)] {
            let mut changed = whole.clone();
            changed[at + byte] ^= 4;
            fs::write(&path, &changed).unwrap();
            let damaged = opened(dir);
            let problems = damaged.verify(&mut ()).unwrap().problems;
            assert_eq!(problems.len(), 1, "{byte} {problems:?}");
            assert_eq!(problems[0].object.as_deref(), Some("step"), "{}", problems[0]);
            let difference = diff(&damaged, &opened(&data("dcp")), &mut ()).unwrap();
            let names: Vec<&str> = difference.different.iter().map(|one| &one.name[..]).collect();
            assert_eq!((difference.equal, names), (!in_diff, vec!["step"]), "{byte}");
            fs::write(&path, &whole).unwrap();
        }
    }
    // The manifest is trusted: an object with another checksum is not copied.
    let (path, at) = place(&ranks, &opened(&ranks).object("step").unwrap());
    let mut changed = fs::read(&path).unwrap();
    changed[at + 100] ^= 1;
    fs::write(&path, changed).unwrap();
    let error = job(&ranks, &folder.path().join("out"), OutputFormat::Dcp).run(&mut ()).unwrap_err();
    assert!(error.code() == "checksum" && error.to_string().contains("`step`"), "{error}");
    assert_eq!(opened(&ranks).object("step").unwrap_err().code(), "checksum");
}

#[test]
fn objects_are_compared_by_what_is_in_their_archives() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dcp");
    copied("dcp", &dir);
    let bytes = opened(&dir).object("step").unwrap();
    let (path, at) = place(&dir, &bytes);
    let mut all = fs::read(&path).unwrap();
    // The time of the first entry, in its header and not in its content.
    all[at + 10] ^= 0x11;
    fs::write(&path, all).unwrap();
    assert_ne!(opened(&dir).object("step").unwrap(), bytes);
    let difference = diff(&opened(&dir), &opened(&data("dcp")), &mut ()).unwrap();
    assert!(difference.equal && difference.others == 3, "{difference:?}");
}

#[test]
fn a_writer_saves_objects_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mesh: Mesh = "dp=2".parse().unwrap();
    let rows = Sharding::parse(&mesh, &[4], "S(0)").unwrap();
    let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows)], false).unwrap();
    let other = CheckpointWriter::join(&out, writer.token()).unwrap();
    let path = [Key::Text("groups".to_owned()), Key::Index(0), Key::Text("lr".to_owned())];
    other.save_object("groups.0.lr", Some(&path), b"\x80\x02K\x07.").unwrap();
    writer.save_object("step", None, &[7; 5000]).unwrap();
    for (name, why) in [("w", "the name of a tensor"), ("", "needs a name"), ("step", "already")] {
        assert!(writer.save_object(name, None, b"").unwrap_err().to_string().contains(why), "{name}");
    }
    for rank in mesh.ranks() {
        writer.save(rank, [("w", &[1, 2][..])]).unwrap();
    }
    writer.commit().unwrap();
    let saved = opened(&out);
    assert_eq!(saved.object("step").unwrap(), [7; 5000]);
    assert_eq!(saved.objects()[0].path(), Some(&path[..]));
    assert!(saved.verify(&mut ()).unwrap().problems.is_empty());
    let dcp = folder.path().join("dcp");
    run(&job(&out, &dcp, OutputFormat::Dcp));
    for name in ["groups.0.lr", "step"] {
        assert!(opened(&dcp).object(name).unwrap() == saved.object(name).unwrap(), "{name}");
    }
    let problems = opened(&dcp).verify(&mut ()).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].object.as_deref() == Some("step"), "{problems:?}");
    // A pickle without an archive has no checksum.
    assert!(!opened(&dcp).has_checksums());
    let error = saved.object("steps").unwrap_err();
    assert!(error.code() == "no_such_object" && error.status() == 2, "{error}");
}

/// An object whose save succeeded is in the checkpoint; a later save fails, whichever process has committed.
#[test]
fn an_object_is_in_the_checkpoint_or_its_saving_fails() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mesh: Mesh = "dp=2".parse().unwrap();
    let rows = Sharding::parse(&mesh, &[4], "S(0)").unwrap();
    let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows)], false).unwrap();
    let late = CheckpointWriter::join(&out, writer.token()).unwrap();
    late.save_object("step", None, &[7; 50]).unwrap();
    mesh.ranks().for_each(|rank| writer.save(rank, [("w", &[1, 2][..])]).unwrap());
    writer.commit().unwrap();
    for one in [&late, &writer] {
        let error = one.save_object("epoch", None, &[8; 50]).unwrap_err();
        assert!(error.code() == "committed" && error.to_string().contains("nothing can be added"), "{error}");
    }
    let saved = opened(&out);
    assert_eq!(saved.objects().len(), 1);
    assert_eq!(saved.object("step").unwrap(), [7; 50]);
    drop((writer, late));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Many threads save while one commits: every reported object is in the checkpoint.
///
/// In addition it has at most one object per thread whose save failed because of the commit.
#[test]
fn whoever_saves_while_somebody_commits_is_taken_or_told() {
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mesh: Mesh = "dp=1".parse().unwrap();
        let rows = Sharding::parse(&mesh, &[2], "R").unwrap();
        let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows)], false).unwrap();
        writer.save(0, [("w", &[1, 2][..])]).unwrap();
        let said: Vec<String> = std::thread::scope(|threads| {
            let savers: Vec<_> = (0..4)
                .map(|thread| {
                    let joined = CheckpointWriter::join(&out, writer.token()).unwrap();
                    threads.spawn(move || {
                        let name = |number: usize| format!("{thread}.{number}");
                        let saves = |name: &String| match joined.save_object(name, None, name.as_bytes()) {
                            Ok(()) => true,
                            Err(error) => {
                                assert_eq!(error.code(), "committed", "{error}");
                                false
                            }
                        };
                        (0..200).map(name).take_while(saves).collect::<Vec<_>>()
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(round));
            // Fails while an object is being saved.
            while let Err(error) = writer.commit() {
                assert_eq!(error.code(), "object_missing", "{error}");
            }
            savers.into_iter().flat_map(|saver| saver.join().unwrap()).collect()
        });
        let saved = opened(&out);
        let found: BTreeSet<&str> = saved.objects().iter().map(reshard_checkpoint::Object::name).collect();
        let lost: Vec<&String> = said.iter().filter(|name| !found.contains(&name[..])).collect();
        assert!(lost.is_empty(), "{round}: {lost:?}");
        assert!(found.len() <= said.len() + 4, "{round}: {} of {}", found.len(), said.len());
        assert!(saved.verify(&mut ()).unwrap().problems.is_empty());
    }
}
