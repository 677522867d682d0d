//! Facts of CuTe: results of its compiler and its tests are reproduced, or rejected with the reason.
//!
//! The same value is the same function, mode by mode where there are equally many modes. CuTe prints a stride
//! for an extent of 1, where ours is 0, and does not merge modes in `tile_to_shape` that ours coalesces.

use std::collections::BTreeMap;

use reshard_layout::algebra::{ComposedLayout, Outer};
use reshard_layout::expression::{Value, evaluate};
use reshard_layout::{IntTuple, Layout, reference};
use serde_json::Value as Json;

const COMPILER: &str = include_str!("../data/cute_ir.jsonl");
const UNIT: &str = include_str!("../data/cute_unit.jsonl");

/// Reaching beyond the last index: CuTe lets the last mode of the outer layout continue without end.
const EXTENDED: &str = "the result has values that the first operand does not have";

/// Expressions with another answer than CuTe's.
///
/// Each has the kind of the error or nothing, the reason, and the equivalent expression.
const OTHERWISE: &[(&str, &str, &str, &str)] = &[
    ("composition(1:1, 4:1)", "out_of_domain", EXTENDED, "composition_extended(1:1, 4:1)"),
    ("composition(3:1, 4:1)", "out_of_domain", EXTENDED, "composition_extended(3:1, 4:1)"),
    ("composition(4:1, 4:2)", "out_of_domain", EXTENDED, "composition_extended(4:1, 4:2)"),
    (
        "composition((1,):(1,), (4,):(1,))",
        "out_of_domain",
        EXTENDED,
        "composition_extended((1,):(1,), (4,):(1,))",
    ),
    (
        "composition((4,3):(3,1), (24,):(1,))",
        "out_of_domain",
        EXTENDED,
        "composition_extended((4,3):(3,1), (24,):(1,))",
    ),
    (
        "composition((4,3,1):(3,1,0), (24,):(1,))",
        "out_of_domain",
        EXTENDED,
        "composition_extended((4,3,1):(3,1,0), (24,):(1,))",
    ),
    (
        "tiled_divide(((8,8),(8,8),1):((512,64),(1,8),4096), <128:1, 128:1>)",
        "out_of_domain",
        EXTENDED,
        "tiled_divide_extended(((8,8),(8,8),1):((512,64),(1,8),4096), <128:1, 128:1>)",
    ),
    (
        "flat_divide(((8,8),(8,8),1):((512,64),(1,8),4096), <128:1, 128:1>)",
        "out_of_domain",
        EXTENDED,
        "flat_divide_extended(((8,8),(8,8),1):((512,64),(1,8),4096), <128:1, 128:1>)",
    ),
    (
        "zipped_divide(((8,8),(8,8),1):((512,64),(1,8),4096), <<128:1>, <128:1>>)",
        "out_of_domain",
        EXTENDED,
        "zipped_divide_extended(((8,8),(8,8),1):((512,64),(1,8),4096), <<128:1>, <128:1>>)",
    ),
    ("logical_divide(48:1, 32:1)", "out_of_domain", EXTENDED, "logical_divide_extended(48:1, 32:1)"),
    ("logical_divide(32:1, 48:1)", "out_of_domain", EXTENDED, "logical_divide_extended(32:1, 48:1)"),
    (
        "composition((4,):(-1,), (4,):(-1,))",
        "out_of_domain",
        "the inner layout has the values 0, -1, -2, -3, and only 0 is an index",
        "composition_at((4,):(-1,), 3, (4,):(-1,))",
    ),
    (
        "composition((1,(2,4)):(0,(-1,512)), 2:-1)",
        "out_of_domain",
        "the inner layout has the values 0 and -1, and -1 is not an index",
        "composition_at((1,(2,4)):(0,(-1,512)), 1, 2:-1)",
    ),
    (
        "left_inverse((4,):(-1,))",
        "inadmissible",
        "the values are 0, -1, -2, -3, and an inverse has no negative indices",
        "4:-1",
    ),
    (
        "left_inverse(((2,4),(3,5)):((4,1),(2,8)))",
        "inadmissible",
        // CuTe's (2,2,2,5):(2,8,1,24) does not end at one of the two either: the value 43 is not in its
        // domain.
        "the indices 4 and 8 both have the value 2, so no layout can map back",
        "is_injective(((2,4),(3,5)):((4,1),(2,8)))",
    ),
    (
        "composition(composed((4,5):(1,4), 2, (4,5):(1,4)), <(2,2):(1,2)>)",
        "",
        "modes that a tiler does not name are retained, in a composition as in a division",
        "take(composition(composed((4,5):(1,4), 2, (4,5):(1,4)), <(2,2):(1,2)>), 0, 1)",
    ),
];

