//! Reads arbitrary manifests and specs of checkpoints: no panic, and parsed values round-trip.

use reshard_checkpoint::{PlacementSpec, manifest_again};

/// Checks a text, and returns `true` if it is either.
pub(crate) fn run(text: &str) -> bool {
    let spec = text.parse::<PlacementSpec>();
    if let Ok(spec) = &spec {
        let again: PlacementSpec = spec.to_string().parse().expect("its text is valid");
        assert_eq!(again, *spec);
    }
    let manifest = manifest_again(text.as_bytes());
    if let Ok(written) = &manifest {
        assert_eq!(manifest_again(written.as_bytes()).ok().as_ref(), Some(written));
    }
    spec.is_ok() || manifest.is_ok()
}
