//! Local types: the type of a shard map value along an axis, and the type rules of ops.
//!
//! ```text
//! all I                  I            all coordinates do the same work
//! all R                  R
//! some V, others R       V            each coordinate has a different slice
//! some P, others R       P, or R      by a row of the op: it adds partial values, or scales them by a replica
//! I with any other       an error     the gradient would be incomplete
//! V with P               an error     a partial value is not a slice
//! ```
//!
//! Values without gradients combine with any type.

use reshard_ops::rules::{Op, OpCall, OperandPlacement};
use reshard_sharding::ReduceOp;

use crate::Error;
use crate::notation::refused;
use crate::replication::Replication;
use crate::shard_map::{ShardMap, ShardMapValue};

/// The local type of a value along an axis: replication, with the origin of variation if known.
pub(crate) type Kind = Replication<Option<Origin>>;

/// The origin of a variation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The coordinates have slices of this dim.
    Dim(usize),
    /// This op sums a dim that is split over the coordinates.
    Sum(String),
}

impl ShardMap<'_> {
    /// Returns the types along an axis of the outputs of an op on slices.
    pub(crate) fn made(
        &self,
        call: &OpCall,
        op: &Op,
        inputs: &[&ShardMapValue],
        axis: usize,
    ) -> Result<Vec<Kind>, Error> {
        let kinds: Vec<&Kind> = inputs.iter().filter_map(|v| v.kind(axis)).collect();
        if kinds.len() != inputs.len() {
            return refused(format!("{call}: an operand belongs to another shard map; import it with `in`"));
        }
        let trained = || inputs.iter().zip(&kinds).filter(|(v, _)| v.trained).map(|(_, kind)| *kind);
        let all = |kind: Kind| vec![kind; op.outputs().len()];
        let has = |kind: &Kind| trained().any(|k| k == kind);
        let varies = kinds.iter().any(|kind| matches!(kind, Kind::Varying(_)));
        let name = self.axis_name(axis);
        let texts = || {
            let text = |(v, kind): (&&ShardMapValue, &&Kind)| {
                format!("{} is {}", self.shown(v.value), kind.letter())
            };
            inputs.iter().zip(&kinds).map(text).collect::<Vec<_>>().join(" and ")
        };
        if has(&Kind::Invariant) && !trained().all(|kind| *kind == Kind::Invariant)
            || varies && has(&Kind::Invariant)
        {
            let same = inputs.iter().zip(&kinds).find(|(v, kind)| v.trained && ***kind == Kind::Invariant);
            let same = same.map_or("it", |(v, _)| self.shown(v.value));
            return refused(format!(
                "{call}: along {name} {}, and an invariant operand (I) cannot be combined with others; convert {same} to R and use the result",
                texts()
            ));
        }
        let terms = kinds.iter().any(|kind| **kind == Kind::Partial);
        if varies && terms {
            return refused(format!(
                "{call}: along {name} {}, and partial (P) and varying (V) operands cannot be combined; all_reduce the partial one, or convert the varying one to P",
                texts()
            ));
        }
        if varies {
            return Ok(varied(call, op, &kinds));
        }
        if terms {
            return passed(op, &kinds).ok_or_else(|| Error::Graph {
                reason: format!(
                    "{call}: along {name} {}, and the op does not accept these partial operands (P); all_reduce them first",
                    texts()
                ),
            });
        }
        Ok(all(
            if has(&Kind::Invariant) || (!inputs.is_empty() && kinds.iter().all(|k| **k == Kind::Invariant)) {
                Kind::Invariant
            } else {
                Kind::Replicated
            },
        ))
    }
}

/// Returns the output types of an op on partial values, from one of its rows.
fn passed(op: &Op, kinds: &[&Kind]) -> Option<Vec<Kind>> {
    let sum = OperandPlacement::Partial(ReduceOp::Sum);
    if op.is_view() {
        return Some(vec![Kind::Partial]);
    }
    let fits = |(part, kind): (&OperandPlacement, &&Kind)| match kind {
        Kind::Partial => *part == sum,
        Kind::Replicated | Kind::Invariant | Kind::Varying(_) => *part == OperandPlacement::Replicate,
    };
    let row = op.strategies().into_iter().find(|row| row.inputs.iter().zip(kinds).all(fits))?;
    let made = row.outputs.iter().map(|part| match part {
        part if *part == sum => Some(Kind::Partial),
        OperandPlacement::Replicate => Some(Kind::Replicated),
        OperandPlacement::Partial(_)
        | OperandPlacement::Factor(_)
        | OperandPlacement::Rest
        | OperandPlacement::Dim { .. }
        | OperandPlacement::Fixed(_) => None,
    });
    made.collect()
}

/// Returns the output types of an op on varying values.
///
/// The origin comes from a row of the op in which the slices of these dims are shards.
fn varied(call: &OpCall, op: &Op, kinds: &[&Kind]) -> Vec<Kind> {
    let lost = kinds.iter().find_map(|kind| match kind {
        Kind::Varying(Some(Origin::Sum(what))) => Some(Origin::Sum(what.clone())),
        Kind::Varying(_) | Kind::Replicated | Kind::Invariant | Kind::Partial => None,
    });
    if lost.is_some() {
        return vec![Kind::Varying(lost); op.outputs().len()];
    }
    let fits = |(part, kind): (&OperandPlacement, &&Kind)| match kind {
        Kind::Varying(Some(Origin::Dim(d))) => matches!(part, OperandPlacement::Dim { dim, .. } if dim == d),
        Kind::Varying(_) => false,
        Kind::Replicated | Kind::Invariant | Kind::Partial => *part == OperandPlacement::Replicate,
    };
    let row = op.strategies().into_iter().find(|row| row.inputs.iter().zip(kinds).all(fits));
    let Some(row) = row else { return vec![Kind::Varying(None); op.outputs().len()] };
    let of = |part: &OperandPlacement| match part {
        OperandPlacement::Dim { dim, .. } => Some(Origin::Dim(*dim)),
        OperandPlacement::Partial(_) => Some(Origin::Sum(call.to_string())),
        OperandPlacement::Replicate
        | OperandPlacement::Factor(_)
        | OperandPlacement::Rest
        | OperandPlacement::Fixed(_) => None,
    };
    row.outputs.iter().map(|part| Kind::Varying(of(part))).collect()
}
