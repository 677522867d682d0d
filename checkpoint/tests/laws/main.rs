//! What holds of checkpoints, as tests of the library.

mod archives;
mod dcp_written;
mod derived;
mod files;
mod headers;
mod integrity;
mod loading;
mod messages;
mod objects;
mod offline;
mod page;
mod reading;
mod refusals;
mod remains;
mod torch;
mod writer;
