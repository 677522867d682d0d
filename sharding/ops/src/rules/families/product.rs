//! Products of matrices with further operands or batch dims.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::{self, Rest};
use crate::rules::factor::FactorKind;
use crate::rules::op::Op;
use crate::rules::standard::SCALAR;
use crate::rules::terms::{ALL, P, affine, increasing, linear as together, row, s};

/// NumPy's product: vectors, matrices, and batches of them broadcast.
pub(super) fn matmul(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let [m, k, n] = ['m', 'k', 'n'].map(Dim::from);
    let rule = RuleBuilder::new();
    let rule = match (r.inputs[0].len(), r.inputs[1].len()) {
        (0, _) | (_, 0) => return Err(r.error("has no product with a scalar; use mul")),
        (1, 1) => rule.input([k.clone()]).input([k]).output(SCALAR),
        (1, _) => rule.input([k.clone()]).input([Rest, k, n.clone()]).output([Rest, n]),
        (_, 1) => rule.input([Rest, m.clone(), k.clone()]).input([k]).output([Rest, m]),
        (2, 2) => rule.input([m.clone(), k.clone()]).input([k, n.clone()]).output([m, n]),
        _ => rule.input([Rest, m.clone(), k.clone()]).input([Rest, k, n.clone()]).output([Rest, m, n]),
    };
    r.op(&rule.build()?)
}

/// `x w^T + b`.
pub(super) fn linear(r: &BoundCall<'_>) -> Result<Op, Error> {
    let bias = r.inputs_of(2..=3)? == 3;
    let mut rule = RuleBuilder::new().input([Rest, 'k'.into()]).input(['n', 'k']).output([Rest, 'n'.into()]);
    if bias {
        // Each rank adds a partial value of the bias where the product is partial.
        rule = rule.input(['n']).role('k', FactorKind::NeedReplication).passings([
            row([s('k'), s('k'), P], [P]),
            together([0, 2]),
            together([1, 2]),
            affine(ALL),
            increasing([2]),
        ]);
    }
    r.op(&rule.build()?)
}

/// A broadcast operand plus a product; each rank adds a partial operand where the product is partial.
pub(super) fn added(
    r: &BoundCall<'_>,
    batch: &[char],
    a: &[char],
    b: &[char],
    out: &[char],
) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let [a, b, out] = [a, b, out].map(|dims| [batch, dims].concat());
    let shape = r.inputs[0];
    let Some(left_out) = out.len().checked_sub(shape.len()) else {
        return Err(r.error(format!(
            "the first input has {} dims, and the product {}",
            shape.len(),
            out.len()
        )));
    };
    let size = |factor: char| {
        [(1, &a), (2, &b)].into_iter().find_map(|(i, dims)| {
            let dim = dims.iter().position(|&name| name == factor)?;
            r.inputs[i].get(dim).copied()
        })
    };
    let added: Vec<Dim> = out[left_out..]
        .iter()
        .zip(shape)
        .map(|(&c, &n)| if n == 1 && size(c) != Some(1) { Dim::ONE } else { c.into() })
        .collect();
    let mut summed: Vec<char> = a.iter().chain(&b).copied().filter(|c| !out.contains(c)).collect();
    summed.sort_unstable();
    summed.dedup();
    let rule = RuleBuilder::new()
        .input(added)
        .input(a)
        .input(b)
        .output(out)
        .roles(summed.iter().copied(), FactorKind::NeedReplication)
        .passings(summed.iter().map(|&c| row([P, s(c), s(c)], [P])))
        .passings([together([0, 1]), together([0, 2]), affine(ALL), increasing([0])]);
    r.op(&rule.build()?)
}
