//! `reshard run` on small checkpoints: its outputs, and that the reverse run restores the first bytes.

use std::fs;
use std::path::Path;

use crate::checkpoints::{mixed, rank_files, read, tensor, write, write_indexed};
use crate::program::{reshard, text};
use safetensors::Dtype;
use serde_json::{Value, json};
use tempfile::tempdir;

#[track_caller]
fn run(arguments: &[&str]) -> Value {
    let mut all = vec!["run", "--json"];
    all.extend_from_slice(arguments);
    let report = reshard(&all).json();
    assert_eq!(report["verified"], true);
    report
}

fn entry<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["tensors"].as_array().unwrap().iter().find(|tensor| tensor["name"] == name).expect(name)
}

#[test]
fn without_arguments_something_moves_and_is_verified() {
    let report = run(&[]);
    assert!(report["received_bytes"].as_u64().unwrap() > 0);
    assert!(report["bytes"].as_u64().unwrap() > 1 << 20);
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    let embedding = entry(&report, "embedding.weight");
    assert_eq!(embedding["from"], "SS(0,4),S(0)");
    assert_eq!(embedding["to"], "S(0),S(1)");
    assert_eq!(embedding["dtype"], "F32");
    assert_eq!(embedding["received_bytes"], embedding["lower_bound_bytes"]);
    assert!(entry(&report, "mlp.up.bias")["replicated"].as_str().unwrap().contains("dim"));
    assert_eq!(embedding["replicated"], Value::Null);
    let table = reshard(&["run"]);
    assert_eq!(table.status, 0);
    for word in ["tensors", "bytes", "steps", "bound", "verified"] {
        assert!(table.stdout.contains(word), "{table:?}");
    }
    assert!(table.stderr.is_empty(), "no progress bar off a terminal: {table:?}");
    for mesh in ["a=8", "a=2,b=2,c=3", "a=5,b=1"] {
        run(&["--mesh", mesh]);
    }
}

