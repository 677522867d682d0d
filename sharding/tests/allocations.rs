//! Queries made per operator call do not allocate on the heap, on three axes: counted by the allocator.

use std::hint::black_box;

use reshard_sharding::{Mesh, Placements, Sharding};
use reshard_test_support::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the number of allocations of ten calls.
fn allocations<T>(mut f: impl FnMut() -> T) -> usize {
    reshard_test_support::allocations(|| (0..10).for_each(|_| drop(black_box(f()))))
}

#[test]
fn steady_state_is_off_the_heap() {
    let mesh: Mesh = "dp=4,cp=2,tp=8".parse().unwrap();
    let shape = [4096, 1024, 8192];
    for text in ["S(0),R,S(2)", "SS(0,8),S(1),S(0)", "P,S(0),S(0)", "S(0),SS(0,3),R"] {
        let placements: Placements = text.parse().unwrap();
        let s = Sharding::new(&mesh, &shape, &placements).unwrap();
        let t = Sharding::new(&mesh, &shape, &placements).unwrap();
        assert_eq!(allocations(|| Sharding::new(&mesh, &shape, &placements)), 0, "building {text}");
        assert_eq!(allocations(|| s.placements()), 0, "decoding {text}");
        assert_eq!(allocations(|| s == t), 0, "comparing {text}");
        assert!(s.view(&[4096, 1024, 64, 128]).is_ok(), "splitting {text}");
        assert_eq!(allocations(|| s.view(&[4096, 1024, 64, 128])), 0, "splitting {text}");
        if s.layout().is_some() {
            assert!(s.view(&[4096 * 1024, 8192]).is_ok(), "flattening {text}");
            assert_eq!(allocations(|| s.view(&[4096 * 1024, 8192])), 0, "flattening {text}");
        }
        assert_eq!(allocations(|| mesh.group_of_axes(&["dp", "tp"])), 0, "grouping");
        assert_eq!(allocations(|| mesh.groups_of_axes(&["dp", "tp"])), 0, "all groups");
    }
}
