//! Queries made per operator call do not allocate on the heap, on three axes: counted by the allocator.
#![allow(unsafe_code, reason = "a counting allocator implements an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::hint::black_box;

use reshard_sharding::{Mesh, Placements, Sharding};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
        // SAFETY: the caller keeps the contract of alloc.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: the caller keeps the contract of dealloc.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(mut f: impl FnMut() -> T) -> usize {
    let before = COUNT.with(Cell::get);
    for _ in 0..10 {
        black_box(f());
    }
    COUNT.with(Cell::get) - before
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
