//! Handles: numbers in the dress of pointers.
//!
//! A handle points nowhere. It is a number, given once and never again, and a table says what it stands for:
//!
//! ```text
//! give     number -> value        the number is new
//! with     number -> the value, if it is there and of this kind, held for as long as the call takes
//! free     number -> nothing, for ever
//! ```
//!
//! So a handle that is freed, of another kind or made up is noticed without a look at memory, on any thread, also while others free.
#![allow(unsafe_code, reason = "a function that C calls, by a name of its own, and places for handles")]

use std::any::Any;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::error::{Fault, Status};
use crate::memory;

/// What handles stand for.
pub(crate) trait Handled: Any + Send + Sync {
    /// What it is called in messages.
    const NAME: &'static str;
}

type Live = HashMap<usize, (&'static str, Arc<dyn Any + Send + Sync>)>;

static LIVE: LazyLock<RwLock<Live>> = LazyLock::new(RwLock::default);

/// How many numbers were given.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Odd, so that multiples are all numbers, each once: neighbours are far from each other, and from what else pointers are.
#[cfg(target_pointer_width = "64")]
const SPREAD: usize = 0x9E37_79B9_7F4A_7C15;
#[cfg(not(target_pointer_width = "64"))]
const SPREAD: usize = 0x9E37_79B9;

/// A new handle of a value.
fn give<T: Handled>(value: T) -> *mut T {
    let value = Arc::new(value);
    let mut live = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(SPREAD);
        if number != 0 && !live.contains_key(&number) {
            live.insert(number, (T::NAME, value));
            return ptr::without_provenance_mut(number);
        }
    }
}

/// A new handle of a value, where the caller wants it; none where it cannot be written.
///
/// # Safety
///
/// A handle can be written at a pointer that is not null.
pub(crate) unsafe fn put<T: Handled>(value: T, out: *mut *mut T) -> Result<(), Fault> {
    memory::aligned(out, "out")?;
    // SAFETY: as the caller promises.
    unsafe { memory::put(out, give(value), "out") }
}

fn not_a_handle<T: Handled>(is: Option<&str>) -> Fault {
    let message = match is {
        Some(other) => format!("the handle is of a {other}, and one of a {} is needed", T::NAME),
        None => format!("this is no handle of a {}: it is freed, or was never given", T::NAME),
    };
    Fault::new(Status::NotAHandle, "handle", message)
}

/// What a handle stands for.
pub(crate) fn of<T: Handled>(handle: *const T) -> Result<Arc<T>, Fault> {
    let found = LIVE.read().unwrap_or_else(PoisonError::into_inner).get(&handle.addr()).cloned();
    let (name, value) = found.ok_or_else(|| not_a_handle::<T>(None))?;
    value.downcast().map_err(|_| not_a_handle::<T>(Some(name)))
}

/// Ends a handle; null is none.
pub(crate) fn free<T: Handled>(handle: *mut T) -> Result<(), Fault> {
    if handle.is_null() {
        return Ok(());
    }
    of(handle.cast_const())?;
    let value = LIVE.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
    // Another thread may have been faster. Values are dropped without the lock.
    value.map(drop).ok_or_else(|| not_a_handle::<T>(None))
}

/// How many handles there are that nobody has freed.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_handles() -> usize {
    LIVE.read().unwrap_or_else(PoisonError::into_inner).len()
}
