//! Lower bounds: what no plan can do without, for the digits of one network level and up.
//!
//! Seen from level `l`, a *domain* is all ranks that differ in digits below `l` only; what its ranks hold together, they
//! can share without crossing level `l`. A *reader* is the domains that together hold one copy of the target: one domain, or,
//! where the target is partial, all those whose terms add up. There are `m` readers of an element, `m` the product of the
//! digits replicated in the target, and `q` terms of it, `q` the product of the partial digits of the source, of which a
//! reader holds `k` from the beginning if it holds any: the product of the digits that are partial in both.
//!
//! **Words of one element**, each a linear combination of its terms that one domain sends to another:
//!
//! ```text
//! k < q:   q - k   + m - 1    if some reader holds terms of it
//! k = q:   m - m/g            if some reader holds it        (g: the digits that shard the source and end replicated)
//! else     q       + m - 1    if none does
//! ```
//!
//! Terms that a reader lacks leave their holders in different words, since holders of different terms are different domains;
//! so before the first reader is complete there are as many words as it lacks terms. Every other reader that is not
//! complete by then receives one more. Some reader holds one element in `1/phi`, the product of `radix` over a spanning
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
    let (q, k, m) = (partial as f64, kept as f64, readers as f64);
    let words = if partial > kept {
        q + m - 1.0 - k * phi
    } else {
        phi * (m - m / gathered as f64) + (1.0 - phi) * (q + m - 1.0)
    };
    of_reader.max(whole as f64 * words / ranks as f64)
}

/// How many domains of a level and up the ranks of one reader depend on, for each domain that the reader is.
///
/// A rank depends on every value of a digit that is gathered or partial, and of one that moves away from a position that
/// nobody takes over. What a reader of many domains depends on is shared by them.
pub(crate) fn depends_on(digits: &[Weight], s: &[Code], t: &[Code], min_level: usize) -> u64 {
    let (mut on, mut shared_by) = (1u64, 1u64);
    for d in (0..s.len()).filter(|&d| digits[d].level >= min_level && s[d] != t[d]) {
        let every = s[d] != REPLICATED && (s[d] >= NOWHERE || !t.contains(&s[d]));
        on *= if every { digits[d].radix } else { 1 };
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
