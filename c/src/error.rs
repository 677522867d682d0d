//! Status codes, and the message of the last error.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;

use crate::memory;

/// The status that a function returns; `reshard_last_error` describes every one but `RESHARD_STATUS_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The library rejected the arguments; nothing was done.
    Refused = 1,
    /// A pointer that must not be null is null.
    NullPointer = 2,
    /// An index is out of range, or the result does not fit in the caller's buffer.
    OutOfRange = 3,
    /// The library panicked: a bug in it.
    Panicked = 4,
    /// A handle was freed, is of another kind, or never was one.
    NotAHandle = 5,
}

/// The reason for which a function fails.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: Status,
    kind: String,
    message: String,
}

impl Fault {
    pub(crate) fn new(status: Status, kind: &str, message: impl Into<String>) -> Fault {
        Fault { status, kind: kind.to_owned(), message: message.into() }
    }

    /// Returns the fault of rejected arguments.
    pub(crate) fn refused(kind: &str, message: impl Into<String>) -> Fault {
        Fault::new(Status::Refused, kind, message)
    }

    /// An index past the end.
    pub(crate) fn past_the_end(what: &str, index: usize, count: usize) -> Fault {
        Fault::new(
            Status::OutOfRange,
            "index",
            format!("{what} {index} is out of range; there are {count}, counted from 0"),
        )
    }
}

macro_rules! by_kind {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault::refused(error.code(), error.to_string())
            }
        })*
    };
}

by_kind!(
    reshard_layout::Error,
    reshard_sharding::Error,
    reshard_planner::Error,
    reshard_ops::Error,
    reshard_kernels::Error,
    reshard_collectives::Error,
    reshard_checkpoint::Error,
);

/// The last error of this thread: its kind and its message.
#[derive(Default)]
struct Last {
    kind: String,
    message: String,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Converts a result to a status, and records the message of an error.
pub(crate) fn told(name: &str, answer: Result<(), Fault>) -> Status {
    let Err(fault) = answer else { return Status::Ok };
    let last = Last { kind: fault.kind, message: format!("{name}: {}", fault.message) };
    // A thread that is exiting has no thread-local storage left, and nothing there reads the error.
    let _ended = LAST.try_with(|kept| *kept.borrow_mut() = last);
    fault.status
}

/// Returns the fault of a panic, with its message.
pub(crate) fn panicked(said: &(dyn Any + Send)) -> Fault {
    let text = said.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_default();
    Fault::new(Status::Panicked, "internal", format!("internal error, a bug of the library: {text}"))
}

/// The body of an exported function: null checks of pointers, then the block, with errors and panics caught.
macro_rules! body {
    ($name:ident($($pointer:ident),* $(,)?) $does:block) => {{
        let run = || -> Result<(), $crate::error::Fault> {
            $($crate::memory::not_null($pointer, stringify!($pointer))?;)*
            $does
        };
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        $crate::error::told(
            stringify!($name),
            answer.unwrap_or_else(|said| Err($crate::error::panicked(&*said))),
        )
    }};
}
pub(crate) use body;

/// The version of this header; it stays when structs grow or functions are added.
pub const RESHARD_ABI: u32 = 1;

/// The `RESHARD_ABI` of the header that the library was built with; with another header call nothing else.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_abi() -> u32 {
    RESHARD_ABI
}

/// The message of the last error of this thread, empty if there was none.
///
/// Writes at most `size` bytes of it to `buffer`, the last of them 0, and returns its length without that 0.
/// `buffer` may be null if `size` is 0.
///
/// # Safety
///
/// `size` bytes at `buffer` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_last_error(buffer: *mut c_char, size: usize) -> usize {
    LAST.try_with(|last| {
        // SAFETY: as the caller promises.
        unsafe { memory::truncated(&last.borrow().message, buffer, size) }
    })
    .unwrap_or(0)
}

/// The kind of the last error of this thread, such as `parse`, written like `reshard_last_error`.
///
/// # Safety
///
/// `size` bytes at `buffer` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_last_error_kind(buffer: *mut c_char, size: usize) -> usize {
    LAST.try_with(|last| {
        // SAFETY: as the caller promises.
        unsafe { memory::truncated(&last.borrow().kind, buffer, size) }
    })
    .unwrap_or(0)
}
