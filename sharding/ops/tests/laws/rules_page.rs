//! The tables of docs/reference/ops.md, regenerated and compared.
//!
//! `RESHARD_WRITE=1 cargo test -p reshard-ops --test laws rules_page` writes them.
//!
//! `data/torch_rules.json` holds the rows of one mesh axis that torch 2.15.0 registers for 56 calls, outputs
//! before inputs. A row that one side has and the other lacks is a difference, and correctness is decided by
//! running the row on a reference op.
//!
//! Rows are compared by their semantics in torch, where its text is less specific:
//!
//! * `MaskP` is `_MaskPartial`. Of an embedding's indices it is replicas with a mask of the rows that a rank
//!   lacks, and of the result the sum of the found rows: our `?0,R -> P`, whose mask is in the op.
//! * A maximum or minimum of complex numbers is not a tensor, so those rows of the fft are void.
//! * Torch registers a shard of the dim of a slice only where the slice keeps everything; that slice is ours
//!   too.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::redundant_closure_for_method_calls,
    reason = "a page is printed"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::reference_ops::{Example, defined, fold, lines, x};
use ndarray::{Axis, Slice};
use reshard_ops::rules::{Op, OpCall, OpTable, OperandPlacement, Rule, Strategy};
use reshard_sharding::{Placement, ReduceOp};
use reshard_verify::{Data, Verifier};

/// A call of torch, our call, and the shapes on which rows are verified.
struct Same {
    torch: &'static str,
    call: &'static str,
    shapes: &'static str,
    /// `true` if the numbers are complex.
    complex: bool,
}

const fn same(torch: &'static str, call: &'static str, shapes: &'static str) -> Same {
    Same { torch, call, shapes, complex: false }
}

