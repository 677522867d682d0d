//! Ten inputs as tokens of the model's vocabulary: 101 begins a sentence, 102 ends it, 0 pads it.

/// The number of tokens of an input, padding included.
pub const TOKENS: usize = 32;

/// The inputs, each without padding.
pub const SENTENCES: [&[u32]; 10] = [
    // this is an example sentence
    &[101, 2023, 2003, 2019, 2742, 6251, 102],
    // each sentence is converted
    &[101, 2169, 6251, 2003, 4991, 102],
    // the quick brown fox jumps over the lazy dog .
    &[101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012, 102],
    // a man is playing a guitar .
    &[101, 1037, 2158, 2003, 2652, 1037, 2858, 1012, 102],
    // a woman is reading a book in the garden .
    &[101, 1037, 2450, 2003, 3752, 1037, 2338, 1999, 1996, 3871, 1012, 102],
    // the new movie is awesome !
    &[101, 1996, 2047, 3185, 2003, 12476, 999, 102],
    // do you like pizza ?
    &[101, 2079, 2017, 2066, 10733, 1029, 102],
    // hello world
    &[101, 7592, 2088, 102],
    // how do the ranks of a machine hold one large table of numbers ?
    // each of them holds a part , and nobody holds the whole .
    &[
        101, 2129, 2079, 1996, 6938, 1997, 1037, 3698, 2907, 2028, 2312, 2795, 1997, 3616, 1029, 2169, 1997,
        2068, 4324, 1037, 2112, 1010, 1998, 6343, 4324, 1996, 2878, 1012, 102,
    ],
    // the sum of two parts is the whole .
    &[101, 1996, 7680, 1997, 2048, 3033, 2003, 1996, 2878, 1012, 102],
];

/// Returns the token at each position of each input, or `None` for padding.
pub fn places() -> impl Iterator<Item = Option<u32>> {
    SENTENCES.iter().flat_map(|sentence| (0..TOKENS).map(|place| sentence.get(place).copied()))
}

/// Selects the numbers of tokens from those of all positions, in order.
///
/// The model's output for padding is not used. There its normalisations subtract squares that are nearly
/// equal, so that candle's own numbers in f32 are off by 3e-5 from those in f64, and those of tokens by
/// 2.5e-6.
pub fn of_tokens(numbers: &[f32]) -> Vec<f32> {
    let width = numbers.len() / (SENTENCES.len() * TOKENS);
    let of_places = places().zip(numbers.chunks_exact(width.max(1)));
    of_places.filter(|(token, _)| token.is_some()).flat_map(|(_, numbers)| numbers.iter().copied()).collect()
}
