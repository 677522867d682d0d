//! Selection: which tensors, under which names, in which parts and dtypes, and with which placements.

pub(crate) mod cast;
pub(crate) mod chunks;
pub(crate) mod derived;
pub(crate) mod in_order;
pub(crate) mod mapped;
pub(crate) mod packed;
pub(crate) mod pattern;
pub(crate) mod rename;
pub(crate) mod replaced;
pub(crate) mod spec;
