//! Each kind of error, with its values in one message.

use reshard_mapping::Mapping;
use reshard_transfer::{Agreement, ErrorKind, Options, Side, Transfer};

fn side(mesh: &str, tensors: &[(&str, &str, &str, &str)]) -> Side {
    let tensors: Vec<String> = tensors
        .iter()
        .map(|(name, dtype, shape, placements)| {
            format!(
                r#"{{"name": "{name}", "dtype": "{dtype}", "shape": {shape}, "placements": "{placements}"}}"#
            )
        })
        .collect();
    Side::from_json(&format!(r#"{{"mesh": "{mesh}", "tensors": [{}]}}"#, tensors.join(", "))).unwrap()
}

/// Plans; the error has one line, and the words.
fn refused(source: &Side, target: &Side, mapping: &Mapping, kind: ErrorKind, words: &[&str]) {
    let error = Transfer::plan(source, target, mapping, &Options::default()).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!text.contains('\n'), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word} in: {text}");
    }
}

fn rules(text: &str) -> Mapping {
    text.parse().unwrap()
}

#[test]
fn targets_that_nothing_writes() {
    let source = side("dp=2", &[("embed", "f32", "[500, 256]", "S(0)")]);
    let target = side("tp=4@2", &[("lm_head", "f32", "[512, 256]", "S(0)")]);
    let words = ["rows 500 to 512 of `lm_head`", "pad(.., 512 on 0)"];
    refused(&source, &target, &rules("lm_head = embed"), ErrorKind::Unwritten, &words);
    let narrow = side("tp=4@2", &[("lm_head", "f32", "[500, 300]", "S(0)")]);
    let words = ["indices of dim 1 256 to 300 of `lm_head`"];
    refused(&source, &narrow, &rules("lm_head = embed"), ErrorKind::Unwritten, &words);
    let other = side("tp=4@2", &[("embed", "f32", "[500, 256]", "S(0)"), ("b", "f32", "[4]", "R")]);
    refused(&source, &other, &Mapping::default(), ErrorKind::Unwritten, &["`b`", "add a rule"]);
    let padded = Transfer::plan(&source, &target, &rules("lm_head = pad(embed, 512)"), &Options::default());
    assert!(padded.is_ok());
}

#[test]
fn names_that_do_not_meet() {
    let source = side("dp=2", &[("a", "f32", "[8]", "S(0)"), ("b", "f32", "[8]", "S(0)")]);
    let target = side("dp=2@2", &[("a", "f32", "[8]", "S(0)")]);
    let none = Mapping::default();
    refused(&source, &target, &none, ErrorKind::TargetLacks, &["no `b`", "`drop b`"]);
    assert!(Transfer::plan(&source, &target, &rules("drop b"), &Options::default()).is_ok());
    refused(&source, &target, &rules("c = b"), ErrorKind::TargetLacks, &["`c`", "rule"]);
    refused(
        &source,
        &target,
        &rules("drop b\nx = y"),
        ErrorKind::UnusedRule,
        &["x = y", "matches no tensor"],
    );
    refused(&source, &target, &rules("a = a + z\ndrop b"), ErrorKind::SourceLacks, &["`z`"]);
    let twice = "a = b";
    refused(&source, &target, &rules(twice), ErrorKind::WrittenTwice, &["`a`", "`a = b`", "drop a"]);
    let both = "a = b[0:8]\na = a[0:8]";
    refused(&source, &target, &rules(both), ErrorKind::WrittenTwice, &["`a`", "a = b[0:8]", "a = a[0:8]"]);
}

#[test]
fn patterns_that_match_nothing() {
    let (source, target) =
        (side("a=2", &[("w", "f32", "[4]", "R")]), side("b=2@2", &[("w", "f32", "[4]", "R")]));
    let misspelled = rules("").with_cast("*.weigth", "bf16").unwrap();
    refused(&source, &target, &misspelled, ErrorKind::UnusedRule, &["`*.weigth`", "no tensor of the target"]);
    let unused = rules("").with_placements("v", "S(0)");
    refused(&source, &target, &unused, ErrorKind::UnusedRule, &["`v`"]);
}

