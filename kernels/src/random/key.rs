//! Keys: together with the index, the input of random numbers. A key is never used up; new ones are derived
//! from it.

use std::fmt;
use std::str::FromStr;

use super::philox;
use super::threefry::threefry2x32;
use crate::Error;

/// A counter-based generator: a function from (key, counter) to random bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generator {
    /// JAX's default, with `jax_threefry_partitionable`.
    #[default]
    Threefry,
    /// The generator of `torch.func._random`.
    Philox,
}

impl Generator {
    /// All of them.
    #[doc(hidden)]
    pub const ALL: [Generator; 2] = [Generator::Threefry, Generator::Philox];

    /// Returns the full name.
    pub fn name(self) -> &'static str {
        match self {
            Generator::Threefry => "threefry2x32",
            Generator::Philox => "philox4x32-10",
        }
    }

    fn short_name(self) -> &'static str {
        match self {
            Generator::Threefry => "threefry",
            Generator::Philox => "philox",
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Generator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Generator::ALL.into_iter().find(|g| text == g.name() || text == g.short_name());
        named.ok_or_else(|| Error::UnknownGenerator { text: text.to_owned() })
    }
}

/// A generator and 64 bits of threefry's key, or the 64 bits of philox's and the counter from which on it counts.
///
/// ```
/// use reshard_kernels::random::{Generator, Key};
/// let key = Key::new(0);
/// assert_eq!(key.to_string(), "threefry2x32:00000000,00000000");
/// assert_eq!(key.to_string().parse::<Key>()?, key);
/// // As `jax.random.split(jax.random.key(0))`.
/// let keys: Vec<Key> = key.split(2).collect();
/// assert_eq!(keys[1].to_string(), "threefry2x32:375f238f,cddb151d");
/// assert_eq!(keys[1], key.fold_in(1));
/// let other = Key::with(Generator::Philox, 7);
/// assert_eq!(other.to_string(), "philox4x32-10:0000000000000007,0000000000000000");
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Two words, the upper half of the seed first, as JAX's `key_data`.
    Threefry([u32; 2]),
    /// A seed and an offset, as PyTorch's key of two words.
    Philox {
        /// The key of the permutation.
        seed: u64,
        /// The first counter.
        offset: u64,
    },
}

impl Key {
    /// Returns threefry's key of a seed, as `jax.random.key(seed)`.
    pub const fn new(seed: u64) -> Key {
        Key::Threefry([(seed >> 32) as u32, seed as u32])
    }

    /// Returns a generator's key of a seed; philox's is `torch.func._random.key(seed)`.
    pub const fn with(generator: Generator, seed: u64) -> Key {
        match generator {
            Generator::Threefry => Key::new(seed),
            Generator::Philox => Key::Philox { seed, offset: 0 },
        }
    }

    /// Returns the generator of the key.
    #[doc(hidden)]
    #[inline]
    pub const fn generator(&self) -> Generator {
        match self {
            Key::Threefry(_) => Generator::Threefry,
            Key::Philox { .. } => Generator::Philox,
        }
    }

    /// Returns `n` different keys: `fold_in(0)`, `fold_in(1)`, ..
    pub fn split(&self, n: u64) -> impl Iterator<Item = Key> + Clone {
        let key = *self;
        (0..n).map(move |i| key.fold_in(i))
    }

    /// Derives a key for a part of a computation, such as a step or an op.
    ///
    /// Different numbers give different keys.
    ///
    /// JAX's `fold_in` takes numbers of 32 bits; larger ones are keys that its `split` gives.
    #[must_use]
    pub fn fold_in(&self, data: u64) -> Key {
        match *self {
            Key::Threefry(key) => Key::Threefry(threefry2x32(key, [(data >> 32) as u32, data as u32])),
            Key::Philox { seed, offset } => {
                let words = philox::block(seed, offset.wrapping_add(data)).map(u64::from);
                Key::Philox { seed: words[1] << 32 | words[0], offset: words[3] << 32 | words[2] }
            }
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Threefry([high, low]) => write!(f, "{}:{high:08x},{low:08x}", Generator::Threefry),
            Key::Philox { seed, offset } => write!(f, "{}:{seed:016x},{offset:016x}", Generator::Philox),
        }
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (generator, words) = text.split_once(':')?;
            let (first, second) = words.split_once(',')?;
            let word = |text: &str, digits: usize| {
                let is_one = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
                is_one.then(|| u64::from_str_radix(text, 16).ok()).flatten()
            };
            Some(match generator.parse().ok()? {
                Generator::Threefry => Key::Threefry([word(first, 8)? as u32, word(second, 8)? as u32]),
                Generator::Philox => Key::Philox { seed: word(first, 16)?, offset: word(second, 16)? },
            })
        };
        read().ok_or_else(|| Error::UnknownKey { text: text.to_owned() })
    }
}
