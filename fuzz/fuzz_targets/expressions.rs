//! The target `expressions` for libFuzzer.
#![no_main]

#[path = "../targets/expressions.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| {
    target::run(text);
});