const ALL: &[Same] = &[
    same("mm", "mm", "6,5 5,4; 3,6 6,6"),
    same("bmm", "bmm", "6,3,5 6,5,4; 3,6,6 3,6,6"),
    same("addmm", "addmm", "4 6,5 5,4; 6 3,6 6,6"),
    same("dot", "dot", "6 6; 5 5"),
    same("baddbmm", "baddbmm", "6,3,4 6,3,5 6,5,4; 3,6,6 3,6,6 3,6,6"),
    same("t", "t", "6,5; 4,6"),
    same("add", "add", "6,5 6,5; 4,6 4,6"),
    same("add_bcast", "add", "6,5 5; 4,6 6"),
    same("add_scalar", "add_scalar(value=3)", "6,5; 4,6"),
    same("mul", "mul", "6,5 6,5; 4,6 4,6"),
    same("mul_scalar", "mul_scalar(value=-2)", "6,5; 4,6"),
    same("div", "div", "6,5 6,5; 4,6 4,6"),
    same("relu", "relu", "6,5; 4,6"),
    same("exp", "exp", "6,5; 4,6"),
    same("neg", "neg", "6,5; 4,6"),
    same("where", "where", "6,5 6,5 6,5; 4,6 4,6 4,6"),
    same("maximum", "maximum", "6,5 6,5; 4,6 4,6"),
    same("copy_", "copy_", "6,5 6,5; 4,6 4,6"),
    same("sum", "sum", "6,6; 4,5"),
    same("sum0", "sum(dims=[0])", "6,6; 4,5"),
    same("mean", "mean", "6,6; 4,5"),
    same("mean1", "mean(dims=[1])", "6,6; 4,5"),
    same("amax", "amax(dims=[1])", "6,6; 4,5"),
    same("prod", "prod", "6,2; 4,3"),
    same("var", "var(dims=[1])", "6,6; 4,5"),
    same("all", "all", "6,2; 4,2"),
    same("norm", "norm", "6,6; 4,5"),
    same("argmax", "argmax(dim=1)", "6,6; 4,5"),
    same("cumsum", "cumsum(dim=1)", "6,6; 4,5"),
    same("topk", "topk(k=2,dim=1)", "6,6; 4,5"),
    same("sort", "sort(dim=1)", "6,6; 4,5"),
    same("softmax", "softmax(dim=1)", "6,6; 4,5"),
    same("log_softmax", "log_softmax(dim=1)", "6,6; 4,5"),
    same("layer_norm", "native_layer_norm", "6,6 6 6; 5,4 4 4"),
    same("embedding", "embedding", "6,5 6,4; 5,6 3,6"),
    same("cat0", "cat(dim=0)", "6,5 4,5; 4,6 2,6"),
    same("gather", "gather(dim=1)", "6,5 6,4; 4,6 4,6"),
    same("index_select", "index_select(dim=0)", "6,5 4; 5,6 6"),
    same("scatter_add", "scatter_add(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6"),
    same("slice", "slice(dim=1)", "6,6; 5,5"),
    same("select", "select(dim=0,index=1)", "6,6; 5,4"),
    same("split", "split(size=2,dim=0)", "4,6; 3,5"),
    same("flip", "flip(dims=[0])", "6,6; 5,4"),
    same("roll", "roll(shifts=[1],dims=[0])", "6,6; 5,4"),
    same("tril", "tril", "6,6; 5,4"),
    same("unbind", "unbind(dim=0)", "2,6; 2,5"),
    same("clone", "clone", "6,5; 4,6"),
    same("detach", "detach", "6,5; 4,6"),
    same("zeros_like", "zeros_like", "6,5; 4,6"),
    same("to_copy", "cast", "6,5; 4,6"),
    same("dropout", "native_dropout", "6,5; 4,6"),
    same("bernoulli", "bernoulli", "6,5; 4,6"),
    Same { complex: true, ..same("fft", "fft(dims=[1])", "6,4,2; 5,6,2") },
    same("max_pool2d", "max_pool2d_with_indices(kernel=2)", "6,5,4,2; 2,6,2,4"),
    same("conv", "conv1d", "6,3,4 6,3,2 6; 2,6,3 5,6,2 5"),
    same("sdpa", "scaled_dot_product_attention", "6,6,3,2 6,6,3,2 6,6,3,2; 2,3,6,3 2,3,6,3 2,3,6,3"),
];

/// Examples of calls that the other tests make along another dim.
fn more() -> Vec<Example> {
    let order = |v: &[f64]| {
        let mut all: Vec<usize> = (0..v.len()).collect();
        all.sort_by(|&a, &b| v[a].total_cmp(&v[b]));
        all
    };
    vec![
        defined("sum(dims=[0])", "6,6", |l| vec![fold(&x(l, 0), 0, |v| v.iter().sum())]),
        defined("sort(dim=1)", "6,6", move |l| {
            let of = l.input_regions[0].indices(1).unwrap();
            let a = x(l, 0);
            let sorted = lines(&a, 1, |v| order(v).into_iter().map(|i| v[i]).collect());
            vec![sorted, lines(&a, 1, |v| order(v).into_iter().map(|i| of[i] as f64).collect())]
        })
        .data(&[Data::Distinct]),
        defined("select(dim=0,index=1)", "6,6", |l| vec![x(l, 0).index_axis(Axis(0), 1).to_owned()]),
        defined("split(size=2,dim=0)", "4,6", |l| {
            let a = x(l, 0);
            let first = l.output_regions[0].shape()[0];
            let cut = |s: Slice| a.slice_axis(Axis(0), s).to_owned();
            vec![cut(Slice::from(0..first)), cut(Slice::from(first..))]
        })
        .wants(),
        defined("flip(dims=[0])", "6,6", |l| {
            let mut a = x(l, 0);
            a.invert_axis(Axis(0));
            vec![a]
        }),
        defined("roll(shifts=[1],dims=[0])", "6,6", |l| {
            vec![lines(&x(l, 0), 0, |v| {
                let mut v = v.to_vec();
                let by = 1.min(v.len());
                v.rotate_right(by);
                v
            })]
        }),
        defined("unbind(dim=0)", "2,6", |l| {
            let a = x(l, 0);
            assert_eq!(a.shape()[0], 2);
            vec![a.index_axis(Axis(0), 0).to_owned(), a.index_axis(Axis(0), 1).to_owned()]
        }),
    ]
}

