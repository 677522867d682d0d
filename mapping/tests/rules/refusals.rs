//! Errors: their kinds, and messages on one line with the values.

use reshard_mapping::{Dtype, ErrorKind, Mapping, Rest, SourceTensor};

const SOURCES: [SourceTensor<'static>; 9] = [
    SourceTensor { name: "a", shape: &[4, 6], dtype: Dtype::F32 },
    SourceTensor { name: "b", shape: &[2, 6], dtype: Dtype::F32 },
    SourceTensor { name: "half", shape: &[4, 6], dtype: Dtype::BF16 },
    SourceTensor { name: "ids", shape: &[4], dtype: Dtype::I64 },
    SourceTensor { name: "scalar", shape: &[], dtype: Dtype::F32 },
    SourceTensor { name: "e.0", shape: &[4, 6], dtype: Dtype::F32 },
    SourceTensor { name: "e.2", shape: &[4, 6], dtype: Dtype::F32 },
    SourceTensor { name: "s.0.x", shape: &[3], dtype: Dtype::F32 },
    SourceTensor { name: "s.1.x", shape: &[3], dtype: Dtype::F32 },
];

fn refused(lines: &str) -> (ErrorKind, String) {
    let result = lines.parse::<Mapping>().and_then(|mapping| mapping.apply(&SOURCES));
    let error = result.map(|mapped| mapped.tensors).expect_err(lines);
    let text = error.to_string();
    assert!(!text.contains('\n') && text.starts_with("rule `"), "{text}");
    (error.kind(), text)
}

#[test]
fn rules_that_do_not_fit_the_sources() {
    let cases = [
        ("x = c", ErrorKind::NoMatch, "`c` matches no tensor"),
        ("x.* = c.*", ErrorKind::NoMatch, "`c.*` matches no tensor"),
        ("drop c.*", ErrorKind::NoMatch, "the pattern matches no tensor"),
        ("x = a + c", ErrorKind::Missing, "there is no tensor `c`"),
        ("drop a == c", ErrorKind::Missing, "there is no tensor `c`"),
        ("x = a\nx = b", ErrorKind::Duplicate, "`x` is made twice"),
        ("x = s.*.x", ErrorKind::Duplicate, "`x` is made twice"),
        ("x + x = a", ErrorKind::Duplicate, "`x` is made twice"),
        (
            "x = a + b by 4",
            ErrorKind::Indivisible,
            "the extent 2 of dim 0 does not split into 4 equal blocks",
        ),
        (
            "x = 3 a + 1 b",
            ErrorKind::Indivisible,
            "[4, 2] indices on dim 0, not in the ratio of the shares [3, 1]",
        ),
        (
            "x + y + z = a",
            ErrorKind::Indivisible,
            "the extent 4 of dim 0 does not split by the shares [1, 1, 1]; their sum must divide it",
        ),
        (
            "2 x.* + y.* = s.*.x by 2",
            ErrorKind::Indivisible,
            "`s.0.x`: the extent 3 of dim 0 does not split by the shares [2, 1]; their sum, times 2 blocks, must divide it",
        ),
        ("x.* = e.* + f.*", ErrorKind::Missing, "`e.0`: there is no tensor `f.0`"),
        ("x = a + half", ErrorKind::MixedTypes, "F32 and BF16; convert one of them by cast(..)"),
        ("x = a + b on 1", ErrorKind::Shape, "[4, 6] and [2, 6] differ on other dims than 1"),
        ("x = a + s.0.x", ErrorKind::Shape, "[4, 6] and [3] differ"),
        ("x = a + b on 2", ErrorKind::Shape, "`on 2` is over the dims of the shape [4, 6]"),
        ("x = scalar + scalar", ErrorKind::Shape, "`on 0` is over the dims of the shape []"),
        ("x = a[0:5]", ErrorKind::Shape, "the range 0:5 is not within dim 0 of [4, 6]"),
        ("x = a[3:2]", ErrorKind::Shape, "the range 3:2"),
        ("x = a[:, :, 0:1]", ErrorKind::Shape, "a slice has 3 ranges"),
        ("x = pad(a, 3)", ErrorKind::Shape, "dim 0 of [4, 6] is longer than 3 already"),
        ("x = stack(e.#)", ErrorKind::Gap, "`e.#` is stacked over 2 numbers, and 1 is missing"),
        ("x = stack(s.#.x on 2)", ErrorKind::Shape, "`on 2` is over the dims of a stack of shapes [3]"),
        ("x = rearrange(a, 'a -> a')", ErrorKind::Shape, "the left side has 1 dims"),
        ("x = rearrange(a, '(p q) r -> p q r', p=3)", ErrorKind::Indivisible, "do not make the extent 4"),
        ("x = rearrange(a, 'p q -> p q r')", ErrorKind::Syntax, "add r=N"),
        ("x = rearrange(a, '1 q -> q')", ErrorKind::Indivisible, "do not make the extent 4"),
        ("x = a[0:0] + rearrange(a[0:0], 'p q -> q')", ErrorKind::Shape, "no copy along p"),
        ("x = cast(ids, f32)", ErrorKind::NotFloat, "`ids` is I64"),
        ("drop a == b", ErrorKind::Differ, "`a` is F32 [4, 6] and `b` is F32 [2, 6]"),
        ("x = $n a", ErrorKind::UnknownNumber, "`$n` has no value; add `n = N` to [let] or pass --let n=N"),
        ("x = l.$n", ErrorKind::UnknownNumber, "`$n` has no value"),
    ];
    for (lines, kind, message) in cases {
        let (found, text) = refused(lines);
        assert_eq!(found, kind, "{lines}: {text}");
        assert!(text.contains(message), "{lines}: {text}");
    }
}

