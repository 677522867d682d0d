//! The target `rules` for libFuzzer.
#![no_main]

#[path = "../targets/rules.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| {
    target::run(text);
});
