//! Expressions with steps along axes, and with pairs.

use reshard_layout::expression::{Expression, Function, Value, evaluate};

use super::kind;

/// The same with steps along axes, and with pairs.
const WITH_AXES: &[(&str, &str)] = &[
    ("(4,2):(1@tp,8)", "(4,2):(1@tp,8)"),
    ("(128,4,2):(1,1@1,1@0)", "(128,4,2):(1,1@1,1@0)"),
    (" ( 4 , 2 ) : ( 1 @ dp.x/y-2 , -8 @ _ ) ", "(4,2):(1@dp.x/y-2,-8@_)"),
    ("(4,2):(0@tp,1@007)", "(4,2):(0,1@7)"),
    ("(4,2):(0@tp,1)", "(4,2):(0,1)"),
    ("coalesce((4,2):(1@tp,4@tp))", "8:1@tp"),
    ("coalesce((4,2):(1@tp,4@dp))", "(4,2):(1@tp,4@dp)"),
    ("coalesce((4,1):(1,1@tp))", "4:1"),
    ("coalesce(((2,2),(2,2)):((1@tp,2@tp),(1,2)), (1,1))", "(4,4):(1@tp,1)"),
    ("flatten((4,(2,3)):(1,(1@tp,2@tp)))", "(4,2,3):(1,1@tp,2@tp)"),
    ("reversed((4,(2,3)):(1,(1@tp,2@dp)))", "((3,2),4):((2@dp,1@tp),1)"),
    ("group((4,2,3):(1,1@tp,2@tp), 1, 3)", "(4,(2,3)):(1,(1@tp,2@tp))"),
    ("concat(4:1@tp, (2,3):(1@dp,4@tp), 2:8)", "(4,(2,3),2):(1@tp,(1@dp,4@tp),8)"),
    ("coalesce(concat(4:1@tp, 2:1, 2:2))", "(4,4):(1@tp,1)"),
    ("mode((4,2):(1@tp,8), 0)", "4:1@tp"),
    ("mode((4,2):(1@tp,8), 1)", "2:8"),
    ("complement(mode((4,2):(1@tp,8), 1), 32)", "(8,2):(1,16)"),
    ("shape((4,(2,3)):(1,(1@tp,2@tp)))", "(4,(2,3))"),
    ("stride((4,(2,3)):(1,(1@tp,2@dp)))", "(1,(1@tp,2@dp))"),
    ("stride(4:1@tp)", "1@tp"),
    ("stride((4,1):(1,0@tp))", "(1,0)"),
    ("size((4,2):(1@tp,8))", "8"),
    ("rank((4,2):(1@tp,8))", "2"),
    ("depth((4,(2,3)):(1,(1@tp,2@tp)))", "2"),
    ("same_function((4,2):(1@tp,4@tp), 8:1@tp)", "true"),
    ("same_function((2,2):(1@tp,1@dp), (2,2):(1@dp,1@tp))", "false"),
    ("same_function((4,1):(1,1@tp), 4:1)", "true"),
    ("is_congruent((4,2):(1@tp,8), (3,3):(1,2))", "true"),
    ("is_compatible((4,2):(1@tp,8), ((2,2),2):((1,4),8))", "true"),
    ("split((4,4):(1,1@tp), (2,8))", "(2,(2,4)):(1,(2,1@tp))"),
    ("(4,2):(1@tp,8)(7)", "8+3@tp"),
    ("(4,2):(1@tp,8)(4)", "8"),
    ("(4,2):(1@tp,8)((3,1))", "8+3@tp"),
    ("(4,(2,3)):(1,(1@tp,1@dp))(3,(1,2))", "3+1@tp+2@dp"),
    ("(4,2):(1,1@tp)((4,2):(1@tp,1)(4))", "1"),
    ("zip(12:1@tp, (3,4):(1@dp,8))", "(3,4):((1@tp,1@dp),(3@tp,8))"),
    ("zip((4,2):(1@tp,1@dp), (4,2):(1@dp,1@tp))", "(4,2):((1@tp,1@dp),(1@dp,1@tp))"),
    ("(3,4):((1,4),(3,1))", "(3,4):((1,4),(3,1))"),
    ("12:(1,2)", "12:(1,2)"),
    ("(12,):((1,2@tp),)", "(12,):((1,2@tp),)"),
    ("(3,4):((1,4),(3,1))(5)", "(5,9)"),
    ("(3,4):((1,4),(3,1@tp))(2,3)", "(11,8+3@tp)"),
    ("coalesce((3,4):((1,1@tp),(3,3@tp)))", "12:(1,1@tp)"),
    ("concat(4:(1,1@tp), 2:(4@dp,4@tp))", "(4,2):((1,1@tp),(4@dp,4@tp))"),
    ("mode((4,2):((1,1@tp),(4,4)), 1)", "2:(4,4)"),
    ("split(12:(1,2@tp), (3,4))", "(3,4):((1,2@tp),(3,6@tp))"),
    ("shape((3,4):((1,4),(3,1)))", "(3,4)"),
    ("stride((3,4):((1,4),(3,1@tp)))", "((1,4),(3,1@tp))"),
    ("stride(12:(1,2))", "(1,2)"),
    ("size(12:(1,2))", "12"),
    ("rank((3,4):((1,4),(3,1)))", "2"),
    ("same_function(12:(1,2@tp), (3,4):((1,2@tp),(3,6@tp)))", "true"),
    ("is_congruent((3,4):((1,4),(3,1)), (3,4):(1,2))", "true"),
];

