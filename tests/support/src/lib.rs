//! What the tests of several crates share.
//!
//! * [`every`], [`placements`], [`shardings`]: all small cases of a kind, the last position fastest.
//! * [`interpreter`]: plans carried out on lists of numbers, by their messages, which are checked on the way.
//! * [`Random`]: numbers that look drawn, the same every time.
//! * [`slower`]: a network on which small tensors cost what large ones do elsewhere.
#![forbid(unsafe_code)]

pub mod interpreter;
mod random;

pub use random::Random;

use reshard_planner::{Level, Topology};
use reshard_sharding::{Mesh, Sharding};

/// All lists of `length` of these choices.
///
/// ```
/// use reshard_test_support::every;
/// assert_eq!(every(&[0, 1], 2), [[0, 0], [0, 1], [1, 0], [1, 1]]);
/// ```
pub fn every<T: Clone>(choices: &[T], length: usize) -> Vec<Vec<T>> {
    (0..length).fold(vec![Vec::new()], |all, _| {
        let longer =
            |list: Vec<T>| choices.iter().map(move |c| [&list[..], std::slice::from_ref(c)].concat());
        all.into_iter().flat_map(longer).collect()
    })
}

/// All placements on so many axes, as text: `R,S(0)`.
pub fn placements(choices: &[&str], axes: usize) -> Vec<String> {
    every(choices, axes).iter().map(|list| list.join(",")).collect()
}

/// All shardings of a shape by these placements, without those that are none.
pub fn shardings(mesh: &Mesh, shape: &[usize], choices: &[&str]) -> Vec<Sharding> {
    let all = placements(choices, mesh.axes().len());
    all.iter().filter_map(|text| Sharding::parse(mesh, shape, text).ok()).collect()
}

/// The same network with wires so many times slower: a tensor costs what one so many times larger does.
///
/// # Panics
///
/// If the network is none any more, as with `by` 0.
pub fn slower(topology: &Topology, by: usize) -> Topology {
    let level = |level: &Level| Level { gbytes_per_s: level.gbytes_per_s / by as f64, ..*level };
    let levels: Vec<Level> = topology.levels().iter().map(level).collect();
    Topology::new(topology.launch_us(), topology.message_us(), &levels).expect("a network")
}
