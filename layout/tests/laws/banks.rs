//! The swizzle without bank conflicts, against counting them.

use reshard_layout::{Banks, Swizzle};

/// The worst bank conflicts of all accesses of a line.
///
/// These are down every column from every aligned row on, and along every row.
fn worst(banks: Banks, line: i64, swizzle: Swizzle, row: i64, element: i64, access: i64) -> (usize, usize) {
    let together = line / access;
    let at =
        |r: i64, chunk: i64| swizzle.at(r * row + chunk * (access / element)).expect("an index") * element;
    let chunks = row * element / access;
    let mut ways = (0, 0);
    for block in 0..8 {
        for chunk in 0..chunks {
            let down = (0..together).map(|r| at(block * together + r, chunk));
            ways.0 = ways.0.max(banks.conflicts(down, access as u32));
        }
        for first in (0..chunks).step_by(together.min(chunks) as usize) {
            // A row shorter than a line continues in the next one.
            let along =
                (0..together).map(|k| at(block * together + (first + k) / chunks, (first + k) % chunks));
            ways.1 = ways.1.max(banks.conflicts(along, access as u32));
        }
    }
    ways
}

#[test]
fn the_swizzle_of_a_tile_has_no_bank_conflicts_and_the_fewest_bits() {
    let mut seen = 0;
    for (banks, line) in [
        (Banks::SHARED, 128),
        (Banks::new(16, 4).expect("some"), 64),
        (Banks::new(32, 8).expect("some"), 256),
    ] {
        for element in [1, 2, 4, 8] {
            for row in [8, 16, 32, 64, 128, 256] {
                for access in
                    [4, 8, 16].into_iter().filter(|access| *access >= element && *access <= row * element)
                {
                    let word = if line == 256 { 8 } else { 4 };
                    let swizzle = banks.swizzle(row, element, access).expect("powers of two");
                    if access < word {
                        continue;
                    }
                    let ways = worst(banks, line, swizzle, row, element, access);
                    assert_eq!(ways, (1, 1), "{swizzle} of {row} x {element} bytes by {access}");
                    if swizzle.bits() > 0 {
                        let fewer =
                            Swizzle::new(swizzle.bits() - 1, swizzle.base(), swizzle.shift()).expect("fewer");
                        assert!(worst(banks, line, fewer, row, element, access).0 > 1, "{fewer} would do");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(seen > 60, "{seen}");
    // What vendors ship for rows of 128, 64 and 32 bytes.
    for (row, expected) in [(128, "Sw<3,4,3>"), (64, "Sw<2,4,3>"), (32, "Sw<1,4,3>"), (16, "Sw<0,0,0>")] {
        assert_eq!(Banks::SHARED.swizzle(row, 1, 16).map(|s| s.to_string()).as_deref(), Some(expected));
    }
    for (row, element, access) in
        [(48, 2, 16), (64, 3, 16), (64, 2, 12), (64, 2, 1), (4, 2, 16), (64, 4, 256), (0, 2, 16)]
    {
        assert_eq!(Banks::SHARED.swizzle(row, element, access), None);
    }
}
