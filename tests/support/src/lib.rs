//! Utilities for the tests of several crates.
//!
//! * [`every`]: all small cases of a kind, the last position fastest.
//! * [`Sweep`]: how much of a sweep runs.
//! * [`Random`]: numbers that look drawn, the same every time.
//! * [`seed`]: the seed of random cases.
//! * [`allocations`]: the allocations of an operation.
//! * [`jobs`]: tests whose ranks are processes of an MPI job.
//!
//! With the feature `properties`:
//!
//! * `properties!` and `property!`: properties of random cases, the same ones every time.
//!
//! With the feature `shardings`:
//!
//! * `random_mesh`, `random_shape`, `random_sharding`: one of these.
//! * `shards_of`: shards that denote something, different on every rank.
//!
//! With the feature `plans`:
//!
//! * `placements`, `shardings`: all small ones.
//! * `both_directions`: the cost of a plan by the messages of all ranks.
//! * `interpreter`: plans run on lists of numbers, by their messages, which are checked at the same time.
//! * `two_mesh_facts`: pairs of shardings of trainers and servers.
//! * `slower`: a network on which small tensors cost as much as large ones elsewhere.

mod allocations;
#[cfg(feature = "plans")]
pub mod both_directions;
#[cfg(feature = "plans")]
pub mod interpreter;
pub mod jobs;
#[cfg(feature = "plans")]
mod plans;
#[cfg(feature = "properties")]
mod properties;
mod random;
mod seed;
#[cfg(feature = "shardings")]
mod shardings;
mod sweep;
#[cfg(feature = "plans")]
mod two_mesh;

pub use allocations::{CountingAllocator, allocations};
#[cfg(feature = "plans")]
pub use plans::{placements, shardings, slower};
#[cfg(feature = "properties")]
pub use properties::Property;
/// The types of properties and their cases.
///
/// [`Property`] draws the cases: `quickcheck` itself draws others every time.
#[cfg(feature = "properties")]
pub use quickcheck::{Arbitrary, Gen, TestResult, Testable};
pub use random::Random;
pub use seed::seed;
#[cfg(feature = "shardings")]
pub use shardings::{random_mesh, random_shape, random_sharding, shards_of};
pub use sweep::{Picking, Sweep};
#[cfg(feature = "plans")]
pub use two_mesh::{TwoMeshFact, two_mesh_facts};

/// Returns all lists of `length` of these choices.
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
