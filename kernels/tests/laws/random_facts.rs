//! Compares random numbers with those of JAX and PyTorch, which `scripts/jax_random.py` wrote and documents.

use std::collections::BTreeMap;

use reshard_kernels::DType;
use reshard_kernels::random::{Draw, Generator, IndexRun, Key, definition, fill};
use serde_json::Value;

const FACTS: &str = include_str!("../data/jax_random.jsonl");

fn lines() -> impl Iterator<Item = Value> {
    FACTS.lines().map(|line| serde_json::from_str(line).expect("a JSON object"))
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|x| x.as_u64().expect("a number")).collect()
}

fn key(generator: &str, words: &Value) -> Key {
    let words = numbers(words);
    match generator.parse().expect("a generator") {
        Generator::Threefry => Key::Threefry([words[0] as u32, words[1] as u32]),
        Generator::Philox => Key::Philox { seed: words[0], offset: words[1] },
    }
}

/// Returns the elements as integers, for any dtype.
fn words(bytes: &[u8], item: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| match bytes.len() {
        1 => u64::from(bytes[0]),
        2 => u64::from(u16::from_ne_bytes(bytes.try_into().unwrap())),
        4 => u64::from(u32::from_ne_bytes(bytes.try_into().unwrap())),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap()),
    };
    bytes.chunks_exact(item).map(word).collect()
}

/// Returns the number of floats between two, given as words of this dtype.
fn apart(dtype: DType, a: u64, b: u64) -> u64 {
    let sign = 1u64 << (dtype.bits() - 1);
    let ordered = |x: u64| if x & sign == 0 { i128::from(x) } else { -i128::from(x & (sign - 1)) };
    ordered(a).abs_diff(ordered(b)) as u64
}

#[test]
fn keys_are_those_of_jax_and_pytorch() {
    let mut compared = 0;
    for line in lines().filter(|line| line["split"].is_array()) {
        let generator = line["generator"].as_str().unwrap();
        let parent = key(generator, &line["key"]);
        let seeded = Key::with(generator.parse().unwrap(), line["seed"].as_u64().unwrap());
        assert_eq!(seeded, parent);
        let want: Vec<Key> =
            line["split"].as_array().unwrap().iter().map(|words| key(generator, words)).collect();
        assert_eq!(parent.split(want.len() as u64).collect::<Vec<_>>(), want, "{line}");
        for folded in line["fold_in"].as_array().unwrap() {
            assert_eq!(parent.fold_in(folded[0].as_u64().unwrap()), key(generator, &folded[1]), "{line}");
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn indices_of_more_than_32_bits_are_jaxs_counters() {
    let mut compared = 0;
    for line in lines().filter(|line| line["words"].is_array()) {
        let key = key("threefry", &line["key"]);
        for (index, want) in numbers(&line["indices"]).into_iter().zip(line["words"].as_array().unwrap()) {
            let want = numbers(want);
            let mut bytes = [0; 8];
            let run = IndexRun { start: index, len: 1, stride: 1 };
            fill(&key, Draw::Bits, DType::U64, &mut bytes, &[1 << 63, 2], [run]).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), want[0] << 32 | want[1], "{index}");
            fill(&key, Draw::Bits, DType::U32, &mut bytes[..4], &[1 << 63, 2], [run]).unwrap();
            assert_eq!(bytes[..4], ((want[0] ^ want[1]) as u32).to_ne_bytes());
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared}");
}

/// Returns the allowed distance between elements: 0 for draws of integers and products only.
fn tolerance(draw: Draw, dtype: DType) -> u64 {
    match draw {
        Draw::Bits | Draw::Uniform { .. } | Draw::Bernoulli { .. } | Draw::RandInt { .. } => 0,
        Draw::Normal { .. } if matches!(dtype, DType::F16 | DType::BF16) => 0,
        Draw::Normal { .. } | Draw::TruncatedNormal { .. } => 3,
        Draw::Exponential => 1,
        // Near 0, where a logarithm of nearly 1 has few digits left.
        Draw::Gumbel => 16,
    }
}

#[test]
fn elements_are_those_of_jax_and_pytorch() {
    let mut worst: BTreeMap<(String, &str), (u64, usize, usize)> = BTreeMap::new();
    let mut compared = BTreeMap::from([(Generator::Threefry, 0), (Generator::Philox, 0)]);
    for line in lines().filter(|line| line["draw"].is_string()) {
        let generator = line["generator"].as_str().unwrap();
        let key = key(generator, &line["key"]);
        let draw: Draw = line["draw"].as_str().unwrap().parse().unwrap();
        let dtype: DType = line["dtype"].as_str().unwrap().parse().unwrap();
        let shape: Vec<usize> = numbers(&line["shape"]).into_iter().map(|n| n as usize).collect();
        let item = dtype.element_bytes().unwrap();
        let digits = line["bits"].as_str().unwrap();
        let want: Vec<u64> = (0..digits.len() / (2 * item))
            .map(|i| u64::from_str_radix(&digits[i * 2 * item..][..2 * item], 16).unwrap())
            .collect();
        let run = IndexRun {
            start: line["from"].as_u64().unwrap_or(0),
            len: want.len() as u64,
            stride: line["step"].as_u64().unwrap_or(1),
        };
        let mut bytes = vec![0; want.len() * item];
        fill(&key, draw, dtype, &mut bytes, &shape, [run]).unwrap();
        let got = words(&bytes, item);
        for ((index, &got), &want) in run.indices().zip(&got).zip(&want) {
            let of_floats = !matches!(tolerance(draw, dtype), 0);
            let far = if of_floats { apart(dtype, got, want) } else { u64::from(got != want) };
            assert!(
                far <= tolerance(draw, dtype),
                "{generator} {key} {draw} {dtype} {index}: {got:x} is not {want:x}"
            );
            let seen = worst.entry((draw.name().to_owned(), dtype.name())).or_default();
            *seen = (seen.0.max(far), seen.1 + usize::from(far == 0), seen.2 + 1);
            *compared.entry(key.generator()).or_default() += 1;
        }
    }
    for ((draw, dtype), (far, equal, all)) in worst {
        println!(
            "{draw} of {dtype}: {equal} of {all} equal in every bit, the others differ by at most {far} ULPs"
        );
    }
    assert!(compared.values().all(|&n| n > 4000), "{compared:?}");
}

/// Compares the definition with the loops, for every draw and dtype in the data of JAX and PyTorch.
#[test]
fn the_definition_is_what_is_filled_in_all_facts() {
    let mut compared = 0;
    for line in lines().filter(|line| line["draw"].is_string()) {
        let key = key(line["generator"].as_str().unwrap(), &line["key"]);
        let draw: Draw = line["draw"].as_str().unwrap().parse().unwrap();
        let dtype: DType = line["dtype"].as_str().unwrap().parse().unwrap();
        let item = dtype.element_bytes().unwrap();
        let run = IndexRun { start: 1000, len: 20, stride: 3 };
        let mut bytes = vec![0; 20 * item];
        fill(&key, draw, dtype, &mut bytes, &[50, 50], [run]).unwrap();
        for (index, got) in run.indices().zip(bytes.chunks_exact(item)) {
            let want = definition::element(&key, draw, dtype, index).unwrap();
            assert_eq!(got, want, "{key} {draw} {dtype} {index}");
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}
