//! The properties of the reference, a file per concept.
//!
//! The tests of `reshard-ops` run it on shards of every kind, and check that its results agree with the rules
//! of the table.

mod again;
mod certificates;
mod counts;
mod drawn;
mod each;
mod elements;
mod gradients;
mod kinds;
mod meshes;
mod microbatches;
mod numbers;
mod programs;
mod random;
mod regions;
mod replicas;
mod ring;
mod schedules;
mod stays;
mod timed;
mod torch_gradients;
mod training;
mod twice;
mod values;
mod vocabulary;
mod whole;
mod wire;
mod worked;
mod zero;
