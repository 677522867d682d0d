//! Every op of the table against its reference.

use std::collections::BTreeSet;

use crate::reference_ops::Example;
use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{OpCall, OpTable};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;
use reshard_verify::{Mutants, Random, Verdict};

/// Ops that only regroup digits.
///
/// They have no strategies of one axis; the tests of views in `reshard-sharding` check them.
const VIEWS: [&str; 4] = ["view", "reshape", "flatten", "unflatten"];

/// Maps a function over the selected examples, on as many threads as processors; results are in order.
pub(crate) fn each<T: Send>(
    takes: impl Fn(usize) -> bool + Sync,
    f: impl Fn(&Example, &OpTable) -> T + Sync,
) -> Vec<(String, T)> {
    let table = OpTable::standard();
    let n = (0..crate::reference_ops::all().len()).filter(|i| takes(*i)).count();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            s.spawn(|| {
                let examples = crate::reference_ops::all();
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(e) = examples.get(i) else { break };
                    if !takes(i) {
                        continue;
                    }
                    let result = f(e, &table);
                    done.lock().unwrap().push((i, e.call.to_owned(), result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    assert_eq!(done.len(), n);
    done.sort_by_key(|(i, ..)| *i);
    done.into_iter().map(|(_, call, t)| (call, t)).collect()
}

#[test]
fn every_op_has_a_reference() {
    let have: BTreeSet<String> = crate::reference_ops::all().iter().map(Example::name).collect();
    let table = OpTable::standard();
    let lack: Vec<&str> = table.names().filter(|n| !have.contains(*n) && !VIEWS.contains(n)).collect();
    assert!(lack.is_empty(), "without a reference: {lack:?}");
    println!("{} ops, {} examples", table.names().count(), crate::reference_ops::all().len());
}

#[test]
fn every_rule_is_true() {
    let started = std::time::Instant::now();
    let results =
        each(|i| Sweep::asked().picks(16, i), |e, table| e.verifier().budget(0).verify(&e.ops(table)));
    let wrong: Vec<String> =
        results.iter().filter_map(|(_, r)| r.as_ref().err().map(ToString::to_string)).collect();
    let checks: usize = results.iter().filter_map(|(_, r)| r.as_ref().ok().map(|r: &Verdict| r.checks)).sum();
    println!("{} examples, {checks} checks, {:.1?}", results.len(), started.elapsed());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Propagation of every example on meshes of two axes, from any input placements: its outputs are correct.
#[test]
fn what_is_chosen_is_true_on_several_axes() {
    let meshes = ["x=2,y=2", "x=2,y=3", "x=4,y=2"].map(|m| m.parse::<Mesh>().unwrap());
    let propagator = Propagator::new();
    let results = each(
        |i| Sweep::asked().picks(16, i),
        |e, table| {
            let mut random = Random::new(e.call.len() as u64);
            let (mut checks, mut moved) = (0, 0);
            for op in e.ops(table).iter().filter(|op| !op.inputs().is_empty()) {
                for mesh in &meshes {
                    let term = ["P", "P(max)", "P(avg)", "P(norm2)", "R"][random.below(5)];
                    let mut inputs = Vec::new();
                    for shape in op.inputs() {
                        let mut one = || match random.below(6) {
                            0 => "R".to_owned(),
                            1 => term.to_owned(),
                            2 if !shape.is_empty() => format!("SS({},2)", random.below(shape.len())),
                            _ if shape.is_empty() => "R".to_owned(),
                            _ => format!("S({})", random.below(shape.len())),
                        };
                        let text = format!("{},{}", one(), one());
                        let sharding = Sharding::parse(mesh, shape, &text).unwrap();
                        inputs.push(Operand::new(DType::F64, sharding));
                    }
                    // A shard cannot become a partial value of an average, which may leave nothing.
                    let Ok(choice) = propagator.propagate(op, mesh, &inputs, &[]) else { continue };
                    let is = |(i, x): (usize, &Operand)| format!("{x} as {}", choice.inputs[i]);
                    let shown: Vec<String> = inputs.iter().enumerate().map(is).collect();
                    if let Err(wrong) = e.verifier().holds(op, &choice.inputs, &choice.outputs) {
                        return Err(format!(
                            "{}: {} makes {:?}: {wrong}",
                            e.call,
                            shown.join(", "),
                            choice.outputs[0].to_string()
                        ));
                    }
                    checks += 1;
                    moved += usize::from(choice.plans.iter().any(Option::is_some));
                }
            }
            Ok((checks, moved))
        },
    );
    let wrong: Vec<&String> = results.iter().filter_map(|(_, r)| r.as_ref().err()).collect();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.iter().map(|w| w.as_str()).collect::<Vec<_>>().join("\n")
    );
    let (checks, moved) =
        results.iter().filter_map(|(_, r)| r.as_ref().ok()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    println!("{checks} choices, {moved} of which redistribute");
    assert!(checks as u64 > Sweep::asked().least(60, 1000));
}

#[test]
fn every_mutant_is_caught_or_true() {
    let started = std::time::Instant::now();
    let sweep = Sweep::asked();
    let results = each(
        |i| sweep.picks(200, i),
        |e, table| {
            if e.constant {
                return (Verdict::default(), Mutants::default());
            }
            let (v, ops) = (e.verifier(), e.ops(table));
            let verdict = v.verify(&ops).unwrap();
            let mutants = v.mutants(&ops, &verdict).unwrap();
            (verdict, mutants)
        },
    );
    let mut all = Mutants::default();
    for (call, (verdict, m)) in results {
        if !verdict.missing.is_empty() || verdict.searched.0 != verdict.searched.1 {
            println!("{call}: {verdict}");
        }
        all.caught += m.caught;
        all.equivalent += m.equivalent;
        all.upheld += m.upheld;
        all.missed.extend(m.missed.into_iter().map(|s| format!("{call}: {s}")));
    }
    println!(
        "{} mutants caught, {} true by exhaustive search, {} by more data, {} missed, {:.1?}",
        all.caught,
        all.equivalent,
        all.upheld,
        all.missed.len(),
        started.elapsed()
    );
    assert!(all.missed.is_empty(), "{} missed:\n{}", all.missed.len(), all.missed.join("\n"));
    assert!(all.caught as u64 > sweep.least(60, 30_000), "only {} are caught", all.caught);
}

#[test]
fn calls_are_checked_in_one_sentence() {
    let table = OpTable::standard();
    for (call, shapes, message) in [
        ("sofmax", &[&[2, 3][..]][..], "unknown op sofmax; did you mean softmax?"),
        ("xyzzyplugh", &[], "unknown op xyzzyplugh: it is not one of the"),
        ("softmax(dims=[1])", &[&[2, 3]], "softmax has no argument dims; it takes dim: dim = -1"),
        ("mm(dim=1)", &[&[2, 3], &[3, 4]], "mm has no argument dim; it takes no arguments"),
        (
            "softmax(dim=2)",
            &[&[2, 3]],
            "softmax(dim=2) on [2,3]: dim=2 is out of range for a tensor with 2 dims",
        ),
        (
            "softmax(dim=true)",
            &[&[2, 3]],
            "softmax(dim=true): dim is true, and should be a whole number, the dim",
        ),
        ("sum(dims=[0,-2])", &[&[2, 3]], "dims names dim 0 twice"),
        ("sum(keepdim=1)", &[&[2, 3]], "keepdim is 1, and should be true or false"),
        ("sum", &[&[2], &[3]], "takes 1 input, not 2"),
        ("topk(k=4)", &[&[2, 3]], "k is 4, and dim 1 has 3"),
        ("topk", &[&[2, 3]], "topk: needs k, a whole number of at least 0: write topk(k=2)"),
        ("view(shape=[4,-1])", &[&[2, 3]], "6 elements do not fit that shape"),
        ("conv1d(groups=4)", &[&[2, 6, 5], &[4, 2, 3]], "dim 1 of input 0 is 6, which is not (gi)"),
        (
            "conv1d",
            &[&[2, 6, 2], &[4, 6, 3]],
            "a window of 3 with dilation 1 does not fit into 2 padded by 0",
        ),
        ("rms_norm(dims=[2])", &[&[4, 6]], "dims=2 is out of range for a tensor with 2 dims"),
        ("rms_norm(dims=[0])", &[&[4, 6]], "dims are [0], not the last of 2; permute them there first"),
        ("rms_norm(dims=[1],last=2)", &[&[4, 6]], "last and dims disagree; give one of them"),
        (
            "rms_norm(last=[1])",
            &[&[4, 6]],
            "last is [1], and should be a whole number of at least 1, the number of last dims",
        ),
        ("layer_norm(last=3)", &[&[4, 6]], "last is 3, and the input has 2 dims"),
        (
            "max_pool2d",
            &[&[2, 3, 4, 4]],
            "needs kernel, a whole number of at least 1 or a list of one for each spatial",
        ),
        (
            "expand(shape=[-2])",
            &[&[1]],
            "shape is [-2], and should be a list of whole numbers of at least -1",
        ),
        ("fft(dims=[-2])", &[&[4, 2]], "dims=-2 is out of range for a tensor with 1 dims"),
        ("cat(dim=0)", &[&[2, 3], &[2, 4]], "is 3 in input 0 and 4 in input 1"),
        (
            "scaled_dot_product_attention",
            &[&[2, 6, 3, 4], &[2, 4, 3, 4], &[2, 4, 3, 4]],
            "6 heads of queries do not share 4 heads of keys",
        ),
        (
            "instance_norm",
            &[&[2, 3]],
            "instance_norm on [2,3]: needs an input with batch, channels and space",
        ),
        ("norm(p=fro)", &[&[2, 3]], "p is fro, and should be a number, inf or -inf"),
        ("mk,kn->mn", &[&[2, 3], &[4, 5]], "k is 3 in input 0 and 4 in input 1"),
        ("slice(dim=0)", &[&[1 << 63]], "does not fit in 63 bits"),
        ("zeros(shape=[9223372036854775807,9])", &[], "does not fit in 63 bits"),
    ] {
        let call: OpCall = call.parse().unwrap();
        let error = table.op(&call, shapes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn calls_print_and_read() {
    for text in [
        "softmax(dim=1)",
        "cat(dim=-1)",
        "sum(dims=[0,2],keepdim=true)",
        "mm",
        "norm(p=inf)",
        "view(shape=[])",
        "mk,kn->mn",
    ] {
        let call: OpCall = text.parse().unwrap();
        assert_eq!(call.to_string(), text);
        assert_eq!(call.to_string().parse::<OpCall>().unwrap(), call);
    }
    assert_eq!("mm()".parse::<OpCall>().unwrap(), OpCall::new("mm"));
    for bad in [
        "",
        "(",
        "mm(",
        "mm(a)",
        "mm(a=)",
        "mm(a=1,a=2)",
        "mm(a=[1)",
        "mm(a=1) x",
        "7",
        "a=1",
        "mm(a=99999999999999999999)",
    ] {
        assert!(bad.parse::<OpCall>().is_err(), "{bad}");
    }
}

/// Requests are cached until the table is changed; a copy of the table does not share the cache.
#[test]
fn a_table_that_is_changed_forgets_what_it_was_asked() {
    let mut table = OpTable::standard();
    table.add("f", "ij->ij {selecting}".parse().unwrap());
    let call: OpCall = "f".parse().unwrap();
    let ask = |table: &OpTable| {
        let op = table.op(&call, &[&[2, 3]]).unwrap();
        (op.outputs().to_vec(), table.gradient(&call, &[&[2, 3]]).unwrap().to_string())
    };
    let before = ask(&table);
    assert_eq!(ask(&table), before);
    let kept = table.clone();
    table.add("f", "ij->ijk {k: 2, selecting}".parse().unwrap());
    let after = ask(&table);
    assert_eq!(after.0, [[2, 3, 2]]);
    assert_ne!(after.1, before.1);
    assert_eq!(ask(&kept), before);
    table.add_gradient("f", |_| Ok(vec![None]));
    assert_ne!(ask(&table).1, after.1);
}
