//! Regions: the data that any two shardings of a tensor share, uneven, not nesting, or on two meshes.
//!
//! A [`grid`] has the modes of axes that split each dim into regions, and a [`partition`] the owners of the
//! indices of a dim. An [`intersection`] has the source of each region of each rank. A [`tally`] counts these
//! by a [`table`] of each dim, without examining every rank, and [`senders`] the other direction. [`need`]
//! computes lower bounds, and [`cuts`] those between two meshes. A [`spread`] splits messages among replicas,
//! and [`lines`] share the requests of a region among its owners.

pub(crate) mod cuts;
pub(crate) mod grid;
pub(crate) mod intersection;
pub(crate) mod lines;
pub(crate) mod need;
pub(crate) mod partition;
pub(crate) mod senders;
pub(crate) mod spread;
mod table;
pub(crate) mod tally;