#[test]
fn examples_with_axes_have_their_values() {
    for (text, expected) in WITH_AXES {
        let value = evaluate(text).map(|value| value.to_string());
        assert_eq!(value.as_deref(), Ok(*expected), "{text}");
        let expression: Expression = text.parse().expect("an example");
        let again: Expression = expression.to_string().parse().expect("its text is valid");
        assert_eq!((&again, again.evaluate()), (&expression, expression.evaluate()));
        // A layout equals its printed form, whatever its strides are.
        match evaluate(text).expect("an example") {
            Value::Named(named) => {
                assert_eq!(named.to_string().parse().as_ref(), Ok(named.as_ref()));
                assert_eq!(evaluate(expected), Ok(Value::Named(named)));
            }
            Value::Pairs(pairs) => {
                assert_eq!(pairs.to_string().parse().as_ref(), Ok(pairs.as_ref()));
                assert_eq!(evaluate(expected), Ok(Value::Pairs(pairs)));
            }
            Value::Points(points) => assert_eq!(points.to_string().parse().as_ref(), Ok(points.as_ref())),
            Value::Bool(_) => {}
            Value::Integer(_) | Value::Tuple(_) | Value::Layout(_) => {
                assert!(!expected.contains('@') && evaluate(expected) == evaluate(text), "{text}");
            }
            Value::Answer(_)
            | Value::Composed(_)
            | Value::Swizzle(_)
            | Value::Tiler(_)
            | Value::Pattern(_) => {
                panic!("{text} is none of these")
            }
        }
    }
}

