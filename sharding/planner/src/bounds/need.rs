//! Lower bounds: what no plan can do without, for the digits of one network level and up.
//!
//! Seen from level `l`, a *domain* is all ranks that differ in digits below `l` only; what its ranks hold together, they
//! can share without crossing level `l`. A *reader* is the domains that together hold one copy of the target: one domain, or,
//! where the target is partial, all those whose terms add up. There are `m` readers of an element, `m` the product of the
//! digits replicated in the target, and `q` terms of it, `q` the product of the partial digits of the source, of which a
//! reader holds `k` from the beginning if it holds any: the product of the digits that are partial in both.
//!
//! **Words of one element**, each a linear combination of its terms that one domain sends to another. Of the `m` readers `h` hold
//! terms of it from the beginning, `u = m - h` none:
//!
//! ```text
//! u > 0:          q + u - 1             and q - k + m - 1, where k < q and h > 0
//! u = 0, k < q:   q - k + m - 1         and q, where readers differ in which terms they hold
//! u = 0, k = q:   0
//! ```
//!
//! *`q + u - 1`.* Each of the `u` readers depends on all terms, whose holders are `q` different domains outside of it: readers and
//! holders are connected by words, and so many nodes need so many edges. *`q - k + m - 1`.* Terms that a reader lacks leave their holders in
//! different words, since holders of different terms are different domains; so before the first reader is complete there are as many words
//! as it lacks terms. Every other reader that is not complete by then receives one more. *`q`.* Where some reader
//! lacks every term, they all leave their holders. Some reader holds one element in `1/phi`, the product of `radix` over a spanning
//! forest of the links `s(d) - t(d)` of digits that move between positions: there the element's digits must be equal.
//!
//! **Words of one reader**: at least one for every element that it wants and does not hold all terms of. A position that
//! one digit owns in the source and another in the target leaves some reader with nothing of what it wants, else it holds
//! one part in the product of the radices that its digits give up.
//!
//! Either, over the ranks of the domains, is what the worst rank receives at least.

use crate::model::codes::{Code, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED, Weight};

/// The least elements per rank that must cross level `min_level` or a further one, on average over the domains of the
/// readers that need most.
///
/// `whole` is the number of elements that a rank holds when no digit stands anywhere.
pub(crate) fn need(digits: &[Weight], s: &[Code], t: &[Code], whole: u64, min_level: usize) -> f64 {
    // Products of radices, by where a digit stands; of this level and up, unless it says otherwise.
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

/// The readers of one element, and its terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readers {
    /// Terms that different domains hold.
    pub(crate) terms: f64,
    /// The most terms that one reader holds.
    pub(crate) kept: f64,
    pub(crate) all: f64,
    /// Of these, how many hold terms, if any does.
    pub(crate) holding: f64,
    /// Whether readers differ in which terms they hold.
    pub(crate) apart: bool,
}

impl Readers {
    /// The least words of an element of which some reader holds terms, or none does.
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

/// How many domains of a level and up a rank of one reader depends on at least.
///
/// A rank depends on every value of a digit that is gathered or partial, and of one that moves away from a position that
/// nobody takes over. What a reader of many ranks depends on is shared by them.
pub(crate) fn depends_on(digits: &[Weight], s: &[Code], t: &[Code], min_level: usize) -> u64 {
    let (mut on, mut shared_by) = (1u64, 1u64);
    for d in (0..s.len()).filter(|&d| s[d] != t[d]) {
        let every = s[d] != REPLICATED && (s[d] >= NOWHERE || !t.contains(&s[d]));
        on *= if every && digits[d].level >= min_level { digits[d].radix } else { 1 };
        shared_by *= if t[d] == PARTIAL || t[d] == PARTIAL_LATER { digits[d].radix } else { 1 };
    }
    on.div_ceil(shared_by)
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
