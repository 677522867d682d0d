//! Splits blocks between ranks into rounds in which each rank sends at most one block and receives at most
//! one.
//!
//! Senders and receivers are the two sides of a bipartite graph, and blocks are its edges. If each rank has
//! at most `d` edges on either side, `d` colours suffice so that no two edges of one colour share an endpoint
//! (König). A colour is a round, so there are as many rounds as the busiest rank has peers, and no more bytes
//! are sent than the plan requires.

use std::collections::HashMap;

/// Returns the round of each edge `(sender, receiver)`, in the order of the edges.
///
/// The number of rounds is minimal. An edge takes the least colour that is free at its sender, if it is free
/// at its receiver too. If not, the alternating path from the receiver, of edges of that colour and of one
/// free at the receiver, is recoloured by swapping the two. The path cannot end at the sender: it would
/// arrive there by a colour that is free there.
pub(crate) fn rounds(edges: &[(usize, usize)]) -> Vec<usize> {
    // The edge of a colour at each end.
    let (mut out, mut into): (Slots, Slots) = (HashMap::new(), HashMap::new());
    let mut colours: Vec<usize> = Vec::with_capacity(edges.len());
    for (edge, &(sender, receiver)) in edges.iter().enumerate() {
        let (a, b) = (free(&out, sender), free(&into, receiver));
        colours.push(a);
        if into.contains_key(&(receiver, a)) {
            let mut path = Vec::new();
            let (mut next, mut colour, mut at_receiver) = (into.get(&(receiver, a)).copied(), a, true);
            while let Some(on) = next {
                path.push((on, colour));
                colour = if colour == a { b } else { a };
                at_receiver = !at_receiver;
                let (from, to) = edges[on];
                next = if at_receiver { into.get(&(to, colour)) } else { out.get(&(from, colour)) }.copied();
            }
            for &(on, colour) in &path {
                out.remove(&(edges[on].0, colour));
                into.remove(&(edges[on].1, colour));
            }
            for &(on, colour) in &path {
                let other = if colour == a { b } else { a };
                colours[on] = other;
                out.insert((edges[on].0, other), on);
                into.insert((edges[on].1, other), on);
            }
        }
        out.insert((sender, a), edge);
        into.insert((receiver, a), edge);
    }
    colours
}

/// The edge of each rank and colour.
type Slots = HashMap<(usize, usize), usize>;

/// Returns the least colour that no edge of a rank has.
fn free(slots: &Slots, rank: usize) -> usize {
    (0..slots.len()).find(|colour| !slots.contains_key(&(rank, *colour))).unwrap_or(slots.len())
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use reshard_test_support::properties;

    use super::rounds;

    properties! {
        /// No two edges of one round share an endpoint; the rounds are as many as the busiest rank's edges.
        fn as_many_rounds_as_the_busiest_rank_has_peers(drawn: Vec<(u8, u8)>) -> bool {
            let edges: HashSet<(usize, usize)> =
                drawn.iter().map(|(s, r)| (usize::from(s % 9), usize::from(r % 9))).collect();
            let edges: Vec<(usize, usize)> = edges.into_iter().collect();
            let colours = rounds(&edges);
            let (mut ends, mut busy) = (HashSet::new(), HashMap::new());
            let proper = edges.iter().zip(&colours).all(|(&(sender, receiver), colour)| {
                *busy.entry((0, sender)).or_insert(0) += 1;
                *busy.entry((1, receiver)).or_insert(0) += 1;
                ends.insert((0, sender, *colour)) && ends.insert((1, receiver, *colour))
            });
            let most = busy.values().max().copied().unwrap_or(0);
            proper && colours.iter().max().map_or(0, |last| last + 1) == most
        }
    }
}
