//! The laws of copies and of the loop nests they run over.

mod copies;
mod nests;
