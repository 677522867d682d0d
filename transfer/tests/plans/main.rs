//! Tests of transfers: plans against a slow definition on whole tensors, proofs, exports, errors, and published models.

#[path = "../../../mapping/tests/rules/definition.rs"]
mod definition;
#[path = "../../../mapping/tests/rules/drawing.rs"]
mod drawing;
#[path = "../../../mapping/tests/rules/grammar.rs"]
mod grammar;
#[path = "../../../mapping/tests/rules/tensor.rs"]
#[allow(dead_code)]
mod tensor;

mod balance;
mod drawn;
mod execute;
mod exports;
mod facts;
mod faults;
mod models;
mod published;
mod refusals;
mod runs;
mod worked;