#[test]
fn types_and_shapes_that_differ() {
    let source = side("dp=2", &[("w", "f32", "[8, 4]", "S(0)")]);
    let target = side("dp=2@2", &[("w", "bf16", "[8, 4]", "S(0)")]);
    let words = ["`w` is bf16 on the target and f32 on the source", "no cast names it", "\"w\" = \"bf16\""];
    refused(&source, &target, &Mapping::default(), ErrorKind::DtypeMismatch, &words);
    let kept = Mapping::default().with_cast("w", "keep").unwrap().with_cast("*", "bf16").unwrap();
    refused(&source, &target, &kept, ErrorKind::DtypeMismatch, &["bf16", "f32"]);
    let named = Mapping::default().with_cast("*", "bf16").unwrap();
    assert!(Transfer::plan(&source, &target, &named, &Options::default()).is_ok());
    let other = side("dp=2@2", &[("w", "f32", "[4, 8]", "S(0)")]);
    refused(&source, &other, &Mapping::default(), ErrorKind::LocalShape, &["[4, 8]", "[8, 4]"]);
    let partial = side("dp=2", &[("w", "f32", "[8, 4]", "P")]);
    let same = side("dp=2@2", &[("w", "f32", "[8, 4]", "S(0)")]);
    refused(&partial, &same, &Mapping::default(), ErrorKind::Invalid, &["`w`", "partial"]);
}

