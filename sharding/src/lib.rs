//! reshard-sharding.
#![forbid(unsafe_code)]
