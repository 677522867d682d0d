//! Reads arbitrary shardings in every notation: no panic, and parsed values round-trip in each notation that
//! holds them.
//!
//! The first two characters pick a mesh and a shape.

use reshard_sharding::notation::{HloSharding, HloShardings, PartitionSpec, ShardySharding, inlined_mesh};
use reshard_sharding::{Mesh, Placement, Placements, Sharding};

const MESHES: [&str; 8] = ["", "x=2", "x=1", "x=2,y=3", "x=2,y=2", "x=4,y=2", "x=2,y=2,z=2", "x=2:1,y=2:2"];
const SHAPES: [&[usize]; 8] = [&[], &[8], &[5], &[0], &[4, 6], &[7, 12], &[2, 3, 4], &[11, 1, 16]];

/// Checks that a parsed value round-trips.
macro_rules! comes_back {
    ($($kind:ty),*; $text:expr) => {$(
        if let Ok(value) = $text.parse::<$kind>() {
            assert_eq!(value.to_string().parse::<$kind>().as_ref(), Ok(&value));
        }
    )*};
}

/// Checks a text, and returns `true` if it is a sharding of the shape and the mesh.
pub(crate) fn run(data: &[u8]) -> bool {
    let [mesh, shape, text @ ..] = data else { return false };
    let Ok(text) = std::str::from_utf8(text) else { return false };
    comes_back!(HloSharding, HloShardings, PartitionSpec, ShardySharding, Placements, Placement; text);
    let shape = SHAPES[usize::from(*shape) % SHAPES.len()];
    let given: Mesh = MESHES[usize::from(*mesh) % MESHES.len()].parse().expect("a mesh");
    let inlined = inlined_mesh(text).ok().flatten().filter(|mesh| mesh.size() <= 64);
    let mesh = inlined.unwrap_or(given);
    let sharding = Sharding::parse(&mesh, shape, text);
    match &sharding {
        Ok(s) => {
            let written = [
                Ok(s.to_string()),
                s.to_dims_notation(),
                s.to_shardy(),
                s.to_partition_spec(),
                s.to_pytorch(),
                s.to_hlo().map(|hlo| hlo.to_string()),
            ];
            for text in written.into_iter().flatten() {
                assert_eq!(Sharding::parse(&mesh, shape, &text).as_ref(), Ok(s), "{s} as {text}");
            }
        }
        Err(error) => assert!(!error.code().is_empty() && !error.to_string().is_empty()),
    }
    sharding.is_ok()
}