#[test]
fn rules_outside_of_the_grammar() {
    let cases = [
        ("a", "the rule ends (column 2), expected ` = `"),
        ("a = ", "the rule ends (column 4), expected a name"),
        ("= a", "found `=` (column 1), expected a name"),
        ("a = b c", "found `c` (column 7), expected the end of the rule"),
        ("a = b = c", "found `=` (column 7)"),
        ("a = b + c | d", "both + and | (column 11)"),
        ("a = b | c by 2", "blocks are of +, and | has none"),
        ("a | b = c by 2", "blocks are of +, and | has none"),
        ("a + b on 1 = c", "are at the end of the rule"),
        ("cat(a + b on 1) = c", "are at the end of the rule"),
        ("a = b on 1", "`on` and `by` need several parts"),
        ("a = cat(b + c) on 1", "`on` and `by` need several parts"),
        ("a + b = cat(b + c) on 1", "write them within cat(..)"),
        ("a = b + c on 1 on 1", "expected it at most once"),
        ("a = b + c by 0", "at least one block"),
        ("a = 0 b + c", "at least one share"),
        ("a = b + c on x", "found `x` (column 14), expected a number"),
        ("a = b + c on -1", "found `-1` (column 14), expected a number"),
        ("a = cat(b)", "expected several parts within cat(..)"),
        ("a = stack(b.# + c.#)", "several parts are one within cat(..)"),
        (
            "a = flip(b)",
            "found `flip` (column 5), expected one of: cast, cat, pad, rearrange, stack, unstack",
        ),
        ("a = pad(b)", "found `)` (column 10), expected `,`"),
        ("a = pad(b, x)", "expected the extent after padding"),
        ("a = pad(b, 3 on 1", "the rule ends (column 18), expected `)`"),
        ("a = pad(b on 1, 3 on 1)", "expected `on` at most once"),
        ("a = rearrange(b, c)", "expected a pattern such as 'a b -> b a'"),
        ("a = rearrange(b, 'x y')", "expected two lists of axes with -> between them"),
        ("a = rearrange(b, 'x -> x', 3)", "expected the extent of an axis such as h=32"),
        ("a = rearrange(b, 'x -> y', x)", "expected the extent of an axis such as h=32"),
        ("a = rearrange(b, 'x -> y, x=2)", "`'` (column 18) is not closed"),
        ("a = cast(b, i8)", "unknown type `i8`"),
        ("a = b[0:4", "`[` (column 6) is not closed"),
        ("a = b]", "`]` (column 6) has no `[`"),
        ("a = b[4]", "expected ranges such as [0:4]"),
        ("a = b[x:]", "expected ranges such as [0:4]"),
        ("a = 'b'", "found `'b'` (column 5), expected a name"),
        ("a = 4", "the rule ends"),
        ("a = b.#", "`b.#` has a # outside of stack(..)"),
        ("a.# = b", "`a.#` has a # outside of stack(..)"),
        ("a = stack(b)", "the first name in `stack(b)` has no #"),
        ("a = stack(stack(b.#))", "a stack within a stack"),
        ("a.* = b", "`a.*` has a variable that the first name of the right side lacks"),
        ("a = b + c.{x}", "`c.{x}` has a variable"),
        ("a.{N} = b.{N}", "`{N}` is not a valid variable"),
        ("a = unstack(b)[0:1]", "expected the end of the rule"),
        ("a = b + unstack(c)", "expected it only as the whole right side"),
        ("rearrange(a, 'x -> x') = unstack(b)", "only a name is made by unstack(..)"),
        ("drop a b", "expected `drop PATTERN`"),
        ("drop = a", "expected `drop PATTERN`"),
        ("drop a == ", "expected `drop PATTERN`"),
        ("drop + x = a", "expected `drop PATTERN`"),
    ];
    for (lines, message) in cases {
        let (kind, text) = refused(lines);
        assert_eq!(kind, ErrorKind::Syntax, "{lines}: {text}");
        assert!(text.contains(message), "{lines}: {text}");
    }
    for lines in ["a[0:1] = b", "pad(a, 3) = b", "cast(a, f32) = b", "c + stack(a.#[0:1]) = b"] {
        assert_eq!(refused(lines).0, ErrorKind::NotInvertible, "{lines}");
    }
}

