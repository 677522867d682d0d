//! `reshard rule`: the strategies of one axis, by rule and by name, its errors, and its batch.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

fn answer(flags: &[&str]) -> Value {
    reshard(&[&["rule"], flags, &["--json"]].concat()).json()
}

fn texts(answer: &Value) -> Vec<&str> {
    answer["strategies"].as_array().unwrap().iter().map(|s| s["text"].as_str().unwrap()).collect()
}

#[test]
fn a_rule_has_strategies() {
    let outcome = reshard(&["rule", "mk,kn->mn"]);
    assert_eq!(outcome.status, 0);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[..5], ["mk,kn->mn", "S(m),R -> S(m)", "R,S(n) -> S(n)", "S(k),S(k) -> P", "R,R -> R"]);
    assert!(lines.contains(&"P,R -> P") && lines.contains(&"R,P -> P"));
    let mm = answer(&["mm"]);
    assert_eq!((&mm["op"], &mm["rule"]), (&json!("mm"), &json!("mk,kn->mn")));
    assert_eq!(mm["strategies"][2], json!({"in": ["S(k)", "S(k)"], "out": ["P"], "text": "S(k),S(k) -> P"}));
    assert_eq!(texts(&mm), lines[1..]);
    assert_eq!(mm.get("shapes"), None);
}

#[test]
fn a_batched_product_has_exactly_these() {
    let rows = answer(&["abi,aoi->abo"]);
    let rows: Vec<&str> = texts(&rows).into_iter().filter(|row| !row.contains("avg")).collect();
    let mut expected = vec![
        "S(a),S(a) -> S(a)",
        "S(b),R -> S(b)",
        "R,S(o) -> S(o)",
        "S(i),S(i) -> P",
        "R,R -> R",
        "P,R -> P",
        "R,P -> P",
    ];
    let mut rows = rows;
    rows.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rows, expected);
}

#[test]
fn shapes_turn_factors_into_dims() {
    let mm = answer(&["mm", "--shapes", "64,32;32,16"]);
    assert_eq!(texts(&mm)[..3], ["S(m0),R -> S(m0)", "R,S(n1) -> S(n1)", "S(k1),S(k0) -> P"]);
    assert_eq!(mm["shapes"], json!([[64, 32], [32, 16]]));
    // A list of strategies does not determine the shapes of outputs.
    let ported = ["?0,R -> ?0; R,?1 -> ?1", "--shapes", "8,4;4,2"];
    reshard(&[&["rule"], &ported[..]].concat()).refused("rule", "give the outputs'");
    let ported = answer(&[&ported[..], &["--out-shapes", "8,2"]].concat());
    assert_eq!(texts(&ported), ["?0,R -> ?0", "R,?1 -> ?1", "R,R -> R"]);
    assert_eq!(answer(&["add", "--shapes", "8,4;"])["shapes"], json!([[8, 4], []]));
}

