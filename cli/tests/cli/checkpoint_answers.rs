//! `reshard inspect`, `diff` and `verify`: their output for small checkpoints, and their exit status.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checkpoints::{mixed, rank_files, read, write, write_indexed};
use crate::program::{Outcome, reshard, text};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// A whole checkpoint, and its outputs on eight ranks and on six.
struct Setting {
    dir: TempDir,
}

impl Setting {
    fn new() -> Self {
        let this = Self { dir: tempdir().unwrap() };
        write(&this.path("w.safetensors"), &mixed());
        let [whole, eight, six] = ["w.safetensors", "eight", "six"].map(|name| this.path(name));
        for (from, mesh, to, out) in
            [(&whole, "dp=2,tp=4", "S(0),S(1)", &eight), (&eight, "cp=3,tp=2", "SS(0,2),S(0)", &six)]
        {
            let flags = ["--mesh", mesh, "--to", to, "--out", text(out)];
            reshard(&[&["run", "--json", text(from)], &flags[..]].concat()).json();
        }
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn ask(words: &[&str]) -> Outcome {
    reshard(words)
}

/// The object of an answer whatever the status.
#[track_caller]
fn answer(status: i32, words: &[&str]) -> Value {
    let outcome = ask(&[words, &["--json"]].concat());
    assert_eq!((outcome.status, &outcome.stderr[..]), (status, ""), "{outcome:?}");
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(answer["version"], 2);
    answer
}

/// Changes one byte in the middle of the data of a tensor in a file.
fn flip(file: &Path, tensor: &str) {
    let wanted = read(file).0[tensor].bytes.clone();
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
    bytes[at + wanted.len() / 2] ^= 0x20;
    fs::write(file, bytes).unwrap();
}

#[test]
fn inspect_lists_what_is_there() {
    let setting = Setting::new();
    let whole = answer(0, &["inspect", text(&setting.path("w.safetensors"))]);
    assert_eq!((&whole["mesh"], &whole["checksums"]), (&Value::Null, &json!(false)));
    assert_eq!(whole["texts"]["step"], "12");
    assert_eq!(whole["tensors"].as_array().unwrap().len(), mixed().len());
    let sharded = answer(0, &["inspect", text(&setting.path("eight"))]);
    assert_eq!((&sharded["mesh"], &sharded["checksums"]), (&json!("dp=2,tp=4"), &json!(true)));
    assert_eq!(sharded["bytes"], whole["bytes"]);
    let row = |answer: &Value, name: &str| {
        answer["tensors"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone()
    };
    let expected = |sharding: Value| json!({"name":"embed.weight","dtype":"F32","shape":[37,16],"sharding":sharding,"chunks":null,"bytes":2368});
    assert_eq!(row(&whole, "embed.weight"), expected(Value::Null));
    assert_eq!(row(&sharded, "embed.weight"), expected(json!("S(0),S(1)")));
    let table = ask(&["inspect", text(&setting.path("eight"))]);
    assert!(
        table.stdout.contains("embed.weight") && table.stdout.contains("13 tensors over dp=2,tp=4"),
        "{table:?}"
    );
    ask(&["inspect", text(&setting.path("absent")), "--json"]).refused("input", "absent");
}

/// A distributed checkpoint of PyTorch, there and back, by every subcommand that takes a checkpoint.
#[test]
fn what_pytorch_wrote_goes_through_every_subcommand() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data");
    // A package has no files of other packages.
    if !data.exists() {
        return;
    }
    let [dcp, whole] = ["dcp", "dcp.safetensors"].map(|name| data.join(name));
    let inspected = answer(0, &["inspect", text(&dcp)]);
    assert_eq!(inspected["others"], json!(["optimizer.groups.lr", "optimizer.state.0.name", "step"]));
    let boxes = &inspected["tensors"][0];
    assert_eq!(
        *boxes,
        json!({"name":"boxes","dtype":"F32","shape":[5,6],"sharding":null,"chunks":4,"bytes":120})
    );
    let table = ask(&["inspect", text(&dcp)]).stdout;
    assert!(table.contains("4 chunks") && table.contains("step  not a tensor"), "{table}");
    let by_rank = ask(&["inspect", text(&data.join("ranks"))]).stdout;
    assert!(by_rank.contains("extra_state.rank_{0..3}.epoch  not a tensor"), "{by_rank}");
    let others = json!(["optimizer.groups.lr", "optimizer.state.0.name", "step"]);
    let difference = answer(1, &["diff", text(&dcp), text(&whole)]);
    assert_eq!((&difference["different"], &difference["only_first"]), (&json!([]), &others));
    assert_eq!(answer(0, &["verify", text(&dcp)])["problems"], json!([]));
    let folder = tempdir().unwrap();
    let [ranks, back] = ["ranks", "back"].map(|name| folder.path().join(name));
    let flags = ["--mesh", "a=3", "--to", "S(0)", "--json"];
    reshard(&[&["run", text(&dcp), "--out", text(&ranks)], &flags[..]].concat()).json();
    let report =
        reshard(&[&["run", text(&ranks), "--format", "dcp", "--out", text(&back)], &flags[..]].concat())
            .json();
    assert_eq!(report["others"], json!({"carried": others, "not_carried": []}));
    assert_eq!(answer(0, &["diff", text(&ranks), text(&dcp)])["equal"], json!(true));
    assert_eq!(answer(0, &["diff", text(&back), text(&dcp)])["others"], json!(3));
    let said = ask(&["diff", text(&back), text(&dcp)]).stdout;
    assert!(said.ends_with(" tensors and 3 other entries of both\n"), "{said}");
    assert_eq!(answer(0, &["verify", text(&back)])["others"], json!(3));
    // Entries that safetensors cannot store are named, or the run is rejected.
    let lost = folder.path().join("lost");
    let to_whole = ["run", text(&back), "--format", "safetensors", "--out", text(&lost)];
    ask(&[&to_whole[..], &["--strict", "--json"]].concat()).refused("not_carried", "optimizer.groups.lr");
    assert!(!lost.exists());
    let said = ask(&to_whole).stdout;
    let expected = "3 non-tensor entries are not in safetensors: optimizer.groups.lr, optimizer.state.0.name, step (`--json` lists all)";
    assert!(said.lines().last().unwrap().starts_with(expected), "{said}");
    let said = ask(&[
        "run",
        text(&dcp),
        "--mesh",
        "a=3",
        "--to",
        "S(0)",
        "--format",
        "dcp",
        "--force",
        "--out",
        text(&back),
    ])
    .stdout;
    assert!(said.ends_with("\ncarried 3 non-tensor entries\n"), "{said}");
    let why = answer(0, &[&to_whole[..], &["--force"]].concat())["others"]["not_carried"][0].clone();
    assert_eq!(why["name"], "optimizer.groups.lr");
    assert!(why["why"].as_str().unwrap().contains("`--format dcp` keeps it"), "{why}");
    assert!(back.join("__2_0.distcp").exists() && !back.join("sharding.json").exists());
    // Lost entries of rank files are named too.
    fs::remove_file(ranks.join("others.bin")).unwrap();
    let inspected = answer(0, &["inspect", text(&ranks)]);
    assert_eq!((&inspected["lost"], &inspected["others"]), (&others, &others));
    let table = ask(&["inspect", text(&ranks)]).stdout;
    assert!(table.contains("step  not a tensor, its bytes are missing"), "{table}");
    assert_eq!(answer(1, &["verify", text(&ranks)])["problems"].as_array().unwrap().len(), 3);
    let pickle = data.join("object.pt");
    ask(&["inspect", text(&pickle), "--json"]).refused("torch", "`torch.nn.modules.linear.Linear`");
}

#[test]
fn diff_is_blind_to_shardings_and_names_what_differs() {
    let setting = Setting::new();
    let [whole, eight, six, hub] = ["w.safetensors", "eight", "six", "hub"].map(|name| setting.path(name));
    let (left, right) = mixed().into_iter().partition(|(name, _)| name.starts_with("layer"));
    write_indexed(&hub, &[("a.safetensors", left), ("b.safetensors", right)]);
    for (one, other) in [(&whole, &eight), (&eight, &six), (&six, &whole), (&hub, &six), (&whole, &whole)] {
        let same = answer(0, &["diff", text(one), text(other)]);
        assert_eq!((&same["equal"], &same["tensors"]), (&json!(true), &json!(13)));
    }
    assert_eq!(ask(&["diff", text(&eight), text(&six)]).stdout, "equal: 13 tensors of both\n");
    let mut other = mixed();
    other.get_mut("layer.0.bias").unwrap().bytes[2 * 5] ^= 1;
    other.get_mut("packed.four").unwrap().bytes[9] ^= 1;
    let scalar = other.remove("scalar").unwrap();
    other.insert("scale".to_owned(), scalar);
    let changed = setting.path("changed.safetensors");
    write(&changed, &other);
    let difference = answer(1, &["diff", text(&six), text(&changed)]);
    assert_eq!(difference["equal"], false);
    assert_eq!(
        (&difference["only_first"], &difference["only_second"]),
        (&json!(["scalar"]), &json!(["scale"]))
    );
    assert_eq!(
        difference["different"],
        json!([
            {"name":"layer.0.bias","what":"1 of 24 elements differ, the first at [5]","first":[5]},
            {"name":"packed.four","what":"1 of 64 bytes differ, the first is byte 9","first":null},
        ])
    );
    let said = ask(&["diff", text(&six), text(&changed)]);
    assert_eq!((said.status, said.stdout.lines().count()), (1, 5), "{said:?}");
    assert!(
        said.stdout.contains("scale: only in")
            && said.stdout.ends_with("they differ: 2 of 12 tensors of both\n")
    );
    ask(&["diff", text(&six), text(&setting.path("absent")), "--json"]).refused("input", "absent");
}

#[test]
fn verify_finds_and_names_what_was_changed() {
    let setting = Setting::new();
    for (name, shards, checksums) in
        [("eight", 8 * 13, true), ("six", 6 * 13, true), ("w.safetensors", 13, false)]
    {
        let verified = answer(0, &["verify", text(&setting.path(name))]);
        assert_eq!((&verified["shards"], &verified["checksums"]), (&json!(shards), &json!(checksums)));
        assert_eq!(verified["problems"], json!([]));
    }
    assert!(ask(&["verify", text(&setting.path("eight"))]).stdout.ends_with("no problems\n"));
    let file = &rank_files(&setting.path("eight"))[5];
    flip(file, "embed.weight");
    let verified = answer(1, &["verify", text(&setting.path("eight"))]);
    let [problem] = &verified["problems"].as_array().unwrap()[..] else { panic!("{verified}") };
    assert_eq!((&problem["tensor"], &problem["file"]), (&json!("embed.weight"), &json!(text(file))));
    // A replica: the bias has no dim 1, so all eight ranks hold it.
    flip(file, "layer.0.bias");
    let said = ask(&["verify", text(&setting.path("eight"))]);
    assert_eq!((said.status, &said.stderr[..]), (1, ""));
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(
        lines.len() == 3 && lines[1].contains("rank-00005") && lines[1].contains("layer.0.bias"),
        "{said:?}"
    );
    assert!(lines[2].ends_with("2 problems"), "{said:?}");
    ask(&["verify", text(&setting.path("absent")), "--json"]).refused("input", "absent");
}
