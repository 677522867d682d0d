//! Expressions with compositions that are not layouts: the function by coordinates decides.

use reshard_layout::expression::evaluate;

/// Functions of compositions that are not layouts.
const OF_COMPOSITIONS: &[(&str, &str)] = &[
    ("logical_divide(S, <4,2>)", "Sw<3,0,3> o 0 o ((4,2),(2,4)):((8,32),(1,2))"),
    ("zipped_divide(S, (4,2))", "Sw<3,0,3> o 0 o ((4,2),(2,4)):((8,1),(32,2))"),
    ("tile_to_shape(S, (16,8))", "Sw<3,0,3> o 0 o (16,8):(8,1)"),
    ("tile_to_shape(S, (16,16), (1,0))", "Sw<3,0,3> o 0 o ((8,2),(8,2)):((8,128),(1,64))"),
    ("composition(S, 8:8)", "Sw<3,0,3> o 0 o 8:1"),
    ("composition((8,8):(8,1), S)", "Sw<3,0,-3> o 0 o (8,8):(1,8)"),
    ("composition(Sw<3,0,3>, S)", "(8,8):(8,1)"),
    ("local_tile(S, <4,2>, (1,3))", "Sw<3,0,3> o 38 o (4,2):(8,1)"),
    ("local_tile(S, <4,2>, (1,_))", "Sw<3,0,3> o 32 o (4,2,4):(8,1,2)"),
    ("local_partition(S, (2,4):(4,1), 5)", "Sw<3,0,3> o 9 o (4,2):(16,4)"),
    ("thread_partition(S, (4,2), (4,2):(1,4))", "Sw<3,0,3> o 0 o ((4,2),(2,4)):((8,1),(32,2))"),
    ("concat(S, 2:64)", "Sw<3,0,3> o 0 o ((8,8),2):((8,1),64)"),
    ("append(2:64, S)", "Sw<3,0,3> o 0 o (2,(8,8)):(64,(8,1))"),
    ("prepend(2:64, S)", "Sw<3,0,3> o 0 o ((8,8),2):((8,1),64)"),
    ("replace((2,2):(1,64), 0, S)", "Sw<3,0,3> o 0 o ((8,8),2):((8,1),64)"),
    ("complement(S, 128)", "2:64"),
    ("logical_divide(128:1, S)", "Sw<3,0,3> o 0 o ((8,8),2):((8,1),64)"),
    ("flat_divide(128:1, S)", "Sw<3,0,3> o 0 o (8,8,2):(8,1,64)"),
    ("logical_divide_extended(100:1, S)", "Sw<3,0,3> o 0 o ((8,8),2):((8,1),64)"),
    ("logical_product(2:64, composed(Sw<1,0,1>, 0, 4:1))", "Sw<1,0,1> o 0 o (2,4):(64,1)"),
    (
        "logical_divide((8,4):(1,8), <slice_and_offset((4,4):(1,4), (_,0)), 2>)",
        "(((4,),2),(2,2)):(((1,),4),(8,16))",
    ),
    ("composition((8,16):(16,1), composed(Sw<3,0,3>, 64, (8,8):(8,1)))", "Sw<3,0,-4> o 8 o (8,8):(1,16)"),
    ("composition(composed(Sw<3,0,3>, 0, 64:1), composed(Sw<3,0,3>, 0, (8,8):(8,1)))", "(8,8):(8,1)"),
    ("composition(2:64, composed(Sw<0,0,0>, 1, 1:0))", "Sw<0,0,0> o 64 o 1:0"),
    ("composition_at(S, 8, 8:1)", "Sw<3,0,3> o 1 o 8:8"),
    (
        "composition_extended((8,8):(1,8), composed(Sw<3,0,3>, 64, (8,8):(8,1)))",
        "Sw<3,0,3> o 64 o (8,8):(8,1)",
    ),
    ("composed(Sw<3,0,3>, 0, S)", "(8,8):(8,1)"),
    ("logical_divide_extended(S, <3,8>)", "Sw<3,0,3> o 0 o ((3,3),(8,1)):((8,24),(1,0))"),
    ("max_common_vector(composed(Sw<3,3,3>, 0, (64,8):(1,64)), (64,8):(1,128))", "8"),
    ("is_injective(S)", "yes"),
    ("is_compact(S)", "true"),
    ("is_surjective_onto(S, 64)", "true"),
    ("same_function(S, (8,8):(8,1))", "false"),
    ("is_disjoint(S, 2:64)", "yes"),
    ("nullspace(composed(Sw<3,0,3>, 0, (8,4):(8,0)))", "4:8"),
    ("slice(S, (3,_))", "Sw<3,0,3> o 24 o (8,):(1,)"),
    ("mode(S, 1)", "Sw<3,0,3> o 0 o 8:1"),
    ("append(S, 2:64)", "Sw<3,0,3> o 0 o (8,8,2):(8,1,64)"),
    ("select(S, 1)", "Sw<3,0,3> o 0 o (8,):(1,)"),
    ("downcast(S, 2)", "Sw<3,1,3> o 0 o (8,16):(16,1)"),
    ("upcast(downcast(S, 2), 2)", "Sw<3,0,3> o 0 o (8,8):(8,1)"),
    ("right_inverse(S)", "Sw<3,0,-3> o 0 o (8,8):(8,1)"),
    ("make_layout_like(S)", "(8,8):(8,1)"),
    ("is_compatible((8,8), S)", "true"),
    ("size(S)", "64"),
    ("cosize(S)", "64"),
    ("S(1,2)", "11"),
    ("S((1,2))", "11"),
    ("S(17)", "11"),
    ("crd2idx((1,2), S)", "11"),
];