/// `?1`, `S1`, `P(avg)`, `P(product)`, as the file writes them.
fn part(text: &str) -> OperandPlacement {
    match text {
        "R" => OperandPlacement::Replicate,
        "P" | "MaskP" => OperandPlacement::Partial(ReduceOp::Sum),
        "P(product)" => OperandPlacement::Partial(ReduceOp::Prod),
        _ => match (text.strip_prefix('?'), text.strip_prefix('S')) {
            (Some(d), _) => OperandPlacement::Dim { label: None, dim: d.parse().unwrap() },
            (_, Some(d)) => OperandPlacement::Fixed(Placement::Shard(d.parse().unwrap())),
            _ => OperandPlacement::Partial(
                text.strip_prefix("P(").unwrap().strip_suffix(')').unwrap().parse().unwrap(),
            ),
        },
    }
}

/// Torch's row for one of our ops: its first outputs and its last inputs.
fn row(list: &[serde_json::Value], op: &Op) -> Strategy {
    let texts: Vec<&str> = list.iter().map(|v| v.as_str().unwrap_or("R")).collect();
    let (n, inputs) = (op.outputs().len(), op.inputs().len());
    // The mask of an input belongs to the op.
    let input = |t: &&str| if **t == *"MaskP" { OperandPlacement::Replicate } else { part(t) };
    Strategy {
        outputs: texts[..n].iter().map(|t| part(t)).collect(),
        inputs: texts[texts.len() - inputs..].iter().map(input).collect(),
    }
}

/// A row without names: a shard is `?d`.
fn plain(s: &Strategy) -> Strategy {
    let part = |p: &OperandPlacement| match p {
        OperandPlacement::Dim { dim, .. } | OperandPlacement::Fixed(Placement::Shard(dim)) => {
            OperandPlacement::Dim { label: None, dim: *dim }
        }
        other => other.clone(),
    };
    Strategy { inputs: s.inputs.iter().map(part).collect(), outputs: s.outputs.iter().map(part).collect() }
}

/// The letters of factors that follow others in a dim of the op's rule, whose shards are strided there.
fn minor_factors(op: &Op) -> Vec<char> {
    let equation = op.rule().and_then(Rule::equation);
    let dims = equation.into_iter().flat_map(|e| e.inputs.iter().chain(&e.outputs)).flatten();
    dims.flat_map(|d| d.factors().iter().skip(1).copied()).collect()
}

/// A row without names except for shards of minor factors, which are not shards of the dim.
fn shown(s: &Strategy, minor: &[char]) -> Strategy {
    let is_minor = |p: &&OperandPlacement| matches!(p, OperandPlacement::Dim { label: Some(label), .. } if minor.contains(label));
    if s.inputs.iter().chain(&s.outputs).any(|p| is_minor(&p)) { s.clone() } else { plain(s) }
}

/// Returns `true` if a part is partial values of a maximum or minimum.
fn is_extreme(p: &OperandPlacement) -> bool {
    matches!(p, OperandPlacement::Partial(ReduceOp::Max | ReduceOp::Min))
}

