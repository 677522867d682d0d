//! Every function of expressions, and the messages for invalid ones.

mod axes;
mod compositions;

use reshard_layout::expression::{Expression, Function, Value, evaluate};
use reshard_layout::{Answer, ErrorKind, MAX_DEPTH, MAX_LEAVES};

/// An example of every function and its value.
const EXAMPLES: &[(&str, &str)] = &[
    ("coalesce((2,(1,6)):(1,(6,2)))", "12:1"),
    ("coalesce((2,(1,6)):(1,(6,2)),(1,1))", "(2,6):(1,2)"),
    ("filter((2,(1,6)):(1,(6,0)))", "2:1"),
    ("composition((6,2):(8,2), (4,3):(3,1))", "((2,2),3):((24,2),8)"),
    ("composition((6,2):(8,2), <3:1,2>)", "(3,2):(8,2)"),
    ("composition(Sw<2,0,3>, (2,2):(8,16))", "(2,2):(9,18)"),
    ("composition(Sw<2,0,3>, (8,4):(1,8))", "Sw<2,0,3> o 0 o (8,4):(1,8)"),
    ("composition(Sw<1,0,3>, Sw<2,0,3>)", "Sw<1,1,3>"),
    ("composition_extended((4,2):(1,100), 3:4)", "3:100"),
    ("composed((12,2):(1,100), 1, (2,2):(3,4))(3)", "8"),
    ("complement((2,3):(1,4), 24)", "(2,2):(2,12)"),
    ("complement((2,3):(1,4))", "2:2"),
    ("tiles((2,3):(1,4), 24)", "true"),
    ("right_inverse((4,2,3):(2,1,8))", "(2,4,3):(4,1,8)"),
    ("left_inverse((3,4):(4,12))", "(4,12):(0,1)"),
    ("logical_divide((4,2,3):(2,1,8), 4:2)", "((2,2),(2,3)):((4,1),(2,8))"),
    ("zipped_divide((8,6):(6,1), <4,3>)", "((4,3),(2,2)):((6,1),(24,3))"),
    ("tiled_divide((8,6):(6,1), <4,3>)", "((4,3),2,2):((6,1),24,3)"),
    ("flat_divide((8,6):(6,1), <4,3>)", "(4,3,2,2):(6,1,24,3)"),
    ("logical_product((2,2):(4,1), 6:1)", "((2,2),(2,3)):((4,1),(2,8))"),
    ("zipped_product((2,2):(1,2), <3:1>)", "((2,),(3,2)):((1,),(2,2))"),
    ("tiled_product((2,2):(1,2), (3,4):(4,1))", "((2,2),3,4):((1,2),16,4)"),
    ("flat_product((2,2):(1,2), (3,4):(4,1))", "(2,2,3,4):(1,2,16,4)"),
    ("blocked_product((2,5):(5,1), (3,4):(1,3))", "((2,3),(5,4)):((5,10),(1,30))"),
    ("raked_product((2,5):(5,1), (3,4):(1,3))", "((3,2),(4,5)):((10,5),(30,1))"),
    ("tile_to_shape((4,2):(2,1), (8,6))", "(8,(2,3)):(2,(1,16))"),
    ("tile_to_shape((4,2):(2,1), (8,6), (1,0))", "((4,2),(2,3)):((2,24),(1,8))"),
    ("max_common_layout((8,4):(1,8), (8,4):(1,16))", "8:1"),
    ("max_common_vector((8,4):(1,8), (8,4):(1,16))", "8"),
    ("slice((4,(2,3)):(6,(1,2)), (2,_))", "((2,3),):((1,2),)"),
    ("dice((4,(2,3)):(6,(1,2)), (2,(_,0)))", "(4,3):(6,2)"),
    ("group((2,3,5):(1,2,6), 1, 3)", "(2,(3,5)):(1,(2,6))"),
    ("flatten((2,(3,5)):(1,(2,6)))", "(2,3,5):(1,2,6)"),
    ("reversed((2,(3,5)):(1,(2,6)))", "((5,3),2):((6,2),1)"),
    ("upcast((4,16):(16,1), 2)", "(4,8):(8,1)"),
    ("downcast((4,8):(8,1), 2)", "(4,16):(16,1)"),
    ("nullspace((4,3,2):(1,0,4))", "3:4"),
    ("concat(4:1, (2,3):(4,8))", "(4,(2,3)):(1,(4,8))"),
    ("column_major((2,3,4))", "(2,3,4):(1,2,6)"),
    ("row_major((2,3,4))", "(4,3,2):(1,4,12)"),
    ("mode((4,(2,3)):(1,(4,8)), 1)", "(2,3):(4,8)"),
    ("shape((4,(2,3)):(1,(4,8)))", "(4,(2,3))"),
    ("stride((4,(2,3)):(1,(4,8)))", "(1,(4,8))"),
    ("size((4,(2,3)):(1,(4,8)))", "24"),
    ("cosize((4,2):(1,-10))", "14"),
    ("rank((4,(2,3)):(1,(4,8)))", "2"),
    ("depth((4,(2,3)):(1,(4,8)))", "2"),
    ("same_function((2,2):(1,2), 4:1)", "true"),
    ("is_injective((4,4):(3,4))", "yes"),
    ("is_surjective_onto((3,4):(1,2), 9)", "true"),
    ("is_compact((3,4):(4,1))", "true"),
    ("is_disjoint(4:2, 3:3)", "no"),
    ("is_orthogonal((2,3):(10,3))", "true"),
    ("is_compatible((4,6):(1,4), ((2,2),6):((1,2),4))", "true"),
    ("is_congruent((4,6):(1,4), (2,2):(1,0))", "true"),
    ("(4,(2,3)):(2,(1,8))(13)", "11"),
    ("(4,(2,3)):(2,(1,8))((1,(1,1)))", "11"),
    ("(4,(2,3)):(2,(1,8))(1,3)", "11"),
    ("Sw<2,0,3>(24)", "27"),
    ("size(complement(coalesce((2,(1,6)):(1,(6,2))), 48))", "4"),
    ("<4,<2:3,1:0>>", "<4:1,<2:3,1:0>>"),
    ("composition((8,8):(8,1), <coalesce((2,2):(1,2)), 2>)", "(4,2):(8,1)"),
    ("split((4,6):(6,1), (2,2,6))", "(2,2,6):(6,12,1)"),
    ("split(24:1, 24)", "(24,):(1,)"),
    ("zip(12:1, (3,4):(4,1))", "(3,4):((1,4),(3,1))"),
    ("coalesce(((2,2),(2,2)):((1,2),(16,32)), (1,2))", "(4,4):(1,16)"),
    ("composition_extended((4,3,1):(3,1,0), 24:1)", "(4,3,2):(3,1,0)"),
    ("composition_at((4,3):(3,1), 3, 4:-1)", "Sw<0,0,0> o 9 o 4:-3"),
    ("logical_divide_extended((10,6):(6,1), <4,3>)", "((4,3),(3,2)):((6,24),(1,3))"),
    ("zipped_divide_extended(10:2, 4:1)", "(4,3):(2,8)"),
    ("tiled_divide_extended((10,6):(6,1), <4,3>)", "((4,3),3,2):((6,1),24,3)"),
    ("flat_divide_extended((10,6):(6,1), <4,3>)", "(4,3,3,2):(6,1,24,3)"),
    ("complement(():(), 128)", "128:1"),
    ("filter_zeros((4,3,2):(1,0,4))", "(4,1,2):(1,0,4)"),
    ("logical_divide((8,6):(6,1), (4,3))", "((4,2),(3,2)):((6,24),(1,3))"),
    ("logical_divide((8,6):(6,1), <_,3>)", "(8,(3,2)):(6,(1,3))"),
    ("tiled_divide(((4,2),6):((1,4),8), <_,3>)", "((4,3),2,2):((1,8),4,24)"),
    ("composition((8,6):(6,1), <_,3>)", "(8,3):(6,1)"),
    ("tile_to_shape((64,8):(1,64), ((128,1),(16,1)))", "((64,2),(8,2)):((1,512),(64,1024))"),
    ("domain_distribute((15,14), 6)", "(3,2):(1,15)"),
    ("domain_distribute((192,(8,8)), 1024)", "(64,16):(1,192)"),
    ("slice_and_offset((4,(2,3)):(6,(1,2)), (2,_))", "Sw<0,0,0> o 12 o ((2,3),):((1,2),)"),
    ("select((4,(2,3),5):(1,(4,8),24), 2, 0)", "(5,4):(24,1)"),
    ("select((4,(2,3),5), 1)", "((2,3),)"),
    ("take((4,(2,3),5):(1,(4,8),24), 1, 3)", "((2,3),5):((4,8),24)"),
    ("append((4,3):(1,4), 2:12)", "(4,3,2):(1,4,12)"),
    ("append((4,3):(1,4), 1:0, 4)", "(4,3,1,1):(1,4,0,0)"),
    ("append((4,3), (2,2))", "(4,3,(2,2))"),
    ("prepend((4,3):(1,4), 2:12)", "(2,4,3):(12,1,4)"),
    ("prepend(4:1, 1:0, 3)", "(1,1,4):(0,0,1)"),
    ("replace((4,3):(1,4), 1, (2,2):(4,8))", "(4,(2,2)):(1,(4,8))"),
    ("group((2,3,5), 1, 3)", "(2,(3,5))"),
    ("column_major((4,(2,3)))", "(4,(2,3)):(1,(4,8))"),
    ("row_major((4,(2,3)))", "((3,2),4):((1,3),6)"),
    ("reversed(row_major((2,4)))", "(2,4):(4,1)"),
    ("make_ordered_layout((2,3,4), (2,0,1))", "(2,3,4):(12,1,3)"),
    ("make_layout_like((4,(2,3),5):(40,(200,0),8))", "(4,(2,3),5):(5,(20,0),1)"),
    ("crd2idx((1,(1,1)), (4,(2,3)))", "13"),
    ("crd2idx((1,3), (4,(2,3)):(2,(1,8)))", "11"),
    ("crd2idx((1,3), (4,6), (6,1))", "9"),
    ("idx2crd(13, (4,(2,3)))", "(1,(1,1))"),
    ("idx2crd(16, (4,(2,3)), (6,(3,1)))", "(2,(1,1))"),
    ("crd2crd((1,3), (4,6), (8,3))", "(5,1)"),
    ("ceil_div((10,6), (4,4))", "(3,2)"),
    ("ceil_div((8,6), 16)", "(1,3)"),
    ("shape_div((2,8), 4)", "(1,4)"),
    ("elem_scale((3,4), (2,5))", "(6,20)"),
    ("product((2,(3,4)))", "24"),
    ("product_each((2,(3,4)))", "(2,12)"),
    ("inner_product((1,(2,3)), (1,(4,8)))", "33"),
    ("is_weakly_compatible((4,3), ((2,4),6))", "true"),
    ("is_softly_compatible((8,6), ((2,2),3):((1,2),4))", "true"),
    ("is_weakly_congruent((4,6), (1,(2,3)))", "true"),
    ("is_compatible((4,6), ((2,2),6))", "true"),
    ("local_tile((8,6):(6,1), <4,3>, (1,_))", "Sw<0,0,0> o 24 o (4,3,2):(6,1,3)"),
    ("local_partition((8,6):(6,1), (2,3):(3,1), 5)", "Sw<0,0,0> o 8 o (4,2):(12,3)"),
    ("thread_values((4,2):(2,1), (2,1):(1,1))", "((2,4),2):((8,2),1)"),
    ("thread_partition((16,8):(8,1), (8,2), ((4,2),2):((2,8),1))", "(((4,2),2),(2,4)):(((16,1),8),(64,2))"),
    ("thread_owners((8,2), ((4,2),2):((2,8),1))", "((2,4),2):((8,1),4)"),
    ("bank_swizzle(64, 2, 16)", "Sw<3,3,3>"),
    ("bank_ways(8:64, 2, 16)", "8"),
    ("bank_ways(composed(bank_swizzle(64, 2, 16), 8, 8:64), 2, 16)", "1"),
];