#[test]
fn compositions_stand_where_layouts_do() {
    // `S` stands for a swizzled tile; the swizzles of a text stay.
    let with = |text: &str| {
        text.replace("Sw", "~").replace('S', "composed(~<3,0,3>, 0, (8,8):(8,1))").replace('~', "Sw")
    };
    for (text, expected) in OF_COMPOSITIONS {
        let text = with(text);
        let value = evaluate(&text).map(|value| value.to_string());
        assert_eq!(value.as_deref(), Ok(*expected), "{text}");
    }
    for text in ["stride(S)", "tiles(S, 64)", "is_orthogonal(S)"] {
        let error = evaluate(&with(text)).expect_err(text);
        assert_eq!(error.code(), "inadmissible", "{text}");
        let message = error.to_string();
        assert!(message.contains("needs strides, and Sw<3,0,3> o 0 o (8,8):(8,1) has none"), "{message}");
    }
    for (text, expected) in [
        ("upcast(S, 2)", "does not act on whole words of 2"),
        ("downcast(S, 3)", "does not act on whole words of 3"),
        ("composition((12,8):(8,1), S)", "does not map bits of this layout to bits of it"),
        ("zipped_divide(S, <_,4>)", "a mode with `_` must be a pair of tile and rest, and this has 1 modes"),
        (
            "concat(S, 4:1)",
            "the modes of ((8,8),4):((8,1),1) are not additive under Sw<3,0,3>: at index 65 the value of their sum is \
             not the sum of their values",
        ),
        ("logical_divide(8:1, S)", "the composition needs the value 63, which is outside the domain [0, 8)"),
        (
            "logical_divide((64,2):(1,64), <S,2>)",
            "a tile of a tiler, or of a layout by mode, must have strides, and",
        ),
        ("raked_product(2:1, S)", "found the composition Sw<3,0,3> o 0 o (8,8):(8,1), which has no strides"),
        ("zip(S, 64:1)", "found the composition Sw<3,0,3> o 0 o (8,8):(8,1), which has no strides"),
        ("composition(S, S)", "a swizzle is applied before it and another after it"),
        ("composition(Sw<1,0,1>, S)", "a swizzle is applied before it and another after it"),
        ("S(8,0)", "the evaluation needs the value 8, which is outside the domain [0, 8)"),
    ] {
        let error = evaluate(&with(text)).expect_err(text);
        let message = error.to_string();
        assert!(message.contains(expected) && error.code() != "parse", "{text}: {message}");
    }
}
