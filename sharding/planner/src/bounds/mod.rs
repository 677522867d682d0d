//! Bounds: what no plan can do without.

pub(crate) mod cut;
pub(crate) mod need;
