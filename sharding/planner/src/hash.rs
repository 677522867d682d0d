//! Hashing of keys that are not chosen by an attacker.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for keys that no attacker chooses: a rotation, an exclusive or and a multiplication per word.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordHasher(u64);

/// The map type of keys made of a few numbers.
pub type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

impl WordHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // Multiplication mixes towards the high bits only; tables use both ends.
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for w in words {
            self.add(u64::from_le_bytes(*w));
        }
        let mut last = [0u8; 8];
        last[..rest.len()].copy_from_slice(rest);
        if !rest.is_empty() {
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, x: u8) {
        self.add(u64::from(x));
    }

    fn write_u32(&mut self, x: u32) {
        self.add(u64::from(x));
    }

    fn write_u64(&mut self, x: u64) {
        self.add(x);
    }

    fn write_usize(&mut self, x: usize) {
        self.add(x as u64);
    }

    fn write_isize(&mut self, x: isize) {
        self.add(x as u64);
    }

    fn write_i64(&mut self, x: i64) {
        self.add(x as u64);
    }
}
