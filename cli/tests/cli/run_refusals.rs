//! `reshard run` on bad input: a one-line message, exit 2, and nothing written.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checkpoints::{mixed, rank_files, read, tensor, write, write_index, write_indexed};
use crate::program::{Outcome, reshard, text};
use safetensors::Dtype;
use serde_json::json;
use tempfile::{TempDir, tempdir};

/// A folder with a whole checkpoint, and a folder for an output that must stay absent.
struct Setting {
    dir: TempDir,
}

impl Setting {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        write(&dir.path().join("w.safetensors"), &mixed());
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs on this input and asserts that neither an output nor any other file appears.
    #[track_caller]
    fn run(&self, input: &Path, more: &[&str]) -> Outcome {
        let place = self.path("place");
        fs::create_dir_all(&place).unwrap();
        let (out, gather) = (place.join("out"), place.join("gathered.safetensors"));
        let mut arguments =
            vec!["run", "--json", text(input), "--out", text(&out), "--gather", text(&gather)];
        arguments.extend_from_slice(more);
        let outcome = reshard(&arguments);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{outcome:?}");
        outcome
    }

    #[track_caller]
    fn whole(&self, more: &[&str]) -> Outcome {
        self.run(&self.path("w.safetensors"), more)
    }

    /// The output of an earlier run on four ranks.
    fn sharded(&self) -> PathBuf {
        let out = self.path("sharded");
        let input = self.path("w.safetensors");
        reshard(&["run", "--json", text(&input), "--mesh", "a=4", "--to", "S(0)", "--out", text(&out)])
            .json();
        out
    }
}

fn edit_manifest(dir: &Path, from: &str, to: &str) {
    let path = dir.join("sharding.json");
    let before = fs::read_to_string(&path).unwrap();
    let after = before.replace(from, to);
    assert_ne!(before, after);
    fs::write(&path, after).unwrap();
}

const TO: [&str; 4] = ["--mesh", "a=2", "--to", "S(0)"];

#[test]
fn files_that_are_not_whole() {
    let setting = Setting::new();
    let good = fs::read(setting.path("w.safetensors")).unwrap();
    let spoilt = setting.path("spoilt.safetensors");
    let check = |bytes: &[u8], said: &str| {
        fs::write(&spoilt, bytes).unwrap();
        setting.run(&spoilt, &TO).refused("safetensors", said);
    };
    for len in [0, 5, 8, 100, good.len() - 1] {
        check(&good[..len], "spoilt.safetensors");
    }
    check(&[&good[..], &[0]].concat(), "not fully covered");
    check(&[&[0xff; 8][..], &good[8..]].concat(), "header");
    let text = |from: &str, to: &str| {
        let at = good.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        [&good[..at], to.as_bytes(), &good[at + from.len()..]].concat()
    };
    check(&text("\"F64\"", "\"F99\""), "F99");
    check(&text("[37,16]", "[37,17]"), "shape");
    check(&text("\"dtype\"", "\"dtypf\""), "dtype");
    setting.run(&setting.path("absent.safetensors"), &TO).refused("input", "absent.safetensors");
    let empty = setting.path("empty");
    fs::create_dir(&empty).unwrap();
    setting.run(&empty, &TO).refused("input", "holds no .safetensors, .bin, .pt or .pth file");
    setting.run(Path::new("/dev/null"), &TO).refused("input", "not a regular file");
}

#[test]
fn rank_files_and_manifest_that_disagree() {
    type Spoil = fn(&Path);
    let cases: [(Spoil, &str, &str); 11] = [
        (
            |dir| fs::remove_file(&rank_files(dir)[2]).unwrap(),
            "rank_files",
            "rank-00002-of-00004.safetensors",
        ),
        (|dir| fs::remove_file(dir.join("sharding.json")).unwrap(), "input", "sharding.json"),
        (|dir| edit_manifest(dir, "\"a=4\"", "\"a=5\""), "world", "a=5"),
        (|dir| edit_manifest(dir, "\"world\": 4", "\"world\": 3"), "world", "world 3"),
        (|dir| edit_manifest(dir, "\"F32\"", "\"I32\""), "manifest", "I32"),
        (|dir| edit_manifest(dir, "\"F32\"", "\"F33\""), "manifest", "F33"),
        (|dir| edit_manifest(dir, "37,", "38,"), "manifest", "embed.weight"),
        (|dir| edit_manifest(dir, "\"S(0)\"", "\"S(7)\""), "no_such_dim", "S(7)"),
        (|dir| edit_manifest(dir, "embed.weight", "embed.height"), "manifest", "embed.height"),
        (|dir| edit_manifest(dir, "\"version\": 1", "\"version\": 9"), "manifest", "version 9"),
        (|dir| edit_manifest(dir, "{", "["), "manifest", "sharding.json"),
    ];
    for (spoil, kind, said) in cases {
        let setting = Setting::new();
        let dir = setting.sharded();
        spoil(&dir);
        setting.run(&dir, &TO).refused(kind, said);
    }
}

