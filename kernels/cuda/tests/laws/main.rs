//! The laws of CUDA kernels that need no device: which kernel a nest gets, and its source run on a CPU.

mod cases;
mod drawn;
mod emulator;
mod on_cpu;
mod select;
