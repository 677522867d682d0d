//! Tests of mappings: against a slow definition on whole tensors, inverses, errors and hostile inputs.

mod definition;
mod drawing;
mod drawn;
mod examples;
mod grammar;
mod hostile;
mod inverses;
mod page;
mod refusals;
mod tensor;
mod text;
