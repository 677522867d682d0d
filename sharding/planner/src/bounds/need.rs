//! Lower bounds: the elements that every plan must transfer across one network level and those above it.
//!
//! Seen from level `l`, a *domain* is the set of all ranks that differ only in digits below `l`. Its ranks
//! can share all that they hold without crossing level `l`. A *reader* is the set of domains that jointly
//! hold one copy of the target: one domain, or, where the target is partial, all those whose partial values
//! add up. An element has `m` readers, where `m` is the product of the digits replicated in the target. It
//! has `q` partial values, where `q` is the product of the partial digits of the source. A reader that holds
//! any of them at the start holds `k`: the product of the digits that are partial in both.
//!
//! **Words of one element.** A word is a linear combination of the partial values of an element, which one
//! domain sends to another. Of the `m` readers, `h` hold partial values of the element at the start, and
//! `u = m - h` hold none:
//!
//! ```text
//! u > 0:          q + u - 1             and q - k + m - 1, where k < q and h > 0
//! u = 0, k < q:   q - k + m - 1         and q, if readers hold different partial values
//! u = 0, k = q:   0
//! ```
//!
//! *`q + u - 1`.* Each of the `u` readers depends on all partial values, and their owners are `q` different
//! domains outside of it. Words connect readers and owners, and a connected graph of `q + u` nodes has at
//! least `q + u - 1` edges. *`q - k + m - 1`.* The partial values that a reader lacks leave their
//! owners in different words, since owners of different partial values are different domains. So before the
//! first reader is complete, there are at least as many words as it lacks partial values. Every other reader
//! that is not complete by then receives one more. *`q`.* Where some reader lacks every partial value, all of
//! them leave their owners. Some reader holds one element in `1/phi`. This is the product of `radix` over a
//! spanning forest of the links `s(d) - t(d)` of digits that change their position: there the element's
//! digits must be equal.
//!
//! **Words of one reader**: at least one for every element that it wants and of which it lacks some partial
//! value. If one digit owns a position in the source and another digit owns it in the target, some reader
//! holds no element that it wants. Otherwise it holds one part in the product of the radices that its digits
//! give up.
//!
//! Either number, spread over the ranks of the domains, is a lower bound of the elements that the worst rank
//! receives.

use crate::model::codes::{Code, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED, Weight};

/// Returns the least elements per rank that must cross level `min_level` or a further one.
///
/// It is an average over the domains of the readers that need most. `whole` is the number of elements of a
/// rank when no digit has a position.
pub(crate) fn need(digits: &[Weight], s: &[Code], t: &[Code], whole: u64, min_level: usize) -> f64 {
    // Products of radices, by the state of a digit. `ranks`, `placed` and `all_owed_later` are over all
    // digits, `low_replicated` is over those below this level, and the others are over this level and up.
    let (mut ranks, mut placed, mut low_replicated, mut all_owed_later) = (1u64, 1u64, 1u64, 1u64);
    let (mut partial, mut kept, mut readers, mut gathered, mut given_up) = (1u64, 1u64, 1u64, 1u64, 1u64);
    let mut replicated_terms = 1u64;
    let mut taken_over = false;
    let mut moves = false;
    for d in 0..s.len() {
        let Weight { radix, level } = digits[d];
        let high = level >= min_level;
        ranks *= radix;
        if t[d] < NOWHERE {
            placed *= radix;
        } else if t[d] != REPLICATED {
            all_owed_later *= radix;
        } else if high {
            readers *= radix;
        } else {
            low_replicated *= radix;
        }
        if !high {
            continue;
        }
        if s[d] >= NOWHERE {
            if s[d] != REPLICATED {
                partial *= radix;
                kept *= if s[d] == t[d] { radix } else { 1 };
                replicated_terms *= if t[d] == REPLICATED { radix } else { 1 };
            }
        } else if s[d] != t[d] && (t[d] < NOWHERE || t[d] == REPLICATED) {
            given_up *= radix;
            gathered *= if t[d] == REPLICATED { radix } else { 1 };
            moves |= t[d] < NOWHERE;
            taken_over |= (0..t.len()).any(|e| digits[e].level >= min_level && t[e] == s[d]);
        }
    }
    let wanted = (whole / placed) as f64 / (low_replicated * all_owed_later) as f64;
    let of_reader = if partial > kept || taken_over { wanted } else { wanted - wanted / given_up as f64 };
    if partial == 1 {
        return of_reader;
    }
    let phi = if moves { 1.0 / forest(digits, s, t, min_level) } else { 1.0 };
    let readers = Readers {
        terms: partial as f64,
        kept: kept as f64,
        all: readers as f64,
        holding: (readers / gathered) as f64,
        apart: replicated_terms > 1,
    };
    let words = phi * readers.words(true) + (1.0 - phi) * readers.words(false);
    of_reader.max(whole as f64 * words / ranks as f64)
}

/// The readers of one element, and its partial values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readers {
    /// Number of partial values that different domains hold.
    pub(crate) terms: f64,
    /// The most partial values that one reader holds.
    pub(crate) kept: f64,
    pub(crate) all: f64,
    /// Number of readers that hold partial values, if any does.
    pub(crate) holding: f64,
    /// `true` if readers differ in the partial values that they hold.
    pub(crate) apart: bool,
}

impl Readers {
    /// Returns the least words of an element, given that some reader holds partial values of it or none does.
    pub(crate) fn words(self, held: bool) -> f64 {
        let Readers { terms: q, kept: k, all: m, .. } = self;
        let without = if held { m - self.holding } else { m };
        let connected = if without > 0.0 { q + without - 1.0 } else { 0.0 };
        if !held || k >= q {
            return connected;
        }
        let leaving = if self.apart { q } else { 0.0 };
        connected.max(q - k + m - 1.0).max(leaving)
    }
}

/// Returns the least number of domains, of a level and up, that a rank of one reader depends on.
///
/// A rank depends on every value of a digit that is gathered or partial. It also depends on every value of a
/// digit that leaves a position which no other digit takes over. The ranks of one reader share its
/// dependencies.
pub(crate) fn depends_on(digits: &[Weight], s: &[Code], t: &[Code], min_level: usize) -> u64 {
    let (mut on, mut shared_by) = (1u64, 1u64);
    for d in (0..s.len()).filter(|&d| s[d] != t[d]) {
        let every = s[d] != REPLICATED && (s[d] >= NOWHERE || !t.contains(&s[d]));
        on *= if every && digits[d].level >= min_level { digits[d].radix } else { 1 };
        shared_by *= if t[d] == PARTIAL || t[d] == PARTIAL_LATER { digits[d].radix } else { 1 };
    }
    on.div_ceil(shared_by)
}

/// Returns the product of radices over a spanning forest of the links of digits that change position.
///
/// It has all digits of a path, and all but one of a cycle.
fn forest(digits: &[Weight], s: &[Code], t: &[Code], min_level: usize) -> f64 {
    let moved = |d: usize| digits[d].level >= min_level && s[d] < NOWHERE && t[d] < NOWHERE && s[d] != t[d];
    let mut product = 1.0;
    for first in (0..s.len()).filter(|&d| moved(d)) {
        product *= digits[first].radix as f64;
        // A cycle counts one digit too many: walk it, and divide at its lowest digit.
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
