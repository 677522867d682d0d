//! reshard-collectives.
