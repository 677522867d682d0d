//! Sizes of memory: a number of bytes, written with a decimal or a binary unit.

use core::fmt;
use core::str::FromStr;

use crate::Error;

/// A number of bytes, such as `80GB`, `16GiB` or `1000000`.
///
/// ```
/// use reshard_program::MemorySize;
/// assert_eq!("1.5 GiB".parse(), Ok(MemorySize { bytes: 3 << 29 }));
/// assert_eq!("80GB".parse::<MemorySize>()?.bytes, 80_000_000_000);
/// assert_eq!("2kB".parse::<MemorySize>()?.to_string(), "2000B");
/// assert!("lots".parse::<MemorySize>().is_err());
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize {
    /// The number of bytes.
    pub bytes: u64,
}

/// The units, each after all units that it ends with.
const UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];

/// The most decimals.
const DECIMALS: usize = 12;

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.bytes)
    }
}

impl FromStr for MemorySize {
    type Err = Error;

    fn from_str(text: &str) -> Result<MemorySize, Error> {
        let wrong = || Error::Parse { reason: "expected bytes such as 80GB, 16GiB or 1000000".to_owned() };
        let (number, unit) = (UNITS.iter())
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .unwrap_or((text, 1));
        let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > DECIMALS {
            return Err(wrong());
        }
        // In integers, because a limit of bytes is exact.
        let scale = 10u128.pow(part.len() as u32);
        let parsed = |text: &str| text.parse::<u128>().map_err(|_| wrong());
        let scaled =
            parsed(whole)?.checked_mul(scale).and_then(|whole| whole.checked_add(parsed(part).ok()?));
        let total = scaled.and_then(|scaled| scaled.checked_mul(u128::from(unit))).ok_or_else(wrong)?;
        Ok(MemorySize { bytes: u64::try_from(total / scale).map_err(|_| wrong())? })
    }
}
