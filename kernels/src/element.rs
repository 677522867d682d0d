//! Arithmetic of each element type, read from and written to plain bytes.

use half::{bf16, f16};

use crate::CombineOp;

/// One element type; `sum` and `prod` wrap for integers, `min_of` and `max_of` propagate NaN.
pub(crate) trait Element: Copy {
    const BYTES: usize = size_of::<Self>();
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min_of(self, other: Self) -> Self;
    fn max_of(self, other: Self) -> Self;
    fn divided_by(self, divisor: f64) -> Self;
    fn identity(op: CombineOp) -> Self;
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
            /// Never called: there is no average of integers.
            fn divided_by(self, _: f64) -> Self {
                self
            }
            fn identity(op: CombineOp) -> Self {
                match op {
                    CombineOp::Sum => 0,
                    CombineOp::Prod => 1,
                    CombineOp::Min => Self::MAX,
                    CombineOp::Max => Self::MIN,
                }
            }
        }
    )*};
}
integer!(u8, i8, u16, i16, u32, i32, u64, i64);

/// Floats that the processor computes with. Equal operands differ at most in the sign of a zero: `|` of the bits gives
/// the lower, `&` the greater.
macro_rules! float {
    ($($t:ty),*) => {$(
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
            #[allow(clippy::float_cmp, reason = "exactly equal, to tell zeros apart")]
            fn min_of(self, other: Self) -> Self {
                let lower = if self < other || self.is_nan() { self } else { other };
                if self == other { Self::from_bits(self.to_bits() | other.to_bits()) } else { lower }
            }
            #[inline(always)]
            #[allow(clippy::float_cmp, reason = "exactly equal, to tell zeros apart")]
            fn max_of(self, other: Self) -> Self {
                let greater = if self > other || self.is_nan() { self } else { other };
                if self == other { Self::from_bits(self.to_bits() & other.to_bits()) } else { greater }
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
                }
            }
        }
    )*};
}
float!(f32, f64);

/// Floats of 16 bits: computed in f32, rounded once.
macro_rules! half_float {
    ($($t:ty),*) => {$(
        impl Element for $t {
            as_bytes!($t);
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() + other.to_f32())
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() * other.to_f32())
            }
            #[inline(always)]
            fn min_of(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32().min_of(other.to_f32()))
            }
            #[inline(always)]
            fn max_of(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32().max_of(other.to_f32()))
            }
            #[inline(always)]
            fn divided_by(self, divisor: f64) -> Self {
                <$t>::from_f64(self.to_f64() / divisor)
            }
            fn identity(op: CombineOp) -> Self {
                <$t>::from_f32(f32::identity(op))
            }
        }
    )*};
}
half_float!(f16, bf16);

/// Runs the body with `T` bound to the element type; nothing runs for a dtype without arithmetic, refused before.
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