/// The manifest lists the files of an output, so any other file is named and not read.
#[test]
fn a_foreign_file_beside_rank_files_is_named() {
    let setting = Setting::new();
    let dir = setting.sharded();
    fs::copy(&rank_files(&dir)[0], dir.join("rank-00004-of-00004.safetensors")).unwrap();
    let table = reshard(&["inspect", text(&dir)]);
    assert!(table.status == 0 && table.stdout.contains("rank-00004-of-00004.safetensors"), "{table:?}");
}

#[test]
fn a_tensor_too_many_or_too_few_in_a_rank_file() {
    let setting = Setting::new();
    let dir = setting.sharded();
    let file = &rank_files(&dir)[1];
    let (mut tensors, _) = read(file);
    tensors.extend([tensor("stowaway", Dtype::U8, &[3])]);
    write(file, &tensors);
    setting.run(&dir, &TO).refused("manifest", "stowaway");
    tensors.remove("stowaway");
    tensors.remove("mask");
    write(file, &tensors);
    setting.run(&dir, &TO).refused("manifest", "mask");
}

#[test]
fn replicas_that_differ_are_no_tensor() {
    let setting = Setting::new();
    let dir = setting.sharded();
    // Changed in place: if the header were rewritten, its checksum would fail first.
    let file = &rank_files(&dir)[3];
    let mut bytes = fs::read(file).unwrap();
    let scalar = mixed()["scalar"].bytes.clone();
    let at = bytes.windows(8).position(|window| window == scalar).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    assert_ne!(read(file).0["scalar"], mixed()["scalar"]);
    for more in [&[][..], &["--through-engine"], &["--engine", "threads"]] {
        setting.run(&dir, &[&TO[..], more].concat()).refused("replicas", "ranks 0 and 3");
    }
}

#[test]
fn what_a_manifest_has_other_checksums_of_is_refused() {
    let setting = Setting::new();
    let dir = setting.sharded();
    let file = &rank_files(&dir)[1];
    let (tensors, texts) = read(file);
    let good = fs::read(file).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(file, &bad).unwrap();
    setting.run(&dir, &TO).refused("checksum", "rank-00001-of-00004.safetensors");
    // The same tensors under another header.
    assert_eq!(texts["step"], "12");
    write(file, &tensors);
    setting
        .run(&dir, &TO)
        .refused("checksum", "rank-00001-of-00004.safetensors: checksum mismatch in its header");
    fs::write(file, good).unwrap();
    edit_manifest(&dir, "\n", "\r\n");
    setting.run(&dir, &TO).refused("checksum", "sharding.json");
    // `--no-verify` skips the check.
    let out = setting.path("known");
    reshard(&[&["run", "--json", text(&dir), "--out", text(&out), "--no-verify"], &TO[..]].concat()).json();
    let usage = [&["run", "--json", "--no-verify", "--through-engine"], &TO[..]].concat();
    reshard(&usage).refused("usage", "--through-engine");
}

