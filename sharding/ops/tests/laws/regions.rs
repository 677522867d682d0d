//! The strategies that need their region: those of rules, against ops that see every shard as the whole.
//!
//! A strategy that holds needs its region if and only if it fails on a blind op. An example shows that it
//! fails; a rule that declares too much and an example that shows too little both fail here.

use std::collections::BTreeSet;

use reshard_ops::rules::{Op, OpCall, OpTable, Rule, Strategy};
use reshard_test_support::Sweep;
use reshard_verify::{Data, LocalView, Tensor, Verifier};

type Texts = BTreeSet<String>;

/// The strategies for which an op is declared to need its region.
pub(crate) fn needing(op: &Op) -> Vec<Strategy> {
    let rows = op.strategies().into_iter().zip(op.regions());
    rows.filter(|(_, region)| *region).map(|(strategy, _)| strategy).collect()
}

fn texts(rows: impl IntoIterator<Item = Strategy>) -> Texts {
    rows.into_iter().map(|s| s.to_string()).collect()
}

/// The difference between the strategies that fail on a blind op and those declared to, if any.
fn differing(blind: &Verifier<'_>, ops: &[Op]) -> Option<String> {
    let (failing, said) = (texts(blind.failing(ops).unwrap()), texts(ops.iter().flat_map(needing)));
    let only = |a: &Texts, b: &Texts| a.difference(b).cloned().collect::<Vec<_>>().join("; ");
    let differ = || {
        format!(
            "fail undeclared: {}; declared without failing: {}",
            only(&failing, &said),
            only(&said, &failing)
        )
    };
    (failing != said).then(differ)
}

