//! What holds of checkpoints, as tests of the library.

mod dcp_written;
mod derived;
mod files;
mod integrity;
mod offline;
mod page;
mod reading;
mod remains;
mod torch;
mod writer;
