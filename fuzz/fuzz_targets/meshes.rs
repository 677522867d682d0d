//! The target `meshes` for libFuzzer.
#![no_main]

#[path = "../targets/meshes.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| {
    target::run(text);
});
