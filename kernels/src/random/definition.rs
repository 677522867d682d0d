//! The definition of an element, computed one at a time and slowly: the reference for [`fill`](super::fill).

use half::{bf16, f16};

use super::special::Wide;
use super::{Draw, Generator, Key};
use crate::{DType, Error};

/// The float types that can be drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Float {
    F64,
    F32,
    BF16,
    F16,
}

impl Float {
    /// Returns the float of a dtype; never called for other dtypes.
    fn of(dtype: DType) -> Float {
        let all = [(DType::F64, Float::F64), (DType::BF16, Float::BF16), (DType::F16, Float::F16)];
        all.iter().find(|(named, _)| *named == dtype).map_or(Float::F32, |(_, float)| *float)
    }
}

/// Returns the bytes of the element of this index.
///
/// Errors: [`Draw::check`]'s.
pub fn element(key: &Key, draw: Draw, dtype: DType, index: u64) -> Result<Vec<u8>, Error> {
    draw.check(dtype)?;
    let (width, float) = (dtype.element_bytes()? * 8, Float::of(dtype));
    let integer = |x: i128| x.to_le_bytes()[..width / 8].to_vec();
    let native = |mut little: Vec<u8>| {
        if cfg!(target_endian = "big") {
            little.reverse();
        }
        little
    };
    Ok(native(match draw {
        Draw::Bits => integer(i128::from(bits(key, width, index))),
        Draw::RandInt { low, high } => {
            let (span, n) = ((high - low) as u128, width.max(32));
            let word = |key: &Key| u128::from(bits(key, n, index));
            let wrapped = |x: u128| x % (1 << n);
            let offset = match key.generator() {
                // The draw of all integers of the dtype is its bits.
                Generator::Philox if span == 1 << width => (word(key) as i128 - low) as u128 % span,
                Generator::Philox => word(key) % span,
                Generator::Threefry => {
                    // `2^n` modulo the span, by a square of n bits: 0 if the span is more than the root of
                    // 2^n.
                    let root = (1u128 << (n / 2)) % span;
                    let power = wrapped(root * root) % span;
                    let upper = wrapped(word(&key.fold_in(0)) % span * power);
                    wrapped(upper + word(&key.fold_in(1)) % span) % span
                }
            };
            integer(low + offset as i128)
        }
        Draw::Bernoulli { p } => {
            let is_one = (uniform(key, Float::F32, index, 0.0, 1.0) as f32) < p as f32;
            let of_floats = dtype.check_average().is_ok();
            if of_floats { real(float, f64::from(u8::from(is_one))) } else { integer(i128::from(is_one)) }
        }
        Draw::Uniform { low, high } => real(float, uniform(key, float, index, low, high)),
        Draw::Normal { mean, std } => {
            let root = round(float, std::f64::consts::SQRT_2);
            let x = round(float, root * erf_inv(float, uniform(key, float, index, above(float, -1.0), 1.0)));
            let (mean, std) = (round(float, mean), round(float, std));
            real(float, if (mean, std) == (0.0, 1.0) { x } else { mean + round(float, std * x) })
        }
        Draw::TruncatedNormal { low, high } => {
            let root = round(float, std::f64::consts::SQRT_2);
            let (low, high) = (round(float, low), round(float, high));
            let [a, b] = [low, high].map(|x| round(float, libm::erf(round(float, x / root))));
            let x = round(float, root * erf_inv(float, uniform(key, float, index, a, b)));
            real(float, x.max(above(float, low)).min(-above(float, -high)))
        }
        Draw::Exponential => {
            let x = uniform(key, float, index, 0.0, 1.0);
            real(
                float,
                0.0 - if float == Float::F64 { x.ln_one_less() } else { f64::from((x as f32).ln_one_less()) },
            )
        }
        Draw::Gumbel => {
            let ln = |x: f64| {
                round(float, if float == Float::F64 { Wide::ln(x) } else { f64::from(Wide::ln(x as f32)) })
            };
            real(float, 0.0 - ln(0.0 - ln(uniform(key, float, index, tiny(float), 1.0))))
        }
    }))
}

/// Returns the random bits of an index, 8 to 64 of them.
fn bits(key: &Key, width: usize, index: u64) -> u64 {
    let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    match *key {
        Key::Threefry(key) => {
            let [a, b] = threefry(key, [(index >> 32) as u32, index as u32]);
            if width == 64 { joined(a, b) } else { u64::from(a ^ b) & ((1 << width) - 1) }
        }
        Key::Philox { seed, offset } => {
            let per = if width == 64 { 2 } else { 4 };
            let words = philox(seed, offset.wrapping_add(index / per));
            let lane = (index % per) as usize;
            if width == 64 {
                joined(words[2 * lane], words[2 * lane + 1])
            } else {
                u64::from(words[lane]) & ((1 << width) - 1)
            }
        }
    }
}

