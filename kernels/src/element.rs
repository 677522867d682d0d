//! Arithmetic of each element type, read from and written to plain bytes.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::CombineOp;
use crate::norm::{self, Norm};

/// One element type; `sum` and `prod` wrap for integers, `min_of` and `max_of` propagate NaN.
pub(crate) trait Element: Copy {
    const BYTES: usize = size_of::<Self>();
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min_of(self, other: Self) -> Self;
    fn max_of(self, other: Self) -> Self;
    fn norm(self, other: Self, norm: Norm) -> Self;
    fn divided_by(self, divisor: f64) -> Self;
    fn identity(op: CombineOp) -> Self;

    /// Returns `a op b` of two elements.
    #[inline(always)]
    fn combined(self, other: Self, op: CombineOp) -> Self {
        match op {
            CombineOp::Sum => self.sum(other),
            CombineOp::Prod => self.prod(other),
            CombineOp::Min => self.min_of(other),
            CombineOp::Max => self.max_of(other),
            CombineOp::Norm(p) => self.norm(other, Norm::of(p)),
        }
    }

    /// Computes `a = a op b` along two dense rows of equal length.
    #[inline(always)]
    fn combine_dense(dst: &mut [u8], src: &[u8], op: CombineOp) {
        combine_each::<Self>(dst, src, op);
    }
}

/// Combines dense rows by the definition, which the compiler vectorises for most types.
#[inline(always)]
fn combine_each<T: Element>(dst: &mut [u8], src: &[u8], op: CombineOp) {
    match op {
        CombineOp::Sum => each(dst, src, T::sum),
        CombineOp::Prod => each(dst, src, T::prod),
        CombineOp::Min => each(dst, src, T::min_of),
        CombineOp::Max => each(dst, src, T::max_of),
        CombineOp::Norm(p) => match Norm::of(p) {
            Norm::One => each(dst, src, |a: T, b: T| a.norm(b, Norm::One)),
            Norm::Two => each(dst, src, |a: T, b: T| a.norm(b, Norm::Two)),
            Norm::Infinity => each(dst, src, |a: T, b: T| a.norm(b, Norm::Infinity)),
            other @ Norm::Other(_) => each(dst, src, |a: T, b: T| a.norm(b, other)),
        },
    }
}

/// Runs the loop that the compiler vectorises.
#[inline(always)]
fn each<T: Element>(dst: &mut [u8], src: &[u8], op: impl Fn(T, T) -> T) {
    for (a, b) in dst.chunks_exact_mut(T::BYTES).zip(src.chunks_exact(T::BYTES)) {
        op(T::read(a), T::read(b)).write(a);
    }
}

/// Elements that are converted to f32 at a time.
const BATCH: usize = 128;

/// Combines dense rows of 16-bit floats, converted in batches by vector instructions.
fn combine_halves<T>(dst: &mut [u8], src: &[u8], op: CombineOp)
where
    T: Element,
    [T]: HalfFloatSliceExt,
{
    let zero = T::identity(CombineOp::Sum);
    let (mut narrow, mut a, mut b) = ([zero; BATCH], [0f32; BATCH], [0f32; BATCH]);
    for (dst, src) in dst.chunks_mut(BATCH * T::BYTES).zip(src.chunks(BATCH * T::BYTES)) {
        let n = dst.len() / T::BYTES;
        let widen = |bytes: &[u8], narrow: &mut [T], wide: &mut [f32]| {
            for (item, bytes) in narrow.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
                *item = T::read(bytes);
            }
            narrow.convert_to_f32_slice(wide);
        };
        widen(dst, &mut narrow[..n], &mut a[..n]);
        widen(src, &mut narrow[..n], &mut b[..n]);
        let pairs = a[..n].iter_mut().zip(&b[..n]);
        match op {
            CombineOp::Sum => pairs.for_each(|(a, b)| *a = a.sum(*b)),
            CombineOp::Prod => pairs.for_each(|(a, b)| *a = a.prod(*b)),
            CombineOp::Min => pairs.for_each(|(a, b)| *a = a.min_of(*b)),
            CombineOp::Max => pairs.for_each(|(a, b)| *a = a.max_of(*b)),
            CombineOp::Norm(p) => {
                let norm = Norm::of(p);
                pairs.for_each(|(a, b)| *a = a.norm(*b, norm));
            }
        }
        narrow[..n].convert_from_f32_slice(&a[..n]);
        for (item, bytes) in narrow[..n].iter().zip(dst.chunks_exact_mut(T::BYTES)) {
            item.write(bytes);
        }
    }
}

/// `read` and `write` as native bytes; the slices have exactly the element's size.
macro_rules! as_bytes {
    ($t:ty) => {
        #[inline(always)]
        fn read(bytes: &[u8]) -> Self {
            let mut array = [0; size_of::<$t>()];
            array.copy_from_slice(bytes);
            <$t>::from_ne_bytes(array)
        }
        #[inline(always)]
        fn write(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_ne_bytes());
        }
    };
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Element for $t {
            as_bytes!($t);
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn min_of(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn max_of(self, other: Self) -> Self {
                self.max(other)
            }
            /// Never called: there are no norms of integers.
            fn norm(self, _: Self, _: Norm) -> Self {
                self
            }
            /// Never called: there is no average of integers.
            fn divided_by(self, _: f64) -> Self {
                self
            }
            fn identity(op: CombineOp) -> Self {
                match op {
                    CombineOp::Sum | CombineOp::Norm(_) => 0,
                    CombineOp::Prod => 1,
                    CombineOp::Min => Self::MAX,
                    CombineOp::Max => Self::MIN,
                }
            }
        }
    )*};
}
integer!(u8, i8, u16, i16, u32, i32, u64, i64);

