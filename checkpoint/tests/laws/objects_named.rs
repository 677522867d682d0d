//! Nothing is dropped silently: values under odd keys, extra files, free texts and lost files are named.

use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::{
    Checkpoint, CheckpointWriter, JobReport, Object, OutputFormat, ReshardJob, Tensor, diff,
};
use reshard_sharding::{Mesh, Sharding};

use crate::files::job;
use crate::pickled::{Said, archive, saved};
use crate::reading::opened;
use crate::torch::{copied, data};

fn to(input: &Path, out: &Path, format: OutputFormat) -> ReshardJob {
    ReshardJob { out: Some(out.to_owned()), format, ..job(input, "a=2", "S(0)", false) }
}

fn run(job: &ReshardJob) -> JobReport {
    job.run(&mut ()).unwrap().unwrap()
}

fn left_out(report: &JobReport) -> Vec<&str> {
    report.others.not_carried.iter().map(|one| &one.name[..]).collect()
}

fn names(checkpoint: &Checkpoint) -> (Vec<&str>, Vec<&str>) {
    (
        checkpoint.tensors().iter().map(Tensor::name).collect(),
        checkpoint.objects().iter().map(Object::name).collect(),
    )
}

/// Writes and opens a file of `torch.save`.
fn pt(folder: &Path, entries: Vec<(Said, Said)>) -> (PathBuf, Result<Checkpoint, reshard_checkpoint::Error>) {
    let path = folder.join("made.pt");
    fs::write(&path, saved(&Said::Dict(entries))).unwrap();
    let opened = Checkpoint::open(Some(&path));
    (path, opened)
}

#[test]
fn what_is_below_a_key_without_a_name_is_named_by_its_place() {
    use Said::{Dict, Float, Int, Tensor, Text, Tuple};
    let folder = tempfile::tempdir().unwrap();
    let state = vec![(Tuple(vec![Int(0), Int(1)]), Tensor), (Float, Int(7)), (Said::None, Dict(vec![]))];
    let (path, made) =
        pt(folder.path(), vec![(Text("w"), Tensor), (Text("state"), Dict(state)), (Float, Tensor)]);
    let expected =
        ["<key 2, a number>", "state.<key 0, a tuple>", "state.<key 1, a number>", "state.<key 2, None>"];
    assert_eq!(names(&made.unwrap()), (vec!["w"], expected.to_vec()));
    let asked = to(&path, &folder.path().join("out"), OutputFormat::Dcp);
    let error = ReshardJob { strict: true, ..asked.clone() }.run(&mut ()).unwrap_err();
    assert!(
        error.code() == "not_carried" && error.to_string().contains("neither a string nor an integer"),
        "{error}"
    );
    assert_eq!(left_out(&run(&asked)), expected);
}

#[test]
fn keys_that_become_one_name_are_told_apart_or_refused() {
    use Said::{Dict, Int, Tensor, Text};
    let folder = tempfile::tempdir().unwrap();
    // Two tensors of one name cannot be distinguished.
    let (_, made) = pt(folder.path(), vec![(Int(1), Tensor), (Text("1"), Tensor)]);
    let error = made.err().unwrap();
    assert!(error.code() == "torch" && error.to_string().contains("two tensors are named `1`"), "{error}");
    // For duplicate keys the last value holds, as in Python.
    let (_, made) = pt(folder.path(), vec![(Int(1), Int(7)), (Int(1), Tensor)]);
    assert_eq!(names(&made.unwrap()), (vec!["1"], vec![]));
    // A tensor is accepted if another value has its name too, and that value is named.
    let (path, made) = pt(folder.path(), vec![(Int(1), Int(7)), (Text("1"), Tensor), (Text("w"), Tensor)]);
    let made = made.unwrap();
    assert_eq!(names(&made), (vec!["1", "w"], vec!["1"]));
    assert_eq!(names(&made.filter(["1"]).unwrap()), (vec!["1"], vec!["1"]));
    assert_eq!(names(&made.renamed("s/^1$/one/").unwrap()), (vec!["one", "w"], vec!["one"]));
    let report = run(&ReshardJob {
        only: vec!["1".into()],
        ..to(&path, &folder.path().join("one"), OutputFormat::RankFiles)
    });
    assert_eq!((left_out(&report), report.tensors.len()), (vec!["1"], 1));
    // Two values that are not read may have one name too.
    let inner = Dict(vec![(Text("b"), Int(2))]);
    let (path, made) =
        pt(folder.path(), vec![(Text("a.b"), Int(1)), (Text("a"), inner), (Text("w"), Tensor)]);
    let made = made.unwrap();
    assert_eq!(names(&made.filter(["*"]).unwrap()), (vec!["w"], vec!["a.b"]));
    let report = run(&ReshardJob {
        only: vec!["w".into()],
        ..to(&path, &folder.path().join("two"), OutputFormat::RankFiles)
    });
    assert!(left_out(&report).is_empty());
}

