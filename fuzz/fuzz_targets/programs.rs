//! The target `programs` for libFuzzer.
#![no_main]

#[path = "../targets/programs.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| {
    target::run(text);
});
