//! The uses of R, I, P and V that per-device code allows, along an axis of 2 and of 3 ranks.
//!
//! All correct uses are allowed, and no others. The definition is by numbers. A value that is R or I is one
//! array, of P the sum of the ranks' arrays, of V an array for each rank. An op on such values is applied to
//! these, rank by rank where anything varies. Kinds of its operands and result are **sound** under two
//! conditions: every rank's own call gives parts of that result, and every rank's own vector-Jacobian product
//! gives parts of the gradient:
//!
//! ```text
//!            R           I           P           V
//! value      equal       equal       partial     different
//! gradient   partial     equal       equal       different
//! ```

use ndarray::ArrayD;
use reshard_kernels::DType;
use reshard_ops::gradients::Gradient;
use reshard_ops::rules::{OpCall, OpTable};
use reshard_program::{Graph, Replication};
use reshard_reference::run;
use reshard_test_support::Random;
use serde_json::Value;

use crate::gradients::backward;

type A = ArrayD<f64>;

const KINDS: [Replication; 4] =
    [Replication::Replicated, Replication::Invariant, Replication::Partial, Replication::Varying(())];

/// An op of each class, and the shapes on which it is called.
const CALLS: &[(&str, &[&[usize]])] = &[
    ("neg", &[&[2, 2]]),
    ("relu", &[&[2, 2]]),
    ("exp", &[&[2, 2]]),
    ("square", &[&[2, 2]]),
    ("mul_scalar(value=3)", &[&[2, 2]]),
    ("add_scalar(value=1)", &[&[2, 2]]),
    ("sum(dims=[0])", &[&[2, 2]]),
    ("mean(dims=[0])", &[&[2, 2]]),
    ("amax(dims=[0])", &[&[2, 2]]),
    ("prod(dims=[0])", &[&[2, 2]]),
    ("cumsum(dim=0)", &[&[2, 2]]),
    ("softmax(dim=0)", &[&[2, 2]]),
    ("logsumexp(dims=[0])", &[&[2, 2]]),
    ("transpose(dim0=0,dim1=1)", &[&[2, 2]]),
    ("reshape(shape=[4])", &[&[2, 2]]),
    ("narrow(dim=0,start=0,length=1)", &[&[2, 2]]),
    ("flip(dims=[0])", &[&[2, 2]]),
    ("roll(shifts=[1],dims=[0])", &[&[2, 2]]),
    ("split_shards(parts=2)", &[&[4, 2]]),
    ("split_shards(parts=2,cut=ragged,counts=[1,2])", &[&[3, 2]]),
    ("expand(shape=[3,2])", &[&[1, 2]]),
    ("tril", &[&[2, 2]]),
    ("add", &[&[2, 2], &[2, 2]]),
    ("sub", &[&[2, 2], &[2, 2]]),
    ("mul", &[&[2, 2], &[2, 2]]),
    ("div", &[&[2, 2], &[2, 2]]),
    ("maximum", &[&[2, 2], &[2, 2]]),
    ("mm", &[&[2, 2], &[2, 2]]),
    ("mk,nk->nm", &[&[2, 2], &[2, 2]]),
    ("cat(dim=0)", &[&[2, 2], &[1, 2]]),
    ("stack(dim=0)", &[&[2, 2], &[2, 2]]),
    ("mse_loss", &[&[2, 2], &[2, 2]]),
    ("linear", &[&[2, 2], &[3, 2], &[3]]),
    ("layer_norm", &[&[2, 2], &[2], &[2]]),
];

fn some(shape: &[usize], r: &mut Random) -> A {
    // Of both signs, and not near 0.
    let mut number = |_| {
        let x = (r.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        x + 0.25f64.copysign(x)
    };
    ArrayD::from_shape_fn(shape, &mut number)
}

fn near(a: &A, b: &A) -> bool {
    a.shape() == b.shape() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()))
}

fn sum(list: &[A]) -> A {
    list.iter().skip(1).fold(list[0].clone(), |a, b| a + b)
}

/// Each rank's part of a value, and the value that it represents on each rank.
struct Held {
    parts: Vec<A>,
    meant: Vec<A>,
}

