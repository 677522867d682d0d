//! Memory that is used again: memory that is new costs as much as copying into it.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Buffers that nobody uses at the moment.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Vec<Vec<u8>>>);

/// A buffer that goes back when it is dropped. What is in it at first means nothing.
pub(crate) struct Room<'a> {
    rooms: &'a Rooms,
    bytes: Vec<u8>,
}

impl Rooms {
    /// The largest buffer that there is, or a new one: who needs the most takes first.
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
