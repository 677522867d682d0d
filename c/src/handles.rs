//! Handles: numbers typed as pointers.
//!
//! A handle does not point to memory. It is a number that is never reused, and a table maps it to its value:
//!
//! ```text
//! give     number -> value        the number is new
//! of       number -> the value, if it exists and has this kind; it stays alive for the whole call
//! free     number -> invalid from then on
//! ```
//!
//! A handle that was freed, is of another kind or is made up is thus detected without reading memory, on any
//! thread, also while other threads free handles.
#![allow(unsafe_code, reason = "a function that C calls, with an unmangled name, and writes of handles")]

use std::any::Any;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::error::{Fault, Status};
use crate::memory;

/// A value that handles refer to.
pub(crate) trait Handled: Any + Send + Sync {
    /// The name of the kind in messages.
    const NAME: &'static str;
}

type Live = HashMap<usize, (&'static str, Arc<dyn Any + Send + Sync>)>;

static LIVE: LazyLock<RwLock<Live>> = LazyLock::new(RwLock::default);

/// The number of handles made so far.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// An odd factor, so that handles are distinct, far from each other, and far from most real pointers.
#[cfg(target_pointer_width = "64")]
const SPREAD: usize = 0x9E37_79B9_7F4A_7C15;
#[cfg(not(target_pointer_width = "64"))]
const SPREAD: usize = 0x9E37_79B9;

/// Makes a handle of a value.
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

/// Makes a handle of a value and writes it to `out`; makes none if `out` cannot be written.
///
/// # Safety
///
/// A handle can be written at `out` if it is not null.
pub(crate) unsafe fn put<T: Handled>(value: T, out: *mut *mut T) -> Result<(), Fault> {
    memory::aligned(out, "out")?;
    // SAFETY: as the caller promises.
    unsafe { memory::put(out, give(value), "out") }
}

fn not_a_handle<T: Handled>(is: Option<&str>) -> Fault {
    let message = match is {
        Some(other) => format!("the handle is of a {other}, but a handle of a {} is needed", T::NAME),
        None => format!("not a handle of a {}: it was freed or never created", T::NAME),
    };
    Fault::new(Status::NotAHandle, "handle", message)
}

/// Returns the value of a handle.
pub(crate) fn of<T: Handled>(handle: *const T) -> Result<Arc<T>, Fault> {
    let found = LIVE.read().unwrap_or_else(PoisonError::into_inner).get(&handle.addr()).cloned();
    let (name, value) = found.ok_or_else(|| not_a_handle::<T>(None))?;
    value.downcast().map_err(|_| not_a_handle::<T>(Some(name)))
}

/// Frees a handle; null is ignored.
pub(crate) fn free<T: Handled>(handle: *mut T) -> Result<(), Fault> {
    if handle.is_null() {
        return Ok(());
    }
    of(handle.cast_const())?;
    let value = LIVE.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
    // Another thread may have freed it since `of`. The value is dropped outside the lock.
    value.map(drop).ok_or_else(|| not_a_handle::<T>(None))
}

/// The number of handles that have not been freed.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_handles() -> usize {
    LIVE.read().unwrap_or_else(PoisonError::into_inner).len()
}
