//! `reshard layout`, as the contract of the command line has it.

mod program;

use program::{reshard, reshard_with};
use serde_json::{Value, json};

#[test]
fn an_expression_is_answered_as_text_and_as_json() {
    let expression = "composition((6,2):(8,2), (4,3):(3,1))";
    assert_eq!(reshard(&["layout", expression]).stdout, "((2,2),3):((24,2),8)\n");
    assert_eq!(
        reshard(&["layout", expression, "--json"]).json(),
        json!({"layout": "((2,2),3):((24,2),8)", "size": 12})
    );
    assert_eq!(reshard(&["layout", "size((6,2):(8,2))", "--json"]).json(), json!({"value": 12}));
    assert_eq!(reshard(&["layout", "(4,2):(2,1)(5)", "--json"]).json(), json!({"value": 3}));
}

#[test]
fn what_is_not_a_layout_is_refused_with_its_kind() {
    for (expression, kind) in [
        ("composition((12,2):(1,100), (2,2,2):(3,4,6))", "not_representable"),
        ("composition((4,2):(1,4), 9:1)", "out_of_domain"),
        ("complement((2,2):(1,1), 8)", "inadmissible"),
        ("(4,2):(2,1", "parse"),
        ("9223372036854775807:9223372036854775807", "overflow"),
    ] {
        let outcome = reshard(&["layout", expression, "--json"]);
        assert_eq!(outcome.status, 2, "{expression}: {outcome:?}");
        let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(object["error"]["kind"], kind, "{expression}");
        assert!(!outcome.stderr.is_empty(), "{expression}");
    }
}

#[test]
fn a_batch_answers_every_line_in_order() {
    let lines = ["coalesce((2,3):(1,2))", "nonsense(", "", "cosize(4:2)"];
    let outcome = reshard_with(&["layout", "--batch"], &lines.join("\n"));
    assert_eq!(outcome.status, 0);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 4, "{outcome:?}");
    assert_eq!(answers[0], json!({"layout": "6:1", "size": 6}));
    assert_eq!(answers[1]["error"]["kind"], "parse");
    assert_eq!(answers[3], json!({"value": 7}));
}
