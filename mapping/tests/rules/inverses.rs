//! Rules read backwards.

use reshard_mapping::{ErrorKind, Mapping};
use reshard_test_support::Random;

use crate::examples::{examples, tensors};
use crate::tensor::{Tensors, distinct, run};

fn there_and_back(lines: &str, sources: &Tensors) {
    let mapping: Mapping = lines.parse().unwrap();
    let inverse = mapping.inverse().unwrap();
    assert_eq!(inverse.inverse().unwrap(), mapping, "{lines}");
    assert_eq!(inverse.to_string().parse::<Mapping>().unwrap(), inverse, "{inverse}");
    let made: Tensors = run(&mapping, sources).unwrap().unwrap().into_iter().collect();
    let back = run(&inverse, &made).unwrap().unwrap();
    assert_eq!(back, sources.iter().cloned().collect(), "{lines}");
}

#[test]
fn examples_go_there_and_back() {
    let mut invertible = 0;
    for (name, lines, list) in examples() {
        let sources = tensors(&list);
        // The names in the examples' left sides lack the start that `*` has on the right side.
        let mapping: Mapping = lines.parse().unwrap();
        match mapping.inverse() {
            Ok(inverse) => {
                assert_eq!(inverse.inverse().unwrap(), mapping, "{name}");
                // Without shares a whole splits into equal parts, which these are not; and a source is made once.
                if name != "tied embeddings" && name != "repeated heads" {
                    there_and_back(lines, &sources);
                    invertible += 1;
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotInvertible, "{name}");
                assert!(lines.contains("drop") || lines.contains("pad"), "{name}");
            }
        }
    }
    assert_eq!(invertible, 9);
    let (_, lines, list) = &examples()[2];
    let with_shares =
        lines.replace("= *.q + rear", "= 2 *.q + 1 rear").replace("+ rearrange(*.v", "+ 1 rearrange(*.v");
    there_and_back(&with_shares, &tensors(list));
}

#[test]
fn drawn_permutations_go_there_and_back() {
    for seed in 0..200 {
        let mut random = Random(seed * 31 + 3);
        let (a, b, c) = (1 + random.below(4), 1 + random.below(5), 1 + random.below(3));
        let shape = [a * b * 2, c * 6];
        let axes = ["a", "b", "d", "c", "e"];
        let mut order: Vec<&str> = axes.to_vec();
        for k in (1..order.len()).rev() {
            order.swap(k, random.below(k + 1));
        }
        let split = 1 + random.below(4);
        let right = format!("({}) ({})", order[..split].join(" "), order[split..].join(" "));
        let pattern = format!("rearrange(x.*, '(a b d) (c e) -> {right}', a={a}, b={b}, c={c}, d=2, e=6)");
        let (dim, blocks) = (random.below(2), 1 + random.below(2));
        let left = [
            "y.*".to_owned(),
            format!("cat(2 y.*.a + y.*.b on {dim} by {blocks})"),
            format!("stack(y.*.# on {dim})"),
        ];
        let lines =
            format!("{} = {pattern}", random.pick(&left)).replace("cat(", "").replace(" on 0 by 1)", "");
        // The concatenation is written without its call: `on` and `by` are at the end of the rule.
        let lines = match lines.split_once(&format!(" on {dim} by {blocks})")) {
            Some((left, right)) => format!("{left}{right} on {dim} by {blocks}"),
            None => lines,
        };
        let sources: Tensors = (0..2).map(|k| (format!("x.{k}"), distinct(k, &shape))).collect();
        // Extents that do not split into the shares are an error there.
        if let Err(error) = run(&lines.parse().unwrap(), &sources) {
            assert_eq!(error.kind(), ErrorKind::Indivisible, "{lines}");
            continue;
        }
        there_and_back(&lines, &sources);
    }
}

#[test]
fn sides_of_several_parts_are_read_backwards() {
    let sources = vec![("c".to_owned(), distinct(0, &[4, 6])), ("d".to_owned(), distinct(1, &[2, 6]))];
    there_and_back(
        "2 a + b on 1 = c + d by 2",
        &[("c".to_owned(), distinct(0, &[4, 6])), ("d".to_owned(), distinct(1, &[4, 6]))].to_vec(),
    );
    there_and_back("a + b + e = 2 c + 1 d", &sources);
}

#[test]
fn all_else_is_not_invertible() {
    for lines in ["a = b[0:4]", "a = pad(b, 4)", "a = cast(b, bf16)", "drop a", "a = cat(b + c[0:4])"] {
        let error = lines.parse::<Mapping>().unwrap().inverse().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotInvertible, "{lines}: {error}");
    }
    // A variable that the left side lacks is not bound when the rule is read backwards.
    let error = "a = b.*".parse::<Mapping>().unwrap().inverse().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Syntax);
}
