//! Scaled dot-product attention, with grouped heads and a mask.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::terms::multilinear;

/// `b(hg)qd,bhkd,bhke->b(hg)qe`: `g` queries share a head of keys and values.
///
/// A mask is added to the logits: `qk`, `hqk` or `bhqk`, each dim as large or 1.
pub(super) fn attention(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(3..=4)?;
    let (q, k, v) = (r.inputs[0], r.inputs[1], r.inputs[2]);
    if q.len() != 4 || k.len() != 4 || v.len() != 4 {
        return Err(r.error("needs batch, heads, length and width of queries, keys and values"));
    }
    let (heads, shared) = (q[1], k[1]);
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(r.error(format!("{heads} heads of queries do not share {shared} heads of keys")));
    }
    let grouped = if heads == shared { Dim::from('h') } else { Dim::compound(['h', 'g']) };
    let queries = |width: char| ['b'.into(), grouped.clone(), 'q'.into(), width.into()];
    let mut rule =
        RuleBuilder::new().input(queries('d')).input(['b', 'h', 'k', 'd']).input(['b', 'h', 'k', 'e']);
    if n == 4 {
        let m = r.inputs[3];
        let full = [(q[0], 'b'.into()), (heads, grouped.clone()), (q[2], 'q'.into()), (k[2], 'k'.into())];
        let Some(left_out) = full.len().checked_sub(m.len()) else {
            return Err(r.error(format!("the mask has {} dims, and at most 4 fit", m.len())));
        };
        let dims = full[left_out..].iter().zip(m);
        rule =
            rule.input(dims.map(|((n, dim), &has)| if has == 1 && *n != 1 { Dim::ONE } else { dim.clone() }));
    }
    rule = rule.output(queries('e')).roles(['d', 'k'], FactorKind::NeedReplication).passing(multilinear([2]));
    if heads != shared {
        rule = rule.size('g', heads / shared);
    }
    if r.flag("causal")? {
        // The keys that a query may see depend on its position.
        rule = rule.regions(['q']);
    }
    r.op(&rule.build()?)
}
