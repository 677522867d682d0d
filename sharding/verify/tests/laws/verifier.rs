//! The validator on small ops: strategies that it must find, and those that it must reject.

#![allow(
    clippy::type_complexity,
    clippy::needless_range_loop,
    clippy::unnecessary_wraps,
    reason = "small ops"
)]

use reshard_ops::rules::{Op, Rule};
use reshard_verify::{Data, LocalView, Tensor, Verifier};

type Out = Result<Vec<Tensor>, String>;

fn pointwise(f: fn(f64) -> f64) -> impl Fn(&LocalView<'_>) -> Out {
    move |l| {
        let x = l.inputs[0];
        Ok(vec![Tensor::new(&x.shape, x.data.iter().map(|&v| f(v)).collect())])
    }
}

fn batched(l: &LocalView<'_>) -> Out {
    let (x, w) = (l.inputs[0], l.inputs[1]);
    let [a, b, i] = x.shape[..] else { return Err("three dims".into()) };
    let [a2, o, i2] = w.shape[..] else { return Err("three dims".into()) };
    if (a, i) != (a2, i2) {
        return Err("the factors differ".into());
    }
    let mut out = Vec::new();
    for p in 0..a {
        for q in 0..b {
            for r in 0..o {
                out.push((0..i).map(|s| x.data[(p * b + q) * i + s] * w.data[(p * o + r) * i + s]).sum());
            }
        }
    }
    Ok(vec![Tensor::new(&[a, b, o], out)])
}

fn found(v: &Verifier<'_>, calls: &[(&[&[usize]], &[&[usize]])]) -> Vec<String> {
    v.discover(calls).unwrap().found.iter().map(ToString::to_string).collect()
}

fn op(rule: &str, inputs: &[&[usize]]) -> Op {
    Op::new("op", &rule.parse().unwrap(), inputs).unwrap()
}

#[test]
fn a_batched_product_has_exactly_nine_strategies() {
    let v = Verifier::new("abi,aoi->abo", batched);
    let calls: &[(&[&[usize]], &[&[usize]])] =
        &[(&[&[6, 4, 5], &[6, 3, 5]], &[&[6, 4, 3]]), (&[&[3, 5, 6], &[3, 6, 6]], &[&[3, 5, 6]])];
    let mut all = found(&v, calls);
    all.sort();
    let mut wanted = vec![
        "?0,?0 -> ?0",
        "?1,R -> ?1",
        "R,?1 -> ?2",
        "?2,?2 -> P",
        "R,R -> R",
        "P,R -> P",
        "R,P -> P",
        "P(avg),R -> P(avg)",
        "R,P(avg) -> P(avg)",
    ];
    // Partial values of a product are a product of partial values in one more case: none here, since a sum of
    // products is not a product.
    wanted.sort_unstable();
    assert_eq!(all, wanted);
    let ops: Vec<Op> = calls.iter().map(|(i, _)| op("abi,aoi->abo", i)).collect();
    let verdict = v.verify(&ops).unwrap();
    assert!(verdict.missing.is_empty(), "{verdict}");
    assert_eq!(verdict.searched, (100, 100));
    let mutants = v.mutants(&ops, &verdict).unwrap();
    assert!(mutants.missed.is_empty() && mutants.caught > 150, "{mutants:?}");
}

/// A copy into the wanted shape: a search that requests only whole outputs would find its shards wrong.
#[test]
fn what_reads_what_is_wanted_has_to_say_so() {
    let as_wanted = |l: &LocalView<'_>| -> Out {
        let x = l.inputs[0];
        let shape = l.output_regions[0].shape();
        let size: usize = shape.iter().product();
        Ok(vec![Tensor::new(&shape, (0..size).map(|i| x.data.get(i).copied().unwrap_or(0.0)).collect())])
    };
    let ops = [op("a->a", &[&[6]])];
    let refused = Verifier::new("copy", as_wanted).verify(&ops).unwrap_err().to_string();
    assert!(refused.contains("set `wants_outputs`"), "{refused}");
    let v = Verifier::new("copy", as_wanted).wants_outputs();
    let verdict = v.verify(&ops).unwrap();
    let mutants = v.mutants(&ops, &verdict).unwrap();
    assert!(mutants.missed.is_empty() && mutants.caught > 0, "{mutants:?}");
}