/// Whole, then eight ranks, then another sharding of eight, then six ranks, then whole again.
#[test]
fn a_way_over_three_meshes_and_back() {
    for way in [&[][..], &["--through-engine"], &["--engine", "threads"], &["--no-verify"]] {
        let dir = tempdir().unwrap();
        let [whole, first, second, third, last] =
            ["whole.safetensors", "first", "second", "third", "last.safetensors"]
                .map(|name| dir.path().join(name));
        write(&whole, &mixed());
        let run = |arguments: &[&str]| {
            let report = reshard(&[&["run", "--json"], arguments, way].concat()).json();
            assert_eq!(report["verified"], way != ["--no-verify"]);
            report
        };
        let report = run(&[text(&whole), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--out", text(&first)]);
        assert_eq!(report["received_bytes"], 0, "a whole file is on every rank already");
        assert_eq!(report["tensors"].as_array().unwrap().len(), mixed().len());
        run(&[text(&first), "--mesh", "tp=8", "--to", "S(0)", "--out", text(&second)]);
        run(&[text(&second), "--mesh", "cp=3,tp=2", "--to", "SS(0,2),S(0)", "--out", text(&third)]);
        let report = run(&[text(&third), "--mesh", "cp=3,tp=2", "--to", "R,R", "--gather", text(&last)]);
        let through_engine = way.first().is_some_and(|flag| flag.contains("engine"));
        assert_eq!(report["through_engine"], through_engine);
        assert_eq!(report["received_bytes"].as_u64().unwrap() > 0, through_engine);
        assert_eq!(read(&last), read(&whole));
        // Without --mesh and --to, --gather means where the shards are, and whole.
        let again = dir.path().join("again.safetensors");
        run(&[text(&third), "--gather", text(&again)]);
        assert_eq!(fs::read(&again).unwrap(), fs::read(&last).unwrap());
    }
}

#[test]
fn rank_files_hold_the_regions_and_every_name() {
    let dir = tempdir().unwrap();
    let (whole, out) = (dir.path().join("w.safetensors"), dir.path().join("out"));
    let tensors = mixed();
    write(&whole, &tensors);
    run(&[text(&whole), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--out", text(&out)]);
    let files = rank_files(&out);
    assert_eq!(files.len(), 8);
    for (rank, path) in files.iter().enumerate() {
        assert_eq!(
            path.file_name().unwrap().to_str().unwrap(),
            format!("rank-{rank:05}-of-00008.safetensors")
        );
        let (shards, texts) = read(path);
        assert_eq!(texts["step"], "12");
        assert!(shards.keys().eq(tensors.keys()));
        // [37,16] over dp=2, tp=4: 19 and 18 rows, 4 columns each.
        let (row, column) = (rank / 4 * 19, rank % 4 * 4);
        let rows = if rank < 4 { 19 } else { 18 };
        let embed = &shards["embed.weight"];
        assert_eq!(embed.shape, [rows, 4]);
        let expected: Vec<u8> = (row..row + rows)
            .flat_map(|i| {
                tensors["embed.weight"].bytes[(i * 16 + column) * 4..(i * 16 + column + 4) * 4].to_vec()
            })
            .collect();
        assert_eq!(embed.bytes, expected);
        assert_eq!(shards["layer.0.bias"], tensors["layer.0.bias"], "vectors have no dim 1");
        assert_eq!(shards["positions"].shape, [usize::from(rank < 4), if rank % 4 == 3 { 11 } else { 13 }]);
        assert_eq!(shards["nothing"].shape, [0, 4]);
    }
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("sharding.json")).unwrap()).unwrap();
    assert_eq!(manifest["mesh"], "dp=2,tp=4");
    assert_eq!(manifest["tensors"]["embed.weight"]["shape"], json!([37, 16]));
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
}

#[test]
fn the_same_run_writes_the_same_bytes() {
    let dir = tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    for out in [&one, &two] {
        run(&["--out", text(out)]);
    }
    for (left, right) in rank_files(&one).iter().zip(rank_files(&two)) {
        assert_eq!(fs::read(left).unwrap(), fs::read(right).unwrap());
    }
}

#[test]
fn a_mesh_of_any_strides_and_a_part_of_the_world() {
    let dir = tempdir().unwrap();
    let [whole, first, second, last] =
        ["w.safetensors", "a", "b", "l.safetensors"].map(|name| dir.path().join(name));
    write(&whole, &mixed());
    run(&[text(&whole), "--mesh", "dp=2:1,tp=4:2", "--to", "S(1),S(0)", "--out", text(&first)]);
    run(&[text(&first), "--mesh", "dp=2,tp=2@4", "--to", "S(0),R", "--out", text(&second)]);
    assert_eq!(rank_files(&second)[0].file_name().unwrap(), "rank-00004-of-00008.safetensors");
    run(&[text(&second), "--mesh", "x=3", "--to", "R", "--gather", text(&last)]);
    assert_eq!(read(&last), read(&whole));
}

#[test]
fn a_folder_with_an_index_and_one_with_a_single_file() {
    let dir = tempdir().unwrap();
    let folder = dir.path().join("hub");
    let (left, right) = mixed().into_iter().partition(|(name, _)| name.starts_with("layer"));
    write_indexed(&folder, &[("a.safetensors", left), ("b.safetensors", right)]);
    let gathered = dir.path().join("g.safetensors");
    for input in [folder.clone(), folder.join("model.safetensors.index.json")] {
        run(&[text(&input), "--mesh", "a=2", "--to", "S(0)", "--gather", text(&gathered), "--force"]);
        assert_eq!(read(&gathered).0, mixed());
        assert_eq!(read(&gathered).1["step"], "12");
    }
    let single = dir.path().join("single");
    fs::create_dir(&single).unwrap();
    write(&single.join("model.safetensors"), &mixed());
    assert_eq!(
        run(&[text(&single), "--mesh", "a=2", "--to", "S(0)"])["tensors"].as_array().unwrap().len(),
        13
    );
}

#[test]
fn a_source_sharding_for_a_whole_file() {
    let dir = tempdir().unwrap();
    let whole = dir.path().join("w.safetensors");
    write(&whole, &[tensor("w", Dtype::F32, &[8, 8]), tensor("b", Dtype::F32, &[8])].into());
    let report = run(&[text(&whole), "--mesh", "a=2,b=2", "--from", "S(0),S(1)", "--to", "S(1),S(0)"]);
    let w = entry(&report, "w");
    assert_eq!((w["steps"].as_u64(), w["received_bytes"].as_u64()), (Some(1), Some(64)));
    assert_eq!(entry(&report, "b")["from"], "R,R");
}

#[test]
fn one_tensor_and_a_spec() {
    let dir = tempdir().unwrap();
    let [whole, spec] = ["w.safetensors", "spec.toml"].map(|name| dir.path().join(name));
    write(&whole, &mixed());
    let report = run(&[text(&whole), "--mesh", "a=2", "--to", "S(1)", "--only", "mask"]);
    assert_eq!(report["tensors"].as_array().unwrap().len(), 1);
    fs::write(&spec, "\"layer.*.weight\" = \"S(1)\"\n\"layer.*\" = \"S(0)\"\n\"*\" = \"R\"\n").unwrap();
    let report = run(&[text(&whole), "--mesh", "a=2", "--spec", text(&spec)]);
    let to = |name| entry(&report, name)["to"].clone();
    assert_eq!(
        (to("layer.0.weight"), to("layer.0.bias"), to("mask")),
        (json!("S(1)"), json!("S(0)"), json!("R"))
    );
    assert!(entry(&report, "mask")["replicated"].is_null());
    let report = run(&[text(&whole), "--mesh", "a=2", "--spec", text(&spec), "--only", "mask"]);
    assert_eq!(report["tensors"].as_array().unwrap().len(), 1, "patterns count over the whole checkpoint");
    // What no pattern matches takes --to.
    fs::write(&spec, "\"layer.0.*\" = \"S(0)\"\n").unwrap();
    let report = run(&[text(&whole), "--mesh", "a=2", "--to", "S(1)", "--spec", text(&spec)]);
    assert_eq!(entry(&report, "mask")["to"], "S(1)");
}

#[test]
fn every_notation_of_a_sharding() {
    let by_tensor = run(&["--mesh", "a=4", "--from", "R", "--to", "[{a}, {}]", "--only", "mlp.up.weight"]);
    assert_eq!(entry(&by_tensor, "mlp.up.weight")["to"], "S(0)");
    let by_tensor = run(&["--mesh", "a=1,b=4", "--from", "R,R", "--to", "[{}, {b}]"]);
    let by_axis = run(&["--mesh", "a=1,b=4", "--to", "R,S(1)"]);
    assert_eq!(entry(&by_tensor, "mlp.up.weight")["to"], entry(&by_axis, "mlp.up.weight")["to"]);
    assert!(entry(&by_tensor, "scale")["replicated"].as_str().unwrap().contains("names 2 dims"));
}

#[test]
fn elements_smaller_than_a_byte_are_never_cut() {
    let dir = tempdir().unwrap();
    let [whole, out, last] = ["w.safetensors", "out", "l.safetensors"].map(|name| dir.path().join(name));
    let tensors = [
        tensor("even", Dtype::F4, &[6, 8]),
        tensor("rows", Dtype::F4, &[6, 5]),
        tensor("narrow", Dtype::F4, &[4, 6]),
        tensor("six", Dtype::F6_E3M2, &[4, 16]),
    ]
    .into();
    write(&whole, &tensors);
    let report = run(&[text(&whole), "--mesh", "a=2", "--to", "S(1)", "--out", text(&out)]);
    assert_eq!(entry(&report, "even")["to"], "S(1)");
    assert_eq!(entry(&report, "six")["to"], "S(1)");
    for (name, why) in [("rows", "middle of a byte"), ("narrow", "split them")] {
        let entry = entry(&report, name);
        assert_eq!(entry["to"], "R");
        assert!(entry["replicated"].as_str().unwrap().contains(why), "{entry}");
    }
    run(&[text(&out), "--mesh", "b=4", "--to", "S(0)", "--gather", text(&last)]);
    assert_eq!(read(&last).0, tensors);
}

#[test]
fn force_replaces_and_nothing_else_does() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    run(&["--out", text(&out)]);
    let refused = reshard(&["run", "--json", "--out", text(&out), "--mesh", "a=3"]);
    refused.refused("output", "--force");
    assert_eq!(rank_files(&out).len(), 8);
    run(&["--out", text(&out), "--mesh", "a=3", "--force"]);
    assert_eq!(rank_files(&out).len(), 3);
    fs::create_dir(out.join("folder")).unwrap();
    reshard(&["run", "--json", "--out", text(&out), "--force"]).refused("output", "folder");
    // In place: the input is replaced by its own new shards.
    fs::remove_dir(out.join("folder")).unwrap();
    run(&[text(&out), "--out", text(&out), "--mesh", "b=5", "--to", "S(0)", "--force"]);
    assert_eq!(rank_files(&out).len(), 5);
    assert_eq!(leftovers(dir.path()), 1);
}

fn leftovers(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}
