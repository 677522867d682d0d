//! Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! It maps 64 bits of a counter and 64 of a key to 64 random bits. For each key it is a permutation of the
//! counters.

/// Rotations of the second word, round by round; repeated from the beginning.
const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The constant from which the third word of a key is derived.
const PARITY: u32 = 0x1bd1_1bda;

/// Returns the block of a counter. Without branches, so that loops over it are vectorised.
#[inline(always)]
pub(super) fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let mut a = counter[0].wrapping_add(keys[0]);
    let mut b = counter[1].wrapping_add(keys[1]);
    macro_rules! rounds {
        ($($group:literal),*) => {$(
            let [r0, r1, r2, r3] = ROTATIONS[$group % 2];
            a = a.wrapping_add(b);
            b = b.rotate_left(r0) ^ a;
            a = a.wrapping_add(b);
            b = b.rotate_left(r1) ^ a;
            a = a.wrapping_add(b);
            b = b.rotate_left(r2) ^ a;
            a = a.wrapping_add(b);
            b = b.rotate_left(r3) ^ a;
            a = a.wrapping_add(keys[($group + 1) % 3]);
            b = b.wrapping_add(keys[($group + 2) % 3]).wrapping_add($group + 1);
        )*};
    }
    rounds!(0, 1, 2, 3, 4);
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::threefry2x32;

    /// The known answers of Random123, 20 rounds.
    #[test]
    fn threefry_gives_the_known_answers() {
        for (key, counter, answer) in [
            ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
            ([!0, !0], [!0, !0], [0x1cb9_96fc, 0xbb00_2be7]),
            ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0]),
        ] {
            assert_eq!(threefry2x32(key, counter), answer);
        }
    }
}
