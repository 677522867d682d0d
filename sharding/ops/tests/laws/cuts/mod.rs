//! Cuts by pieces, zigzag and those that others bring, against their definitions element by element.

mod brought;
mod definition;
mod moved;
mod said;
mod shared_out;
mod trusted;
