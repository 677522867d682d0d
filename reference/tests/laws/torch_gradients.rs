//! Formulas of gradients against PyTorch's gradients, in f64.
//!
//! They include ties, corners and ends of intervals, where differences are useless.
//!
//! `data/torch_gradients.jsonl` was written by `scripts/torch_gradients.py`. If several gradients are
//! possible, PyTorch's is the correct one.

use std::collections::BTreeSet;

use ndarray::{ArrayD, IxDyn};
use reshard_ops::gradients::Saved;
use reshard_ops::rules::{OpCall, OpTable};
use reshard_reference::run;
use serde_json::Value;

use crate::gradients::backward;

type A = ArrayD<f64>;

/// The tolerance of two numbers, absolute and relative.
///
/// Both sides round each operation of a formula to 53 bits. A sum of 24 addends, the longest here, of some
/// operations each loses less than 2^-40; the rest is for special functions, which the reference sums by
/// series.
const NEAR: f64 = 1e-9;

/// Ops with a formula that PyTorch's numbers do not check.
///
/// PyTorch has no gradients of its Bessel functions and draws other random numbers, and factories take no
/// inputs. It has no op that scales by a norm, makes shards slices, or is called for its overwritten tensor.
#[rustfmt::skip]
const NOT_THERE: &[&str] = &[
    "alpha_dropout", "arange", "bartlett_window", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "binomial", "blackman_window",
    "clip_by_norm", "copy_", "dropout", "eye", "feature_alpha_dropout", "feature_dropout", "fftfreq", "full", "gumbel_softmax",
    "hamming_window", "hann_window", "join_shards", "kaiser_window", "linspace", "logspace", "modified_bessel_k0", "modified_bessel_k1",
    "native_dropout", "ones", "rand", "randint", "randint_like", "randn", "random", "randperm", "rfftfreq", "rrelu", "scale_by_norm",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "split_shards", "tril_indices", "triu_indices", "zeros",
];

/// Nested lists of numbers.
fn tensor(value: &Value) -> Option<A> {
    fn read(value: &Value, deep: usize, shape: &mut Vec<usize>, data: &mut Vec<f64>) {
        if let Some(list) = value.as_array() {
            if shape.len() == deep {
                shape.push(list.len());
            }
            assert_eq!(shape[deep], list.len());
            for v in list {
                read(v, deep + 1, shape, data);
            }
        } else {
            data.push(value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap()));
        }
    }
    if value.is_null() || value == "none" {
        return None;
    }
    let (mut shape, mut data) = (Vec::new(), Vec::new());
    read(value, 0, &mut shape, &mut data);
    Some(A::from_shape_vec(IxDyn(&shape), data).unwrap())
}

#[allow(clippy::float_cmp, reason = "infinities")]
fn alike(a: f64, b: f64, near: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= near * (1.0 + b.abs())
}

/// Returns the error of a line; `None` if it is correct.
fn wrong(table: &OpTable, line: &Value) -> Option<String> {
    let call: OpCall = line["call"].as_str().unwrap().parse().unwrap();
    let list = |key: &str| line[key].as_array().unwrap().iter().map(tensor).collect::<Vec<_>>();
    let x: Vec<A> = list("x").into_iter().map(Option::unwrap).collect();
    let shapes: Vec<&[usize]> = x.iter().map(ArrayD::shape).collect();
    let gradient = match table.gradient(&call, &shapes) {
        Ok(gradient) => gradient,
        Err(e) => return Some(e.to_string()),
    };
    let op = table.op(&call, &shapes).unwrap();
    let zeros = || op.outputs().iter().map(|shape| A::zeros(IxDyn(shape))).collect::<Vec<_>>();
    // An output that no formula needs is not computed.
    let asked = gradient.inputs().iter().any(|saved| matches!(saved, Saved::Output(_)));
    let y = match if asked { run(table, &call, &x) } else { Ok(zeros()) } {
        Ok(y) => y,
        Err(e) => return Some(e.to_string()),
    };
    let mut dy = zeros();
    for (dy, given) in dy.iter_mut().zip(list("dy")) {
        if let Some(given) = given {
            if given.shape() != dy.shape() {
                return Some(format!("makes {:?}, and PyTorch {:?}", dy.shape(), given.shape()));
            }
            *dy = given;
        }
    }
    // PyTorch's slope of hardsigmoid is the f32 that is nearest to 1/6.
    let near = if call.to_string() == "hardsigmoid" { f64::from(f32::EPSILON) } else { NEAR };
    let made = backward(table, &gradient, &x, &y, &dy);
    for (i, wants) in list("dx").into_iter().enumerate() {
        if line["dx"][i].is_null() {
            continue;
        }
        let zeros = || A::zeros(x[i].raw_dim());
        let (has, wants) = (made[i].clone().unwrap_or_else(zeros), wants.unwrap_or_else(zeros));
        if has.shape() != wants.shape() || has.iter().zip(&wants).any(|(&a, &b)| !alike(a, b, near)) {
            return Some(format!("input {i}: {has}\nand PyTorch's {wants}\nof {} by {gradient}", x[i]));
        }
    }
    None
}

#[test]
fn formulas_are_what_pytorch_computes() {
    let table = OpTable::standard();
    let lines: Vec<Value> = include_str!("../data/torch_gradients.jsonl")
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let failing: Vec<String> = lines
        .iter()
        .filter_map(|line| Some(format!("{} as {}: {}", line["call"], line["torch"], wrong(&table, line)?)))
        .collect();
    assert!(failing.is_empty(), "{} differ:\n{}", failing.len(), failing.join("\n"));
    let names: BTreeSet<&str> =
        lines.iter().map(|line| line["call"].as_str().unwrap().split('(').next().unwrap()).collect();
    println!("{} gradients of PyTorch's, of {} ops", lines.len(), names.len());
    let idle: Vec<&str> = table.gradients().filter(|name| !names.contains(name)).collect();
    assert_eq!(idle, NOT_THERE);
}
