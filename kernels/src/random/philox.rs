//! Philox-4x32 with 10 rounds (Salmon et al., 2011): 128 bits of a counter and 64 of a key give 128. For each key it is a
//! permutation of the counters.

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Returns the block of a counter.
#[inline(always)]
pub(super) fn philox4x32(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [p, q] = [0, 1].map(|i| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]));
        counter = [
            (q >> 32) as u32 ^ counter[1] ^ key[0],
            q as u32,
            (p >> 32) as u32 ^ counter[3] ^ key[1],
            p as u32,
        ];
        key = [0, 1].map(|i| key[i].wrapping_add(WEYL[i]));
    }
    counter
}

/// Returns the block of a 64-bit counter, with the upper half 0, under a 64-bit key.
#[inline(always)]
pub(super) fn block(seed: u64, counter: u64) -> [u32; 4] {
    philox4x32([seed as u32, (seed >> 32) as u32], [counter as u32, (counter >> 32) as u32, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::philox4x32;

    /// The known answers of Random123, 10 rounds.
    #[test]
    fn philox_gives_the_known_answers() {
        for (key, counter, answer) in [
            ([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 2], [!0; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32(key, counter), answer);
        }
    }
}
