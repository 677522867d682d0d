//! `reshard view` and `reshard mesh`: the facts of both, their errors, and their batches.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

#[track_caller]
fn view(mesh: &str, shape: &str, to_shape: &str, placements: &str) -> Value {
    let flags =
        ["--mesh", mesh, "--shape", shape, "--to-shape", to_shape, "--placements", placements, "--json"];
    reshard(&[&["view"][..], &flags].concat()).json()
}

#[test]
fn views_regroup_digits() {
    assert_eq!(view("x=3", "4,6", "24", "S(1)")["placements"], "SS(0,4)");
    assert_eq!(view("x=3", "24", "4,6", "SS(0,4)")["placements"], "S(1)");
    assert_eq!(view("x=4", "2,3,4", "24", "S(2)")["placements"], "SS(0,6)");
    assert_eq!(view("x=2,y=2", "16", "2,8", "S(0),S(0)")["placements"], "S(0),S(1)");
    let back = view("x=2,y=2", "2,8", "16", "S(1),S(1)");
    assert_eq!(back["placements"], "SS(0,2),SS(0,2)");
    assert_eq!(back["local_shape"], json!([4]));
}

#[test]
fn a_view_that_moves_says_what_to_do_first() {
    let lines = r#"{"mesh":"x=2","shape":[6],"to_shape":[3,2],"placements":"S(0)"}
{"mesh":"x=3","shape":[4,6],"to_shape":[24],"placements":"S(1)"}
"#;
    let answers = reshard_with(&["view", "--batch"], lines).stdout;
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["error"]["kind"], "needs_redistribute");
    assert!(answers[0]["error"]["move"].is_string());
    assert_eq!(answers[1]["placements"], "SS(0,4)");
}

#[test]
fn meshes_have_groups() {
    let mesh = reshard(&["mesh", "dp_shard=2,cp=2,tp=2", "--groups", "cp", "--json"]).json();
    assert_eq!(mesh["groups"]["members"], json!([[0, 2], [1, 3], [4, 6], [5, 7]]));
    let joint = reshard(&["mesh", "dp=2,pp=2,tp=4", "--groups", "dp,tp", "--json"]).json();
    assert_eq!(joint["groups"]["pattern"], "(4,2):(1,8)");
}