/// Implements [`Element`] for floats of the processor.
///
/// Equal operands differ at most in the sign of a zero: `|` of the bits gives
/// the lower, `&` the greater.
macro_rules! float {
    ($($t:ty, $euclidean:expr;)*) => {$(
        impl Element for $t {
            as_bytes!($t);
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            #[allow(clippy::float_cmp, reason = "exact equality, to distinguish 0 and -0")]
            fn min_of(self, other: Self) -> Self {
                let lower = if self < other || self.is_nan() { self } else { other };
                if self == other { Self::from_bits(self.to_bits() | other.to_bits()) } else { lower }
            }
            #[inline(always)]
            #[allow(clippy::float_cmp, reason = "exact equality, to distinguish 0 and -0")]
            fn max_of(self, other: Self) -> Self {
                let greater = if self > other || self.is_nan() { self } else { other };
                if self == other { Self::from_bits(self.to_bits() & other.to_bits()) } else { greater }
            }
            #[inline(always)]
            fn norm(self, other: Self, norm: Norm) -> Self {
                match norm {
                    Norm::One => self.abs() + other.abs(),
                    Norm::Two => $euclidean(self, other),
                    Norm::Infinity => self.abs().max_of(other.abs()),
                    Norm::Other(p) => norm::of_exponent(p, self.into(), other.into()) as $t,
                }
            }
            #[inline(always)]
            fn divided_by(self, divisor: f64) -> Self {
                self / divisor as $t
            }
            fn identity(op: CombineOp) -> Self {
                match op {
                    CombineOp::Sum => -0.0,
                    CombineOp::Prod => 1.0,
                    CombineOp::Min => Self::INFINITY,
                    CombineOp::Max => Self::NEG_INFINITY,
                    CombineOp::Norm(_) => 0.0,
                }
            }
        }
    )*};
}
float!(f32, euclidean_of_singles; f64, norm::euclidean;);

/// Returns the Euclidean norm of floats whose squares are exact as doubles.
#[inline(always)]
fn euclidean_of_singles(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let sum = (x * x + y * y).sqrt() as f32;
    if a.is_nan() || b.is_nan() { f32::NAN } else { sum }
}

/// Floats of 16 bits: computed in f32, rounded once.
macro_rules! half_float {
    ($t:ty, $widen:expr, $narrow:expr, $dense:expr) => {
        impl Element for $t {
            as_bytes!($t);
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $narrow($widen(self) + $widen(other))
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                $narrow($widen(self) * $widen(other))
            }
            #[inline(always)]
            fn min_of(self, other: Self) -> Self {
                $narrow($widen(self).min_of($widen(other)))
            }
            #[inline(always)]
            fn max_of(self, other: Self) -> Self {
                $narrow($widen(self).max_of($widen(other)))
            }
            #[inline(always)]
            fn norm(self, other: Self, norm: Norm) -> Self {
                $narrow($widen(self).norm($widen(other), norm))
            }
            #[inline(always)]
            fn divided_by(self, divisor: f64) -> Self {
                <$t>::from_f64(self.to_f64() / divisor)
            }
            fn identity(op: CombineOp) -> Self {
                <$t>::from_f32(f32::identity(op))
            }
            fn combine_dense(dst: &mut [u8], src: &[u8], op: CombineOp) {
                $dense(dst, src, op);
            }
        }
    };
}
half_float!(f16, f16::to_f32, f16::from_f32, combine_halves::<f16>);
half_float!(bf16, widen, narrow, combine_each::<bf16>);

/// Converts a bf16 to f32, of which it is the upper half.
#[inline(always)]
pub(crate) fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Returns the nearest bf16, ties to even, without a branch; NaN stays NaN.
#[inline(always)]
pub(crate) fn narrow(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet as u16 } else { rounded as u16 })
}

/// Runs the body with `T` bound to the element type.
///
/// Nothing runs for dtypes without arithmetic, which were rejected before.
macro_rules! for_arithmetic {
    ($dtype:expr, $t:ident => $body:expr) => {{
        use crate::dtype::Arithmetic;
        match $dtype.arithmetic() {
            Arithmetic::None => {}
            Arithmetic::U8 => {
                type $t = u8;
                $body
            }
            Arithmetic::I8 => {
                type $t = i8;
                $body
            }
            Arithmetic::U16 => {
                type $t = u16;
                $body
            }
            Arithmetic::I16 => {
                type $t = i16;
                $body
            }
            Arithmetic::U32 => {
                type $t = u32;
                $body
            }
            Arithmetic::I32 => {
                type $t = i32;
                $body
            }
            Arithmetic::U64 => {
                type $t = u64;
                $body
            }
            Arithmetic::I64 => {
                type $t = i64;
                $body
            }
            Arithmetic::F16 => {
                type $t = half::f16;
                $body
            }
            Arithmetic::BF16 => {
                type $t = half::bf16;
                $body
            }
            Arithmetic::F32 => {
                type $t = f32;
                $body
            }
            Arithmetic::F64 => {
                type $t = f64;
                $body
            }
        }
    }};
}
pub(crate) use for_arithmetic;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_it_should() {
        let mut bits = 0u32;
        loop {
            let x = f32::from_bits(bits);
            let want = bf16::from_f32(x);
            assert!(narrow(x) == want || x.is_nan() && narrow(x).is_nan(), "{bits:x}");
            let Some(next) = bits.checked_add(9973) else { break };
            bits = next;
        }
        for bits in 0..=u16::MAX {
            let x = bf16::from_bits(bits);
            assert!(widen(x).to_bits() == x.to_f32().to_bits() || x.is_nan() && widen(x).is_nan());
        }
    }
}
