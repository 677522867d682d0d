//! `reshard run` with renamed, split, fused, cast and selected tensors.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use serde_json::json;
use tempfile::tempdir;

use crate::checkpoints::{read, tensor, write};
use crate::program::{reshard, text};

#[test]
fn tensors_are_chosen_fused_renamed_and_rounded() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let tensors = ["q", "k", "v"].map(|part| tensor(&format!("model.0.{part}.weight"), Dtype::F32, &[8, 4]));
    let others = [tensor("model.norm", Dtype::F32, &[4]), tensor("optimizer.m", Dtype::F32, &[4])];
    write(&path("w.safetensors"), &tensors.into_iter().chain(others).collect());
    let (input, out, back) = (path("w.safetensors"), path("out"), path("back"));
    let fusion = "*.qkv.weight = *.q.weight + *.k.weight + *.v.weight by 2";
    let made = ["--only", "model.*", "--fuse", fusion, "--rename", r"s/^model\.(\d+)\./layers.$1.attn./"];
    let spec = path("spec.toml");
    fs::write(&spec, "'/^layers\\.\\d+\\.attn/' = \"S(0)\"\n\"*\" = \"R\"\n").unwrap();
    let to = ["--mesh", "tp=2", "--spec", text(&spec), "--out", text(&out), "--dtype", "bf16"];
    reshard(&[&["run", "--json", text(&input)], &made[..], &to].concat()).json();
    let inspected = reshard(&["inspect", "--json", text(&out)]).json();
    let names: Vec<&str> =
        inspected["tensors"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["layers.0.attn.qkv.weight", "model.norm"]);
    assert_eq!(inspected["tensors"][0]["dtype"], "BF16");
    let split = "*.qkv.weight = *.q.weight + *.k.weight + *.v.weight by 2";
    let names = r"s/layers\.0\.attn/model.0/";
    let to = ["--dtype", "f32", "--mesh", "tp=1", "--to", "R", "--out", text(&back)];
    reshard(&[&["run", "--json", text(&out), "--split", split, "--rename", names], &to[..]].concat()).json();
    // Twice rounded is once rounded.
    let rounded = path("rounded");
    let to = ["--only", "model.*", "--dtype", "bf16", "--mesh", "tp=1", "--to", "R", "--out", text(&rounded)];
    reshard(&[&["run", "--json", text(&input)], &to[..]].concat()).json();
    let widened = path("widened");
    let to = ["--dtype", "f32", "--mesh", "tp=1", "--to", "R", "--out", text(&widened)];
    reshard(&[&["run", "--json", text(&rounded)], &to[..]].concat()).json();
    assert_eq!(reshard(&["diff", "--json", text(&back), text(&widened)]).json()["equal"], true);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let refused = |arguments: &[&str], kind: &str, part: &str| {
        reshard(&[&["run", "--json"], arguments].concat()).refused(kind, part);
    };
    refused(&["--only", "absent"], "unused_pattern", "absent");
    refused(&["--rename", "a/b"], "rename", "s/EXPRESSION/NEW/");
    refused(&["--fuse", "a = b"], "mapping", "`b` matches no tensor");
    refused(&["--split", "a = b + c"], "mapping", "rule `b + c = a`: `a` matches no tensor");
    refused(&["--dtype", "bf16"], "usage", "`--dtype` works from files to files only");
}

/// `--out` is a directory unless it ends in a format's suffix.
#[test]
fn an_output_with_a_suffix_is_a_file() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write(&path("w.safetensors"), &[tensor("w", Dtype::F32, &[4, 6])].into());
    let run = |input: &str, out: &str, more: &[&str]| {
        let (input, out) = (path(input), path(out));
        let arguments = ["run", "--json", text(&input), "--mesh", "a=2", "--out", text(&out)];
        reshard(&[&arguments[..], more].concat())
    };
    run("w.safetensors", "out.d", &["--to", "S(0)"]).json();
    run("out.d", "back.safetensors", &["--to", "R"]).json();
    run("out.d", "again.SAFETENSORS", &[]).json();
    assert!(
        path("out.d").is_dir() && path("back.safetensors").is_file() && path("again.SAFETENSORS").is_file()
    );
    assert_eq!(fs::read(path("back.safetensors")).unwrap(), fs::read(path("again.SAFETENSORS")).unwrap());
    run("out.d", "x.pt", &["--to", "R"]).refused("output", "read but not written");
    run("out.d", "x.safetensors", &["--to", "R", "--format", "dcp"])
        .refused("usage", "one file of whole tensors");
    run("out.d", "back.safetensors", &["--to", "R"]).refused("output", "--force");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
}