#[test]
fn examples_have_their_values() {
    for (text, expected) in EXAMPLES {
        let value = evaluate(text).map(|value| value.to_string());
        assert_eq!(value.as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn answers_are_read_as_they_are_written() {
    for answer in [Answer::Yes, Answer::No, Answer::Unknown] {
        assert_eq!(answer.to_string().parse(), Ok(answer));
    }
    assert!("maybe".parse::<Answer>().is_err_and(|error| error.code() == "parse"));
}

#[test]
fn every_function_has_an_example() {
    for function in Function::ALL {
        let call = format!("{function}(");
        assert!(EXAMPLES.iter().any(|(text, _)| text.contains(&call)), "{function}");
        assert_eq!(Function::from_name(function.name()), Some(*function));
        assert_eq!(function.to_string().parse(), Ok(*function));
    }
}

#[test]
fn display_then_from_str_is_the_identity() {
    for (text, _) in EXAMPLES {
        let expression: Expression = text.parse().expect("an example");
        let again: Expression = expression.to_string().parse().expect("its text is valid");
        assert_eq!(again, expression);
        assert_eq!(again.evaluate(), expression.evaluate());
    }
}

pub(super) fn kind(text: &str) -> &'static str {
    match evaluate(text) {
        Ok(value) => panic!("{text} is {value}"),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 400, "one line: {message}");
            error.code()
        }
    }
}