/// All sets are in memory at once, so their number is bounded; zero sets prove nothing.
#[test]
fn the_number_of_data_sets_has_bounds() {
    let ops = [op("a->a", &[&[6]])];
    let relu = |sets| Verifier::new("relu", pointwise(|x| x.max(0.0))).sets(sets);
    for sets in [0, Verifier::MOST_SETS + 1, usize::MAX] {
        let expected = format!("the number of data sets must be 1 to 1024, not {sets}");
        let errors = [relu(sets).verify(&ops).err(), relu(sets).failing(&ops).err()];
        let refused = errors.map(|error| error.unwrap().to_string());
        assert!(refused.iter().all(|said| said.ends_with(&expected)), "{refused:?}");
        let calls: &[(&[&[usize]], &[&[usize]])] = &[(&[&[6]], &[&[6]])];
        assert!(relu(sets).discover(calls).err().unwrap().to_string().ends_with(&expected));
    }
    assert!(relu(1).failing(&ops).is_ok());
}

#[test]
fn what_passes_terms_and_what_does_not() {
    let abs = Verifier::new("abs", pointwise(f64::abs));
    let calls: &[(&[&[usize]], &[&[usize]])] = &[(&[&[6, 5]], &[&[6, 5]]), (&[&[2, 3]], &[&[2, 3]])];
    assert_eq!(
        found(&abs, calls),
        ["R -> R", "?0 -> ?0", "?1 -> ?1", "P(prod) -> P(prod)", "P(norm2) -> P(norm2)"]
    );
    let threshold = Verifier::new("threshold", pointwise(|x| if x > 1.0 { x } else { 5.0 }));
    assert_eq!(found(&threshold, calls), ["R -> R", "?0 -> ?0", "?1 -> ?1"]);
    let relu = Verifier::new("relu", pointwise(|x| x.max(0.0)));
    let terms = ["P(min) -> P(min)", "P(max) -> P(max)"];
    assert_eq!(found(&relu, calls)[3..], terms);
    let neg = Verifier::new("neg", pointwise(|x| -x));
    let terms = ["P -> P", "P(avg) -> P(avg)", "P(min) -> P(max)", "P(max) -> P(min)"];
    assert_eq!(found(&neg, calls)[3..], terms);
    let exp = Verifier::new("exp", pointwise(f64::exp)).tolerance(1e-12);
    let terms = ["P -> P(prod)", "P(min) -> P(min)", "P(max) -> P(max)"];
    assert_eq!(found(&exp, calls)[3..], terms);
    for (wrong, rule) in [("P -> P", "...->... {linear}"), ("P(max) -> P(max)", "...->... {increasing}")] {
        let e = abs.verify(&[op(rule, &[&[6, 5]])]).unwrap_err().to_string();
        assert!(e.contains(wrong) && e.contains("is wrong on 2 ranks: element [0,"), "{e}");
    }
    assert!(threshold.verify(&[op("...->... {increasing}", &[&[6, 5]])]).is_err());
}

#[test]
fn the_transpose_of_a_vector_moves_no_shard() {
    let v = Verifier::new("t", |l| Ok(vec![l.inputs[0].clone()]));
    let all = found(&v, &[(&[&[6]], &[&[6]]), (&[&[5]], &[&[5]])]);
    assert_eq!(all[..2], ["R -> R", "?0 -> ?0"]);
    let e = v.verify(
        &["R -> ?0", "?0 -> R"]
            .map(|r| Op::with_outputs("t", &r.parse::<Rule>().unwrap(), &[&[6]], &[&[6]]).unwrap()),
    );
    let e = e.unwrap_err().to_string();
    assert!(e.contains("rank 0 returns [6] of output 0, but S(0) is [3] there"), "{e}");
}

fn max_with_index(l: &LocalView<'_>) -> Out {
    let x = l.inputs[0];
    let (rows, columns) = (x.shape[0], x.shape[1]);
    let of = l.input_regions[0].indices(1).unwrap();
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for i in 0..rows {
        let mut best = (f64::NEG_INFINITY, -1.0);
        for j in 0..columns {
            if x.data[i * columns + j] > best.0 {
                best = (x.data[i * columns + j], of[j] as f64);
            }
        }
        values.push(best.0);
        indices.push(best.1);
    }
    Ok(vec![Tensor::new(&[rows], values), Tensor::new(&[rows], indices)])
}

