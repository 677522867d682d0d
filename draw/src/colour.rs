//! Colours: as many as there are ranks, of which neighbours differ, each light enough for black letters.

/// The part of a golden angle that is left of a circle of 360 degrees, in thousandths of a degree.
const GOLDEN: u64 = 137_508;

/// Eight light colours, which repeat: those of layouts.
pub(crate) const LIGHT: [[u8; 3]; 8] = [
    [0xaf, 0xaf, 0xff],
    [0xff, 0xaf, 0xaf],
    [0xaf, 0xff, 0xaf],
    [0xff, 0xff, 0xaf],
    [0xd2, 0xd2, 0xff],
    [0xff, 0xd2, 0xd2],
    [0xd2, 0xff, 0xd2],
    [0xff, 0xff, 0xd2],
];

/// The colours of the kinds of bars, which repeat; distinguishable also with red-green colour blindness.
pub(crate) const KINDS: [[u8; 3]; 8] = [
    [0x8f, 0xc7, 0xea],
    [0xf2, 0xb8, 0x5c],
    [0xd9, 0xd9, 0xd9],
    [0x7f, 0xd4, 0xb4],
    [0xe8, 0xa3, 0xc9],
    [0xf3, 0xe8, 0x7d],
    [0xb9, 0xb3, 0xf0],
    [0xf0, 0x9a, 0x7e],
];

/// Returns the colour of a number: hues at golden-angle distances, of 70 % saturation and 78 % lightness.
///
/// In integers, so that it is the same on every machine.
pub(crate) fn hue(number: usize) -> [u8; 3] {
    // Thousandths of a sixth of the circle.
    let angle = (number as u64 % 360_000) * GOLDEN % 360_000 / 60;
    let (sextant, within) = (angle / 1000, angle % 1000);
    // Chroma is (1 - |2 l - 1|) s = 0.308, and what all channels have is l - chroma / 2 = 0.626.
    let (chroma, least) = (308, 626);
    let rising = chroma * within / 1000;
    let falling = chroma - rising;
    let [r, g, b] = match sextant {
        0 => [chroma, rising, 0],
        1 => [falling, chroma, 0],
        2 => [0, chroma, rising],
        3 => [0, falling, chroma],
        4 => [rising, 0, chroma],
        _ => [chroma, 0, falling],
    };
    [r, g, b].map(|channel| ((channel + least) * 255 / 1000) as u8)
}

/// Formats a colour as `#rrggbb`.
pub(crate) fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::{KINDS, LIGHT, hue};

    /// Returns the relative luminance of WCAG.
    fn luminance(colour: [u8; 3]) -> f64 {
        let [r, g, b] = colour.map(|channel| {
            let c = f64::from(channel) / 255.0;
            if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// Property: black letters are readable on every colour (a contrast of 7 and more).
    #[test]
    fn black_letters_can_be_read_on_every_colour() {
        for colour in (0..2000).map(hue).chain(LIGHT).chain(KINDS) {
            assert!((luminance(colour) + 0.05) / 0.05 >= 7.0, "{colour:?}");
        }
    }

    /// Property: the colours of the first 16 ranks are all different, and neighbours differ much.
    #[test]
    fn neighbours_differ() {
        let distance = |a: usize, b: usize| -> u32 {
            hue(a).iter().zip(hue(b)).map(|(x, y)| u32::from(x.abs_diff(y))).sum()
        };
        for a in 0..1000 {
            assert!(distance(a, a + 1) > 60, "{a}");
        }
        for a in 0..16 {
            assert!((0..a).all(|b| distance(a, b) > 8), "{a}");
        }
    }
}
