//! Inputs that are made to take long or to overflow: an error, soon.

use std::time::Instant;

use reshard_mapping::{Dtype, ErrorKind, Mapping, SourceTensor};
use reshard_test_support::Random;

const SOURCES: [SourceTensor<'static>; 4] = [
    SourceTensor { name: "x", shape: &[1 << 40], dtype: Dtype::F32 },
    SourceTensor { name: "y", shape: &[1 << 20, 1 << 20], dtype: Dtype::F32 },
    SourceTensor { name: "empty", shape: &[0, 7], dtype: Dtype::F32 },
    SourceTensor { name: "s.0", shape: &[5], dtype: Dtype::F32 },
];

fn kind(lines: &str) -> ErrorKind {
    let start = Instant::now();
    let result = lines.parse::<Mapping>().and_then(|mapping| mapping.apply(&SOURCES));
    let kind = result.map(|_| ()).expect_err(&lines[..lines.len().min(80)]).kind();
    assert!(start.elapsed().as_secs() < 20, "{}", &lines[..lines.len().min(80)]);
    kind
}

#[test]
fn huge_extents_are_errors() {
    let max = u64::MAX;
    for (lines, expected) in [
        (format!("a = pad(x, {max})"), ErrorKind::TooLarge),
        (format!("a = pad(y, {max} on 1)"), ErrorKind::TooLarge),
        (format!("a = pad(x, {max}0)"), ErrorKind::TooLarge),
        (format!("a = {max}0 x"), ErrorKind::TooLarge),
        (format!("a = x[{max}:]"), ErrorKind::Shape),
        (format!("a = x + x on {max}"), ErrorKind::Shape),
        (format!("a = stack(s.# on {max})"), ErrorKind::Shape),
        (format!("a = x + x by {max}"), ErrorKind::Indivisible),
        (format!("{max} a + {max} b = x by {max}"), ErrorKind::Indivisible),
        (format!("a = {max} x + {max} s.0"), ErrorKind::Indivisible),
        (format!("a = rearrange(x, 'p -> p q', q={max})"), ErrorKind::TooLarge),
        (format!("a = rearrange(x, '(p q) -> p q', q={max})"), ErrorKind::Indivisible),
        (format!("a = rearrange(empty, '(p q r) e -> p q r e', p={max}, q={max})"), ErrorKind::Indivisible),
        (format!("a = rearrange(x, '(p q) -> p q', q={max}, p={max})"), ErrorKind::Indivisible),
        ("stack(a.#) = x".to_owned(), ErrorKind::TooComplex),
        ("stack(a.# on 1) = y".to_owned(), ErrorKind::TooComplex),
    ] {
        assert_eq!(kind(&lines), expected, "{lines}");
    }
}

#[test]
fn misaligned_splits_are_bounded() {
    let primes: SourceTensor<'_> =
        SourceTensor { name: "p", shape: &[1_048_573, 1_048_573], dtype: Dtype::F32 };
    let lines = "a = rearrange(pad(rearrange(p, 'a b -> (b a)'), 1099511627776), '(c d) -> d c', d=1048576)";
    let start = Instant::now();
    let error = lines.parse::<Mapping>().unwrap().apply(&[primes]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooComplex);
    assert!(error.to_string().contains("more than 65536 loop nests"), "{error}");
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn long_and_deep_rules_are_errors() {
    let deep = format!("a = {}x{}", "cat(x + ".repeat(10_000), ")".repeat(10_000));
    assert_eq!(kind(&deep), ErrorKind::TooLarge);
    let deep = format!("a = {}x{}", "cat(x + ".repeat(100), ")".repeat(100));
    assert_eq!(kind(&deep), ErrorKind::TooComplex);
    let slices = format!("a = s.0{}", "[0:5]".repeat(12_000));
    assert!(slices.parse::<Mapping>().unwrap().apply(&SOURCES).is_ok());
    let many = format!("a = s.0{}", " + s.0".repeat(10_000));
    assert_eq!(many.parse::<Mapping>().unwrap().apply(&SOURCES).unwrap().tensors[0].shape, [50_005]);
    assert_eq!(kind(&format!("a = {}", "*".repeat(1000))), ErrorKind::TooComplex);
    let axes: Vec<String> = (0..100).map(|k| format!("a{k}")).collect();
    assert_eq!(kind(&format!("a = rearrange(x, '({0}) -> {0}')", axes.join(" "))), ErrorKind::Syntax);
}

#[test]
fn random_text_never_panics() {
    let words = [
        "a",
        "x",
        "y",
        "s.#",
        "s.*",
        "{x}",
        "$h",
        " = ",
        " + ",
        " | ",
        " on ",
        " by ",
        "1",
        "0",
        "18446744073709551615",
        "(",
        ")",
        "[",
        "]",
        ":",
        ",",
        "'",
        "'a b -> b a'",
        "'a -> a'",
        "stack(",
        "unstack(",
        "cat(",
        "pad(",
        "rearrange(",
        "cast(",
        "bf16",
        "drop ",
        " == ",
        "//",
        "\n",
        "é",
        "empty",
        "a=2",
        "-",
        "\u{202e}",
    ];
    let mut random = Random(11);
    let mut valid = 0;
    for _ in 0..60_000 {
        let text: String = (0..=random.below(14)).map(|_| *random.pick(&words)).collect();
        if let Ok(mapping) = text.parse::<Mapping>() {
            assert_eq!(mapping.to_string().parse::<Mapping>().as_ref(), Ok(&mapping), "{text}");
            assert!(
                mapping.inverse().is_err() || mapping.inverse().unwrap().inverse().as_ref() == Ok(&mapping)
            );
            valid += usize::from(mapping.with_number("h", 2).unwrap().apply(&SOURCES[1..]).is_ok());
        }
    }
    assert!(valid > 100, "{valid}");
}