#[test]
fn tensors_that_no_rule_names() {
    let mapping: Mapping = "x = a\ndrop e.*".parse().unwrap();
    let mapped = mapping.apply(&SOURCES).unwrap();
    assert_eq!(mapped.dropped, ["e.0", "e.2"]);
    assert_eq!(mapped.kept, ["b", "half", "ids", "scalar", "s.0.x", "s.1.x"]);
    let error = mapping.with_rest(Rest::Error).apply(&SOURCES).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unnamed);
    assert_eq!(error.to_string(), "no rule names the tensor `b`; add a rule, `drop b`, or rest = \"keep\"");
    let error = "b = a".parse::<Mapping>().unwrap().apply(&SOURCES).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("`b` is made twice")), (ErrorKind::Duplicate, true));
    let error = Mapping::default().apply(&[SOURCES[0], SOURCES[0]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Duplicate);
}

#[test]
fn types_follow_the_table() {
    let mapping: Mapping =
        "x = cast(half, f32) + cast(a, f16)[0:0] // empty\ny = cast(a, f16)".parse().unwrap();
    assert_eq!(mapping.apply(&SOURCES).unwrap_err().kind(), ErrorKind::MixedTypes);
    let mapping: Mapping = "x = cast(half, f32) + a\ny = cast(a, f16)\nz = cast(half, f32)".parse().unwrap();
    let mapping = mapping.with_cast("y", "f32").unwrap().with_cast("a*", "keep").unwrap();
    let mapped = mapping.with_cast("*", "bf16").unwrap().apply(&SOURCES).unwrap();
    let of = |name: &str| mapped.tensors.iter().find(|made| made.name == name).unwrap();
    let x = of("x");
    assert_eq!((x.dtype, &x.stored[..]), (Dtype::BF16, &[Dtype::BF16, Dtype::F32][..]));
    // The table applies last: the first half is stored as bf16, and needs no conversion.
    assert_eq!((&x.pieces[0].casts[..], &x.pieces[1].casts[..]), (&[][..], &[Dtype::BF16][..]));
    let y = of("y");
    assert_eq!((y.dtype, &y.pieces[0].casts[..]), (Dtype::F32, &[Dtype::F16, Dtype::F32][..]));
    assert_eq!((of("z").dtype, of("z").pieces[0].casts.len()), (Dtype::BF16, 0));
    assert_eq!((of("ids").dtype, of("b").dtype), (Dtype::I64, Dtype::BF16));
}
