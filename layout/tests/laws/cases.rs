//! Test cases with brute-force answers: the values of every layout, and the kind of every error.

use std::collections::BTreeMap;

use reshard_layout::expression::{Value, evaluate};
use reshard_layout::{Error, Layout};
use serde_json::Value as Json;

const CASES: &str = include_str!("../data/layout_cases.jsonl");

/// FNV-1a over the little-endian bytes of all values.
fn fnv(layout: &Layout) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in layout.values().flat_map(i64::to_le_bytes) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Returns the mismatch of the answer, if any.
fn check(case: &Json) -> Result<(), String> {
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let answer = evaluate(text("expr"));
    let layout = match (answer, text("expect")) {
        (Ok(Value::Layout(layout)), "layout") => layout,
        (Err(error), expected) if error.code() == expected => return Ok(()),
        (answer, expected) => return Err(format!("expected {expected}, got {answer:?}")),
    };
    let law = |holds: bool, law: &str| if holds { Ok(()) } else { Err(format!("{layout} breaks {law}")) };
    let expected: Layout = text("layout").parse().map_err(|error: Error| error.to_string())?;
    let operand = || text("A").parse::<Layout>().map_err(|error| error.to_string());
    match text("op") {
        "right_inverse" => {
            let a = operand()?;
            law((0..layout.size()).all(|i| layout.at(i).and_then(|j| a.at(j)) == Ok(i)), "A(R(i)) = i")?;
            law(layout.size() >= expected.size(), "the size")
        }
        "left_inverse" if text("law") == "R(A(i))==i" => {
            let a = operand()?;
            law(a.values().enumerate().all(|(i, value)| layout.at(value) == Ok(i as i64)), "R(A(i)) = i")
        }
        "left_inverse" => {
            let a = operand()?;
            law(
                a.values().all(|value| layout.at(value).and_then(|i| a.at(i)) == Ok(value)),
                "A(R(A(i))) = A(i)",
            )
        }
        _ => {
            law(Some(layout.size()) == case["size"].as_i64(), "the size")?;
            law(fnv(&layout) == text("fnv64"), "the values")
        }
    }
}

#[test]
fn every_question_is_answered_right() {
    let mut wrong = Vec::new();
    let mut count = BTreeMap::<String, usize>::new();
    for line in CASES.lines().skip(1) {
        let case: Json = serde_json::from_str(line).expect("a JSON object a line");
        *count.entry(case["op"].to_string()).or_default() += 1;
        if let Err(message) = check(&case) {
            wrong.push(format!("{}: {message}", case["expr"]));
        }
    }
    assert_eq!(count.values().sum::<usize>(), 1601);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
