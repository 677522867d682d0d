//! What structs of C point into: kept beside them, and never changed.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::ptr;

use crate::error::Fault;

/// Lists and words for as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct Held {
    all: Vec<Box<dyn Any>>,
}

impl Held {
    /// A list that is kept: where it is.
    pub(crate) fn list<T: 'static>(&mut self, list: Vec<T>) -> *const T {
        let at = list.as_ptr();
        self.all.push(Box::new(list));
        at
    }

    /// A word, and where its 0 ends it.
    pub(crate) fn word(&mut self, text: &str) -> Result<*const c_char, Fault> {
        let kept = CString::new(text).map_err(|error| Fault::refused("nul", error.to_string()))?;
        let at = kept.as_ptr();
        self.all.push(Box::new(kept));
        Ok(at)
    }

    /// The word for something that there may be; null for nothing.
    pub(crate) fn word_if_any(&mut self, of: Option<impl ToString>) -> Result<*const c_char, Fault> {
        of.map_or(Ok(ptr::null()), |of| self.word(&of.to_string()))
    }
}
