//! Random rules and chains of rules, from fixed seeds, against the definition.

use reshard_mapping::Mapping;
use reshard_test_support::Random;

use crate::definition::{self, Failure};
use crate::drawing::Draw;
use crate::tensor::{Tensors, distinct, run};

/// Returns sources: distinct numbers, or one number all over so that copies are equal.
fn sources(random: &mut Random) -> Tensors {
    let count = 1 + random.below(3);
    (0..count)
        .map(|number| {
            let rank = 1 + random.below(3);
            let shape: Vec<usize> = (0..rank).map(|_| *random.pick(&[1, 2, 3, 4, 6, 8, 12, 5])).collect();
            let mut tensor = distinct(number as u64, &shape);
            if random.below(6) == 0 {
                tensor.data.fill(7);
            }
            (format!("m.{number}.w"), tensor)
        })
        .collect()
}

/// Returns a rule for some sources.
fn drawn_rule(random: &mut Random, tensors: &Tensors, depth: usize, out: &str) -> String {
    let names = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect();
    rule_for(random, names, depth, out)
}

/// Returns a rule for expressions and their shapes.
fn rule_for(random: &mut Random, names: Vec<(String, Vec<usize>)>, depth: usize, out: &str) -> String {
    let mut draw = Draw { random, names };
    let (right, shape) = draw.expr(depth);
    let (left, end) = draw.left(out, &shape, 1);
    if end.is_empty() {
        format!("{left} = {right}")
    } else if right.starts_with("cat(") {
        // `on` and `by` at the end of a rule are of the left side only if the right side has one part.
        format!("{out} = {right}")
    } else {
        format!("{left} = {right}{end}")
    }
}

/// The counts of a run of drawn rules.
#[derive(Default, Debug)]
struct Counts {
    equal: usize,
    differ: usize,
    invalid: usize,
}

/// Compares a rule with the definition; returns the results if there are any.
fn compare(rule: &str, tensors: &Tensors, counts: &mut Counts) -> Option<Tensors> {
    let expected = definition::apply(rule, tensors);
    let found = rule.parse::<Mapping>().and_then(|mapping| {
        let again: Mapping = mapping.to_string().parse().unwrap();
        assert_eq!(again, mapping, "{rule}");
        run(&mapping, tensors)
    });
    match (expected, found) {
        (Ok(Some(expected)), Ok(Some(found))) => {
            assert_eq!(found, expected, "{rule}");
            counts.equal += 1;
            Some(found.into_iter().collect())
        }
        // Copies that differ are found from data; a later part of the rule may be invalid for its shape.
        (Ok(None), Ok(None) | Err(_)) => {
            counts.differ += 1;
            None
        }
        (Err(Failure::Invalid), Err(_)) => {
            counts.invalid += 1;
            None
        }
        (expected, found) => panic!("{rule}: expected {expected:?}, found {found:?}"),
    }
}

#[test]
fn drawn_rules_equal_the_definition() {
    let mut counts = Counts::default();
    for seed in 0..1500 {
        let mut random = Random(seed * 7919 + 1);
        let tensors = sources(&mut random);
        let depth = random.below(5);
        let rule = drawn_rule(&mut random, &tensors, depth, "out");
        compare(&rule, &tensors, &mut counts);
    }
    assert!(counts.equal > 1000 && counts.differ > 5 && counts.invalid > 5, "{counts:?}");
}

#[test]
fn drawn_rules_of_many_names_equal_the_definition() {
    let mut counts = Counts::default();
    for seed in 0..400 {
        let mut random = Random(seed * 6271 + 9);
        let shapes: Vec<Vec<usize>> =
            (0..3).map(|k| (0..=k).map(|_| *random.pick(&[1, 2, 3, 4, 6])).collect()).collect();
        let (layers, experts) = (1 + random.below(3), 1 + random.below(4));
        let mut tensors = Tensors::new();
        for layer in 0..layers {
            for (name, shape) in [("w", &shapes[2]), ("bias", &shapes[0])] {
                tensors.push((format!("m.{layer}.{name}"), distinct(tensors.len() as u64, shape)));
            }
            for expert in 0..experts {
                let name = format!("m.{layer}.e.{expert}.w");
                tensors.push((name, distinct(tensors.len() as u64, &shapes[1])));
            }
        }
        let mut stacked = shapes[1].clone();
        let dim = random.below(3);
        stacked.insert(dim, experts);
        let mut inner =
            Draw { random: &mut random, names: vec![("m.{l}.e.#.w".to_owned(), shapes[1].clone())] };
        let (within, shape) = inner.expr(1);
        let names = vec![
            ("m.{l}.w".to_owned(), shapes[2].clone()),
            ("m.{l}.bias".to_owned(), shapes[0].clone()),
            (format!("stack(m.{{l}}.e.#.w on {dim})"), stacked),
            (format!("stack({within})"), [vec![experts], shape].concat()),
        ];
        let depth = random.below(4);
        let rule = rule_for(&mut random, names, depth, "out.{l}");
        compare(&rule, &tensors, &mut counts);
    }
    assert!(counts.equal > 250, "{counts:?}");
}

#[test]
fn drawn_chains_equal_the_definition() {
    let mut counts = Counts::default();
    for seed in 0..300 {
        let mut random = Random(seed * 104_729 + 5);
        let mut tensors = sources(&mut random);
        for step in 0..4 {
            let depth = 1 + random.below(2);
            let rule = drawn_rule(&mut random, &tensors, depth, &format!("out{step}"));
            match compare(&rule, &tensors, &mut counts) {
                Some(made) if !made.is_empty() && made.iter().all(|(_, t)| t.data.len() < 5000) => {
                    tensors = made;
                }
                Some(_) | None => break,
            }
        }
    }
    assert!(counts.equal > 500, "{counts:?}");
}

#[test]
fn slices_that_do_not_align_are_equal_to_the_definition() {
    // A dim of 12 and 13 indices, sliced at all indices, regrouped by many divisors.
    let mut counts = Counts::default();
    for extent in [12, 13] {
        let tensors = vec![("x".to_owned(), distinct(0, &[extent]))];
        for start in 0..extent {
            for (size, inner) in [(12, 2), (12, 3), (12, 4), (12, 6), (10, 5), (15, 3), (15, 5), (16, 8)] {
                let text =
                    format!("pad(cat(x[{start}:] + x on 0)[0:{}], {size})", size.min(2 * extent - start));
                let rule = format!("y = rearrange({text}, '(a b) -> (b a)', b={inner})");
                compare(&rule, &tensors, &mut counts);
                // Axes of steps that share no factor with the next split.
                let rule = format!(
                    "y = rearrange(rearrange({text}, '(a b) -> (b a)', b={inner})[1:{}], '(c d) -> d c', d={})",
                    size - 1,
                    if (size - 2) % 5 == 0 { 5 } else { 2 }
                );
                compare(&rule, &tensors, &mut counts);
            }
        }
    }
    assert!(counts.equal > 200, "{counts:?}");
}
