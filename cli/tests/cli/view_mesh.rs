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

#[test]
fn a_view_whose_axes_apply_in_another_order_says_which() {
    let answer = view("a=2,b=3", "3,6", "18", "S(0),S(1)");
    assert_eq!(answer["placements"], "RG(0,[4,2]),SS(0,3) order={b,a}");
    let text = answer["placements"].as_str().unwrap();
    let back = view("a=2,b=3", "18", "3,6", text);
    assert_eq!(back["placements"], "S(0),S(1)");
}

#[test]
fn a_sharding_may_bring_its_mesh() {
    let text = r#"#sdy.sharding<mesh<["x"=2, "y"=3]>, [{}, {"y"}]>"#;
    let flags = ["shards", "--shape", "4,6", "--placements", text, "--json"];
    let given = ["shards", "--mesh", "x=2,y=3", "--shape", "4,6", "--placements", "R,S(1)", "--json"];
    assert_eq!(reshard(&flags).json(), reshard(&given).json());
    let other = ["shards", "--mesh", "x=3,y=2", "--shape", "4,6", "--placements", text, "--json"];
    reshard(&other).refused("parse", "a sharding over the mesh x=3,y=2, and not over x=2,y=3");
    let flags = ["view", "--shape", "4,6", "--to-shape", "24", "--placements", text, "--json"];
    assert_eq!(reshard(&flags).json()["placements"], "R,SS(0,4)");
    let plan = ["plan", "--shape", "4,6", "--from", text, "--to", "R,R", "--json"];
    assert_eq!(reshard(&plan).json()["steps"][0]["op"], "all_gather");
}

#[test]
fn groups_lie_on_nodes_alike_or_with_a_warning() {
    let mesh = reshard(&["mesh", "ddp=8,fsdp=5", "--topology", "h100", "--json"]).json();
    let on = &mesh["nodes"][0];
    assert_eq!(on["ranks"], 8);
    let [ddp, fsdp] = [&on["groups"][0], &on["groups"][1]];
    assert_eq!((&fsdp["axes"], &fsdp["count"]), (&json!("fsdp"), &json!(8)));
    assert_eq!((&fsdp["inside"], &fsdp["straddling"], &fsdp["alike"]), (&json!(4), &json!(4), &json!(false)));
    assert_eq!(fsdp["ways"][0], json!({"members": [5], "groups": 4}));
    assert_eq!((&ddp["inside"], &ddp["straddling"]), (&json!(0), &json!(5)));
    let text = reshard(&["mesh", "ddp=8,fsdp=5", "--topology", "h100", "--groups", "fsdp"]).stdout;
    assert!(text.contains("fsdp: 8 groups, 4 in one node, 4 span nodes"), "{text}");
    assert!(
        text.contains("warning: groups of fsdp are split unequally over nodes (4 as 5, 1 as 3+2"),
        "{text}"
    );
    assert!(!text.contains("ddp: "), "{text}");

    let even = reshard(&["mesh", "dp=4,tp=8", "--topology", "h100"]).stdout;
    assert!(even.contains("tp: 4 groups, each in one node\n"), "{even}");
    assert!(even.contains("dp: 8 groups, each spans nodes\n") && !even.contains("warning"), "{even}");
    let one = reshard(&["mesh", "dp=4,tp=8", "--topology", "uniform"]).stdout;
    assert!(one.contains("one node: no group spans nodes\n"), "{one}");
    let none = reshard(&["mesh", "dp=4,tp=8", "--json"]).json();
    assert_eq!(none.get("nodes"), None);
    assert_eq!(reshard(&["mesh", "--topology", "h100"]).status, 2);
}

#[test]
fn meshes_are_in_any_order_of_ranks() {
    let mesh = reshard(&["mesh", "x=2,y=3@[0,1,3,2,4,5]", "--groups", "y", "--json"]).json();
    assert_eq!(mesh["mesh"], "x=2,y=3@[0,1,3,2,4,5]");
    assert_eq!(mesh["groups"]["members"], json!([[0, 1, 3], [2, 4, 5]]));
    assert_eq!(mesh["groups"]["pattern"], "{{0,1,3},{2,4,5}}");
    let shards = ["shards", "--mesh", "x=4@[1,2,3,0]", "--shape", "8", "--placements", "S(0)"];
    let shards = reshard(&[&shards[..], &["--json"]].concat()).json();
    assert_eq!(shards["ranks"][3], json!({"rank": 0, "coord": [3], "local_shape": [2], "dims": [[[6, 2]]]}));
    let device = "{devices=[4]0,2,3,1}";
    let listed = ["shards", "--mesh", "d=4", "--shape", "8", "--placements", device, "--json"];
    assert_eq!(reshard(&listed).json()["ranks"][1]["rank"], 2);
    assert_eq!(view("d=4", "8", "4,2", device)["mesh"], "d0=4@[0,2,3,1]");
    let plan = [
        "plan",
        "--mesh",
        "x=2,y=3@[0,1,3,2,4,5]",
        "--shape",
        "6,6",
        "--from",
        "S(0),S(1)",
        "--to",
        "S(0),R",
    ];
    let only = reshard(&[&plan[..], &["--groups", "{{0,1,3},{2,4,5}}", "--json"]].concat()).json();
    assert_eq!(only["groups"], json!(["{{0,1,3},{2,4,5}}"]));
    let refused = reshard(&[&plan[..], &["--groups", "3:1", "--json"]].concat());
    assert!(refused.status != 0, "{}", refused.stdout);
    let twice = reshard(&["mesh", "x=2@[3,3]"]);
    assert!(twice.stderr.contains("rank 3 is at the coordinates [0] and [1]"), "{}", twice.stderr);
}
