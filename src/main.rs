//! The command line of reshard.
fn main() {}
