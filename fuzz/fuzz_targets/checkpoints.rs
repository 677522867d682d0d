//! The target `checkpoints` for libFuzzer.
#![no_main]

#[path = "../targets/checkpoints.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| {
    target::run(text);
});
