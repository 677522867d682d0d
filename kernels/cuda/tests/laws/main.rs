//! Properties of CUDA kernels without a device: the selected kernel of a nest, and its source run on a CPU.

mod cases;
mod drawn;
mod emulator;
mod on_cpu;
mod select;
