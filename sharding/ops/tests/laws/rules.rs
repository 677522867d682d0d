//! The notation of rules and their binding to shapes.

use reshard_ops::rules::{Dim, FactorKind, Op, Operands, PartialRule, Rule, RuleBuilder};
use reshard_sharding::ReduceOp;

fn strategies(text: &str) -> Vec<String> {
    let rule: Rule = text.parse().unwrap();
    rule.strategies().iter().map(ToString::to_string).collect()
}

#[test]
fn printing_and_reading_are_inverse() {
    let same = [
        "mk,kn->mn",
        "bsh,h->bsh",
        "...,...->... {linear, increasing}",
        "ij->i {j: max}",
        "ij->ij {j: replicate}",
        "(ij)k->i(jk) {i: 4}",
        "i,i->",
        "(),ij->ij",
        "->mn",
        "i*,i*->i* {selecting}",
        "ij->i {j: avg, linear}",
        "ij->i1 {none}",
        "ij,i->i {j: max even, linear(0), (P(max),R -> P(max))}",
        "S(m0),R -> S(m0); R,?1 -> ?1; SS(0,2),R -> S(0)",
        "P,R -> P",
        "mn,mk,kn->mn {k: replicate, (P,S(k),S(k) -> P), linear(0,1), affine(0)}",
    ];
    for text in same {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string(), text);
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
    for (text, printed) in [
        ("ij -> i { j : sum }", "ij->i"),
        ("mk, kn -> mn {multilinear}", "mk,kn->mn"),
        ("ij->i {j: max, (P(max)->P(max))}", "ij->i {j: max}"),
        ("R,R->R", "R,R -> R"),
        ("ii->i", "ii->i"),
        ("ij->i {j: even avg; linear}", "ij->i {j: avg, linear}"),
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), printed);
    }
}

#[test]
fn strategies_follow_from_factors() {
    assert_eq!(
        strategies("abi,aoi->abo"),
        [
            "S(a),S(a) -> S(a)",
            "S(b),R -> S(b)",
            "R,S(o) -> S(o)",
            "S(i),S(i) -> P",
            "R,R -> R",
            "P,R -> P",
            "R,P -> P",
            "P(avg),R -> P(avg)",
            "R,P(avg) -> P(avg)",
        ]
    );
    assert_eq!(
        strategies("ij->i {j: max}"),
        ["S(i) -> S(i)", "S(j) -> P(max)", "R -> R", "P(max) -> P(max)"]
    );
    assert_eq!(strategies("ij->ij {j: replicate}"), ["S(i) -> S(i)", "R -> R"]);
    assert_eq!(
        strategies("...,...->... {linear}"),
        ["S(...),S(...) -> S(...)", "R,R -> R", "P,P -> P", "P(avg),P(avg) -> P(avg)"]
    );
    // The two dims of a diagonal cannot both be sharded over one axis.
    assert_eq!(strategies("ii->i {none}"), ["R -> R"]);
    assert_eq!(strategies("->mn"), ["-> S(m)", "-> S(n)", "-> R"]);
}

