//! Strategies of one mesh axis: the part of each operand along it.
//!
//! A strategy is a row, one [`OperandPlacement`] per operand. `S(m)` is a placeholder: *some* shard of the factor `m`,
//! the same kind in the whole row. A row means: if the inputs are so along an axis and each rank runs the op
//! on its shards, the outputs are so.

use core::fmt;
use std::str::FromStr;

use crate::Error;
use reshard_sharding::PartitionRegistry;
use reshard_sharding::internal::Cursor;
use reshard_sharding::{Placement, ReduceOp};

/// The class of one operand along one mesh axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OperandPlacement {
    /// The same on every rank: `R`.
    Replicate,
    /// Every rank holds a partial value: `P(max)`, `P` for sums.
    Partial(ReduceOp),
    /// Sharded along the dim with this factor: `S(m)`.
    Factor(char),
    /// Sharded along one of the dims of the ellipsis, the same one for all operands: `S(...)`.
    Rest,
    /// Sharded along this dim: `S(m0)` with the label `m`, which is for display only, or `?0` without one.
    Dim {
        /// A letter for display.
        label: Option<char>,
        /// The dim of the operand.
        dim: usize,
    },
    /// Exactly this placement, not a placeholder: `S(0)`, `SS(0,2)`.
    Fixed(Placement),
}

impl fmt::Display for OperandPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandPlacement::Replicate => f.write_str("R"),
            OperandPlacement::Partial(ReduceOp::Sum) => f.write_str("P"),
            OperandPlacement::Partial(op) => write!(f, "P({op})"),
            OperandPlacement::Rest => f.write_str("S(...)"),
            OperandPlacement::Factor(name) => write!(f, "S({name})"),
            OperandPlacement::Dim { label: Some(label), dim } => write!(f, "S({label}{dim})"),
            OperandPlacement::Dim { label: None, dim } => write!(f, "?{dim}"),
            OperandPlacement::Fixed(placement) => placement.fmt(f),
        }
    }
}

impl OperandPlacement {
    pub(super) fn read(r: &mut Cursor<'_>) -> Result<OperandPlacement, Error> {
        if r.eat("?") {
            return Ok(OperandPlacement::Dim {
                label: None,
                dim: r.number("the dim of a placeholder, like ?0")?,
            });
        }
        let mut ahead = r.clone();
        if ahead.eat("S") && ahead.eat("(") {
            if ahead.eat("...") {
                ahead.expect(")")?;
                *r = ahead;
                return Ok(OperandPlacement::Rest);
            }
            let word = ahead.take_while(|c| c.is_ascii_alphabetic());
            if let Some(label) = word.chars().next().filter(|_| word.len() == 1) {
                let part = if ahead.rest().starts_with(|c: char| c.is_ascii_digit()) {
                    OperandPlacement::Dim { label: Some(label), dim: ahead.number("a dim")? }
                } else {
                    OperandPlacement::Factor(label)
                };
                ahead.expect(")")?;
                *r = ahead;
                return Ok(part);
            }
        }
        Ok(match Placement::read(r, &PartitionRegistry::new())? {
            Placement::Replicate => OperandPlacement::Replicate,
            Placement::Partial(op) => OperandPlacement::Partial(op),
            fixed @ (Placement::Shard(_)
            | Placement::StridedShard { .. }
            | Placement::Ragged { .. }
            | Placement::Custom { .. }) => OperandPlacement::Fixed(fixed),
        })
    }
}

/// One row: the part of each input and each output along one axis.
///
/// ```
/// use reshard_ops::rules::Strategy;
/// let row: Strategy = "S(k),S(k)->P(sum)".parse()?;
/// assert_eq!(row.to_string(), "S(k),S(k) -> P");
/// assert_eq!("?1,R->?1".parse::<Strategy>()?.to_string(), "?1,R -> ?1");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Strategy {
    /// One per input.
    pub inputs: Vec<OperandPlacement>,
    /// One per output.
    pub outputs: Vec<OperandPlacement>,
}

impl Strategy {
    /// Everything replicated.
    pub(super) fn replicated(inputs: usize, outputs: usize) -> Strategy {
        Strategy {
            inputs: vec![OperandPlacement::Replicate; inputs],
            outputs: vec![OperandPlacement::Replicate; outputs],
        }
    }

    pub(super) fn read(r: &mut Cursor<'_>) -> Result<Strategy, Error> {
        let inputs = if r.rest().starts_with("->") { Vec::new() } else { read_parts(r)? };
        r.expect("->")?;
        Ok(Strategy { inputs, outputs: read_parts(r)? })
    }
}

fn read_parts(r: &mut Cursor<'_>) -> Result<Vec<OperandPlacement>, Error> {
    let mut parts = vec![OperandPlacement::read(r)?];
    while r.eat(",") {
        parts.push(OperandPlacement::read(r)?);
    }
    Ok(parts)
}

pub(super) fn write_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, list: &[T]) -> fmt::Result {
    for (i, x) in list.iter().enumerate() {
        write!(f, "{}{x}", if i == 0 { "" } else { "," })?;
    }
    Ok(())
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.inputs)?;
        f.write_str(if self.inputs.is_empty() { "-> " } else { " -> " })?;
        write_list(f, &self.outputs)
    }
}

impl FromStr for Strategy {
    type Err = Error;
    fn from_str(s: &str) -> Result<Strategy, Error> {
        let mut r = Cursor::new("strategy", s);
        let row = Strategy::read(&mut r)?;
        r.finish()?;
        Ok(row)
    }
}
