//! Regions: what any two shardings of a tensor share, uneven, not nesting, or on two meshes.
//!
//! A [`grid`] says which modes of axes cut each dim into which regions, a [`partition`] who owns which indices of a dim, and an
//! [`intersection`] from whom each rank gets what, which a [`tally`] counts by a [`table`] of each dim, without asking every rank;
//! [`need`] says what no plan can do without, a [`spread`] how replicas share out what they send.

pub(crate) mod grid;
pub(crate) mod intersection;
pub(crate) mod need;
pub(crate) mod partition;
pub(crate) mod spread;
mod table;
pub(crate) mod tally;