impl Held {
    fn of(kind: Replication, shape: &[usize], ranks: usize, r: &mut Random) -> Held {
        let parts: Vec<A> = match kind {
            Replication::Replicated | Replication::Invariant => vec![some(shape, r); ranks],
            Replication::Partial | Replication::Varying(()) => (0..ranks).map(|_| some(shape, r)).collect(),
        };
        let meant = match kind {
            Replication::Partial => vec![sum(&parts); ranks],
            Replication::Replicated | Replication::Invariant | Replication::Varying(()) => parts.clone(),
        };
        Held { parts, meant }
    }
}

/// Checks that parts are of a kind and represent this value.
fn are(kind: Replication, parts: &[A], meant: &[A]) -> bool {
    match kind {
        Replication::Partial => near(&sum(parts), &meant[0]),
        Replication::Replicated | Replication::Invariant | Replication::Varying(()) => {
            parts.iter().zip(meant).all(|(a, b)| near(a, b))
        }
    }
}

/// The kind of the gradient of a value.
fn dual(kind: Replication) -> Replication {
    match kind {
        Replication::Replicated => Replication::Partial,
        Replication::Partial => Replication::Replicated,
        Replication::Invariant | Replication::Varying(()) => kind,
    }
}

/// A call, and its gradient.
struct Op<'a> {
    table: &'a OpTable,
    call: &'a OpCall,
    shapes: &'a [&'a [usize]],
    gradient: Gradient,
}

impl Op<'_> {
    fn run(&self, x: &[A]) -> A {
        run(self.table, self.call, x).unwrap_or_else(|e| panic!("{}: {e}", self.call)).remove(0)
    }

    fn back(&self, x: &[A], y: &A, dy: &A) -> Vec<A> {
        let dx = backward(self.table, &self.gradient, x, core::slice::from_ref(y), core::slice::from_ref(dy));
        dx.into_iter().zip(x).map(|(dx, x)| dx.unwrap_or_else(|| A::zeros(x.raw_dim()))).collect()
    }

    /// Checks that on `ranks` ranks an op makes this kind from these, and gradients of their kinds.
    fn is_sound(&self, kinds: &[Replication], made: Replication, ranks: usize) -> bool {
        let varies = kinds.contains(&Replication::Varying(()));
        let mut r = Random(7);
        varies == (made == Replication::Varying(()))
            && (0..2).all(|_| self.is_right(kinds, made, ranks, &mut r))
    }

    fn is_right(&self, kinds: &[Replication], made: Replication, ranks: usize, r: &mut Random) -> bool {
        let varies = kinds.contains(&Replication::Varying(()));
        let inputs: Vec<Held> =
            kinds.iter().zip(self.shapes).map(|(kind, shape)| Held::of(*kind, shape, ranks, r)).collect();
        let own: Vec<Vec<A>> =
            (0..ranks).map(|rank| inputs.iter().map(|held| held.parts[rank].clone()).collect()).collect();
        let whole: Vec<Vec<A>> =
            (0..ranks).map(|rank| inputs.iter().map(|held| held.meant[rank].clone()).collect()).collect();
        let made_of = |x: &[Vec<A>]| x.iter().map(|x| self.run(x)).collect::<Vec<A>>();
        let (parts, meant) = (made_of(&own), made_of(&whole));
        if !are(made, &parts, &meant) {
            return false;
        }
        let given = Held::of(dual(made), meant[0].shape(), ranks, r);
        let back = |x: &[Vec<A>], y: &[A], dy: &[A]| -> Vec<Vec<A>> {
            (0..ranks).map(|rank| self.back(&x[rank], &y[rank], &dy[rank])).collect()
        };
        let (own, whole) = (back(&own, &parts, &given.parts), back(&whole, &meant, &given.meant));
        kinds.iter().enumerate().all(|(i, kind)| {
            let of = |list: &[Vec<A>]| list.iter().map(|x| x[i].clone()).collect::<Vec<A>>();
            // A value that all ranks share next to a varying one gets the gradients of all of them.
            let shared = varies && *kind != Replication::Varying(());
            let meant = if shared { vec![sum(&of(&whole)); ranks] } else { of(&whole) };
            are(dual(*kind), &of(&own), &meant)
        })
    }
}

/// All combinations of kinds of `values` values.
fn every(values: usize) -> impl Iterator<Item = Vec<Replication>> {
    (0..4usize.pow(values as u32))
        .map(move |n| (0..values as u32).map(|i| KINDS[n / 4usize.pow(i) % 4]).collect())
}

