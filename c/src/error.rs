//! What a function answers, and what it says where it fails.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;

use crate::memory;

/// What a function answers. Of any but `RESHARD_STATUS_OK`, `reshard_last_error` says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The library refuses the values; nothing was done.
    Refused = 1,
    /// A pointer is null that must not be.
    NullPointer = 2,
    /// An index is past the end, or what is asked for does not fit the place lent for it.
    OutOfRange = 3,
    /// The library failed in itself: a bug of it.
    Panicked = 4,
    /// A handle is freed, of another kind, or never was one.
    NotAHandle = 5,
}

/// Why a function fails.
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

    /// What the library refuses.
    pub(crate) fn refused(kind: &str, message: impl Into<String>) -> Fault {
        Fault::new(Status::Refused, kind, message)
    }

    /// An index past the end.
    pub(crate) fn past_the_end(what: &str, index: usize, count: usize) -> Fault {
        Fault::new(
            Status::OutOfRange,
            "index",
            format!("there is no {what} {index}: there are {count}, from 0 on"),
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
    reshard_kernels::Error,
    reshard_collectives::Error,
    reshard_checkpoint::Error,
);

/// What the last function of this thread that failed said: the kind, and the sentence.
#[derive(Default)]
struct Last {
    kind: String,
    message: String,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// The status of an answer; keeps what is said where there is none.
pub(crate) fn told(name: &str, answer: Result<(), Fault>) -> Status {
    let Err(fault) = answer else { return Status::Ok };
    let last = Last { kind: fault.kind, message: format!("{name}: {}", fault.message) };
    // Of a thread that is ending nobody asks.
    let _ended = LAST.try_with(|kept| *kept.borrow_mut() = last);
    fault.status
}

/// What a panic says.
pub(crate) fn panicked(said: &(dyn Any + Send)) -> Fault {
    let text = said.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| said.downcast_ref::<String>().cloned()).unwrap_or_default();
    Fault::new(Status::Panicked, "internal", format!("this is a bug of the library: {text}"))
}

/// The body of a function: pointers that must not be null, then what it does, which may fail or panic.
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

/// The version of this header: structs grow and functions are added without a change of it.
pub const RESHARD_ABI: u32 = 1;

/// The version of the header that the library was built with, `RESHARD_ABI` of it: of another one nothing here may be called.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_abi() -> u32 {
    RESHARD_ABI
}

/// The sentence of the last function of this thread that failed, empty if none has. Writes at most `size` bytes of it to `buffer`, the
/// last of them 0, and returns its length without that 0. `buffer` may be null if `size` is 0.
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

/// The stable word for it, such as `parse`, in the same way.
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