#[test]
fn an_op_needs_its_region_exactly_where_it_fails_blind() {
    let table = OpTable::standard();
    let (mut wrong, mut count) = (Vec::new(), 0);
    let sweep = Sweep::asked();
    let taken = |i: usize| sweep.picks(16, i);
    for (_, e) in crate::reference_ops::all().into_iter().enumerate().filter(|(i, _)| taken(*i)) {
        let ops = e.ops(&table);
        count += ops.iter().map(|op| needing(op).len()).sum::<usize>();
        wrong.extend(differing(&e.blind(), &ops).map(|what| format!("{}: {what}", e.call)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > if sweep == Sweep::Sample { 2 } else { 10 }, "{count}");
}

/// A rule that declares too much or too little is found.
#[test]
fn what_is_said_wrongly_is_found() {
    let examples = crate::reference_ops::all();
    let e = examples
        .iter()
        .find(|e| e.call == "tril" && e.shapes[0].len() == 1 && e.shapes[0][0].len() == 3)
        .unwrap();
    for (said, found) in [
        ("i: region, j: region", None),
        ("i: region", Some("fail undeclared: S(j2) -> S(j2); declared without failing: ")),
        ("i: region, j: region, ...: region", Some("fail undeclared: ; declared without failing: ?0 -> ?0")),
    ] {
        let mut table = OpTable::empty();
        table.add("tril", format!("...ij->...ij {{{said}, selecting}}").parse().unwrap());
        assert_eq!(differing(&e.blind(), &e.ops(&table)).as_deref(), found, "{said}");
    }
}

/// A variant that writes into a tensor needs its region where the original op does.
#[test]
fn variants_that_write_inherit_it() {
    let table = OpTable::standard();
    let mut count = 0;
    for e in crate::reference_ops::all() {
        let OpCall::Named { name, .. } = e.call.parse().unwrap() else { continue };
        for (op, shapes) in e.ops(&table).iter().zip(&e.shapes) {
            let known = texts(needing(op));
            let base = texts(op.strategies());
            for suffix in ["_", ".out"] {
                let call: OpCall = e.call.replacen(&name, &format!("{name}{suffix}"), 1).parse().unwrap();
                let mut inputs = shapes.clone();
                if suffix == ".out" {
                    inputs.extend(op.outputs().iter().cloned());
                }
                let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
                let Ok(variant) = table.op(&call, &inputs) else { continue };
                for (mut row, region) in variant.strategies().into_iter().zip(variant.regions()) {
                    row.inputs.truncate(shapes.len());
                    let text = row.to_string();
                    assert!(base.contains(&text), "{call}: {text}");
                    assert_eq!(region, known.contains(&text), "{call}: {text}");
                    count += usize::from(region);
                }
            }
        }
    }
    assert!(count > 100, "{count}");
}

/// `x w` where the column is not after the row, else 0.
fn lower(l: &LocalView<'_>) -> Vec<Tensor> {
    let (x, w) = (l.inputs[0], l.inputs[1]);
    let (rows, columns) = (l.input_regions[0].indices(0).unwrap(), l.input_regions[1].indices(1).unwrap());
    let (m, k, n) = (x.shape[0], x.shape[1], w.shape[1]);
    let at = |i: usize, j: usize| (0..k).map(|c| x.data[i * k + c] * w.data[c * n + j]).sum::<f64>();
    let element = |i: usize, j: usize| if columns[j] <= rows[i] { at(i, j) } else { 0.0 };
    vec![Tensor::new(
        &[m, n],
        (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect(),
    )]
}

/// Rows of a table, of which a rank has some, by index, times a matrix.
fn projected(l: &LocalView<'_>) -> Vec<Tensor> {
    let (t, index, w) = (l.inputs[0], l.inputs[1], l.inputs[2]);
    let held = l.input_regions[0].indices(0).unwrap();
    let (d, n) = (t.shape[1], w.shape[1]);
    let row = |word: f64| held.iter().position(|&v| v == word as usize);
    let found = |word: f64, c: usize| row(word).map_or(0.0, |v| t.data[v * d + c]);
    let element = |word: f64, j: usize| (0..d).map(|c| found(word, c) * w.data[c * n + j]).sum();
    let all = index.data.iter().flat_map(|&word| (0..n).map(move |j| (word, j)));
    vec![Tensor::new(&[index.shape[0], n], all.map(|(word, j)| element(word, j)).collect())]
}

/// A loop of a composite needs its region if an op that has it does.
#[test]
fn composites_inherit_it() {
    type Run = fn(&LocalView<'_>) -> Vec<Tensor>;
    type Case<'a> = (&'a str, &'a [&'a [usize]], Run, Vec<Data>, &'a [&'a str]);
    let cases: [Case<'_>; 2] = [
        (
            "x, w -> y: h = mm(x, w); y = tril(h)",
            &[&[6, 4], &[4, 6]],
            lower,
            Vec::new(),
            &["R,S(b1) -> S(b1)", "S(a0),R -> S(a0)"],
        ),
        (
            "t, i, w -> y: e = embedding(t, i); y = mm(e, w)",
            &[&[6, 4], &[6], &[4, 6]],
            projected,
            vec![Data::Integers, Data::Index { below: 6 }, Data::Integers],
            &["S(c0),R,R -> P"],
        ),
    ];
    for (body, shapes, run, data, expected) in cases {
        let mut table = OpTable::standard();
        table.add_composite("it", body.parse().unwrap()).unwrap();
        let op = table.op(&OpCall::new("it"), shapes).unwrap();
        let ops = std::slice::from_ref(&op);
        let verifier = || Verifier::new(body, move |l| Ok(run(l))).data(&data).budget(0);
        verifier().verify(ops).unwrap();
        assert_eq!(differing(&verifier().without_regions(), ops), None, "{body}: {}", op.rule().unwrap());
        assert_eq!(texts(needing(&op)).iter().map(String::as_str).collect::<Vec<_>>(), expected, "{body}");
    }
}

#[test]
fn regions_are_read_back_and_refused_in_one_sentence() {
    for text in [
        "...ij->...ij {i: region, j: region}",
        "...->... {...: region}",
        "vd,...->...d {v: region, ...: region, multilinear(0)}",
        "i->ic {i: even region, c: region 4}",
        "?0,R -> ?0 region; R,?0 -> ?0; S(0),R -> S(0) region",
    ] {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        assert_eq!(rule.to_string(), text);
    }
    let list: Rule = "?0 -> ?0 region; R -> R".parse().unwrap();
    let op = Op::with_outputs("it", &list, &[&[6]], &[&[6]]).unwrap();
    assert_eq!(op.regions(), [true, false]);
    assert_eq!(op.regions().len(), op.strategies().len());
    for (text, reason) in [
        (
            "i->i {...: region}",
            "\"i->i {...: region}\": no operand has an ellipsis whose dims could need their region",
        ),
        ("...->... {...: even}", "region"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