/// Returns the kind that a region infers for an op of these; `None` if it rejects them.
fn accepted(call: &str, shapes: &[&[usize]], kinds: &[Replication], ranks: usize) -> Option<Replication> {
    let mut graph: Graph = format!("mesh x={ranks}").parse().unwrap();
    let inputs: Vec<_> = (shapes.iter().zip(kinds).enumerate())
        .map(|(i, (shape, kind))| {
            // A varying value is a shard of a tensor that is larger by the number of ranks.
            let (is, first) = match kind {
                Replication::Varying(()) => ("S(0)", ranks),
                Replication::Replicated => ("R", 1),
                Replication::Invariant => ("I", 1),
                Replication::Partial => ("P", 1),
            };
            let mut shape = shape.to_vec();
            shape[0] *= first;
            (graph.input(&format!("x{i}"), DType::F64, &shape, is).unwrap(), is)
        })
        .collect();
    let mut made = None;
    let done = graph.shard_map(&["x"], &inputs, &[], |region, v| {
        let outputs = region.ops(call, &v.iter().collect::<Vec<_>>())?;
        made = Some(region.local_type(&outputs[0], "x")?);
        Ok(Vec::new())
    });
    done.is_ok().then_some(made).flatten()
}

/// The kinds that an op makes correctly, on 2 and on 3 ranks.
fn sound(table: &OpTable, call: &str, shapes: &[&[usize]], kinds: &[Replication]) -> Vec<Replication> {
    let parsed: OpCall = call.parse().unwrap();
    let gradient = table.gradient(&parsed, shapes).unwrap();
    let op = Op { table, call: &parsed, shapes, gradient };
    KINDS.into_iter().filter(|made| [2, 3].iter().all(|&ranks| op.is_sound(kinds, *made, ranks))).collect()
}

fn words(kinds: &[Replication]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn a_region_takes_all_that_is_right_and_nothing_else() {
    let table = OpTable::standard();
    let (mut taken, mut refused, mut wrong) = (0, 0, Vec::new());
    for (call, shapes) in CALLS {
        for kinds in every(shapes.len()) {
            let right = sound(&table, call, shapes, &kinds);
            for ranks in [2, 3] {
                let said: Vec<Replication> = accepted(call, shapes, &kinds, ranks).into_iter().collect();
                if said != right {
                    wrong.push(format!(
                        "{call}({}) on {ranks}: {} and right are {}",
                        words(&kinds),
                        words(&said),
                        words(&right)
                    ));
                }
                if said.is_empty() { refused += 1 } else { taken += 1 }
            }
        }
    }
    println!("{taken} typings accepted, {refused} rejected");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(taken > 150 && refused > 200, "{taken} and {refused}");
}

/// The spmd_types tests of R, I, P and V agree with a region; and both are right, by numbers.
#[test]
fn what_spmd_types_takes_and_refuses_a_region_does() {
    let table = OpTable::standard();
    let kind = |word: &str| KINDS.into_iter().find(|kind| kind.to_string() == word);
    let (mut alike, mut differ) = (0, Vec::new());
    for line in include_str!("../data/spmd_rules.jsonl").lines().skip(1) {
        let fact: Value = serde_json::from_str(line).unwrap();
        let list = |value: &Value| -> Vec<usize> {
            value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
        };
        // An argument that a call leaves open gets some number.
        let call = fact["op"].as_str().unwrap();
        let call = if call.ends_with("_scalar") { format!("{call}(value=3)") } else { call.to_owned() };
        let call = call.as_str();
        let shapes: Vec<Vec<usize>> = fact["shapes"].as_array().unwrap().iter().map(list).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let words = fact["ins"].as_array().unwrap().iter().map(|word| kind(word.as_str().unwrap()));
        // A shard of a dim is not a value of a region.
        let Some(kinds) = words.collect::<Option<Vec<Replication>>>() else { continue };
        let theirs = kind(fact["out"].as_str().unwrap());
        let ours = accepted(call, &shapes, &kinds, 2);
        assert_eq!(ours, accepted(call, &shapes, &kinds, 3), "{line}");
        // An op of several results has a gradient for each.
        let several = call.starts_with("split") || call.starts_with("unbind");
        if !several {
            let right = sound(&table, call, &shapes, &kinds);
            assert_eq!(ours.into_iter().collect::<Vec<_>>(), right, "{line}");
        }
        if ours == theirs { alike += 1 } else { differ.push(line) }
    }
    println!("{alike} typings as in spmd_types");
    assert!(alike >= 29 && differ.is_empty(), "{alike}: {differ:?}");
}