#[test]
fn strategies_that_need_their_region_say_so() {
    let needing = |flags: &[&str]| -> Vec<String> {
        let answer = answer(flags);
        let rows = answer["strategies"].as_array().unwrap().iter().filter(|row| row["region"] == true);
        rows.map(|row| row["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(needing(&["embedding"]), ["S(v),R -> P"]);
    assert_eq!(needing(&["embedding", "--shapes", "8,4;6"]), ["S(v0),R -> P"]);
    assert_eq!(needing(&["dropout"]), ["S(...) -> S(...)"]);
    assert_eq!(needing(&["tril.out"]), ["S(i),S(i) -> S(i)", "S(j),S(j) -> S(j)"]);
    let shapes = "2,4,8,16;2,4,8,16;2,4,8,16";
    assert_eq!(
        needing(&["scaled_dot_product_attention(causal=true)", "--shapes", shapes]),
        ["S(q2),R,R -> S(q2)"]
    );
    assert!(needing(&["scaled_dot_product_attention", "--shapes", shapes]).is_empty());
    let list = ["?0 -> ?0 region", "--shapes", "8", "--out-shapes", "8"];
    assert_eq!(needing(&list), ["?0 -> ?0"]);
    // The key is left out if the op does not need its region.
    assert_eq!(answer(&["embedding"])["strategies"][0].get("region"), None);
    let text = reshard(&["rule", "embedding"]).stdout;
    assert!(text.starts_with("vd,...->...d {v: region, "), "{text}");
    let marked: Vec<&str> = text.lines().filter(|line| line.ends_with("   (needs its region)")).collect();
    assert_eq!(marked, ["S(v),R -> P   (needs its region)"]);
}

#[test]
fn families_are_asked_about_small_shapes() {
    let softmax = answer(&["softmax(dim=1)"]);
    assert_eq!((&softmax["rule"], &softmax["shapes"]), (&json!("ab->ab {b: replicate}"), &json!([[8, 8]])));
    assert_eq!(texts(&softmax), ["S(a) -> S(a)", "R -> R"]);
    // The first number of dims that has dim 3.
    assert_eq!(answer(&["softmax(dim=3)"])["shapes"], json!([[8, 8, 8, 8]]));
    // The shape of the first input has enough dims to be useful.
    assert_eq!(answer(&["layer_norm"])["shapes"], json!([[8, 8], [8]]));
    assert!(texts(&answer(&["cat"])).contains(&"S(b),S(b) -> S(b)"));
    assert_eq!(answer(&["check_and_unscale"])["shapes"], json!([[8, 8], [], []]));
    let given = answer(&["softmax(dim=1)", "--shapes", "4,6,2"]);
    assert_eq!(texts(&given), ["S(a0) -> S(a0)", "S(c2) -> S(c2)", "R -> R"]);
    reshard(&["rule", "softmax(dim=99)"])
        .refused("rule", "dim=99 is out of range for a tensor with 2 dims); give its arguments, or");
    reshard(&["rule", "view", "--json"])
        .refused("rule", "view: needs shape, a list of whole numbers of at least -1: write view(shape=");
    let view = answer(&["view(shape=[2,4])", "--shapes", "8"]);
    assert_eq!((&view["rule"], texts(&view).len()), (&Value::Null, 0));
}

#[test]
fn every_op_of_the_table_has_a_rule() {
    let all = answer(&[]);
    let ops = all["ops"].as_array().unwrap();
    let dim = json!([{"name": "dim", "type": "dim", "default": "-1", "text": "dim: dim = -1"}]);
    assert_eq!(answer(&["softmax"])["arguments"], dim);
    assert!(
        reshard(&["rule", "softmax"]).stdout.starts_with("softmax(dim: dim = -1)\nab->ab {b: replicate}  ")
    );
    assert!(ops.iter().any(|op| op["op"] == "mm" && op["rule"] == "mk,kn->mn"));
    assert!(ops.iter().all(|op| op["dtypes"].is_string()));
    assert_eq!(answer(&["embedding"])["dtypes"], "any, integer -> same(0)");
    assert_eq!(answer(&["mk,kn->mn"])["dtypes"], Value::Null);
    assert!(reshard(&["rule", "embedding"]).stdout.ends_with("\nelement types: any, integer -> same(0)\n"));
    assert!(ops.iter().any(|op| op["op"] == "softmax" && op["arguments"] == dim));
    let lines: Vec<String> = ops.iter().map(|op| json!({"op": op["op"]}).to_string()).collect();
    let answers = reshard_with(&["rule", "--batch"], &lines.join("\n")).stdout;
    let mut asked = 0;
    for (line, op) in answers.lines().zip(ops) {
        let answer: Value = serde_json::from_str(line).unwrap();
        // Families may need an argument, which the error names, or sizes that differ.
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        let needs =
            said.contains("needs ") || said.ends_with("give its arguments, or the shapes of its inputs");
        assert!(answer["strategies"].is_array() || (needs && op["rule"].is_null()), "{op}: {line}");
        asked += usize::from(answer["strategies"].is_array());
    }
    assert!(asked * 4 > ops.len() * 3, "{asked} of {}", ops.len());
    assert_eq!(answers.lines().count(), ops.len());
}

#[test]
fn errors_say_what_would_do() {
    reshard(&["rule", "sofmax", "--json"]).refused("rule", "unknown op sofmax; did you mean softmax?");
    reshard(&["rule", "softmax(dimm=1)", "--json"])
        .refused("rule", "softmax has no argument dimm; it takes dim");
    reshard(&["rule", "mk,kn->mn {z: max}", "--json"])
        .refused("parse", "a letter of the equation at byte 11");
    reshard(&["rule", "softmax(dim=1", "--json"]).refused("parse", "cannot read the call");
    reshard(&["rule", "mm", "--out-shapes", "8,8"]).refused("usage", "shapes");
    reshard(&["rule", "mm", "--batch"]).refused("usage", "--batch");
    reshard(&["rule", "mm", "--shapes", "4,x;4,4"]).refused("parse", "`x` is not a size");
}

#[test]
fn batches_answer_every_line() {
    let lines = r#"{"op":"mm"}
{"op":"mm","shapes":[[4,4],[4,4]]}
{"op":"nothing like it at all"}
{"shapes":[[4,4]]}
{"op":"mm","shape":[4,4]}
not json
{"op":"?0 -> ?0","shapes":"8","out_shapes":"8"}
"#;
    let outcome = reshard_with(&["rule", "--batch"], lines);
    assert_eq!(outcome.status, 0);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 7);
    let kinds: Vec<&Value> = answers.iter().map(|answer| &answer["error"]["kind"]).collect();
    assert_eq!(
        kinds,
        [
            &Value::Null,
            &Value::Null,
            &json!("parse"),
            &json!("usage"),
            &json!("parse"),
            &json!("parse"),
            &Value::Null
        ]
    );
    assert_eq!(texts(&answers[6]), ["?0 -> ?0", "R -> R"]);
}
