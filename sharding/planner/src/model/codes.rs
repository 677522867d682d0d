//! Where digits stand, in as little as costs and bounds look at.

use smallvec::SmallVec;

/// Where a digit stands, in one byte: a position, or one of the other constants.
pub(crate) type Code = u8;
/// Replicated.
pub(crate) const REPLICATED: Code = 0xFF;
/// Partial, as the source is.
pub(crate) const PARTIAL: Code = 0xFE;
/// Partial, as the target is, where that is another op.
pub(crate) const PARTIAL_LATER: Code = 0xFD;
/// The first code that is no position.
pub(crate) const NOWHERE: Code = 0xFD;

/// What the bounds know of a digit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub(crate) radix: u64,
    pub(crate) level: usize,
}

/// A state as one code per digit.
pub(crate) type Codes = SmallVec<[Code; 8]>;

/// What is known of each digit of a system.
pub(crate) type Weights = SmallVec<[Weight; 8]>;

/// Digits of which some do not nest with the network's domains, as bounds see them: ranks that differ in one may share a
/// domain, and nothing is known of any level but the innermost.
pub(crate) fn inside_one_domain(weights: &[Weight]) -> Weights {
    weights.iter().map(|w| Weight { level: 0, ..*w }).collect()
}