#[test]
fn what_needs_integers_says_so() {
    const TAKE_AXES: &[&str] = &[
        "composition",
        "composition_extended",
        "logical_divide",
        "zipped_divide",
        "tiled_divide",
        "flat_divide",
        "logical_divide_extended",
        "zipped_divide_extended",
        "tiled_divide_extended",
        "flat_divide_extended",
        "filter",
        "filter_zeros",
        "slice",
        "dice",
        "select",
        "take",
        "append",
        "prepend",
        "replace",
        "coalesce",
        "group",
        "split",
        "zip",
        "flatten",
        "reversed",
        "concat",
        "mode",
        "shape",
        "stride",
        "size",
        "rank",
        "depth",
        "same_function",
        "is_compatible",
        "is_congruent",
        "column_major",
        "row_major",
        "make_ordered_layout",
        "domain_distribute",
        "crd2idx",
        "idx2crd",
        "crd2crd",
        "ceil_div",
        "shape_div",
        "elem_scale",
        "product",
        "product_each",
        "inner_product",
        "bank_swizzle",
        "thread_owners",
        "is_weakly_compatible",
        "is_softly_compatible",
        "is_weakly_congruent",
    ];
    for (layout, way_out) in [
        (
            "(4,2):(1@tp,8)",
            "which steps along tp: give every axis an integer stride, or take a mode without one",
        ),
        ("(4,2):((1,1@tp),(4,4@tp))", "use one side, before `zip`"),
    ] {
        for function in Function::ALL.iter().filter(|function| !TAKE_AXES.contains(&function.name())) {
            let others = match function.name() {
                "slice" | "slice_and_offset" | "dice" => ", (_,_)",
                "local_tile" => ", 4:1, (_,_)",
                "local_partition" => ", 4:1, 0",
                "thread_partition" => ", (4,2), 4:1",
                "take" | "bank_ways" => ", 0, 1",
                "replace" | "composed" | "composition_at" => ", 0, 4:1",
                "tile_to_shape" => ", (8,2)",
                _ if function.parameters() == "A" => "",
                name if name.contains("div") || name.contains("prod") || name.contains("common") => ", 4:1",
                "composition" | "composition_extended" | "is_disjoint" => ", 4:1",
                _ => ", 4",
            };
            let text = format!("{function}({layout}{others})");
            let error = evaluate(&text).expect_err(&text);
            let message = error.to_string();
            assert_eq!(error.code(), "inadmissible", "{text}");
            assert!(
                message.contains(&format!(
                    "found {}{layout}",
                    if layout.len() > 20 { "the pairs " } else { "" }
                )),
                "{message}"
            );
            assert!(message.contains(way_out) && message.starts_with("expected a layout"), "{message}");
            let place = error.render().lines().last().map(|line| line.len() - 1);
            assert_eq!(place, Some(function.name().len() + 1), "{}", error.render());
        }
    }
    for (text, expected) in [
        (
            "composition(4:1, (4,2):(1@tp,8))",
            "expected a layout or a tiler with integer strides, found (4,2):(1@tp,8)",
        ),
        ("logical_divide(8:1, <4:1@tp>)", "found 4:1@tp"),
        ("concat(4:1, 4:(1,2))", "expected layouts of pairs, as the others are, found 4:1;"),
        ("same_function(4:(1,2), 4:1@tp)", "expected layouts of pairs, as the others are, found 4:1@tp;"),
        ("zip(4:1, 4:(1,2))", "4:(1,2) is already a pair of layouts"),
        ("coalesce(4:1@tp, 4:1)", "expected a tuple, found a layout"),
        ("size(4:1@tp(1))", "expected a layout, found a point"),
        ("4:1(4:1@tp)", "expected a tuple, found a layout with axes"),
        ("mode(4:1, 4:(1,2))", "expected an integer, found a layout of pairs"),
        ("4:1@", "expected an axis such as tp or 0, the text ends"),
        ("4:1@-1", "expected an axis such as tp or 0, found '-'"),
        ("4:1@4294967295", "expected the number of an axis"),
        ("(4,2):(1@tp)", "expected strides that are nested like the shape (4,2)"),
        ("(4,2):((1@tp,1),2)", "expected strides that are nested like the shape (4,2)"),
        ("zip(4:1@tp)", "zip takes (A, B), not 1 arguments"),
        ("zip(4:1, (5,):(1@tp,))", "the shapes 4 and (5,) do not nest: their sizes differ, 4 and 5"),
        ("split((4,3):(1,8@tp), (6,2))", "the shapes (4,3) and (6,2) do not nest: after 6 indices a mode"),
        ("size(4:1@tp,1)", "size takes (A), not 2 arguments"),
    ] {
        let message = evaluate(text).expect_err(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
    for (text, expected) in [
        ("zip((4,6):(6,1), (6,4):(1@tp,6))", "not_nesting"),
        ("zip(4:1, 5:1@tp)", "not_nesting"),
        ("split(12:1@tp, (5,2))", "not_nesting"),
        ("split(12:1, (0,2))", "bad_extent"),
        ("mode(4:1@tp, 1)", "no_such_mode"),
        ("4:1@tp(4)", "out_of_domain"),
        ("(4,2):(1@tp,8)((4,0))", "out_of_domain"),
        ("(4,2):(1@tp,8)(1,1,1)", "no_such_mode"),
        ("2:9223372036854775807@tp", "overflow"),
        ("2:(1,9223372036854775807@tp)", "overflow"),
        ("concat(2:9223372036854775806@tp,2:9223372036854775806@tp)", "overflow"),
        ("0:1@tp", "bad_extent"),
        ("(4,2):((1,2),(3,4),(5,6))", "not_congruent"),
        ("4:((1,2),3)", "not_congruent"),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
    // Each for itself they fit.
    assert!(evaluate("concat(2:9223372036854775806@tp,2:9223372036854775806@dp)").is_ok());
}
