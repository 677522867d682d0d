//! The facade of reshard.