#[test]
fn free_texts_that_an_output_has_no_place_for_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mesh: Mesh = "a=2".parse().unwrap();
    let rows = Sharding::parse(&mesh, &[4], "S(0)").unwrap();
    let texts = [("format", "pt"), ("step", "1000"), ("run", "x")];
    let writer =
        CheckpointWriter::begin_with_texts(&path("in"), &mesh, [("w", "U8", &rows)], false, texts).unwrap();
    writer.save_object("lr", None, b"\x80\x02K\x07.").unwrap();
    mesh.ranks().for_each(|rank| writer.save(rank, [("w", &[1, 2][..])]).unwrap());
    writer.commit().unwrap();
    let asked = to(&path("in"), &path("dcp"), OutputFormat::Dcp);
    let error = ReshardJob { strict: true, ..asked.clone() }.run(&mut ()).unwrap_err();
    assert!(
        error.code() == "not_carried" && error.to_string().contains("2 free texts are not in dcp: run, step"),
        "{error}"
    );
    assert!(!path("dcp").exists());
    let report = run(&asked);
    assert_eq!(
        (left_out(&report), &report.others.carried[..]),
        (vec!["run", "step"], &["lr".to_owned()][..])
    );
    assert_eq!(report.others.lines().len(), 2, "{:?}", report.others.lines());
    // Formats with a header store them, and files of PyTorch are marked as such.
    for (name, format) in [("ranks", OutputFormat::RankFiles), ("chunks", OutputFormat::DcpSafetensors)] {
        let asked =
            ReshardJob { only: vec!["w".into()], strict: true, ..to(&path("in"), &path(name), format) };
        assert!(run(&asked).others.not_carried.is_empty());
        assert!(opened(&path(name)).metadata().any(|text| text == ("step", "1000")), "{name}");
    }
    let both = ReshardJob { gather: Some(path("w.safetensors")), strict: true, force: true, ..asked };
    assert!(run(&both).others.not_carried.is_empty());
    assert!(opened(&path("w.safetensors")).metadata().any(|text| text == ("step", "1000")));
}

/// A file of chunks that is complete alone can be given as a file, and be the input of any run.
#[test]
fn a_file_of_all_chunks_is_an_input_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let one = ReshardJob {
        mesh: Some("a=1".into()),
        ..to(&data("arrays.safetensors"), &path("chunks"), OutputFormat::DcpSafetensors)
    };
    run(&one);
    let file = path("chunks").join("shard-00001-model-00001-of-00001.safetensors");
    assert!(opened(&file).metadata().all(|(key, _)| !key.starts_with("DCP_")));
    for (name, format) in [("ranks", OutputFormat::RankFiles), ("again", OutputFormat::DcpSafetensors)] {
        run(&to(&file, &path(name), format));
        assert!(diff(&opened(&path(name)), &opened(&data("arrays.safetensors")), &mut ()).unwrap().equal);
    }
    // With an index it is an ordinary file too.
    let map: serde_json::Value = opened(&file)
        .tensors()
        .iter()
        .map(|one| (one.name().to_owned(), "shard-00001-model-00001-of-00001.safetensors".into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(path("chunks").join("model.safetensors.index.json"), index.to_string()).unwrap();
    run(&to(&path("chunks"), &path("of_index"), OutputFormat::RankFiles));
}

#[test]
fn files_of_objects_beside_a_distributed_checkpoint_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("in");
    copied("dcp_files", &dir);
    for name in ["common.pt", "train_state.pt", ".hidden.pt", "notes.txt"] {
        fs::write(dir.join(name), "anything").unwrap();
    }
    for input in [dir.clone(), dir.join(".metadata")] {
        let input = opened(&input);
        let beside: Vec<&str> =
            input.objects().iter().map(Object::name).filter(|name| name.contains(".pt")).collect();
        assert_eq!(beside, ["common.pt", "train_state.pt"]);
        assert!(input.object("common.pt").unwrap_err().to_string().contains("Megatron"));
    }
    let asked = to(&dir, &folder.path().join("out"), OutputFormat::Dcp);
    assert_eq!(ReshardJob { strict: true, ..asked.clone() }.run(&mut ()).unwrap_err().code(), "not_carried");
    assert_eq!(left_out(&run(&asked)), ["common.pt", "train_state.pt"]);
}