/// Checks that a row is true on calls; the error is the reason if it is not.
fn holds(v: &Verifier<'_>, row: &Strategy, ops: &[Op]) -> Result<(), String> {
    let rule = Rule::from_strategies(vec![row.clone()]).map_err(|e| e.to_string())?;
    let lists: Vec<Op> = ops
        .iter()
        .map(|op| {
            let inputs: Vec<&[usize]> = op.inputs().iter().map(|s| s.as_slice()).collect();
            let outputs: Vec<&[usize]> = op.outputs().iter().map(|s| s.as_slice()).collect();
            Op::with_outputs(op.name(), &rule, &inputs, &outputs).unwrap()
        })
        .collect();
    match v.verify(&lists) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

fn shapes_of(text: &str) -> Vec<Vec<Vec<usize>>> {
    let sizes = |s: &str| s.split(',').map(|n| n.parse().unwrap()).collect();
    text.split(';').map(|call| call.split_whitespace().map(sizes).collect()).collect()
}

fn ops_of(table: &OpTable, call: &str, shapes: &[Vec<Vec<usize>>]) -> Vec<Op> {
    let call: OpCall = call.parse().unwrap();
    shapes
        .iter()
        .map(|s| table.op(&call, &s.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap())
        .collect()
}

/// The differences between torch's rows and ours, one line of a table each.
fn differences() -> String {
    let text = include_str!("../data/torch_rules.json");
    let data: serde_json::Value = serde_json::from_str(text).unwrap();
    let rules = data["rules"].as_object().unwrap();
    let named: BTreeSet<&str> = ALL.iter().map(|s| s.torch).collect();
    assert_eq!(rules.keys().map(String::as_str).collect::<BTreeSet<_>>(), named, "all 56");
    let table = OpTable::standard();
    let examples: Vec<Example> = more().into_iter().chain(crate::reference_ops::all()).collect();
    let mut out = String::new();
    let (mut both, mut torch_wrong, mut torch_right, mut ours, mut void) = (0, 0, 0, 0, 0);
    let (mut alike, mut even) = (Vec::new(), Vec::new());
    for same in ALL {
        let e = examples.iter().find(|e| e.call == same.call).unwrap_or_else(|| panic!("{}", same.call));
        let v = e.verifier().budget(0);
        let ops = ops_of(&table, same.call, &shapes_of(same.shapes));
        if !rules[same.torch]["uneven"].as_bool().unwrap() {
            even.push(same.torch);
        }
        let minor = minor_factors(&ops[0]);
        let mine: Vec<Strategy> = ops[0].strategies().iter().map(|s| shown(s, &minor)).collect();
        let theirs: Vec<Strategy> = rules[same.torch]["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| row(r.as_array().unwrap(), &ops[0]))
            .filter(|r| {
                let says = !same.complex || !r.inputs.iter().chain(&r.outputs).any(is_extreme);
                void += usize::from(!says);
                says
            })
            .collect();
        let replicated =
            |s: &Strategy| s.inputs.iter().chain(&s.outputs).all(|p| *p == OperandPlacement::Replicate);
        let before = out.len();
        for r in &theirs {
            if mine.contains(&plain(r)) {
                both += 1;
                continue;
            }
            let result = holds(&v, r, &ops);
            let verdict = match &result {
                Ok(()) => {
                    torch_right += 1;
                    "true; ours lacks it".to_owned()
                }
                Err(why) => {
                    torch_wrong += 1;
                    format!("**wrong**: {}", why.split(" is wrong on ").last().unwrap_or(why))
                }
            };
            writeln!(out, "| {} | `{r}` | torch | {verdict} |", same.call).unwrap();
        }
        let known: Vec<Strategy> = theirs.iter().map(plain).collect();
        let lacks: Vec<&Strategy> = mine.iter().filter(|s| !replicated(s) && !known.contains(s)).collect();
        // Our rows are verified on the whole table; here again, on these shapes.
        v.verify(&ops).unwrap();
        ours += lacks.len();
        if !lacks.is_empty() {
            let list: Vec<String> = lacks.iter().map(|s| format!("`{s}`")).collect();
            writeln!(
                out,
                "| {} | {} | ours | true; torch lacks {} |",
                same.call,
                list.join(" "),
                if lacks.len() == 1 { "it" } else { "them" }
            )
            .unwrap();
        }
        if before == out.len() {
            alike.push(same.torch);
        }
    }
    format!(
        "{both} rows are common; torch alone has {} rows, of which {torch_wrong} are wrong and {torch_right} true; ours \
         alone has {ours} rows, all true. {void} rows of torch are maxima or minima of complex numbers, which are \
         undefined, and are omitted. Equal: {}.\n\nTorch's registrations of {} of the 56 do not allow uneven \
         shards: {}. Our rows were verified on uneven shards too, and only those of an average need even \
         ones.\n\n| call | strategy | who has it | the validator |\n|---|---|---|---|\n{out}",
        torch_wrong + torch_right,
        alike.join(", "),
        even.len(),
        even.join(", "),
    )
}

/// Every op: its rule, or for a family its strategies on a call; and the strategies for which it has to know its region.
fn ops() -> String {
    let table = OpTable::standard();
    let examples = crate::reference_ops::all();
    let mut out = String::from(
        "| op | rule, or strategies of a call | needs its region for | element types |\n|---|---|---|---|\n",
    );
    for name in table.names() {
        let parameters = table.parameters(name).unwrap().to_string().replace('|', "\\|");
        let shown = if parameters.is_empty() { name.to_owned() } else { format!("{name}({parameters})") };
        let dtypes = table.dtypes(name).unwrap();
        let of_name: Vec<&Example> = examples.iter().filter(|e| e.name() == name).collect();
        let Some(&e) = of_name.first() else {
            writeln!(out, "| {shown} | all axes at once: digits are regrouped | | `{dtypes}` |").unwrap();
            continue;
        };
        let list = e.ops(&table);
        let needing = regions(&of_name, &table);
        let what = if let Some(rule) = table.rule(name) {
            format!("`{rule}`")
        } else {
            let shapes: Vec<String> = e.shapes[0].iter().map(|s| format!("{s:?}").replace(' ', "")).collect();
            let of = if shapes.is_empty() { String::new() } else { format!(" of {}", shapes.join(" ")) };
            let rows: Vec<String> = list[0].strategies().iter().map(ToString::to_string).collect();
            format!("`{}`{of}: `{}`", e.call, rows.join("; "))
        };
        writeln!(out, "| {shown} | {what} | {needing} | `{dtypes}` |").unwrap();
    }
    out
}

/// The strategies for which an op has to know its region, in all its examples.
///
/// Those of the first call are listed, and the additional ones of the other calls. `regions.rs` shows that
/// they are exactly those that fail without.
fn regions(examples: &[&Example], table: &OpTable) -> String {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut out: Vec<String> = Vec::new();
    for e in examples {
        let rows = e.ops(table).iter().flat_map(crate::regions::needing).collect::<Vec<Strategy>>();
        let texts = rows.iter().map(|s| format!("`{s}`"));
        let new: Vec<String> = texts.filter(|s| known.insert(s.clone())).collect();
        if !new.is_empty() {
            let call = if e.call == examples[0].call { String::new() } else { format!("`{}`: ", e.call) };
            out.push(format!("{call}{}", new.join(" ")));
        }
    }
    out.join("; ")
}

pub(crate) fn between<'a>(page: &'a str, begin: &str, end: &str) -> (usize, &'a str) {
    let from = page.find(begin).unwrap() + begin.len();
    let to = page[from..].find(end).unwrap() + from;
    (from, &page[from..to])
}

#[test]
fn the_page_of_rules_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/ops.md");
    let mut page = std::fs::read_to_string(path).unwrap();
    let write = std::env::var_os("RESHARD_WRITE").is_some();
    for (name, made) in [("ops", ops()), ("torch", differences())] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let (from, old) = between(&page, &begin, &end);
        if old != made {
            assert!(write, "docs/reference/ops.md is stale in its part {name}: RESHARD_WRITE=1 rewrites it");
            let to = from + old.len();
            page.replace_range(from..to, &made);
        }
    }
    if write {
        std::fs::write(path, page).unwrap();
    }
}
