//! Lower bounds: what no plan can do without, for the digits of one network level and up.
//!
//! Seen from level `l`, a *unit* is all ranks that differ in digits below `l` only; what its ranks hold together, they
//! can share without crossing level `l`. Without partial sources a unit must import what its target has and its source
//! has not: a position that one digit (of level `l` and up) owns in the source and another in the target leaves some
//! unit with nothing of what it wants, else it holds one part in the product of the radices that its digits give up.
//! With partial sources every unit needs
//!
//! ```text
//! max(|t|, N (q + m - 1 - phi) / W)
//! ```
//!
//! elements, over whole ones, with `q` the product of the partial radices, `m` that of the digits replicated in the
//! target, `W` the number of units, and `phi` the product of `1/radix` over a spanning forest of the links
//! `s(d) - t(d)` of digits that move between positions: each element takes `q - 1` words until some unit has it, one more
//! for each other holder, one more if no unit holds it in both. With partial targets nothing simple is true.

use smallvec::SmallVec;

/// Where a digit stands, in one byte: a position, or one of the other constants.
pub(crate) type Code = u8;
/// Replicated.
pub(crate) const REPLICATED: Code = 0xFF;
/// Partial, as the source is.
pub(crate) const OWED: Code = 0xFE;
/// Partial, as the target is, where that is another op.
pub(crate) const OWED_LATER: Code = 0xFD;
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

/// The least elements per rank that must cross level `min_level` or a further one, on average over a unit.
///
/// `whole` is the number of elements that a rank holds when no digit stands anywhere. Returns `None` with a partial
/// target.
pub(crate) fn need(digits: &[Weight], s: &[Code], t: &[Code], whole: u64, min_level: usize) -> Option<f64> {
    if t.iter().any(|&c| c == OWED || c == OWED_LATER) {
        return None;
    }
    let high = |d: usize| digits[d].level >= min_level;
    let placed: u64 = (0..t.len()).filter(|&d| t[d] < NOWHERE).map(|d| digits[d].radix).product();
    // What a unit wants, for each of its ranks.
    let low_replicated: u64 =
        (0..t.len()).filter(|&d| !high(d) && t[d] == REPLICATED).map(|d| digits[d].radix).product();
    let target = (whole / placed) as f64 / low_replicated as f64;
    let owed: u64 = (0..s.len())
        .filter(|&d| high(d) && s[d] >= NOWHERE && s[d] != REPLICATED)
        .map(|d| digits[d].radix)
        .product();
    if owed == 1 {
        let mut given_up = 1u64;
        for d in (0..s.len()).filter(|&d| high(d) && s[d] < NOWHERE && t[d] != s[d]) {
            if (0..t.len()).any(|e| high(e) && t[e] == s[d]) {
                return Some(target);
            }
            given_up *= digits[d].radix;
        }
        return Some(target - target / given_up as f64);
    }
    let m: u64 = (0..t.len()).filter(|&d| high(d) && t[d] == REPLICATED).map(|d| digits[d].radix).product();
    let ranks: u64 = digits.iter().map(|d| d.radix).product();
    let words = whole as f64 * ((owed + m - 1) as f64 - 1.0 / forest(digits, s, t, min_level));
    Some(target.max(words / ranks as f64))
}

/// The product of the radices of a spanning forest of the links of moved digits: all of a path, all but one of a cycle.
fn forest(digits: &[Weight], s: &[Code], t: &[Code], min_level: usize) -> f64 {
    let moved = |d: usize| digits[d].level >= min_level && s[d] < NOWHERE && t[d] < NOWHERE && s[d] != t[d];
    let mut product = 1.0;
    for first in (0..s.len()).filter(|&d| moved(d)) {
        product *= digits[first].radix as f64;
        // A cycle counts once too often: for its lowest digit, walk it.
        let (mut d, mut lowest) = (first, true);
        while let Some(next) = (0..s.len()).find(|&e| moved(e) && s[e] == t[d]) {
            if next == first {
                if lowest {
                    product /= digits[first].radix as f64;
                }
                break;
            }
            lowest &= next > first;
            d = next;
        }
    }
    product
}
