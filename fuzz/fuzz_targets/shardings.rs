//! The target `shardings` for libFuzzer.
#![no_main]

#[path = "../targets/shardings.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    target::run(data);
});
