//! Lower bounds: what no plan can do without.

use crate::redistribute::closed_form::paths;
use crate::redistribute::system::{Place, State, System};

/// The least elements that the worst rank must receive, in a digit system; `None` with a partial target.
///
/// Without partial sources, `max |target \ source|`: a position that one digit owns in the source and another in the
/// target leaves some rank with nothing of what it wants, else a rank holds one part in the product of the radices that
/// it gives up. With partial sources,
///
/// ```text
/// max(|t|, N (q + m - 1 - phi) / W)
/// ```
///
/// over whole elements, with `q` the product of the partial radices, `m` that of the digits replicated in the target,
/// `W` ranks, and `phi` the product of `1/radix` over a spanning forest of the links `s(d) - t(d)` of digits that move
/// between positions.
pub(crate) fn elements(system: &System, s: &State, t: &State) -> Option<u64> {
    if t.iter().any(|p| p.is_partial()) {
        return None;
    }
    let target = system.local_numel(t) as u64;
    let radix = |d: usize| system.digits[d].size;
    let partial: Vec<usize> = (0..s.len()).filter(|&d| s[d].is_partial()).collect();
    if partial.is_empty() {
        let owner = system.owners(t);
        let mut given_up = 1u64;
        for (d, place) in s.iter().enumerate() {
            if let Place::At(p) = *place {
                match owner[p] {
                    Some(other) if other == d => {}
                    Some(_) => return Some(target),
                    None => given_up *= radix(d) as u64,
                }
            }
        }
        return Some(target - target / given_up);
    }
    let product =
        |digits: &mut dyn Iterator<Item = usize>| -> u128 { digits.map(|d| radix(d) as u128).product() };
    let q = product(&mut partial.into_iter());
    let m = product(&mut (0..t.len()).filter(|&d| t[d] == Place::Replicated));
    let forest = forest(system, s, t);
    let numel: u128 = system.positions.iter().map(|p| p.radix as u128).product();
    let ranks: u128 = system.mesh.size() as u128;
    let words = numel.checked_mul((q + m - 1).checked_mul(forest)? - 1)?;
    Some(target.max(u64::try_from(words.div_ceil(ranks.checked_mul(forest)?)).ok()?))
}

/// The product of the radices of a spanning forest of the links of moved digits: all of a path, all but one of a cycle.
fn forest(system: &System, s: &State, t: &State) -> u128 {
    let moved = |d: usize| s[d].position().is_some() && t[d].position().is_some() && s[d] != t[d];
    let mut in_paths = vec![false; s.len()];
    let mut product = 1u128;
    for path in paths(system, s, t) {
        for d in path {
            in_paths[d] = true;
            if moved(d) {
                product *= system.digits[d].size as u128;
            }
        }
    }
    // What is in no path is in a cycle.
    let owner = system.owners(s);
    for first in 0..s.len() {
        let mut d = first;
        while !in_paths[d] {
            in_paths[d] = true;
            let Some(next) = t[d].position().and_then(|p| owner[p]) else { break };
            if next != first && moved(d) {
                product *= system.digits[d].size as u128;
            }
            d = next;
        }
    }
    product
}