#[test]
fn shapes_are_bound_and_checked() {
    let op = |text: &str, inputs: &[&[usize]]| Op::new("op", &text.parse().unwrap(), inputs);
    let out = |text: &str, inputs: &[&[usize]]| op(text, inputs).unwrap().outputs()[0].clone();
    assert_eq!(out("mk,kn->mn", &[&[3, 4], &[4, 5]]), [3, 5]);
    assert_eq!(out("...,...->...", &[&[8, 1, 3], &[5, 3]]), [8, 5, 3]);
    assert_eq!(out("...,...->...", &[&[], &[5, 3]]), [5, 3]);
    assert_eq!(out("(ij)k->i(jk) {i: 4}", &[&[12, 5]]), [4, 15]);
    assert_eq!(out("b...i->b...", &[&[2, 3, 4, 5]]), [2, 3, 4]);
    for (text, inputs, message) in [
        ("mk,kn->mn", vec![&[3, 4][..], &[5, 6][..]], "k is 4 in input 0 and 5 in input 1"),
        ("mk,kn->mn", vec![&[3, 4][..]], "the rule has 2 inputs and 1 outputs, not 1 and 1"),
        ("mk,kn->mn", vec![&[3][..], &[3, 4][..]], "input 0 has 1 dims, but the rule has 2"),
        ("(ij)k->i(jk) {i: 4}", vec![&[10, 5][..]], "dim 0 of input 0 is 10, which is not (ij)"),
        ("i->ij", vec![&[10][..]], "the size of j is unknown; give the outputs' shapes"),
        ("i*->i*", vec![&[10, 3][..]], "the size of a dim * is unknown"),
        (
            "...,...->...",
            vec![&[4, 3][..], &[4, 5][..]],
            "dim -1 of the ellipsis is 3 in input 0 and 5 in input 1",
        ),
    ] {
        let error = op(text, &inputs).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn strategies_of_a_call_name_dims() {
    let rows = |text: &str, inputs: &[&[usize]]| -> Vec<String> {
        let op = Op::new("op", &text.parse().unwrap(), inputs).unwrap();
        op.strategies().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        rows("...,...->... {linear}", &[&[8, 1], &[4]]),
        ["?0,R -> ?0", "R,?0 -> ?1", "R,R -> R", "P,P -> P", "P(avg),P(avg) -> P(avg)"]
    );
    assert_eq!(
        rows("(ij)k->i(jk) {i: 4, none}", &[&[12, 5]]),
        ["S(i0) -> S(i0)", "S(j0) -> S(j1)", "S(k1) -> S(k1)", "R -> R"]
    );
}

#[test]
fn bad_rules_are_refused_in_one_sentence() {
    for (text, message) in [
        ("", "expected \"->\" at byte 0"),
        ("mk,kn", "expected \"->\""),
        ("ij->i {k: max}", "expected a letter of the equation"),
        ("ij->i {j: pass}", "an output lacks j, so j cannot pass through"),
        ("ij->ij {j: sum}", "j cannot be reduced by sum: every output has it"),
        (
            "ij->i {j: most}",
            "expected sum, avg, prod, min, max, a norm like norm2, replicate, pass, even, region or a size",
        ),
        ("ij->i {linear(1)}", "linear(1) names input 1, but there are 1, counted from 0"),
        ("ij->i {(P,P->P)}", "must have as many operands as the equation"),
        (
            "ij->i {(S(0)->P)}",
            "a strategy in braces can have only R, P, S(letter) and fixed placements, such as SS(0,2)",
        ),
        ("ij->i {sideways}", "expected a factor like"),
        ("ij->i {(S(k)->P)}", "the operand has no k to shard"),
        ("ij->i {(S(j)->S(j))}", "the operand has no j to shard"),
        ("R,R->R; R->R", "must have as many operands"),
        ("S(m),R->R", "names a factor, but a list of strategies has none"),
        ("(ij->k", "letters and \")\""),
        ("......->i", "one ellipsis"),
        ("ij->i {j: 99999999999999999999}", "a number below 2^63"),
        (
            "...->",
            "an output lacks the ellipsis, whose dims pass through; give letters to dims that are reduced",
        ),
        ("...i->...,i", "an output lacks the ellipsis"),
        ("iS->iS", "a factor must be a letter other than P, R and S, which are placements, not S"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn rules_of_parts_are_those_of_texts_or_refused() {
    let all = |passing| RuleBuilder::new().input(['i', 'j']).output(['i']).passing(passing);
    for (made, text) in [
        (all(PartialRule::Linear(Operands::All)), "ij->i {linear}"),
        (
            all(PartialRule::Affine([0].into())).role('j', FactorKind::Reduction(ReduceOp::Avg)),
            "ij->i {j: avg, affine(0)}",
        ),
        (RuleBuilder::new().inputs(2, [Dim::Rest]).output([Dim::Rest]).passings([]), "...,...->... {none}"),
        (RuleBuilder::new().output(['m']).size('m', 4).even('m'), "->m {m: even 4}"),
        (RuleBuilder::new().input([Dim::compound(['i', 'j']), Dim::Whole]).output([Dim::ONE]), "(ij)*->1"),
    ] {
        let rule = made.build().unwrap();
        assert_eq!((rule.to_string().as_str(), &text.parse::<Rule>().unwrap()), (text, &rule));
    }
    let (one, none): ([char; 1], [char; 0]) = (['i'], []);
    for (wrong, message) in [
        (RuleBuilder::new().input(one), "it has no output"),
        (RuleBuilder::new().input([Dim::Rest, Dim::Rest]).output([Dim::Rest]), "more than one ellipsis"),
        (RuleBuilder::new().input(['R']).output(['R']), "a letter other than P, R and S"),
        (RuleBuilder::new().input(['\u{e9}']).output(['\u{e9}']), "a letter other than P, R and S"),
        (
            RuleBuilder::new().input(one).output(one).role('k', FactorKind::NeedReplication),
            "k is not a factor of an operand",
        ),
        (RuleBuilder::new().input(one).output(one).size('i', usize::MAX), "does not fit in 63 bits"),
        (all(PartialRule::Linear([].into())), "a list of inputs is empty"),
        (all(PartialRule::Linear([1].into())), "linear(1) names input 1"),
        (RuleBuilder::new().input(one).output(none).role('i', FactorKind::PassThrough), "an output lacks i"),
    ] {
        let error = wrong.build().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
