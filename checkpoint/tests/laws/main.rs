//! Properties of checkpoints, as tests of the library.

mod archives;
mod by_part;
mod by_rank;
mod circles;
mod dcp_written;
mod derived;
mod files;
mod headers;
mod integrity;
mod kinds;
mod loading;
mod mapped;
mod messages;
mod objects;
mod objects_named;
mod offline;
mod orbax;
mod page;
mod pickled;
mod reading;
mod refusals;
mod remains;
mod resumed;
mod torch;
mod writer;
