//! Banks of shared memory: bank conflicts of an access, and the swizzle that avoids them.
//!
//! Memory is `n` banks of words of `w` bytes, word `k` in bank `k mod n`. Simultaneous accesses of threads
//! are served at once, except for different words of one bank, which are served in sequence:
//!
//! ```text
//! ways(accesses)  =  max over banks of the number of different words accessed            1 is best
//! ```
//!
//! A tile has rows of `R` bytes and is accessed in chunks of `a` bytes, along rows and, as matrix units need
//! it, down a column of chunks. A line of all banks, `L = n w` bytes, is `L / a` chunks, so that `L / a`
//! threads are served at once. Along a row these are a line. Down a column they are at distance `R`, and fall
//! on the same banks every `L / R` rows, or always if `R >= L`. The swizzle adds the number of such a group
//! of rows to the number of the chunk in its line:
//!
//! ```text
//! Sw< log(L/a) - log(L/min(R, L)),  log(a),  log(max(R, L)) - log(a) >        of bytes; of elements, less log(element)
//! ```
//!
//! Then the chunks of a column within `L / a` aligned rows differ in their position in a line, and those of a
//! row still do, because the same is added to all of them. With fewer bits two rows of a column share banks.

use std::collections::BTreeSet;

use crate::Swizzle;

/// Banks of a memory.
///
/// ```
/// use reshard_layout::Banks;
///
/// // Eight threads, 16 bytes each, down a column of rows of 128 bytes: all on the same four banks.
/// assert_eq!(Banks::SHARED.conflicts((0..8).map(|row| row * 128), 16), 8);
/// let swizzle = Banks::SHARED.swizzle(64, 2, 16).unwrap(); // of rows of 64 elements of 2 bytes
/// assert_eq!(swizzle.to_string(), "Sw<3,3,3>");
/// let swizzled = (0..8).map(|row| swizzle.at(row * 64)).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(Banks::SHARED.conflicts(swizzled.into_iter().map(|element| element * 2), 16), 1);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Banks {
    count: u32,
    width: u32,
}

/// Returns the logarithm of a power of two.
fn log(number: i64) -> Option<u8> {
    (number > 0 && number.count_ones() == 1).then_some(number.trailing_zeros() as u8)
}

impl Banks {
    /// The shared memory of a multiprocessor: 32 banks of 4 bytes.
    pub const SHARED: Self = Self { count: 32, width: 4 };

    /// Returns `count` banks of words of `width` bytes; `None` if one of them is 0.
    pub fn new(count: u32, width: u32) -> Option<Self> {
        (count > 0 && width > 0).then_some(Self { count, width })
    }

    /// Returns the most words of one bank that these accesses touch; 0 for no accesses.
    ///
    /// Each access is `bytes` long from its address on.
    ///
    /// By enumeration: every word of every access is counted, once if it is touched several times.
    pub fn conflicts(self, addresses: impl IntoIterator<Item = i64>, bytes: u32) -> usize {
        let (count, width) = (i64::from(self.count), i64::from(self.width));
        let word = |address: i64| address.div_euclid(width);
        let mut words = BTreeSet::new();
        for address in addresses {
            let last = address.saturating_add(i64::from(bytes.max(1)) - 1);
            words.extend(word(address)..=word(last));
        }
        let mut banks = std::collections::BTreeMap::<i64, usize>::new();
        for word in words {
            *banks.entry(word.rem_euclid(count)).or_default() += 1;
        }
        banks.into_values().max().unwrap_or(0)
    }

    /// Returns the swizzle for conflict-free accesses of `access` bytes along rows and down columns.
    ///
    /// Rows have `row` elements of `element` bytes. Ensures: of the swizzles that add rows to chunks, the one
    /// with the fewest bits. None unless all of the numbers are powers of two, an access is whole elements,
    /// part of a row, and no more than a line of all banks.
    pub fn swizzle(self, row: i64, element: i64, access: i64) -> Option<Swizzle> {
        let line = log(i64::from(self.count) * i64::from(self.width))?;
        let (row, element, access) = (log(row)?.checked_add(log(element)?)?, log(element)?, log(access)?);
        if access < element || access > row.min(line) {
            return None;
        }
        let bits = row.min(line) - access;
        if bits == 0 {
            return Some(Swizzle::IDENTITY);
        }
        Swizzle::new(bits, access - element, i8::try_from(row.max(line) - access).ok()?).ok()
    }
}
