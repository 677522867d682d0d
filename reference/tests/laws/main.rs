//! The laws of the reference, a file per concept. That what it computes is what the rules of the table say is a law of
//! `reshard-ops`, which runs it on shards of every kind.

mod again;
mod counts;
mod drawn;
mod each;
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
