//! Storage of the data that C structs point to: owned next to the structs, and never changed.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::ptr;

use crate::error::Fault;

/// Lists and texts that are freed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    all: Vec<Box<dyn Any>>,
}

impl Held {
    /// Stores a list, and returns its address.
    pub(crate) fn list<T: 'static>(&mut self, list: Vec<T>) -> *const T {
        let at = list.as_ptr();
        self.all.push(Box::new(list));
        at
    }

    /// Stores a text with a final 0, and returns its address.
    pub(crate) fn word(&mut self, text: &str) -> Result<*const c_char, Fault> {
        let kept = CString::new(text).map_err(|error| Fault::refused("nul", error.to_string()))?;
        let at = kept.as_ptr();
        self.all.push(Box::new(kept));
        Ok(at)
    }

    /// Stores an optional text, and returns its address; null for `None`.
    pub(crate) fn word_if_any(&mut self, of: Option<impl ToString>) -> Result<*const c_char, Fault> {
        of.map_or(Ok(ptr::null()), |of| self.word(&of.to_string()))
    }
}
