//! reshard-kernels.