/// `--map` with its numbers and its inverse, `--only` and `--dtype` by name, and `--replicas once`.
#[test]
fn rules_of_a_file_make_the_tensors_of_the_output() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let names = ["a.q", "a.k", "a.v", "b.bias"];
    let input = path("w.safetensors");
    write(&input, &names.into_iter().map(|name| tensor(name, Dtype::F32, &[8, 6])).collect());
    fs::write(
        path("rules.toml"),
        "mapping = \"*.qkv = $q *.q + 1 *.k + 1 *.v by 2\"\n[let]\nq = 3\n[placements]\n\"*\" = \"R\"\n",
    )
    .unwrap();
    let run = |input: &Path, more: &[&str]| {
        let (rules, input) = (path("rules.toml"), text(input).to_owned());
        let words =
            [&["run", "--json", &input, "--map", text(&rules), "--let", "q=1", "--mesh", "dp=4"], more]
                .concat();
        reshard(&words).json()
    };
    let made = path("made");
    let report = run(
        &input,
        &["--out", text(&made), "--replicas", "once", "--dtype", "*.bias=keep", "--dtype", "bf16"],
    );
    assert_eq!(report["kept"], json!(["b.bias"]));
    let listed = |at: usize, key: &str| report["tensors"][at][key].clone();
    let of: Vec<[serde_json::Value; 3]> =
        (0..2).map(|at| ["name", "dtype", "to"].map(|key| listed(at, key))).collect();
    assert!(of.contains(&[json!("a.qkv"), json!("BF16"), json!("R")]), "{report}");
    assert!(of.contains(&[json!("b.bias"), json!("F32"), json!("R")]), "{report}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(made.join("sharding.json")).unwrap()).unwrap();
    let entry = &manifest["tensors"]["a.qkv"];
    assert_eq!((&entry["sharding"], &entry["stored"]), (&json!("R"), &json!("S(0)")));
    let whole = path("whole");
    fs::write(path("rules.toml"), "mapping = \"*.qkv = $q *.q + 1 *.k + 1 *.v by 2\"\n").unwrap();
    run(&made, &["--inverse", "--only", "!*.bias", "--format", "safetensors", "--out", text(&whole)]);
    let (back, _) = read(&whole.join("model-00001-of-00001.safetensors"));
    assert_eq!(back.keys().map(String::as_str).collect::<Vec<_>>(), ["a.k", "a.q", "a.v"]);
    assert!(back.values().all(|one| one.shape == [8, 6] && one.dtype == Dtype::BF16));
}

/// `--source` for `run`, `inspect` and `verify`.
#[test]
fn a_source_describes_files_that_do_not() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for rank in ["0", "1"] {
        write(&path(&format!("r{rank}.safetensors")), &[tensor("w", Dtype::F32, &[4, 2])].into());
    }
    let source = path("source.toml");
    fs::write(
        &source,
        "[source]\nfiles = \"r{tp}.safetensors\"\nmesh = \"tp=2\"\nplacements = { \"*\" = \"S(0)\" }",
    )
    .unwrap();
    let ask = |words: &[&str]| reshard(&[words, &["--source", text(&source), "--json"]].concat()).json();
    let inspected = ask(&["inspect", text(dir.path())]);
    assert_eq!(inspected["tensors"][0]["shape"], json!([8, 2]));
    assert_eq!(ask(&["verify", text(dir.path())])["problems"], json!([]));
    let other = tempdir().unwrap();
    let out = other.path().join("out.safetensors");
    ask(&["run", text(dir.path()), "--mesh", "a=1", "--gather", text(&out)]);
    assert_eq!(read(&out).0["w"].shape, [8, 2]);
}