/// Computes 20 rounds, with the addition of a key word after every fourth.
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let [mut a, mut b] = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20 {
        a = a.wrapping_add(b);
        b = b.rotate_left([13, 15, 26, 6, 17, 29, 16, 24][round % 8]) ^ a;
        if round % 4 == 3 {
            let times = round / 4 + 1;
            a = a.wrapping_add(keys[times % 3]);
            b = b.wrapping_add(keys[(times + 1) % 3]).wrapping_add(times as u32);
        }
    }
    [a, b]
}

/// Computes 10 rounds, each with the next key.
fn philox(seed: u64, counter: u64) -> [u32; 4] {
    let mut x = [counter & 0xffff_ffff, counter >> 32, 0, 0];
    for round in 0..10 {
        let key = [(seed & 0xffff_ffff) + 0x9e37_79b9 * round, (seed >> 32) + 0xbb67_ae85 * round]
            .map(|key| key & 0xffff_ffff);
        let [p, q] = [0xd251_1f53 * x[0], 0xcd9e_8d57 * x[2]];
        x = [(q >> 32) ^ x[1] ^ key[0], q & 0xffff_ffff, (p >> 32) ^ x[3] ^ key[1], p & 0xffff_ffff];
    }
    x.map(|word| word as u32)
}

/// Returns the fraction of an index, with as many bits as the mantissa, or one more for philox.
fn fraction(key: &Key, float: Float, index: u64) -> f64 {
    let (mantissa, drawn) = match float {
        Float::F64 => (52, 64),
        Float::F16 => (10, 16),
        Float::BF16 => (7, 8),
        Float::F32 => (23, 32),
    };
    let (kept, bits) = match key.generator() {
        Generator::Threefry => (mantissa, bits(key, drawn, index) >> (drawn - mantissa)),
        Generator::Philox => {
            let width = if float == Float::F64 { 64 } else { 32 };
            (mantissa + 1, bits(key, width, index) & ((1 << (mantissa + 1)) - 1))
        }
    };
    bits as f64 / (1u64 << kept) as f64
}

/// Returns an element of [low, high), whose ends are rounded to the dtype.
fn uniform(key: &Key, float: Float, index: u64, low: f64, high: f64) -> f64 {
    let x = fraction(key, float, index);
    let (low, high) = (round(float, low), round(float, high));
    let span = round(float, high - low);
    let stretched = match (key.generator(), float) {
        (Generator::Threefry, Float::F64) => x.mul_add(span, low),
        (Generator::Threefry, Float::F32) => f64::from((x as f32).mul_add(span as f32, low as f32)),
        (Generator::Philox, Float::F64) => x * span + low,
        // In f32, for every float type.
        (Generator::Philox, Float::F32 | Float::BF16 | Float::F16) => {
            round(float, f64::from(x as f32 * span as f32 + low as f32))
        }
        (Generator::Threefry, Float::BF16 | Float::F16) => round(float, round(float, x * span) + low),
    };
    stretched.max(low)
}

/// Returns the nearest element.
fn round(float: Float, x: f64) -> f64 {
    match float {
        Float::F16 => f16::from_f64(x).to_f64(),
        Float::BF16 => bf16::from_f64(x).to_f64(),
        Float::F32 => f64::from(x as f32),
        Float::F64 => x,
    }
}

/// Returns the bytes of the nearest element, lowest first.
fn real(float: Float, x: f64) -> Vec<u8> {
    match float {
        Float::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        Float::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        Float::F32 => (x as f32).to_le_bytes().to_vec(),
        Float::F64 => x.to_le_bytes().to_vec(),
    }
}

/// Returns the least element above a given one.
fn above(float: Float, x: f64) -> f64 {
    let next = |bits: u16| match x {
        0.0 => 1,
        x if x < 0.0 => bits - 1,
        _ => bits + 1,
    };
    match float {
        Float::F16 => f16::from_bits(next(f16::from_f64(x).to_bits())).to_f64(),
        Float::BF16 => bf16::from_bits(next(bf16::from_f64(x).to_bits())).to_f64(),
        Float::F32 => f64::from((x as f32).next_up()),
        Float::F64 => x.next_up(),
    }
}

/// Returns the least positive element that is not subnormal.
fn tiny(float: Float) -> f64 {
    match float {
        Float::F16 => f16::MIN_POSITIVE.to_f64(),
        Float::BF16 => bf16::MIN_POSITIVE.to_f64(),
        Float::F32 => f64::from(f32::MIN_POSITIVE),
        Float::F64 => f64::MIN_POSITIVE,
    }
}

/// Returns the inverse error function in the wide type, rounded.
fn erf_inv(float: Float, x: f64) -> f64 {
    if float == Float::F64 { x.erf_inv() } else { round(float, f64::from((x as f32).erf_inv())) }
}
