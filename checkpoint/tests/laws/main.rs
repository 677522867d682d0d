//! What holds of checkpoints, as tests of the library.

mod dcp_written;
mod files;
mod integrity;
mod offline;
mod page;
mod reading;
mod torch;
