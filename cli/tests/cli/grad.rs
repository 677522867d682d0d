//! `reshard grad`: rows forward and backward, the formula, its errors, and its batch.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

fn answer(flags: &[&str]) -> Value {
    reshard(&[&["grad"], flags, &["--json"]].concat()).json()
}

#[test]
fn a_product_has_rows_and_a_formula() {
    let mm = answer(&["mm"]);
    let rows = mm["rows"].as_array().unwrap();
    let of = |forward: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["forward"] == forward).map(|row| &row["backward"]).collect()
    };
    assert_eq!(of("S(m),R -> S(m)"), [&json!("S(m) -> S(m),P")]);
    assert_eq!(of("R,S(n) -> S(n)"), [&json!("S(n) -> P,S(n)")]);
    assert_eq!(of("S(k),S(k) -> P"), [&json!("R -> S(k),S(k)")]);
    assert_eq!(of("R,R -> R"), [&json!("P -> P,P"), &json!("R -> R,R")]);
    assert_eq!(of("P(avg),R -> P(avg)"), [&Value::Null]);
    assert_eq!(mm["gradient"], json!(["dx0 = mn,kn->mk(dy,x1)", "dx1 = mk,mn->kn(x0,dy)"]));
    let bound = answer(&["mm", "--shapes", "64,32;32,16"]);
    assert_eq!(bound["rows"][0], json!({"forward": "S(m0),R -> S(m0)", "backward": "S(m0) -> S(m0),P"}));
    assert_eq!(bound["shapes"], json!([[64, 32], [32, 16]]));
}

#[test]
fn what_has_no_gradient_says_so() {
    assert_eq!(answer(&["argmax"])["gradient"], json!([]));
    assert_eq!(answer(&["cholesky"])["gradient"], Value::Null);
    let text = reshard(&["grad", "cholesky"]).stdout;
    assert!(text.contains("no gradient formula"), "{text}");
    let view = answer(&["reshape(shape=[64])"]);
    assert_eq!((&view["rows"], &view["gradient"]), (&json!([]), &json!(["dx = reshape(dy,shape=[8,8])"])));
    reshard(&["grad", "sofmax", "--json"]).refused("rule", "did you mean softmax?");
    reshard(&["grad", "--json"]).refused("usage", "`op`");
    reshard(&["grad", "pow_scalar", "--json"]).refused("rule", "its gradient depends on exponent");
}

#[test]
fn a_batch_answers_every_line() {
    let lines =
        "{\"op\":\"silu\",\"shapes\":[[8,4]]}\n{\"op\":\"mm\",\"shapes\":[[8,4]]}\n{\"op\":\"max\"}\n";
    let outcome = reshard_with(&["grad", "--batch"], lines);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["gradient"][0], "a = sigmoid(x)");
    assert_eq!(answers[1]["error"]["kind"], "rule");
    assert!(answers[2]["gradient"].is_array());
}
