//! Reads arbitrary manifests and specs of checkpoints: no panic, and what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_checkpoint::{Spec, manifest_again};

fuzz_target!(|text: &str| {
    if let Ok(spec) = text.parse::<Spec>() {
        let again: Spec = spec.to_string().parse().expect("what is printed is read");
        assert_eq!(again, spec);
    }
    if let Ok(written) = manifest_again(text.as_bytes()) {
        assert_eq!(manifest_again(written.as_bytes()).ok().as_ref(), Some(&written));
    }
});
