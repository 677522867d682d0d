//! An allocator that counts the allocations of each thread.
#![allow(unsafe_code, reason = "an allocator implements an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator with a count for each thread; a test binary makes it its global allocator.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: every call is passed on to the system allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of alloc.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Layout) {
        // SAFETY: the caller keeps the contract of dealloc.
        unsafe { System.dealloc(pointer, memory) }
    }
}

/// Returns the number of allocations of this thread while it runs an operation.
pub fn allocations<T>(operation: impl FnOnce() -> T) -> usize {
    let before = COUNT.with(Cell::get);
    black_box(operation());
    COUNT.with(Cell::get) - before
}
