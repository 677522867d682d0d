//! Properties of the NCCL engine, over the recording stand-in: no device, no library.

mod bootstrap;
mod calls;
mod captured;
mod contract;
mod faults;