#[test]
fn a_maximum_has_terms_and_its_index_has_none() {
    let v = Verifier::new("max", max_with_index).data(&[Data::Distinct]);
    let calls: &[(&[&[usize]], &[&[usize]])] = &[(&[&[6, 6]], &[&[6], &[6]]), (&[&[4, 5]], &[&[4], &[4]])];
    assert_eq!(found(&v, calls), ["R -> R,R", "?0 -> ?0,?0"]);
    let values = Verifier::new("amax", |l| max_with_index(l).map(|mut o| vec![o.remove(0)]));
    let calls: &[(&[&[usize]], &[&[usize]])] = &[(&[&[6, 6]], &[&[6]]), (&[&[4, 2]], &[&[4]])];
    assert_eq!(found(&values, calls), ["R -> R", "?0 -> ?0", "?1 -> P(max)", "P(max) -> P(max)"]);
}

#[test]
fn averages_need_equal_parts() {
    let mean = |l: &LocalView<'_>| {
        let x = l.inputs[0];
        let n = x.data.len() as f64;
        Ok(vec![Tensor::new(&[], vec![x.data.iter().sum::<f64>() / n])])
    };
    let v = Verifier::new("mean", mean).tolerance(1e-12);
    let all = found(&v, &[(&[&[12]], &[&[]]), (&[&[7]], &[&[]])]);
    assert_eq!(all, ["R -> R", "?0 -> P(avg) (even)", "P -> P", "P(avg) -> P(avg)"]);
    let ops = [op("i-> {i: avg, linear}", &[&[12]]), op("i-> {i: avg, linear}", &[&[7]])];
    let mutants = v.mutants(&ops, &v.verify(&ops).unwrap()).unwrap();
    assert!(mutants.missed.is_empty(), "{mutants:?}");
    let never = v.verify(&ops[1..]).unwrap_err().to_string();
    assert!(never.contains("S(i0) -> P(avg) was never tried; add a call whose sizes divide by 2"), "{never}");
}

/// A panic of an op on a shard makes that strategy wrong, by name.
#[test]
fn an_op_that_panics_names_the_strategy() {
    let op = |whole: usize| {
        move |local: &LocalView<'_>| {
            let x = local.inputs[0];
            assert!(x.shape[0] == whole, "{} rows of {whole}", x.shape[0]);
            Ok(vec![x.clone()])
        }
    };
    let rule: Rule = "ij->ij {none}".parse().unwrap();
    let bound = Op::new("whole", &rule, &[&[6, 5]]).unwrap();
    let text = Verifier::new("whole", op(6)).verify(core::slice::from_ref(&bound)).unwrap_err().to_string();
    assert_eq!(text, "whole on [6,5]: S(i0) -> S(i0) is wrong on 2 ranks: rank 0 panics: 3 rows of 6");
    let text = Verifier::new("none", op(7)).verify(core::slice::from_ref(&bound)).unwrap_err().to_string();
    assert_eq!(text, "none: on whole tensors it panics: 6 rows of 7");
    let mesh: reshard_sharding::Mesh = "x=2".parse().unwrap();
    let rows = [reshard_sharding::Sharding::parse(&mesh, &[6, 5], "S(0)").unwrap()];
    let text = Verifier::new("whole", op(6)).holds(&bound, &rows, &rows).unwrap_err().to_string();
    assert_eq!(text, "whole on [6,5]: [S(0)] -> [S(0)] is wrong on x=2: rank 0 panics: 3 rows of 6");
}

#[test]
fn what_proves_nothing_is_refused() {
    let refused = |v: Verifier<'_>, rule: &str, inputs: &[&[usize]]| {
        v.verify(&[op(rule, inputs)]).unwrap_err().to_string()
    };
    let zero = || Verifier::new("zeros", pointwise(|_| 0.0));
    let e = refused(zero(), "...->...", &[&[6]]);
    assert_eq!(e, "zeros on [6]: output 0 is 0 everywhere, which proves nothing; give other data");
    assert!(zero().constant().verify(&[op("...->...", &[&[6]])]).is_ok());
    let nan = Verifier::new("nan", pointwise(f64::ln));
    assert!(refused(nan, "...->...", &[&[6]]).contains("has a NaN"));
    let first = Verifier::new("first", |l| Ok(vec![l.inputs[0].clone()]));
    let e = refused(first, "...,...->...", &[&[6], &[6]]);
    assert!(e.contains("input 1 does not affect the outputs"), "{e}");
    let shape = Verifier::new("shape", |l| Ok(vec![Tensor::new(&[1], vec![l.inputs[0].data[0]])]));
    assert!(refused(shape, "i->i", &[&[6]]).contains("output 0 is [1], but [6] by the rule"));
}
