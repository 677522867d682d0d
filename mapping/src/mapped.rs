//! The tensors that exist, and the tensors that a mapping computes from them.

use safetensors::Dtype;

use crate::piece::Piece;

/// A tensor that exists: the input of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTensor<'a> {
    /// Name, unique in the list.
    pub name: &'a str,
    /// Extent of each dim.
    pub shape: &'a [usize],
    /// Type of the elements as stored.
    pub dtype: Dtype,
}

/// The tensors that a mapping computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The tensors: by rule, then by the first source that matches, then from left to right in the rule; at the
    /// end the sources that no rule names, in their order.
    pub tensors: Vec<MadeTensor>,
    /// The pairs that must be equal, in the order of the rules.
    pub checks: Vec<Check>,
    /// Names of the sources that `drop` lines match, in their order.
    pub dropped: Vec<String>,
    /// Names of the sources that no rule and no `drop` names, in their order.
    pub kept: Vec<String>,
}

/// A tensor that a mapping computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeTensor {
    /// Name.
    pub name: String,
    /// Extent of each dim.
    pub shape: Vec<usize>,
    /// Type of the elements after all conversions.
    pub dtype: Dtype,
    /// Types of the sources as stored, each once, by first occurrence in `pieces`.
    pub stored: Vec<Dtype>,
    /// Disjoint loop nests that cover the tensor, by target offset; empty if it has no elements.
    pub pieces: Vec<Piece>,
    /// The parts of a concatenation on each rank (`|`); `None` for all other tensors.
    pub local_parts: Option<LocalParts>,
}

/// The parts of a tensor that each rank concatenates, in order; each can have separate placements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalParts {
    /// Dim of the concatenation.
    pub dim: usize,
    /// Extent of each part on that dim; their sum is the extent of the tensor.
    pub extents: Vec<usize>,
}

/// Two tensors of equal shape whose elements must be equal.
///
/// The elements are compared after the conversions of their nests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Rule or `drop` line that requires it.
    pub rule: String,
    /// The two tensors, for a message: ``the copies along `r` ``, or `lm_head.weight and embed.weight`.
    pub subject: String,
    /// Extent of each dim.
    pub shape: Vec<usize>,
    /// Type of the elements after the conversions.
    pub dtype: Dtype,
    /// Loop nests of the first tensor.
    pub left: Vec<Piece>,
    /// Loop nests of the second tensor.
    pub right: Vec<Piece>,
}
