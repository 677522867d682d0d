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

use core::fmt;

use reshard_ops::rules::{Op, OpCall, OperandPlacement};
use reshard_sharding::ReduceOp;

use crate::Error;
use crate::notation::refused;
use crate::shard_map::{ShardMap, ShardMapValue};

/// The local type of a value along an axis of a shard map.
///
/// These are the four types of spmd_types, and JAX's invariant, unreduced, reduced and varying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalType {
    /// `R`: equal on all coordinates, each of which does different work with it; its gradient is partial.
    Replicated,
    /// `I`: equal on all coordinates, all of which do the same work with it; so is its gradient.
    Invariant,
    /// `P`: partial values of a sum; its gradient is equal on all coordinates.
    Partial,
    /// `V`: different on each coordinate, and so is its gradient.
    Varying,
}

impl fmt::Display for LocalType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LocalType::Replicated => "R",
            LocalType::Invariant => "I",
            LocalType::Partial => "P",
            LocalType::Varying => "V",
        })
    }
}

/// The same, with the origin of variation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `R`: equal on all coordinates, each of which does different work with it.
    Different,
    /// `I`: equal on all coordinates, used for the same work.
    Same,
    /// `P`: partial values of a sum.
    Terms,
    /// `V`: different on each coordinate, with the origin of variation if known.
    Varying(Option<Origin>),
}

/// The origin of a variation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The coordinates have slices of this dim.
    Dim(usize),
    /// This op sums a dim that is split over the coordinates.
    Sum(String),
}

impl Kind {
    /// Returns the local type without the origin.
    pub(crate) fn letter(&self) -> LocalType {
        match self {
            Kind::Different => LocalType::Replicated,
            Kind::Same => LocalType::Invariant,
            Kind::Terms => LocalType::Partial,
            Kind::Varying(_) => LocalType::Varying,
        }
    }
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
        if has(&Kind::Same) && !trained().all(|kind| *kind == Kind::Same) || varies && has(&Kind::Same) {
            let same = inputs.iter().zip(&kinds).find(|(v, kind)| v.trained && ***kind == Kind::Same);
            let same = same.map_or("it", |(v, _)| self.shown(v.value));
            return refused(format!(
                "{call}: along {name} {}, and an invariant operand (I) cannot be combined with others; convert {same} to R and use the result",
                texts()
            ));
        }
        let terms = kinds.iter().any(|kind| **kind == Kind::Terms);
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
        Ok(all(if has(&Kind::Same) || (!inputs.is_empty() && kinds.iter().all(|k| **k == Kind::Same)) {
            Kind::Same
        } else {
            Kind::Different
        }))
    }
}

/// Returns the output types of an op on partial values, from one of its rows.
fn passed(op: &Op, kinds: &[&Kind]) -> Option<Vec<Kind>> {
    let sum = OperandPlacement::Partial(ReduceOp::Sum);
    if op.is_view() {
        return Some(vec![Kind::Terms]);
    }
    let fits = |(part, kind): (&OperandPlacement, &&Kind)| match kind {
        Kind::Terms => *part == sum,
        Kind::Different | Kind::Same | Kind::Varying(_) => *part == OperandPlacement::Replicate,
    };
    let row = op.strategies().into_iter().find(|row| row.inputs.iter().zip(kinds).all(fits))?;
    let made = row.outputs.iter().map(|part| match part {
        part if *part == sum => Some(Kind::Terms),
        OperandPlacement::Replicate => Some(Kind::Different),
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
        Kind::Varying(_) | Kind::Different | Kind::Same | Kind::Terms => None,
    });
    if lost.is_some() {
        return vec![Kind::Varying(lost); op.outputs().len()];
    }
    let fits = |(part, kind): (&OperandPlacement, &&Kind)| match kind {
        Kind::Varying(Some(Origin::Dim(d))) => matches!(part, OperandPlacement::Dim { dim, .. } if dim == d),
        Kind::Varying(_) => false,
        Kind::Different | Kind::Same | Kind::Terms => *part == OperandPlacement::Replicate,
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
