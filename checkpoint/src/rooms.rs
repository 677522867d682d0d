//! Reusable buffers: to allocate new memory costs as much as to copy into it.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Buffers that are not in use.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Vec<Vec<u8>>>);

/// A buffer that is returned when it is dropped; its initial contents are unspecified.
pub(crate) struct Room<'a> {
    rooms: &'a Rooms,
    bytes: Vec<u8>,
}

impl Rooms {
    /// Returns the largest free buffer, or a new one; callers that need most should take first.
    pub(crate) fn take(&self) -> Room<'_> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = free.iter().enumerate().max_by_key(|(_, bytes)| bytes.capacity()).map(|(at, _)| at);
        Room { rooms: self, bytes: largest.map(|at| free.swap_remove(at)).unwrap_or_default() }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut free = self.rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(std::mem::take(&mut self.bytes));
    }
}

impl Deref for Room<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}
