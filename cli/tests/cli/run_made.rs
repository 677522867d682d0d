//! `reshard run` with renamed, split, fused, cast and selected tensors.

use safetensors::Dtype;
use tempfile::tempdir;

use crate::checkpoints::{tensor, write};
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
    std::fs::write(&spec, "'/^layers\\.\\d+\\.attn/' = \"S(0)\"\n\"*\" = \"R\"\n").unwrap();
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
    refused(&["--fuse", "a = b"], "fusion", "two parts");
    refused(&["--split", "a = b + c"], "fusion", "its whole");
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
    assert_eq!(
        std::fs::read(path("back.safetensors")).unwrap(),
        std::fs::read(path("again.SAFETENSORS")).unwrap()
    );
    run("out.d", "x.pt", &["--to", "R"]).refused("output", "read but not written");
    run("out.d", "x.safetensors", &["--to", "R", "--format", "dcp"])
        .refused("usage", "one file of whole tensors");
    run("out.d", "back.safetensors", &["--to", "R"]).refused("output", "--force");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}
