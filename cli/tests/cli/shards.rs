//! `reshard shards`, as the contract of the command line has it.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

#[track_caller]
fn shards(mesh: &str, shape: &str, placements: &str) -> Value {
    reshard(&["shards", "--mesh", mesh, "--shape", shape, "--placements", placements, "--json"]).json()
}

fn column(answer: &Value, of: impl Fn(&Value) -> Value) -> Vec<Value> {
    answer["ranks"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn an_even_sharding_has_regions_and_a_layout() {
    let answer = shards("dp=2,tp=4", "1024,4096", "S(0),S(1)");
    assert_eq!(
        answer["ranks"][5],
        json!({"rank": 5, "coord": [1, 1], "local_shape": [512, 1024], "dims": [[[512, 512]], [[1024, 1024]]]})
    );
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 8);
    assert!(answer["layout"].is_string());
}

#[test]
fn strided_and_uneven_shards_are_pytorchs() {
    let answer = shards("dp=4,tp=2", "15,5", "SS(0,2),S(0)");
    assert_eq!(answer["layout"], Value::Null);
    let sizes = column(&answer, |rank| rank["local_shape"][0].clone());
    assert_eq!(sizes, [2, 2, 2, 2, 2, 2, 2, 1]);
    let firsts = column(&answer, |rank| rank["dims"][0][0][0].clone());
    assert_eq!(firsts, [0, 8, 2, 10, 4, 12, 6, 14]);
    let nested = shards("a=2,b=2", "5", "S(0),S(0)");
    assert_eq!(column(&nested, |rank| rank["local_shape"][0].clone()), [2, 1, 1, 1]);
}

#[test]
fn small_tensors_and_empty_shards() {
    for shape in ["", "[]"] {
        let scalar = shards("dp=2", shape, "R");
        assert_eq!(column(&scalar, |rank| rank["dims"].clone()), [json!([]), json!([])]);
    }
    let empty = shards("dp=2", "[0,5]", "S(0)");
    assert_eq!(column(&empty, |rank| rank["local_shape"].clone()), [json!([0, 5]), json!([0, 5])]);
    let single = shards("dp=2", "1", "S(0)");
    assert_eq!(column(&single, |rank| rank["dims"].clone()), [json!([[[0, 1]]]), json!([[]])]);
}

#[test]
fn a_part_of_the_world_keeps_its_ranks() {
    let answer = shards("dp=2,tp=2@4", "8", "S(0),R");
    assert_eq!(column(&answer, |rank| rank["rank"].clone()), [4, 5, 6, 7]);
}

#[test]
fn people_get_a_table() {
    let outcome = reshard(&["shards", "--mesh", "dp=2", "--shape", "[3,4]", "--placements", "S(0)"]);
    assert_eq!(outcome.status, 0);
    assert!(outcome.stdout.contains("2..3 x 0..4"), "{outcome:?}");
}

#[test]
fn a_batch_answers_every_line_in_order() {
    let lines = [
        r#"{"mesh":"dp=2,tp=4","shape":[64,32],"placements":"S(0),R"}"#,
        r#"{"mesh":"dp=2,tp=4","shape":"64,32","placements":"S(0),X"}"#,
        r#"{"mesh":"dp=2","shape":[4],"placement":"R"}"#,
        "nonsense",
        "",
        r#"{"mesh":"dp=2","shape":[4]}"#,
        r#"{"mesh":"dp=2","shape":[4],"placements":"S(0)"}"#,
    ];
    let outcome = reshard_with(&["shards", "--batch"], &(lines.join("\n") + "\n"));
    assert_eq!(outcome.status, 0);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len());
    assert_eq!(answers[0]["ranks"][7]["dims"], json!([[[32, 32]], [[0, 32]]]));
    for (answer, kind) in answers[1..6].iter().zip(["parse", "parse", "parse", "parse", "usage"]) {
        assert_eq!(answer["error"]["kind"], kind, "{answer}");
    }
    assert!(answers[2]["error"]["message"].as_str().unwrap().contains("unknown field `placement`"));
    assert_eq!(answers[6]["ranks"][1]["local_shape"], json!([2]));
}

#[test]
fn bad_requests_are_refused_with_the_place() {
    let run = |mesh: &str, shape: &str, placements: &str| {
        reshard(&["shards", "--mesh", mesh, "--shape", shape, "--placements", placements, "--json"])
    };
    run("dp=2,tp", "4", "R,R").refused("parse", "dp=2,tp");
    run("dp=2", "4,x", "R").refused("parse", "`x` is not a size");
    run("dp=2", "-4", "R").refused("parse", "`-4` is not a size");
    run("dp=2", "4", "S(1)").refused("no_such_dim", "S(1)");
    run("dp=2", "4", "R,R").refused("placement_count", "2 placements");
    run("dp=99999999999,tp=99999999999", "4", "R,R").refused("overflow", "");
    let caret = run("dp=2", "4,x", "R");
    assert!(caret.stderr.ends_with("  4,x\n    ^\n"), "{caret:?}");
}

#[test]
fn wrong_usage_is_an_error_like_any_other() {
    reshard(&["shards", "--json", "--mesh"]).refused("usage", "--mesh");
    reshard(&["shards", "--json", "--mesh", "dp=2", "--frob"]).refused("usage", "--frob");
    reshard(&["frobnicate", "--json"]).refused("usage", "frobnicate");
    reshard(&["shards", "--json", "--mesh", "dp=2", "--shape", "4"]).refused("usage", "placements");
    reshard::<&str>(&[]).refused("usage", "no subcommand");
    assert_eq!(reshard(&["--help"]).status, 0);
    assert_eq!(reshard(&["--version"]).stdout, format!("reshard {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_is_echoed_of_an_input_is_short_and_shows_the_place() {
    // One argument of a process is at most 128 KiB.
    let many = "x".repeat(100_000);
    for placements in [
        many.clone(),
        format!("S(0),{many}"),
        format!("[{{{many}}}]"),
        format!("{{devices=[{many}"),
        format!("{{replicated metadata={{{many}"),
        format!("PartitionSpec('{many}')"),
        format!("#sdy.sharding<{many}"),
        format!("Z(0,{many})"),
        format!("S(0) order={{{many}}}"),
    ] {
        let answer =
            reshard(&["shards", "--mesh", "dp=2", "--shape", "4", "--placements", &placements, "--json"]);
        assert!(answer.status == 2 && answer.stderr.len() < 3_000, "{}", answer.stderr.len());
        assert!(answer.stdout.len() < 3_000, "{}", answer.stdout.len());
    }
    for command in [["layout", &many], ["mesh", &many], ["rule", &many]] {
        assert!(reshard(&command).stderr.len() < 3_000);
    }
    // The caret is below the error, whatever was shortened before it.
    let stderr = reshard(&[
        "shards",
        "--mesh",
        "dp=2",
        "--shape",
        "4",
        "--placements",
        &format!("S(0),{}?", " ".repeat(500)),
    ])
    .stderr;
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[1].chars().position(|c| c == '?'), lines[2].chars().position(|c| c == '^'), "{stderr}");
}