fn same_layout(left: &Layout, right: &Layout) -> bool {
    let modes =
        left.rank() != right.rank() || left.modes().zip(right.modes()).all(|(l, r)| l.is_equivalent(&r));
    modes && left.is_equivalent(right)
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Layout(left), Value::Layout(right)) => same_layout(left, right),
        (Value::Composed(left), Value::Composed(right)) => {
            (left.outer(), left.offset()) == (right.outer(), right.offset())
                && same_layout(left.inner(), right.inner())
        }
        (left, right) => left == right,
    }
}

fn facts(text: &str) -> impl Iterator<Item = Json> {
    text.lines().skip(1).map(|line| serde_json::from_str(line).expect("a JSON object a line"))
}

#[test]
fn what_cutes_compiler_knows_is_answered_or_refused_with_the_reason() {
    let mut wrong = Vec::new();
    let mut answered = 0;
    for fact in facts(COMPILER) {
        let text = |key: &str| fact[key].as_str().expect("a text");
        let want = evaluate(text("want")).expect("an answer of CuTe");
        let other = OTHERWISE.iter().find(|(expression, ..)| *expression == text("expr"));
        match (evaluate(text("expr")), other) {
            (Ok(value), None) if same(&value, &want) => answered += 1,
            // The equivalent expression has the value that CuTe has, or reports why there is none.
            (answer, Some((_, kind, _, instead)))
                if answer.as_ref().err().map_or("", |e| e.code()) == *kind =>
            {
                let instead = evaluate(instead).expect("an expression");
                if !(same(&instead, &want) || instead.to_string() == "no") {
                    wrong.push(format!("{}: {instead} instead, and CuTe has {want}", text("expr")));
                }
            }
            (answer, _) => wrong.push(format!("{}: {answer:?} is not {want}", text("expr"))),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(answered >= 170, "{answered}");
}

/// `f(i)` for all `i`, from the definition; a value that is not a function has no values.
fn values(value: &Value) -> Vec<i64> {
    if let Value::Layout(layout) = value {
        reference::values(layout)
    } else if let Value::Composed(composed) = value {
        composed_values(composed)
    } else {
        Vec::new()
    }
}

fn composed_values(composed: &ComposedLayout) -> Vec<i64> {
    let inner = reference::values(composed.inner()).into_iter().map(|value| composed.offset() + value);
    match composed.outer() {
        Outer::Swizzle(s) => {
            inner.map(|value| reference::swizzle(s.bits(), s.base(), s.shift(), value)).collect()
        }
        Outer::Layout(layout) => {
            let outer = reference::values(layout);
            inner.map(|value| outer[value as usize]).collect()
        }
    }
}

/// Returns the property that the answer of a unit test violates, if any.
fn broken(operation: &str, operands: &[Value], bound: Option<i64>, answer: &Value) -> Option<&'static str> {
    let a = &operands[0];
    let law = |holds: bool, name: &'static str| (!holds).then_some(name);
    match (operation, answer) {
        ("coalesce", Value::Layout(_)) => law(values(answer) == values(a), "A(i)"),
        ("composition", _) => {
            let (outer, inner) = (values(a), values(&operands[1]));
            law(inner.iter().map(|v| outer[*v as usize]).eq(values(answer)), "A(B(i))")
        }
        ("complement", Value::Layout(rest)) => {
            let Value::Layout(a) = a else { return Some("an operand") };
            let both = Layout::concat(&[a.filter(), rest.clone()]).expect("small");
            let bound = bound.unwrap_or(a.cosize());
            let once = reference::is_injective(&reference::values(&both));
            law(once && both.cosize() >= bound, "(A, A*) reaches over the bound, once")
        }
        ("right_inverse", _) => {
            let a = values(a);
            law(values(answer).iter().enumerate().all(|(i, at)| a[*at as usize] == i as i64), "A(R(i)) = i")
        }
        ("left_inverse", _) => {
            let (a, r) = (values(a), values(answer));
            law(a.iter().all(|value| a[r[*value as usize] as usize] == *value), "A(R(A(i))) = A(i)")
        }
        ("logical_divide", Value::Layout(result)) => {
            let (Value::Layout(a), Value::Layout(t)) = (a, &operands[1]) else { return Some("operands") };
            let (mut left, mut right) = (reference::values(result), reference::values(a));
            left.sort_unstable();
            right.sort_unstable();
            let tile = result.mode(0).map(|tile| reference::values(&tile)).ok();
            law(
                tile == reference::compose(a, t) && (t.tiles(a.size()) != Ok(true) || left == right),
                "A o (T, T*)",
            )
        }
        ("logical_product", Value::Layout(result)) => {
            let Value::Layout(a) = a else { return Some("an operand") };
            let once = reference::is_injective(&reference::values(a));
            let all = reference::is_injective(&reference::values(result));
            law(result.mode(0).as_ref() == Ok(a) && once == all, "(A, A* o B)")
        }
        ("nullspace", Value::Layout(result)) => {
            let a = values(a);
            law(reference::values(result).iter().all(|i| a[*i as usize] == 0), "A(N(i)) = 0")
        }
        ("domain_distribute", Value::Layout(result)) => {
            let (Value::Tuple(shape), Value::Integer(n)) = (a, &operands[1]) else { return Some("operands") };
            let ascending = reference::values(result).windows(2).all(|pair| pair[0] < pair[1]);
            let within = result.max_value() < shape.product().expect("small");
            law(ascending && within && n % result.size() == 0, "ascending, a divisor")
        }
        ("swizzle_2d", Value::Composed(composed)) => {
            let all = composed_values(composed);
            let coordinates = (0..64).map(|i| IntTuple::flat(&[i % 8, i / 8]).expect("two"));
            law(coordinates.map(|at| composed.value_at(&at)).eq(all.into_iter().map(Ok)), "S(B(i, j))")
        }
        (_, _) => Some("the kind of the answer"),
    }
}

#[test]
fn what_cutes_tests_ask_is_answered_by_the_laws_or_refused_with_the_reason() {
    let mut count = BTreeMap::<String, usize>::new();
    for fact in facts(UNIT) {
        let operation = fact["op"].as_str().expect("an operation");
        let texts: Vec<String> = fact["args"]
            .as_array()
            .expect("arguments")
            .iter()
            .map(|argument| argument.as_str().map_or_else(|| argument.to_string(), str::to_owned))
            .collect();
        let expression = match operation {
            "swizzle_2d" => texts[0].clone(),
            _ => format!("{operation}({})", texts.join(", ")),
        };
        let operands: Vec<Value> = texts.iter().map(|text| evaluate(text).expect("an operand")).collect();
        let bound = match operands.last() {
            Some(Value::Integer(bound)) => Some(*bound),
            _ => None,
        };
        match evaluate(&expression) {
            Ok(answer) => {
                assert_eq!(broken(operation, &operands, bound, &answer), None, "{expression} = {answer}");
            }
            Err(error) => {
                let other = OTHERWISE.iter().find(|(listed, ..)| *listed == expression);
                let Some((_, kind, reason, instead)) = other else { panic!("{expression}: {error}") };
                assert_eq!(error.code(), *kind, "{expression}: {reason}");
                assert!(evaluate(instead).is_ok(), "{instead}");
            }
        }
        *count.entry(operation.to_owned()).or_default() += 1;
    }
    assert_eq!((count.len(), count.values().sum::<usize>()), (10, 174));
}
