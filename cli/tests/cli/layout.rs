//! `reshard layout`, as the contract of the command line has it.

use crate::program::{reshard, reshard_with};
use serde_json::{Value, json};

#[test]
fn an_expression_is_answered_as_text_and_as_json() {
    let expression = "composition((6,2):(8,2), (4,3):(3,1))";
    assert_eq!(reshard(&["layout", expression]).stdout, "((2,2),3):((24,2),8)\n");
    assert_eq!(
        reshard(&["layout", expression, "--json"]).json(),
        json!({"version": 2, "layout": "((2,2),3):((24,2),8)", "size": 12})
    );
    assert_eq!(
        reshard(&["layout", "size((6,2):(8,2))", "--json"]).json(),
        json!({"version": 2, "value": 12})
    );
    assert_eq!(reshard(&["layout", "(4,2):(2,1)(5)", "--json"]).json(), json!({"version": 2, "value": 3}));
}

#[test]
fn steps_along_axes_and_pairs_are_printed_as_layouts_are() {
    for (expression, text, object) in [
        ("coalesce((4,2):(1@tp,4@tp))", "8:1@tp", json!({"layout": "8:1@tp", "size": 8})),
        ("(4,2):(1@tp,8)", "(4,2):(1@tp,8)", json!({"layout": "(4,2):(1@tp,8)", "size": 8})),
        ("mode((4,2):(1@tp,8), 1)", "2:8", json!({"layout": "2:8", "size": 2})),
        ("(4,2):(1@tp,8)(7)", "8+3@tp", json!({"value": "8+3@tp"})),
        ("(4,2):(1@tp,8)(4)", "8", json!({"value": 8})),
        ("stride((4,2):(1@tp,8))", "(1@tp,8)", json!({"tuple": "(1@tp,8)"})),
        (
            "zip(12:1, (3,4):(4,1))",
            "(3,4):((1,4),(3,1))",
            json!({"layout": "(3,4):((1,4),(3,1))", "size": 12}),
        ),
        ("(3,4):((1,4),(3,1@dp))(5)", "(5,8+1@dp)", json!({"tuple": "(5,8+1@dp)"})),
        ("(3,4):((1,4),(3,1))(5)", "(5,9)", json!({"tuple": "(5,9)"})),
    ] {
        assert_eq!(reshard(&["layout", expression]).stdout, format!("{text}\n"), "{expression}");
        // A batch answers the same without the version.
        let batch = reshard_with(&["layout", "--batch"], expression).stdout;
        assert_eq!(serde_json::from_str::<Value>(&batch).unwrap(), object, "{expression}");
        let mut versioned = object;
        versioned["version"] = json!(2);
        assert_eq!(reshard(&["layout", expression, "--json"]).json(), versioned, "{expression}");
    }
    reshard(&["layout", "complement((4,2):(1@tp,8), 24)", "--json"])
        .refused("inadmissible", "steps along tp");
    reshard(&["layout", "cosize(zip(4:1, 4:2))", "--json"]).refused("inadmissible", "4:(1,2)");
    reshard(&["layout", "zip((4,6):(6,1), (6,4):(4,1))", "--json"]).error(2, "not_nesting", "do not nest");
    reshard(&["layout", "--draw", "(4,2):(1@tp,8)", "--json"]).refused("inadmissible", "strides along tp");
    reshard(&["layout", "--draw", "zip(4:1, 4:2)", "--json"]).refused("inadmissible", "a layout of pairs");
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

#[test]
fn a_layout_is_drawn_as_a_grid_and_as_a_picture() {
    let grid = "((2,2),2):((1,4),2)
            0   1
          +---+---+
  0 (0,0) | 0 | 2 |
          +---+---+
  1 (1,0) | 1 | 3 |
          +---+---+
  2 (0,1) | 4 | 6 |
          +---+---+
  3 (1,1) | 5 | 7 |
          +---+---+
";
    assert_eq!(reshard(&["layout", "--draw", "((2,2),2):((1,4),2)"]).stdout, grid);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.svg");
    let outcome = reshard(&["layout", "--svg", crate::program::text(&file), "((2,2),2):((1,4),2)"]);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "((2,2),2):((1,4),2)\n"));
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.starts_with("<svg ") && picture.matches("<rect ").count() == 9);
    reshard(&["layout", "--draw", "size(4:1)", "--json"]).refused("inadmissible", "cannot draw 4");
    reshard(&["layout", "--draw", "70000:1", "--json"]).refused("too_large", "more than 65536 cells");
    reshard(&["layout", "--svg", "/nonexistent/x.svg", "4:1", "--json"]).error(1, "io", "/nonexistent/x.svg");
}

#[test]
fn a_batch_survives_hostile_lines() {
    let deep = "(".repeat(100_000);
    let calls = "coalesce(".repeat(100_000);
    let long = "1".repeat((16 << 20) + 1);
    let lines = [deep.as_str(), calls.as_str(), long.as_str(), "-9223372036854775808:1", "é", "4:1"];
    let outcome = reshard_with(&["layout", "--batch"], &lines.join("\n"));
    assert_eq!(outcome.status, 0);
    let kinds: Vec<String> = outcome
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["kind"].to_string())
        .collect();
    let expected = ["\"too_deep\"", "\"too_deep\"", "\"too_large\"", "\"bad_extent\"", "\"parse\"", "null"];
    assert_eq!(kinds, expected);
}
