//! Properties of copies and their loop nests, and of random numbers.

mod copies;
mod nests;
mod random;
mod random_facts;
