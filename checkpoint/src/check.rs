//! Checks: problems of a checkpoint, differences of two, and the rest of a damaged one.

pub(crate) mod diff;
pub(crate) mod integrity;
pub(crate) mod problem;
pub(crate) mod remains;
pub(crate) mod verify;
