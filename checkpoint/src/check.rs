//! Checks: what is wrong with a checkpoint, what differs, and what is left of a damaged one.

pub(crate) mod diff;
pub(crate) mod integrity;
pub(crate) mod problem;
pub(crate) mod remains;
pub(crate) mod verify;