/// Writes rank files from a checkpoint of PyTorch, each rank with all tensors.
fn rank_files(folder: &Path) -> PathBuf {
    let dir = folder.join("ranks");
    run(&ReshardJob { to: Some("R".into()), ..to(&data("dcp"), &dir, OutputFormat::RankFiles) });
    dir
}

#[test]
fn lost_objects_are_named_and_what_is_left_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let dir = rank_files(folder.path());
    let all = ["optimizer.groups.lr", "optimizer.state.0.name", "step"];
    let bytes = fs::read(dir.join("others.bin")).unwrap();
    let out = folder.path().join("out");
    for (len, lost) in [(None, &all[..]), (Some(bytes.len() - 1), &all[2..])] {
        match len {
            None => fs::remove_file(dir.join("others.bin")).unwrap(),
            Some(len) => fs::write(dir.join("others.bin"), &bytes[..len]).unwrap(),
        }
        // It can be opened, and reports the lost objects.
        let input = opened(&dir);
        assert_eq!(names(&input).1, all);
        let found: Vec<&str> = input.objects().iter().filter(|one| one.is_lost()).map(Object::name).collect();
        assert_eq!(found, lost);
        let problems = input.verify(&mut ()).unwrap().problems;
        let found: Vec<&str> = problems.iter().map(|one| one.object.as_deref().unwrap()).collect();
        assert!(found == lost && problems.iter().all(|one| one.file.ends_with("others.bin")), "{problems:?}");
        assert!(input.object("step").unwrap_err().to_string().contains("others.bin"));
        let difference = diff(&opened(&data("dcp")), &input, &mut ()).unwrap();
        assert!(!difference.equal && difference.only_first == lost, "{difference:?}");
        let difference = diff(&input, &opened(&data("dcp")), &mut ()).unwrap();
        assert!(!difference.equal && difference.only_second == lost, "{difference:?}");
        // A run fails, unless its options accept the loss.
        let asked = to(&dir, &out, OutputFormat::Dcp);
        let error = asked.run(&mut ()).unwrap_err();
        assert!(
            error.code() == "lost" && error.status() == 2 && error.to_string().contains(lost[0]),
            "{error}"
        );
        assert!(error.to_string().contains("--missing-ranks") && !out.exists(), "{error}");
        let tensors: Vec<String> = input.tensors().iter().map(|one| one.name().to_owned()).collect();
        run(&ReshardJob { only: tensors, force: true, ..asked.clone() });
        for fill_from in [None, Some(data("dcp"))] {
            let salvage = ReshardJob { missing_ranks: vec![1], fill_from, force: true, ..asked.clone() };
            assert_eq!(
                ReshardJob { strict: true, ..salvage.clone() }.run(&mut ()).unwrap_err().code(),
                "not_carried"
            );
            let report = run(&salvage);
            assert_eq!((left_out(&report), report.others.carried.len()), (lost.to_vec(), 3 - lost.len()));
            assert!(report.others.lines().iter().any(|line| line.contains("others.bin, which is missing")));
        }
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn entries_that_share_their_bytes_cannot_make_much_of_little() {
    let folder = tempfile::tempdir().unwrap();
    let dir = rank_files(folder.path());
    let path = dir.join("sharding.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let one = manifest["others"][2].clone();
    let all = manifest["others"].as_array_mut().unwrap();
    for number in 0..1000 {
        let mut more = one.clone();
        more["name"] = format!("step.{number}").into();
        all.push(more);
    }
    fs::write(&path, manifest.to_string()).unwrap();
    let error = Checkpoint::open(Some(&dir)).err().unwrap();
    assert!(error.code() == "objects" && error.to_string().contains("overlap"), "{error}");
    // A duplicate entry is rejected by name.
    let all = manifest["others"].as_array_mut().unwrap();
    all.truncate(3);
    all[1] = one;
    fs::write(&path, manifest.to_string()).unwrap();
    let error = Checkpoint::open(Some(&dir)).err().unwrap();
    assert!(
        error.code() == "manifest" && error.to_string().contains("`step`: it is listed twice"),
        "{error}"
    );
}

/// Writes rank files with this one object.
fn holding(folder: &Path, name: &str, bytes: &[u8]) -> Checkpoint {
    let mesh: Mesh = "a=1".parse().unwrap();
    let all = Sharding::parse(&mesh, &[2], "R").unwrap();
    let writer = CheckpointWriter::begin(&folder.join(name), &mesh, [("w", "U8", &all)], false).unwrap();
    writer.save_object("o", None, bytes).unwrap();
    writer.save(0, [("w", &[1, 2][..])]).unwrap();
    writer.commit().unwrap();
    opened(&folder.join(name))
}

#[test]
fn archives_are_equal_under_another_folder_and_not_in_other_folders() {
    let folder = tempfile::tempdir().unwrap();
    let pickle: &[u8] = b"\x80\x02K\x07.";
    let of = |name: &str, entries: &[(&str, &[u8])]| holding(folder.path(), name, &archive(entries));
    let plain = of("plain", &[("archive/data.pkl", pickle), ("archive/data/0", b"x")]);
    let other_folder =
        of("folder", &[("step/data.pkl", pickle), ("step/data/0", b"x"), ("step/version", b"3\n")]);
    assert!(diff(&plain, &other_folder, &mut ()).unwrap().equal);
    // A storage in another folder is a different one, even if its name is the same.
    let elsewhere = of("elsewhere", &[("archive/data.pkl", pickle), ("other/data/0", b"x")]);
    let beside =
        of("beside", &[("archive/data.pkl", pickle), ("archive/data/0", b"x"), ("other/data/0", b"y")]);
    let without = of("without", &[("archive/data.pkl", pickle)]);
    let two =
        |name: &str, a: &'static [u8], b: &'static [u8]| of(name, &[("a/data.pkl", a), ("b/data.pkl", b)]);
    let [first, second] = [two("first", pickle, b"\x80\x02N."), two("second", b"\x80\x02N.", pickle)];
    for (one, two) in [
        (&plain, &elsewhere),
        (&plain, &beside),
        (&plain, &without),
        (&elsewhere, &beside),
        (&first, &second),
    ] {
        for (one, two) in [(one, two), (two, one)] {
            let difference = diff(one, two, &mut ()).unwrap();
            assert!(!difference.equal && difference.different[0].name == "o", "{difference:?}");
        }
    }
}

#[test]
fn a_path_that_a_file_says_stays_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors.index.json");
    for file in ["", "../w.safetensors", "/w.safetensors", "a/../../w.safetensors", ".", "a\0.safetensors"] {
        let index = serde_json::json!({ "weight_map": { "w": file } });
        fs::write(&path, index.to_string()).unwrap();
        let error = Checkpoint::open(Some(folder.path())).err().unwrap();
        let said = error.to_string();
        assert!(
            error.code() == "index" && said.contains("not a file of this folder") && !said.contains('\0'),
            "{said:?}"
        );
    }
    // The same for an entry that is not a tensor.
    let dir = folder.path().join("dcp");
    copied("dcp", &dir);
    let metadata = fs::read(dir.join(".metadata")).unwrap();
    for name in ["/_0_0.distcp", "..//0.distcp", "__0\x000.distcp"] {
        let mut text = metadata.clone();
        for at in 0..text.len() - 12 {
            if text[at..].starts_with(b"__0_0.distcp") {
                text[at..at + 12].copy_from_slice(name.as_bytes());
            }
        }
        fs::write(dir.join(".metadata"), text).unwrap();
        let error = Checkpoint::open(Some(&dir)).err().unwrap();
        assert!(error.to_string().contains("not a file of this folder"), "{error}");
    }
}
