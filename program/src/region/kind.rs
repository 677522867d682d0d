//! What a value of a region is along one of its axes, and what an op makes of that.
//!
//! ```text
//! all I                  I            every coordinate does the same work
//! all R                  R
//! some V, others R       V            each coordinate has its own slice of what varies
//! some P, others R       P, or R      as a row of the op says: what adds terms, or scales them by what is the same
//! I with any other       refused      its gradient would be a part of the true one
//! V with P               refused      a term of a sum is not a slice
//! ```
//!
//! What has no gradient meets all.

use core::fmt;

use reshard_ops::rules::{Op, OpCall, OperandPlacement};
use reshard_sharding::ReduceOp;

use crate::Error;
use crate::notation::refused;
use crate::region::{ShardMap, ShardMapValue};

/// What a value of a region is along one of the region's axes: spmd_types' four types, and JAX's invariant, unreduced, reduced
/// and varying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalType {
    /// `R`: the same on all coordinates, of which each does work of its own with it; its gradient is terms.
    Replicated,
    /// `I`: the same on all coordinates, which all do the same with it; its gradient is the same on all.
    Invariant,
    /// `P`: terms of a sum; its gradient is the same on all.
    Partial,
    /// `V`: each coordinate has its own, and of its gradient.
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

/// The same, and what is known of where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `R`: the same on all coordinates, of which each does work of its own with it.
    Different,
    /// `I`: the same on all coordinates, and the same work.
    Same,
    /// `P`: terms of a sum.
    Terms,
    /// `V`: each coordinate has its own; and what is known of how.
    Varying(Option<Origin>),
}

/// What is known of how a value varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Its coordinates are the parts of this dim.
    Dim(usize),
    /// This op sums a dim of which coordinates have parts.
    Sum(String),
}

impl Kind {
    /// Without where it comes from.
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
    /// What an op on slices makes along an axis.
    pub(crate) fn made(
        &self,
        call: &OpCall,
        op: &Op,
        inputs: &[&ShardMapValue],
        axis: usize,
    ) -> Result<Vec<Kind>, Error> {
        let kinds: Vec<&Kind> = inputs.iter().filter_map(|v| v.kind(axis)).collect();
        if kinds.len() != inputs.len() {
            return refused(format!("{call}: an operand is of another region: take it with in"));
        }
        let trained = || inputs.iter().zip(&kinds).filter(|(v, _)| v.trained).map(|(_, kind)| *kind);
        let all = |kind: Kind| vec![kind; op.outputs().len()];
        let has = |kind: &Kind| trained().any(|k| k == kind);
        let varies = kinds.iter().any(|kind| matches!(kind, Kind::Varying(_)));
        let name = self.axis_name(axis);
        let texts = || {
            let text = |(v, kind): (&&ShardMapValue, &&Kind)| {
                format!("{} is {}", self.graph.name(v.value), kind.letter())
            };
            inputs.iter().zip(&kinds).map(text).collect::<Vec<_>>().join(" and ")
        };
        if has(&Kind::Same) && !trained().all(|kind| *kind == Kind::Same) || varies && has(&Kind::Same) {
            let same = inputs.iter().zip(&kinds).find(|(v, kind)| v.trained && ***kind == Kind::Same);
            let same = same.map_or("it", |(v, _)| self.graph.name(v.value));
            return refused(format!(
                "{call}: along {name} {}, and what all coordinates do the same with (I) meets no other work; make {same} R",
                texts()
            ));
        }
        let terms = kinds.iter().any(|kind| **kind == Kind::Terms);
        if varies && terms {
            return refused(format!(
                "{call}: along {name} {}, and a term of a sum (P) is no slice (V); all_reduce the terms, or make what varies P",
                texts()
            ));
        }
        if varies {
            return Ok(varied(call, op, &kinds));
        }
        if terms {
            return passed(op, &kinds).ok_or_else(|| Error::Graph {
                reason: format!(
                    "{call}: along {name} {}, and it passes no terms so; all_reduce them before",
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

/// What an op makes of terms, as one of its rows says.
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

/// What an op makes of what varies, and where that comes from: a row of the op in which the parts of these dims are shards.
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
