//! Element types of the outputs of ops.

use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, OpTable};
use reshard_program::Graph;

use crate::elaborated;

const TYPES: [&str; 8] = ["bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"];

/// Returns the element type of `v`, the result of a call with operands of these types.
fn made(call: &str, operands: &[(&str, &str)]) -> String {
    let inputs: Vec<String> = operands.iter().map(|(name, dtype)| format!("{name}: {dtype}[4] R")).collect();
    let text = format!("mesh dp=2\n{}\nv = {call}\n", inputs.join("\n"));
    let program = elaborated(&text);
    // Printing and parsing gives the same program.
    let printed = program.to_string();
    assert_eq!(elaborated(&printed).to_string(), printed);
    let made = program.value("v").map(|v| program.get(v).dtype.to_string());
    made.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn where_has_the_elements_that_it_chooses_from() {
    for dtype in TYPES {
        let operands = [("c", "bool"), ("a", dtype), ("b", dtype)];
        assert_eq!(made("where(c, a, b)", &operands), dtype);
    }
    assert_eq!(made("where(c, a, b)", &[("c", "bool"), ("a", "bool"), ("b", "i64")]), "i64");
    assert_eq!(made("where(c, a, b)", &[("c", "bool"), ("a", "i32"), ("b", "f32")]), "f32");
}

#[test]
fn of_two_integer_types_the_wider_one_is_made() {
    for op in ["add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide"] {
        for (one, two, wider) in
            [("bool", "i64", "i64"), ("i32", "i64", "i64"), ("u8", "i32", "i32"), ("bool", "bool", "bool")]
        {
            for operands in [[("a", one), ("b", two)], [("a", two), ("b", one)]] {
                assert_eq!(made(&format!("{op}(a, b)"), &operands), wider, "{op} of {operands:?}");
            }
        }
    }
    assert_eq!(made("add(a, b)", &[("a", "i64"), ("b", "bf16")]), "bf16");
    assert_eq!(made("isin(a, b)", &[("a", "i64"), ("b", "i64")]), "bool");
}

#[test]
fn a_composite_has_the_elements_that_its_ops_make() {
    let mut table = OpTable::standard();
    table.add_composite("above", "x, y -> z: z = gt(x, y)".parse().unwrap()).unwrap();
    table.add_composite("either", "c, x -> z: y = exp(x); z = where(c, x, y)".parse().unwrap()).unwrap();
    let mut graph = Graph::with_table(&"dp=2".parse().unwrap(), table.into());
    let x = graph.input("x", DType::I32, &[4], "R").unwrap();
    let c = graph.apply(&OpCall::new("above"), &[x, x], &["c"]).unwrap()[0];
    let y = graph.apply(&OpCall::new("either"), &[c, x], &["y"]).unwrap()[0];
    assert_eq!((graph.dtype(c), graph.dtype(y)), (DType::Bool, DType::F32));
    let error = graph.apply(&OpCall::new("either"), &[x, x], &["z"]).unwrap_err().to_string();
    assert!(error.contains("where takes truth values (bool) as operand 0, but `c` is i32"), "{error}");
}

#[test]
fn operands_have_the_elements_that_an_op_takes() {
    let refused = |call: &str, operands: &str| {
        let text = format!("mesh dp=2\n{operands}\nv = {call}\n");
        text.parse::<Graph>().unwrap_err().to_string()
    };
    let matrices = "x: f32[4,4] R\nids: i64[4,4] R\nm: f32[4,4] R\nk: bool[4,4] R";
    for (call, message) in [
        (
            "mm(x, ids)",
            "line 6: mm takes floating-point numbers, like operand 0 (f32), as operand 1, but `ids` is i64; \
             cast it, as in cast(ids, dtype=f32)",
        ),
        (
            "where(m, x, x)",
            "line 6: where takes truth values (bool) as operand 0, but `m` is f32; cast it, as in cast(m, dtype=bool)",
        ),
        (
            "embedding(x, m)",
            "line 6: embedding takes integers as operand 1, but `m` is f32; cast it, as in cast(m, dtype=i64)",
        ),
        (
            "softmax(ids)",
            "line 6: softmax takes floating-point numbers as operand 0, but `ids` is i64; cast it, as in \
             cast(ids, dtype=f32)",
        ),
        (
            "div_(ids, x)",
            "line 6: div_ computes f32 and writes it into `ids`, which is i64; give a tensor of f32, or use the op that \
             returns a new one",
        ),
        (
            "add_(k, ids)",
            "line 6: add_ computes i64 and writes it into `k`, which is bool; give a tensor of i64, or use the op that \
             returns a new one",
        ),
    ] {
        assert_eq!(refused(call, matrices), message);
    }
}

#[test]
fn the_elements_of_a_factory_are_set_right_after_it() {
    let mut graph = Graph::new(&"dp=2".parse().unwrap());
    let ones: OpCall = "ones(shape=[3])".parse().unwrap();
    let made = graph.apply(&ones, &[], &["a"]).unwrap()[0];
    assert_eq!(graph.dtype(made), DType::F32);
    graph.set_dtype(made, DType::Bool).unwrap();
    assert_eq!(graph.dtype(made), DType::Bool);
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
    let x = graph.input("x", DType::F32, &[3], "R").unwrap();
    let late = graph.set_dtype(made, DType::I64).unwrap_err().to_string();
    assert!(late.contains("`a` is not an output of the last statement"), "{late}");
    let y = graph.apply(&"relu".parse().unwrap(), &[x], &["y"]).unwrap()[0];
    let other = graph.set_dtype(made, DType::I64).unwrap_err().to_string();
    assert!(other.contains("`a` is not an output of the last op, relu"), "{other}");
    let wrong = graph.set_dtype(y, DType::Bool).unwrap_err().to_string();
    assert!(wrong.contains("relu computes `y` in f32, not in bool"), "{wrong}");
}