#[test]
fn an_index_that_does_not_fit_its_files() {
    let setting = Setting::new();
    let dir = setting.path("hub");
    let part = |name: &str| [tensor(name, Dtype::U8, &[4])].into();
    let fresh = || {
        let _ = fs::remove_dir_all(&dir);
        write_indexed(&dir, &[("one.safetensors", part("a")), ("two.safetensors", part("b"))]);
    };
    fresh();
    fs::remove_file(dir.join("two.safetensors")).unwrap();
    setting.run(&dir, &TO).refused("index", "two.safetensors");
    fresh();
    for (map, said) in [
        (json!({"a": "one.safetensors", "b": "../two.safetensors"}), "../two.safetensors"),
        (json!({"a": "one.safetensors", "b": "/etc/passwd"}), "/etc/passwd"),
        (json!({"a": "one.safetensors", "b": ""}), "``"),
        (json!({"a": "one.safetensors", "b": "one.safetensors"}), "`b`"),
        (json!({"b": "one.safetensors", "a": "two.safetensors"}), "`a`"),
        (json!({"b": "two.safetensors", "c": "one.safetensors"}), "`a`"),
        (json!({"a": 3}), "index.json"),
    ] {
        write_index(&dir, &json!({ "weight_map": map }));
        setting.run(&dir, &TO).refused("index", said);
    }
    write_index(&dir, &json!({"map": {}}));
    setting.run(&dir, &TO).refused("index", "weight_map");
    fresh();
    write(&dir.join("two.safetensors"), &[tensor("a", Dtype::U8, &[4]), tensor("b", Dtype::U8, &[4])].into());
    setting.run(&dir, &TO).refused("index", "both in one.safetensors and in two.safetensors");
    fs::remove_file(dir.join("model.safetensors.index.json")).unwrap();
    setting.run(&dir, &TO).refused("input", "`a` is both in one.safetensors and in two.safetensors");
}

#[test]
fn wishes_that_cannot_be_granted() {
    let setting = Setting::new();
    setting.whole(&["--to", "S(0)"]).refused("usage", "--mesh");
    setting
        .run(&setting.path("w.safetensors"), &["--mesh", "a=2", "--to", "P"])
        .refused("partial_target", "partial");
    setting.whole(&["--mesh", "a=2", "--from", "P", "--to", "R"]).refused("partial_source", "partial");
    setting.whole(&["--mesh", "a=2", "--to", "S(9)"]).refused("no_such_dim", "S(9)");
    setting.whole(&["--mesh", "a=2", "--to", "S(0"]).refused("parse", "S(0");
    setting.whole(&["--mesh", "a=2", "--to", "S(0),R"]).refused("placement_count", "2 placements");
    setting.whole(&["--mesh", "a2", "--to", "S(0)"]).refused("parse", "a2");
    setting.whole(&["--mesh", "a=2", "--to", "S(0)", "--only", "absent"]).refused("unused_pattern", "absent");
    setting
        .whole(&["--mesh", "a=2", "--to", "S(1)", "--only", "layer.0.bias"])
        .refused("no_such_dim", "S(1)");
    let built =
        [("mpi", cfg!(feature = "mpi")), ("cuda", cfg!(feature = "cuda")), ("nccl", cfg!(feature = "nccl"))];
    for (engine, _) in built.into_iter().filter(|(_, built)| !built) {
        setting.whole(&["--mesh", "a=2", "--to", "R", "--engine", engine]).refused("no_such_engine", engine);
    }
    setting.whole(&["--mesh", "a=2", "--to", "R", "--engine", "steam"]).refused("usage", "steam");
    let sharded = setting.sharded();
    setting.run(&sharded, &["--mesh", "a=4", "--from", "R", "--to", "R"]).refused("from", "manifest");
}

#[test]
fn specs_that_do_not_hold() {
    let setting = Setting::new();
    let spec = setting.path("spec.toml");
    for (content, kind, said) in [
        ("\"*.weight\" = \"S(0)\"\n", "spec", "no pattern"),
        ("\"*\" = \"R\"\n\"*.weight\" = \"S(0)\"\n", "unused_pattern", "*.weight"),
        ("\"*.height\" = \"R\"\n\"*\" = \"R\"\n", "unused_pattern", "*.height"),
        ("\"*\" = \"S(1)\"\n", "no_such_dim", "S(1)"),
        ("\"*\" = \"P\"\n", "partial_target", "partial"),
        ("\"*\" = \"S(\"\n", "parse", "S("),
        ("\"*\" = 3\n", "spec", "`*`"),
        ("\"[\" = \"R\"\n", "spec", "`[`"),
        ("* = R\n", "spec", "line 1"),
    ] {
        fs::write(&spec, content).unwrap();
        setting.whole(&["--mesh", "a=2", "--spec", text(&spec)]).refused(kind, said);
    }
    setting.whole(&["--mesh", "a=2", "--spec", text(&setting.path("absent"))]).refused("spec", "absent");
}

