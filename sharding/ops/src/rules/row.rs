//! Rows: the strategies of one call, over the dims of its operands, as propagation and the validator work on them.

use smallvec::SmallVec;

use crate::rules::strategy::{OperandPlacement, Strategy};
use reshard_sharding::{Placement, ReduceOp};

/// A factor of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoundFactor {
    /// Its letter, or none for a dim of an ellipsis.
    pub name: Option<char>,
    /// Its number of indices.
    pub size: usize,
    /// `true` if every split must divide it.
    pub even: bool,
}

/// The factors of one dim, most significant first; `None` for a dim of any size that must stay whole.
pub(crate) type DimFactors = Option<SmallVec<[u16; 2]>>;

/// The dims of one operand.
pub(crate) type OperandDims = SmallVec<[DimFactors; 4]>;

/// The factors, dims and rows of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bound {
    /// The factors; rows and dims have their positions here.
    pub factors: Vec<BoundFactor>,
    /// The dims of each operand, inputs before outputs; empty for a list of strategies.
    pub dims: Vec<OperandDims>,
    /// The strategies.
    pub rows: Vec<Row>,
    /// The placements that [`Entry::Fixed`] indexes.
    pub fixed: Vec<Placement>,
    /// The inputs that are written, each with the output that is written there.
    pub written: Vec<(u16, u16)>,
}

/// One strategy: an entry for each operand, inputs before outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// An entry for each operand.
    pub entries: Vec<Entry>,
    /// `true` if the op has to know its region.
    pub region: bool,
}

/// The class of an operand along an axis, by its dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The same on every rank.
    Replicate,
    /// A partial value on every rank.
    Partial(ReduceOp),
    /// A shard of this dim, of the kind that fills the row; with the factor that it shards.
    Shard {
        /// The dim of the operand.
        dim: u16,
        /// The factor, or none in a row that names dims alone.
        factor: Option<u16>,
    },
    /// Exactly this placement of the list.
    Fixed(u16),
}

impl Entry {
    /// Returns all possible entries of an operand with `dims` dims, whatever its rule.
    pub fn all(dims: usize) -> impl Iterator<Item = Entry> {
        let shards = (0..dims).map(|d| Entry::Shard { dim: d as u16, factor: None });
        core::iter::once(Entry::Replicate).chain(shards).chain(ReduceOp::ALL.into_iter().map(Entry::Partial))
    }

    fn part(self, bound: &Bound) -> OperandPlacement {
        match self {
            Entry::Replicate => OperandPlacement::Replicate,
            Entry::Partial(op) => OperandPlacement::Partial(op),
            Entry::Shard { dim, factor } => OperandPlacement::Dim {
                label: factor.and_then(|f| bound.factors[usize::from(f)].name),
                dim: dim.into(),
            },
            Entry::Fixed(i) => OperandPlacement::Fixed(bound.fixed[usize::from(i)].clone()),
        }
    }
}

impl Bound {
    /// Returns the printable strategy of these entries, the first `inputs` of which are those of inputs.
    pub fn strategy(&self, entries: &[Entry], inputs: usize) -> Strategy {
        let (inputs, outputs) = entries.split_at(inputs);
        let parts = |list: &[Entry]| list.iter().map(|e| e.part(self)).collect();
        Strategy { inputs: parts(inputs), outputs: parts(outputs) }
    }
}
