//! Dim partitions by ranges, zigzag and custom ones, against their definitions element by element.

mod brought;
mod definition;
mod moved;
mod said;
mod shared_out;
mod trusted;
