//! Hostile input: sizes at every edge, texts with terminal escapes, files without an end.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{reshard, reshard_with, text};

const SIZES: [&str; 9] = [
    "65537",
    "2147483648",
    "1000000000000",
    "1099511627776",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999",
];

/// The answer to each line of a batch; none is `internal`.
fn answers(subcommand: &str, lines: &[String]) -> Vec<Value> {
    let outcome = reshard_with(&[subcommand, "--batch"], &lines.join("\n"));
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len());
    for (line, answer) in lines.iter().zip(&answers) {
        assert_ne!(answer["error"]["kind"], "internal", "{line}: {answer}");
    }
    answers
}

#[test]
fn ops_of_very_many_outputs_are_refused() {
    for n in &SIZES[..6] {
        for op in [format!("chunk(chunks={n})"), "split(size=1)".to_owned(), "unbind".to_owned()] {
            reshard(&["rule", &op, "--shapes", n, "--json"]).refused("rule", "would have ");
        }
    }
}

#[test]
fn any_size_in_any_place_is_answered() {
    let (mut shards, mut plans, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    // Of the first, every rank is listed, which takes its time.
    for n in &SIZES[1..] {
        for mesh in [format!("x={n}"), format!("x=2:{n}"), format!("x=2@{n}"), format!("x={n},y={n}")] {
            for p in
                ["S(0)", "P", "Z(0)", &format!("SS(0,{n})"), &format!("_S(0,{n})"), &format!("RG(0,[{n},1])")]
            {
                for shape in ["8", n] {
                    shards.push(format!(r#"{{"mesh":"{mesh}","shape":"{shape}","placements":"{p}"}}"#));
                    plans.push(format!(r#"{{"mesh":"{mesh}","shape":"{shape}","from":"{p}","to":"R"}}"#));
                }
            }
            let _ = reshard(&["mesh", &mesh, "--groups", "x", "--topology", "h100", "--json"]).stdout;
        }
        shards.push(format!(r#"{{"mesh":"x=2","shape":"8","placements":"{{devices=[{n}]<=[{n}]}}"}}"#));
        plans.push(format!(r#"{{"mesh":"x=2","shape":"8","from":"S(0)","to":"R","groups":"{n}:1"}}"#));
        for op in ["slice(dim=0)", "softmax", "flip(dims=[0])", "roll(dims=[0])", "cumsum(dim=0)"] {
            rules.push(format!(r#"{{"op":"{op}","shapes":["{n}"]}}"#));
            rules.push(format!(r#"{{"op":"{op}","shapes":["{n},{n}"]}}"#));
        }
    }
    answers("shards", &shards);
    answers("plan", &plans);
    answers("rule", &rules);
}

/// Times and rates that no network has are rejected, so that costs can be compared.
#[test]
fn topologies_beyond_reason_are_refused() {
    for (launch, rate) in
        [("1e19", "100"), ("1e308", "100"), ("6.6", "1e-320"), ("6.6", "1e300"), ("-1", "100")]
    {
        let topology = format!("launch={launch};message=0;level=*:0:{rate}");
        reshard(&["mesh", "x=2", "--topology", &topology, "--json"]).refused("topology", " to ");
    }
    let worst = "launch=1e9;message=1e9;level=*:1e9:1e-6";
    let arguments =
        ["plan", "--mesh", "x=1024", "--shape", "4611686018427387904", "--from", "S(0)", "--to", "R"];
    let answer =
        reshard(&[&arguments[..], &["--dtype", "u8", "--topology", worst, "--json"]].concat()).json();
    assert!(answer["cost_us"].as_f64().unwrap() > 1e9, "{answer}");
}

#[test]
fn errors_are_one_line_and_steer_no_terminal() {
    let evil = "a\nb\r\u{1b}[31m\u{9b}\u{202e}\u{2028}=2";
    for arguments in [
        &["mesh", evil, "--json"][..],
        &["layout", evil, "--json"],
        &["shards", "--mesh", evil, "--shape", "8", "--placements", "R"],
        &["shards", "--mesh", "x=2", "--shape", evil, "--placements", "R"],
        &["shards", "--mesh", "x=2", "--shape", "8", "--placements", evil],
        &["rule", evil, "--json"],
        &["run", evil, "--mesh", "x=2", "--to", "R"],
        &["run", "--mesh", "x=2", "--to", "R", "--only", evil],
        &["mesh", "x=2", "--topology", "/a\n\u{1b}/b"],
        &[evil],
        &["run", evil, evil],
    ] {
        let outcome = reshard(arguments);
        let mut lines = outcome.stderr.lines();
        assert!(outcome.status == 2 && lines.next().unwrap().starts_with("error: "), "{outcome:?}");
        assert!(lines.all(|line| line.starts_with("  ")), "{outcome:?}");
        let steers = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{2028}');
        assert!(!outcome.stderr.contains(steers), "{outcome:?}");
    }
}

/// Endless files are not read, and others only up to the limit.
#[test]
fn pipes_and_devices_are_no_files() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in [text(&pipe), "/dev/zero", "/dev/null", "/"] {
        let regular = "it is not a regular file";
        reshard(&["mesh", "x=2", "--topology", file, "--json"]).refused("topology", regular);
        reshard(&["run", "--mesh", "x=2", "--spec", file, "--json"]).refused("spec", regular);
    }
    for name in ["sharding.json", "model.safetensors.index.json"] {
        let input = folder.path().join(name).with_extension("d");
        std::fs::create_dir(&input).unwrap();
        std::os::unix::fs::symlink(&pipe, input.join(name)).unwrap();
        let outcome = reshard(&["run", text(&input), "--mesh", "x=2", "--to", "R"]);
        assert!(outcome.stderr.contains("it is not a regular file"), "{outcome:?}");
    }
    let long = folder.path().join("long.toml");
    std::fs::File::create(&long).unwrap().set_len((64 << 20) + 1).unwrap();
    reshard(&["mesh", "x=2", "--topology", text(&long)]).refused("topology", "longer than 67108864 bytes");
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let lines = [" ".repeat((16 << 20) + 1), r#"{"mesh":"x=2","shape":[4],"placements":"R"}"#.to_owned()];
    let answers = answers("shards", &lines);
    assert_eq!(answers[0]["error"]["kind"], "too_large");
    assert_eq!(answers[1]["ranks"].as_array().unwrap().len(), 2);
}

/// A manifest may declare any number of ranks; the error names the first file that is missing.
#[test]
fn a_manifest_of_very_many_ranks_is_refused() {
    let folder = TempDir::new().unwrap();
    let manifest =
        r#"{"format":"reshard","version":1,"mesh":"x=1000000000000","world":1000000000000,"tensors":{}}"#;
    std::fs::write(folder.path().join("sharding.json"), manifest).unwrap();
    reshard(&["run", text(folder.path()), "--to", "R", "--json"])
        .refused("rank_files", "rank-00000-of-1000000000000");
}

/// Elements that share bytes are checked for each rank, but not for very many ranks.
#[test]
fn packed_elements_over_very_many_ranks_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.safetensors");
    let header = r#"{"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes().chain([1, 2, 3, 4]));
    std::fs::write(&file, bytes).unwrap();
    for ranks in ["65537", "1000000000000", "9223372036854775806"] {
        let mesh = format!("x={ranks}");
        reshard(&["run", text(&file), "--mesh", &mesh, "--to", "R", "--json"])
            .refused("packed", "at most 65536 ranks");
    }
}
