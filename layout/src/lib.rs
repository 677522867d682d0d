//! reshard-layout.
#![forbid(unsafe_code)]
