//! The laws of copies and of the loop nests they run over, and of random numbers.

mod copies;
mod nests;
mod random;
mod random_facts;
