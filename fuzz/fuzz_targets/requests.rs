//! The target `requests` for libFuzzer.
#![no_main]

#[path = "../targets/requests.rs"]
mod target;

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus { target::run(data).map_or(Corpus::Reject, |_| Corpus::Keep) });
