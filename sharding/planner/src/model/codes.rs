//! The position of each digit, in the compact form that costs and bounds need.

use smallvec::SmallVec;

/// The position of a digit in one byte, or one of the other constants.
pub(crate) type Code = u8;
/// Replicated.
pub(crate) const REPLICATED: Code = 0xFF;
/// Partial, as the source is.
pub(crate) const PARTIAL: Code = 0xFE;
/// Partial, as the target is, where that is another op.
pub(crate) const PARTIAL_LATER: Code = 0xFD;
/// The smallest code that is not a position.
pub(crate) const NOWHERE: Code = 0xFD;

/// The properties of a digit that bounds use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub(crate) radix: u64,
    pub(crate) level: usize,
}

/// A state as one code per digit.
pub(crate) type Codes = SmallVec<[Code; 8]>;

/// The radix and level of each digit of a system.
pub(crate) type Weights = SmallVec<[Weight; 8]>;

/// Returns weights for digits of which some do not nest with the network's domains.
///
/// Ranks that differ in one digit may share a domain. So nothing is known of any level but the innermost.
pub(crate) fn inside_one_domain(weights: &[Weight]) -> Weights {
    weights.iter().map(|w| Weight { level: 0, ..*w }).collect()
}
