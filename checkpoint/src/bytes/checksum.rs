//! Checksums: CRC-64/NVME of a range of bytes, and of a whole whose ranges arrive in any order.
//!
//! A CRC is linear over the field of two elements. For bytes `a` before bytes `b`,
//!
//! ```text
//! crc(ab) = crc(a) x^(8 |b|)  +  crc(b)        modulo the polynomial; + is exclusive or
//! ```
//!
//! so the checksum of a whole is the sum of those of its ranges, each times `x` to the number of bits after
//! it. Threads add their results to one shared integer, and none waits for the range before. Every flipped
//! bit changes the checksum, and so does every burst of up to 64 bits.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crc_fast::CrcAlgorithm;

/// The polynomial without `x^64`, lowest power in the highest bit.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// `x^0`, in the same order of bits.
const ONE: u64 = 1 << 63;

/// `x^(8 2^k)` for every `k`.
static POWERS: LazyLock<[u64; 64]> = LazyLock::new(|| {
    let mut powers = [ONE >> 8; 64];
    for k in 1..64 {
        powers[k] = product(powers[k - 1], powers[k - 1]);
    }
    powers
});

/// Returns the checksum of some bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Returns the CRC-32C (Castagnoli) of some bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The checksum of a whole whose ranges arrive in any order.
#[derive(Debug, Default)]
pub(crate) struct Sum(AtomicU64);

impl Sum {
    /// Adds the checksum of a range that is followed by `behind` bytes.
    pub(crate) fn add(&self, checksum: u64, behind: usize) {
        self.0.fetch_xor(moved(checksum, behind), Ordering::Relaxed);
    }

    /// Returns the checksum of everything that was added.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the CRC-32, the checksum of zip archives.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// The CRC-32 of a whole whose ranges arrive in any order.
#[derive(Debug, Default)]
pub(crate) struct Sum32(AtomicU32);

impl Sum32 {
    /// Adds the checksum of a range that is followed by `behind` bytes.
    pub(crate) fn add(&self, checksum: u32, behind: usize) {
        let moved = crc_fast::checksum_combine(CrcAlgorithm::Crc32IsoHdlc, checksum.into(), 0, behind as u64);
        self.0.fetch_xor(moved as u32, Ordering::Relaxed);
    }

    /// Returns the checksum of everything that was added.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the contribution of a range's checksum to that of the whole, if `behind` bytes follow the range.
fn moved(checksum: u64, behind: usize) -> u64 {
    let powers = POWERS.iter().enumerate();
    let wanted = powers.filter(|(k, _)| behind >> k & 1 == 1);
    wanted.fold(checksum, |sum, (_, power)| product(sum, *power))
}

/// Returns the product of two polynomials, modulo that of the checksum.
fn product(a: u64, mut b: u64) -> u64 {
    let mut sum = 0;
    for k in (0..64).rev() {
        if a >> k & 1 == 1 {
            sum ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    sum
}

/// Formats checksums as one text.
pub(crate) fn to_text(checksums: &[u64]) -> String {
    let words: Vec<String> = checksums.iter().map(|checksum| format!("{checksum:016x}")).collect();
    words.join(" ")
}

/// Parses the checksums of a text.
pub(crate) fn of_text(text: &str) -> Option<Vec<u64>> {
    let word = |word: &str| {
        let digits = word.len() == 16 && word.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u64::from_str_radix(word, 16).ok()).flatten()
    };
    text.split_ascii_whitespace().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::{Sum, Sum32, checksum, crc32, of_text, to_text};

    /// The definition, bit by bit, and the value that the catalogue of CRCs gives for it.
    #[test]
    fn it_is_the_crc_of_the_catalogue() {
        let slow = |bytes: &[u8]| {
            let mut crc = u64::MAX;
            for byte in bytes {
                crc ^= u64::from(*byte);
                for _ in 0..8 {
                    crc = if crc & 1 == 1 { crc >> 1 ^ super::POLYNOMIAL } else { crc >> 1 };
                }
            }
            !crc
        };
        assert_eq!(checksum(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        for len in [0, 1, 7, 64, 1000, 4099] {
            let bytes: Vec<u8> = (0..len).map(|at: usize| ((at * at) >> 3) as u8).collect();
            assert_eq!(checksum(&bytes), slow(&bytes), "{len}");
        }
    }

    #[test]
    fn stretches_in_any_order_make_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..100_003_usize).map(|at| ((at * 31) >> 2) as u8).collect();
        for cuts in [&[0, 100_003][..], &[0, 0, 1, 100_003], &[0, 17, 4096, 65_536, 65_537, 100_003]] {
            let (sum, of_zip) = (Sum::default(), Sum32::default());
            for pair in cuts.windows(2).rev() {
                sum.add(checksum(&bytes[pair[0]..pair[1]]), bytes.len() - pair[1]);
                of_zip.add(crc32(&bytes[pair[0]..pair[1]]), bytes.len() - pair[1]);
            }
            assert_eq!(sum.get(), checksum(&bytes), "{cuts:?}");
            assert_eq!(of_zip.get(), crc32(&bytes), "{cuts:?}");
        }
    }

    #[test]
    fn a_text_of_checksums_reads_back() {
        let checksums = [0, 1, u64::MAX, 0x1234_5678_9abc_def0];
        assert_eq!(of_text(&to_text(&checksums)).unwrap(), checksums);
        assert_eq!(of_text("").unwrap(), [0; 0]);
        for wrong in ["1", "000000000000000g", "+000000000000001", "00000000000000000"] {
            assert_eq!(of_text(wrong), None, "{wrong}");
        }
    }
}