#[test]
fn outputs_that_are_in_the_way() {
    let setting = Setting::new();
    let (out, file) = (setting.path("out"), setting.path("file"));
    fs::create_dir(&out).unwrap();
    fs::write(out.join("thesis.txt"), "years of work").unwrap();
    fs::write(&file, "more of it").unwrap();
    let run = |more: &[&str]| reshard(&[&["run", "--json"], more].concat());
    run(&["--out", text(&out)]).refused("output", "not empty");
    run(&["--out", text(&file)]).refused("output", "not a directory");
    run(&["--gather", text(&file)]).refused("output", "--force");
    run(&["--gather", text(&out)]).refused("output", "is a directory");
    run(&["--out", text(&setting.path("new")), "--gather", text(&setting.path("new/f"))])
        .refused("output", "inside");
    assert_eq!(fs::read_to_string(out.join("thesis.txt")).unwrap(), "years of work");
    assert_eq!(fs::read_to_string(&file).unwrap(), "more of it");
}

/// A run replaces only outputs of a run, whatever the flags.
#[test]
fn force_replaces_only_what_a_run_wrote() {
    let setting = Setting::new();
    let run = |more: &[&str]| reshard(&[&["run", "--json", "--force"], more].concat());
    let out = setting.path("out");
    let spoil = |name: &str, content: &str| {
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).unwrap();
        fs::write(out.join(name), content).unwrap();
    };
    for (name, content, said) in [
        ("thesis.txt", "years of work", "thesis.txt"),
        ("model.safetensors", "", "model.safetensors"),
        ("sharding.json", "{}", "not the manifest"),
        ("sharding.json", r#"{"format":"other","world":2}"#, "not the manifest"),
        ("rank-00000-of-00001.safetensors", "", "holds no sharding.json"),
    ] {
        spoil(name, content);
        run(&["--out", text(&out)]).refused("output", said);
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), content);
    }
    // One file too many in the folder of an output.
    let sharded = setting.sharded();
    for name in ["notes.txt", "rank-00004-of-00004.safetensors", "rank-0-of-4.safetensors"] {
        fs::write(sharded.join(name), "mine").unwrap();
        run(&["--out", text(&sharded)]).refused("output", name);
        fs::remove_file(sharded.join(name)).unwrap();
    }
    run(&["--out", text(&sharded)]).json();
    let file = setting.path("file");
    for content in ["", "more of it", "\u{8}\0\0\0\0\0\0\0{\"a\":3}"] {
        fs::write(&file, content).unwrap();
        run(&["--gather", text(&file)]).refused("output", "not a safetensors file");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
    let link = setting.path("link");
    std::os::unix::fs::symlink(setting.path("w.safetensors"), &link).unwrap();
    run(&["--gather", text(&link)]).refused("output", "symbolic link");
    run(&["--gather", text(&setting.path("w.safetensors"))]).json();
}

/// Obstacles to the gathered file are detected before anything is written.
#[test]
fn a_gathered_file_has_a_place_of_its_own() {
    let setting = Setting::new();
    let new = |name: &str| setting.path(&format!("new/{name}"));
    fs::create_dir(setting.path("there")).unwrap();
    fs::write(setting.path("plain"), "a file").unwrap();
    std::os::unix::fs::symlink(setting.path("there"), setting.path("link")).unwrap();
    for (out, gather, said) in [
        (new("out"), new(""), "ends in a slash"),
        (new("out"), setting.path("there"), "is a directory"),
        (new("out"), setting.path("link"), "is a directory"),
        (new("out"), setting.path("new"), "a folder above"),
        (new("out"), new("out"), "the same path"),
        (new("out"), new("out/f"), "inside"),
        (setting.path("there/out"), setting.path("link/out/f"), "inside"),
        (new("out"), setting.path("plain/f"), "not a directory"),
        (setting.path("plain/out"), new("g"), "not a directory"),
    ] {
        for force in [&[][..], &["--force"]] {
            let arguments = ["run", "--json", "--out", text(&out), "--gather", text(&gather)];
            reshard(&[&arguments[..], force].concat()).refused("output", said);
        }
        assert!(!setting.path("new").exists() && fs::read_dir(setting.path("there")).unwrap().count() == 0);
    }
}

/// Writing to a folder that cannot be written is a failed run, not bad input.
#[test]
fn a_full_disk_is_status_one() {
    let outcome = reshard(&["run", "--json", "--out", "/proc/reshard/out"]);
    outcome.error(1, "io", "/proc/reshard");
}