#[test]
fn buffers_that_differ_from_their_pieces() {
    let source = side("tp=2", &[("q", "f32", "[64, 64]", "S(0)"), ("k", "f32", "[16, 64]", "S(0)")]);
    let server = |extra: &str, placements: &str| {
        let text = format!(
            r#"{{"mesh": "kv=2,rep=2@4", "tensors": [{{"name": "qk", "dtype": "f32", "placements": "{placements}"{extra}}}]}}"#
        );
        Side::from_json(&text).unwrap()
    };
    let (rule, placements) = (rules("qk = q | k"), "S(0),S(0) | S(0),R");
    let wrong = server(r#", "local_shapes": {"5": [28, 64]}"#, placements);
    let words = ["`qk` is [28, 64] on rank 5", "parts make [24, 64]"];
    refused(&source, &wrong, &rule, ErrorKind::LocalShape, &words);
    refused(&source, &server("", "S(0),S(0) | S(0),R | R,R"), &rule, ErrorKind::Invalid, &["2 parts", "3"]);
    refused(&source, &server("", "S(0),S(0) | R,S(1)"), &rule, ErrorKind::LocalShape, &["dim 1", "rank 4"]);
    assert!(Transfer::plan(&source, &server("", placements), &rule, &Options::default()).is_ok());
}

#[test]
fn placements_of_the_mapping_are_used() {
    let source = side("tp=2", &[("w", "f32", "[8]", "S(0)")]);
    let text = r#"{"mesh": "tp=2@2", "tensors": [{"name": "w", "dtype": "f32"}]}"#;
    let target = Side::from_json(text).unwrap();
    refused(
        &source,
        &target,
        &Mapping::default(),
        ErrorKind::Invalid,
        &["`w` has no placements", "[placements]"],
    );
    let mapping = Mapping::default().with_placements("*", "R");
    let plan = Transfer::plan(&source, &target, &mapping, &Options::default()).unwrap();
    assert_eq!(plan.bytes()[2].received, 32);
}

#[test]
fn descriptions_of_ranks_that_differ() {
    let both = side("dp=2", &[("w", "f32", "[8]", "S(0)"), ("b", "f32", "[8]", "R")]);
    let one = side("dp=2", &[("b", "f32", "[8]", "R")]);
    let error = Side::merge(&[(0, both.clone()), (1, one)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceLacks);
    assert!(error.to_string().starts_with("rank 1 has no `w`, which rank 0 has"), "{error}");
    let other = side("dp=2", &[("w", "f64", "[8]", "S(0)"), ("b", "f32", "[8]", "R")]);
    let error = Side::merge(&[(0, both.clone()), (1, other)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SidesDiffer);
    assert!(error.to_string().starts_with("`w` is f64[8] S(0) on dp=2 on rank 1, and f32[8]"), "{error}");
    assert_eq!(Side::merge(&[(0, both.clone()), (1, both.clone())]), Ok(both));
}

#[test]
fn buffers_of_ranks_are_merged() {
    let of = |rows: usize| {
        let text = format!(
            r#"{{"mesh": "tp=2", "tensors": [{{"name": "w", "dtype": "f32", "local_shape": [{rows}], "placements": "S(0)"}}]}}"#
        );
        Side::from_json(&text).unwrap()
    };
    let equal = Side::merge(&[(0, of(4)), (1, of(4))]).unwrap();
    assert_eq!(equal.tensors()[0].local_shape, Some(vec![4]));
    let uneven = Side::merge(&[(0, of(4)), (1, of(3))]).unwrap();
    assert_eq!(uneven.tensors()[0].local_shapes.len(), 2);
    let source = side("dp=1@2", &[("w", "f32", "[7]", "R")]);
    assert!(Transfer::plan(&source, &uneven, &Mapping::default(), &Options::default()).is_ok());
    refused(&source, &equal, &Mapping::default(), ErrorKind::LocalShape, &["[4] on rank 1", "make [3]"]);
}

#[test]
fn plans_that_differ_name_the_first_rule() {
    let (a, b) = (rules("a = b\nc = d"), rules("a = b\nc = e"));
    let error =
        Agreement::check(&[Agreement::new(0, 1, &a), Agreement::new(1, 1, &a), Agreement::new(5, 2, &b)])
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HashDiffers);
    let text = error.to_string();
    assert!(text.contains("rule 2 is `c = d` on rank 0 and `c = e` on rank 5"), "{text}");
    let error = Agreement::check(&[Agreement::new(0, 1, &a), Agreement::new(1, 2, &a)]).unwrap_err();
    assert!(error.to_string().contains("descriptions"), "{error}");
    assert_eq!(Agreement::check(&[Agreement::new(0, 1, &a), Agreement::new(1, 1, &a)]), Ok(()));
    assert_eq!(Agreement::check(&[]), Ok(()));
}

#[test]
fn the_hash_is_that_of_the_inputs() {
    let source = side("dp=2", &[("w", "f32", "[8]", "S(0)")]);
    let target = side("dp=2@2", &[("w", "f32", "[8]", "S(0)")]);
    let hash = |source: &Side, target: &Side, mapping: &Mapping, options: Options| {
        Transfer::plan(source, target, mapping, &options).unwrap().hash()
    };
    let none = Mapping::default();
    let first = hash(&source, &target, &none, Options::default());
    assert_eq!(hash(&source.clone(), &target, &none, Options::default()), first);
    let others = [
        hash(&target, &source, &none, Options::default()),
        hash(&source, &target, &none, Options::default().with_ranks_per_node(2)),
        hash(&source, &target, &none.clone().with_cast("*", "keep").unwrap(), Options::default()),
        hash(&source, &side("dp=2@2", &[("w", "f32", "[8]", "R")]), &none, Options::default()),
    ];
    assert!(others.iter().all(|hash| *hash != first));
}

#[test]
fn hostile_sides_are_errors() {
    let of = |text: &str| Side::from_json(text).map_err(|error| error.kind());
    let tensor =
        |rest: &str| format!(r#"{{"mesh": "a=2", "tensors": [{{"name": "w", "dtype": "f32"{rest}}}]}}"#);
    for text in [
        "",
        "[]",
        "{",
        r#"{"tensors": 3}"#,
        r#"{"tensors": [], "other": 1}"#,
        r#"{"tensors": [{"name": "w", "dtype": "f32"}]}"#,
        &tensor(r#", "shape": [-1]"#),
        &tensor(r#", "shape": [1e99]"#),
        &tensor(r#", "mesh": "a=0""#),
        &tensor("").replace("f32", "f4"),
        &tensor("").replace("f32", "float"),
        &tensor("").replace("\"w\"", "\"\""),
        &tensor("").replace("\"w\"", "\"a\\u0000\""),
    ] {
        assert_eq!(of(text), Err(ErrorKind::Invalid), "{text}");
    }
    assert_eq!(of(&tensor(r#", "mesh": "a=4000000000""#)), Err(ErrorKind::TooLarge));
    let plan = |rest: &str| {
        let side = Side::from_json(&tensor(rest)).unwrap();
        Transfer::plan(&side, &side, &Mapping::default(), &Options::default()).unwrap_err().kind()
    };
    assert_eq!(plan(r#", "shape": [18446744073709551615, 3], "placements": "R""#), ErrorKind::TooLarge);
    assert_eq!(plan(r#", "shape": [4], "placements": "S(1)""#), ErrorKind::Invalid);
    assert_eq!(plan(r#", "shape": [4], "placements": "S(0),R""#), ErrorKind::Invalid);
    assert_eq!(plan(r#", "shape": [4], "axes": ["b"], "placements": "R""#), ErrorKind::Invalid);
    assert_eq!(plan(r#", "shape": [4], "axes": ["a"], "placements": "R,R""#), ErrorKind::Invalid);
    assert_eq!(plan(r#", "placements": "R""#), ErrorKind::Invalid);
    let many = r#", "shape": [1099511627776], "placements": "SS(0,274877906944)""#;
    assert_eq!(plan(many), ErrorKind::TooLarge);
}
