//! The typings of spmd_types' own tests: a program of each has the same types, and its errors name types.
//!
//! A type is found by the accepted declarations: `I` may leave a region as `I` and as `R`, `V` as a shard and as `P`,
//! `R` and `P` only as such. So each typing is several programs, of which exactly these must be accepted.

use std::fmt::Write as _;

use crate::program::reshard_with;
use serde_json::{Value, json};

const FACTS: &str = include_str!("../data/spmd_typing.jsonl");

/// A program of a typing, and the kinds of errors that reject it; without any it is accepted.
struct Case {
    text: String,
    kinds: &'static [&'static str],
    /// The shapes of the outputs, if it is accepted.
    shapes: Vec<Vec<usize>>,
}

/// A declared type that is not that of the value.
const OUT: &[&str] = &["out_spec_mismatch"];
/// A call of a region whose operands have types that do not fit.
const CALL: &[&str] = &["program"];
/// A statement outside of regions: types that do not fit without communication, and shapes of no call.
const STATEMENT: &[&str] = &["needs_redistribute", "needs_gradient_redistribute", "rule"];

/// A value of a fact: types by mesh axis, and the shape on one rank.
struct Typed {
    types: Vec<(String, String)>,
    shape: Vec<usize>,
}

impl Typed {
    fn of(value: &Value) -> Typed {
        let types = value["types"].as_object().unwrap();
        Typed {
            types: types.iter().map(|(axis, is)| (axis.clone(), is.as_str().unwrap().to_owned())).collect(),
            shape: value["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect(),
        }
    }

    fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The shape of the whole tensor; a varying scalar is an element of a list.
    fn whole(&self, tp: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if shape.is_empty() && self.types.iter().any(|(_, is)| is == "V") {
            shape.push(1);
        }
        for (axis, is) in &self.types {
            if let Some(dim) = sharded(is) {
                shape[dim] *= if axis == "tp" { tp } else { 2 };
            }
        }
        shape
    }
}

/// The dim that a type shards; a varying value is written as a shard of its first dim.
fn sharded(is: &str) -> Option<usize> {
    if is == "V" { Some(0) } else { is.strip_prefix("S(")?.strip_suffix(')')?.parse().ok() }
}

/// The declaration of a type where a value enters or leaves a region.
fn written(is: &str) -> String {
    sharded(is).map_or_else(|| is.to_owned(), |dim| format!("S({dim})"))
}

fn list(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The types of all axes but one.
fn with(types: &[(String, String)], axis: &str, claim: &str) -> String {
    let one = |(known, is): &(String, String)| if known == axis { claim.to_owned() } else { written(is) };
    types.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The ranks of tp: of most tests 3; of the others the shapes of a collective show it.
fn ranks(fact: &Value) -> usize {
    let input = Typed::of(&fact["in"][0]);
    let numel = |value: &Value| Typed::of(value).numel();
    match fact["op"].as_str().unwrap() {
        "all_gather" => numel(&fact["out"][0]) / input.numel(),
        "reduce_scatter" => input.numel() / numel(&fact["out"][0]),
        _ => 3,
    }
}

/// The statement of a collective or of a conversion; `None` if it has no counterpart.
fn exchange(fact: &Value, out: &Typed) -> Option<Vec<String>> {
    let word = |key: &str| fact[key].as_str().unwrap_or_default();
    let (src, dst) = (word("src"), word("dst"));
    Some(match (word("op"), src, dst) {
        ("all_gather", "V", _) => {
            vec![format!("z: {dst} = all_gather(x0, stack={})", fact["gather_dim"].as_u64().unwrap_or(0))]
        }
        ("all_gather" | "redistribute", _, "R" | "I") if sharded(src).is_some() => {
            vec![format!("z: {dst} = all_gather(x0, dim={})", sharded(src)?)]
        }
        ("reduce_scatter", _, "V") => {
            vec![
                "s = reduce_scatter(x0, dim=0)".to_owned(),
                format!("z = reshape(s, shape=[{}])", list(&out.shape)),
            ]
        }
        ("reduce_scatter", ..) => vec![format!("z = reduce_scatter(x0, dim={})", sharded(dst)?)],
        // Parts other than those of a dim, and values that would represent another tensor.
        ("all_to_all", "V", "V") | ("reinterpret", "R" | "I", "V" | "P") => return None,
        ("all_to_all", ..) => {
            vec![format!("z = all_to_all(x0, split={}, concat={})", sharded(dst)?, sharded(src)?)]
        }
        ("all_reduce", ..) => vec![format!("z: {dst} = all_reduce(x0)")],
        ("invariant_to_replicate", ..) => vec!["z: R = x0".to_owned()],
        ("reinterpret" | "convert" | "redistribute", ..) => vec![format!("z: {dst} = x0")],
        (op, ..) => panic!("{op} is not a collective"),
    })
}

/// The call of an op.
fn call(fact: &Value, operands: usize, shape: &[usize]) -> String {
    let op = fact["op"].as_str().unwrap();
    let first = &fact["attributes"][0];
    let arguments = match op {
        "add" | "sub" | "mul" | "div" if operands == 1 => return format!("{op}_scalar(x0, value={first})"),
        "reshape" => format!(", shape=[{}]", list(shape)),
        "unsqueeze" => format!(", dim={first}"),
        "split" => format!(", size={first}"),
        _ => String::new(),
    };
    let names: Vec<String> = (0..operands).map(|n| format!("x{n}")).collect();
    format!("{op}({}{arguments})", names.join(", "))
}

/// The programs of a typing inside of a region over these axes; `None` if it has no counterpart.
fn regional(fact: &Value, is_exchange: bool) -> Option<Vec<Case>> {
    let tp = ranks(fact);
    let inputs: Vec<Typed> = fact["in"].as_array().unwrap().iter().map(Typed::of).collect();
    let outputs: Vec<Typed> =
        fact["out"].as_array().map_or_else(Vec::new, |all| all.iter().map(Typed::of).collect());
    let over = |axis: &str| fact["mode"] == "local" || axis == "tp";
    let inside = |types: &[(String, String)]| -> Vec<(String, String)> {
        types.iter().filter(|(axis, _)| over(axis)).cloned().collect()
    };
    let axes: Vec<&str> = inputs[0].types.iter().map(|(axis, _)| axis.as_str()).collect();
    let sizes: Vec<String> =
        axes.iter().map(|axis| format!("{axis}={}", if *axis == "tp" { tp } else { 2 })).collect();
    let mut text = format!("mesh {}\n", sizes.join(","));
    for (n, input) in inputs.iter().enumerate() {
        let whole = input.whole(tp);
        writeln!(text, "x{n}: f32[{}] {}", list(&whole), with(&input.types, "", "")).unwrap();
    }
    let own: Vec<&str> = axes.iter().copied().filter(|axis| over(axis)).collect();
    writeln!(text, "local {}", own.join(",")).unwrap();
    for (n, input) in inputs.iter().enumerate() {
        let is = with(&inside(&input.types), "", "");
        if input.shape.is_empty() && input.whole(tp).len() == 1 {
            writeln!(text, "in v{n}: {is} = x{n}\nx{n} = reshape(v{n}, shape=[])").unwrap();
        } else {
            writeln!(text, "in x{n}: {is}").unwrap();
        }
    }
    let names = ["z", "z1"];
    let results = names[..outputs.len().max(1)].join(", ");
    if is_exchange {
        text += &(exchange(fact, &outputs[0])?.join("\n") + "\n");
    } else {
        let shape = outputs.first().map_or(&[][..], |out| &out.shape);
        writeln!(text, "{results} = {}", call(fact, inputs.len(), shape)).unwrap();
    }
    if outputs.is_empty() {
        return Some(vec![Case { text: text + "end\n", kinds: CALL, shapes: Vec::new() }]);
    }
    for (out, name) in outputs.iter().zip(names) {
        if out.shape.is_empty() {
            writeln!(text, "{name}.1 = reshape({name}, shape=[1])").unwrap();
        }
    }
    let said = |at: Option<(usize, &str, &str)>| -> String {
        let one = |(n, out): (usize, &Typed)| {
            let (axis, claim) =
                at.filter(|(of, ..)| *of == n).map_or(("", ""), |(_, axis, claim)| (axis, claim));
            let is = with(&inside(&out.types), axis, claim);
            format!("out y{n}: {is} = {}{}\n", names[n], if out.shape.is_empty() { ".1" } else { "" })
        };
        outputs.iter().enumerate().map(one).collect::<String>()
    };
    let shapes: Vec<Vec<usize>> = outputs
        .iter()
        .map(|out| {
            let whole = out.whole(tp);
            if whole.is_empty() { vec![1] } else { whole }
        })
        .collect();
    let mut cases = vec![Case { text: format!("{text}{}end\n", said(None)), kinds: &[], shapes }];
    for (n, out) in outputs.iter().enumerate() {
        for (axis, is) in inside(&out.types) {
            for claim in ["R", "I", "P", "S(0)"] {
                let is_held = match is.as_str() {
                    "I" => ["I", "R"].contains(&claim),
                    "R" | "P" => is == claim,
                    _ => ["S(0)", "P"].contains(&claim),
                };
                cases.push(Case {
                    text: format!("{text}{}end\n", said(Some((n, &axis, claim)))),
                    kinds: if is_held { &[] } else { OUT },
                    shapes: Vec::new(),
                });
            }
        }
    }
    Some(cases)
}

/// The programs of a typing of whole tensors.
fn global(fact: &Value) -> Vec<Case> {
    let tp = ranks(fact);
    let inputs: Vec<Typed> = fact["in"].as_array().unwrap().iter().map(Typed::of).collect();
    let outputs: Vec<Typed> =
        fact["out"].as_array().map_or_else(Vec::new, |all| all.iter().map(Typed::of).collect());
    let sizes =
        inputs[0].types.iter().map(|(axis, _)| format!("{axis}={}", if axis == "tp" { tp } else { 2 }));
    let mut text = format!("mesh {}\n", sizes.collect::<Vec<_>>().join(","));
    for (n, input) in inputs.iter().enumerate() {
        writeln!(text, "x{n}: f32[{}] {}", list(&input.whole(tp)), with(&input.types, "", "")).unwrap();
    }
    let shapes: Vec<Vec<usize>> = outputs.iter().map(|out| out.whole(tp)).collect();
    let call = call(fact, inputs.len(), shapes.first().map_or(&[][..], Vec::as_slice));
    if outputs.is_empty() {
        return vec![Case { text: format!("{text}y0 = {call}\n"), kinds: STATEMENT, shapes }];
    }
    let said = |at: Option<(usize, &str, &str)>| -> String {
        let one = |(n, out): (usize, &Typed)| {
            let (axis, claim) =
                at.filter(|(of, ..)| *of == n).map_or(("", ""), |(_, axis, claim)| (axis, claim));
            format!("y{n}: {}", with(&out.types, axis, claim))
        };
        format!("{text}{} = {call}\n", outputs.iter().enumerate().map(one).collect::<Vec<_>>().join("; "))
    };
    let mut cases = vec![Case { text: said(None), kinds: &[], shapes }];
    for (n, out) in outputs.iter().enumerate() {
        for (axis, is) in &out.types {
            let shards = (0..out.shape.len()).map(|dim| format!("S({dim})"));
            // Indices have no gradient, by which `R` and `I` differ.
            let is_index = fact["op"] == "sort" && n == 1;
            let same = |claim: &str| claim == is || is_index && claim == "I" && is == "R";
            for claim in
                ["R", "I", "P"].into_iter().map(str::to_owned).chain(shards).filter(|claim| !same(claim))
            {
                cases.push(Case {
                    text: said(Some((n, axis, &claim))),
                    kinds: STATEMENT,
                    shapes: Vec::new(),
                });
            }
        }
    }
    cases
}

/// The programs of a typing; `None` if it has no counterpart.
fn cases(fact: &Value) -> Option<Vec<Case>> {
    let is_exchange = fact["axis"].is_string();
    if is_exchange || fact["mode"] == "local" { regional(fact, is_exchange) } else { Some(global(fact)) }
}

/// Compares the answer to a program with the typing; returns the difference.
fn difference(case: &Case, answer: &Value) -> Option<String> {
    let differs = |what: String| Some(format!("{}{what}\n", case.text));
    let Some(error) = answer.get("error") else {
        if !case.kinds.is_empty() {
            return differs("is accepted".to_owned());
        }
        let shape = |n: usize| {
            let mut values = answer["values"].as_array().unwrap().iter();
            values.find(|value| value["name"] == format!("y{n}")).map(|value| value["shape"].clone())
        };
        let wrong = case.shapes.iter().enumerate().find(|(n, expected)| shape(*n) != Some(json!(expected)));
        return wrong
            .and_then(|(n, expected)| differs(format!("y{n} is {:?} and not {expected:?}", shape(n))));
    };
    let kind = error["kind"].as_str().unwrap();
    if case.kinds.contains(&kind) {
        return None;
    }
    differs(format!("is {kind} and not one of {:?}: {}", case.kinds, error["message"]))
}

/// Of 100 typings 95 have a counterpart: all of them have the same types, and the same are rejected.
#[test]
fn typings_of_spmd_types_are_ours() {
    let facts: Vec<Value> = FACTS.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(facts.len(), 100);
    let compared: Vec<(&Value, Vec<Case>)> =
        facts.iter().filter_map(|fact| Some((fact, cases(fact)?))).collect();
    let requests: Vec<String> = (compared.iter().flat_map(|(_, cases)| cases).enumerate())
        // Both words for the same thing.
        .map(|(n, case)| json!({"program": case.text, "explicit": if n % 2 == 0 { json!("none") } else { json!(true) }}))
        .map(|request| request.to_string())
        .collect();
    let outcome = reshard_with(&["check", "--batch"], &requests.join("\n"));
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), requests.len());
    let mut answers = answers.iter();
    let mut different = Vec::new();
    for (fact, cases) in &compared {
        // Not lazy: every case takes its answer.
        let wrong: Vec<String> = cases
            .iter()
            .zip(answers.by_ref().take(cases.len()))
            .filter_map(|(case, answer)| difference(case, answer))
            .collect();
        if let Some(first) = wrong.first() {
            different.push(format!("{}: {first}", fact["test"]));
        }
    }
    println!("{} of 100 typings compared, by {} programs", compared.len(), requests.len());
    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), compared.len(), different.join("\n"));
    assert_eq!(compared.len(), 95);
}
