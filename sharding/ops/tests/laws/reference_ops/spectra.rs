//! Transforms into frequencies and back; complex numbers are stored in a last dim of two.

use super::{Example, example};

pub fn all() -> Vec<Example> {
    [
        ("fft(dims=[1])", "6,4,2; 5,6,2"),
        ("ifft(dims=[1])", "6,4,2; 5,6,2"),
        ("fft(dims=[1,2])", "6,4,3,2; 5,2,2,2"),
        ("rfft(dims=[1])", "6,4; 5,5"),
        ("rfft(dims=[1,2])", "6,4,3; 5,2,4"),
        ("ihfft(dims=[1])", "6,4; 5,5"),
        ("irfft(dims=[1])", "6,3,2; 5,4,2"),
        ("irfft(dims=[1],size=5)", "6,3,2; 4,3,2"),
        ("hfft(dims=[1])", "6,3,2; 5,4,2"),
        ("fftshift(dims=[1])", "6,5; 5,4"),
        ("ifftshift(dims=[1])", "6,5; 5,4"),
        ("stft(window=4,hop=2)", "6,8; 5,6"),
        ("istft(window=4,hop=2)", "6,3,3,2; 5,3,2,2"),
    ]
    .map(|(call, shapes)| example(call, shapes).near())
    .into()
}
