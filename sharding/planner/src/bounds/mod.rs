//! Bounds: what no plan can do without.

pub(crate) mod need;