#[test]
fn bad_expressions_are_refused_with_their_kind() {
    let parse = [
        "", " ", "(", ")", "()", "4:", "(4,2):(2", "é", "4:1 4", "foo(4:1)", "size()", "size(4)", "size 4:1",
        "_",
    ];
    for text in parse {
        assert_eq!(kind(text), "parse", "{text:?}");
    }
    for (text, expected) in [
        ("(4,2):(2,1,1)", "not_congruent"),
        ("0:1", "bad_extent"),
        ("-3:1", "bad_extent"),
        ("complement(4:1,0)", "bad_extent"),
        ("9223372036854775808:1", "overflow"),
        ("(4294967296,4294967296):(1,1)", "overflow"),
        ("2:-9223372036854775808", "overflow"),
        ("(2,2):(9223372036854775807,-1)", "overflow"),
        ("concat(2:9223372036854775807,2:1)", "overflow"),
        ("composition(4:1,5:1)", "out_of_domain"),
        ("4:1(4)", "out_of_domain"),
        ("4:1(-1)", "out_of_domain"),
        ("composition((4,3):(1,10),6:1)", "not_representable"),
        ("complement(4:-1,8)", "inadmissible"),
        ("left_inverse((3,2):(1,1))", "inadmissible"),
        ("upcast((4,6):(1,4),3)", "inadmissible"),
        ("mode(4:1,1)", "no_such_mode"),
        ("composition(4:1,<2,2>)", "no_such_mode"),
        ("coalesce((4,2):(1,4),(1,1,1))", "no_such_mode"),
        ("Sw<60,2,1>", "too_large"),
        ("composition((4000000,2,2):(1,0,5),(3999999,3):(1,4000001))", "undecided"),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

#[test]
fn size_of_the_text_is_bounded() {
    let many = 100_000;
    for open in ["(", "<", "coalesce(", "size(<"] {
        assert_eq!(kind(&open.repeat(many)), "too_deep");
    }
    assert_eq!(kind(&format!("{}4{}", "(".repeat(many), ")".repeat(many))), "too_deep");
    assert_eq!(kind(&format!("slice(4:1,{}", "(".repeat(many))), "too_deep");
    assert_eq!(kind(&format!("({}1)", "1,".repeat(many))), "too_large");
    assert_eq!(kind(&format!("4:1{}", "(0)".repeat(many))), "too_deep");
    assert_eq!(kind(&format!("concat({}4:1)", "size(4:1),".repeat(many))), "too_large");
    assert_eq!(kind(&"9".repeat(many)), "overflow");
    assert_eq!(kind(&"a".repeat(many)), "parse");
    assert_eq!(kind(&" ".repeat(many)), "parse");
    // At the limits it works.
    let ones = format!("({}1)", "1,".repeat(MAX_LEAVES - 1));
    assert_eq!(evaluate(&format!("size({ones}:{ones})")), Ok(Value::Integer(1)));
    let deep = format!("{}4{}", "(".repeat(MAX_DEPTH), ",)".repeat(MAX_DEPTH));
    assert_eq!(evaluate(&format!("depth({deep}:{deep})")), Ok(Value::Integer(MAX_DEPTH as i64)));
    assert_eq!(kind(&format!("concat({deep}:{deep})")), "too_deep");
    assert_eq!(kind(&format!("composition((2,2):(1,3),{deep}:{})", deep.replace('4', "1"))), "too_deep");
    let calls = format!("{}4:1{}", "coalesce(".repeat(60), ")".repeat(60));
    assert_eq!(evaluate(&calls).map(|value| value.to_string()).as_deref(), Ok("4:1"));
}

#[test]
fn carets_stand_under_the_place() {
    for (text, caret) in [
        ("coalesce((4,2:1)", "coalesce((4,2:1)\n             ^"),
        ("size(4)", "size(4)\n     ^"),
        ("é + 1", "é + 1\n^"),
        ("(é", "(é\n ^"),
        ("4:1 é", "4:1 é\n    ^"),
    ] {
        let error = evaluate(text).expect_err("bad");
        assert_eq!(error.kind(), ErrorKind::Parse);
        assert!(error.render().ends_with(caret), "{}", error.render());
    }
    let long = format!("coalesce({}:{}", "(".to_owned() + &"1,".repeat(500), "x");
    assert!(evaluate(&long).is_err_and(|error| error.render().len() < 400));
}

#[test]
fn nesting_up_to_the_limit_needs_little_stack() {
    let deep = |function: &str| format!("{}4:1{}", function.repeat(63), ")".repeat(63));
    let texts = [
        deep("coalesce("),
        deep("concat("),
        format!("4:1{}", "(0)".repeat(63)),
        format!("{}4:1{}", "<".repeat(63), ">".repeat(63)),
        format!(
            "composition({}4:1{},{}2:1{})",
            "(".repeat(60),
            ",)".repeat(0),
            "<".repeat(60),
            ">".repeat(60)
        ),
        format!("{}(0){}", "4:1(".repeat(63), ")".repeat(63)),
    ];
    // A quarter of a thread's default stack.
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    let run = move || texts.iter().filter(|text| evaluate(text).is_ok()).count();
    assert_eq!(small.spawn(run).expect("a thread").join().ok(), Some(3));
}
