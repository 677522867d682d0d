//! The properties of the validator.

mod verifier;
