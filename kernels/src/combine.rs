//! Elementwise reductions: one buffer into another, and the division that ends an average.
//!
//! The nest is reduced as for a copy; the fastest mode, dense on both sides if possible, is a plain loop over
//! `a = a op b` that the compiler vectorises. Elements are read and written as bytes, so no alignment is
//! required.
//! f16 and bf16 are computed in f32 and rounded once per operation.

use std::ops::Range;

use reshard_layout::{InlineVec, Layout, Mode};

use crate::element::{Element, for_arithmetic};
use crate::prepared::{byte_range, check_range};
use crate::{CombineOp, CopySide, DType, Error, LoopNest};

/// Computes `dst[dst_layout(i)] = dst[dst_layout(i)] op src[src_layout(i)]` for every `i`.
///
/// ```
/// use reshard_kernels::{CombineOp, DType, combine};
/// let layout = "3:1".parse()?;
/// let mut largest = [3u8, 1, 2];
/// combine(&mut largest, &layout, &[1, 2, 3], &layout, DType::U8, CombineOp::Max)?;
/// assert_eq!(largest, [3, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Errors: those of [`copy`](crate::copy()), and [`Error::NoArithmetic`]. Layouts that do not nest are
/// combined element by element; if their sizes differ, the error is [`Error::SizeMismatch`].
pub fn combine(
    dst: &mut [u8],
    dst_layout: &Layout,
    src: &[u8],
    src_layout: &Layout,
    dtype: DType,
    op: CombineOp,
) -> Result<usize, Error> {
    if let Some(nest) = LoopNest::between(dst_layout, src_layout)? {
        return PreparedCombine::new(&nest, dtype, op)?.run(dst, src);
    }
    dtype.check_combine(op)?;
    let mut done = 0;
    for (to, from) in dst_layout.values().zip(src_layout.values()) {
        done += PreparedCombine::new(&LoopNest::new(from, to, []), dtype, op)?.run(dst, src)?;
    }
    Ok(done)
}

/// A reduction of one buffer into another, prepared once and run many times.
///
/// ```
/// use reshard_kernels::{PreparedCombine, CombineOp, DType, LoopNest};
/// use reshard_layout::Mode;
/// let combine = PreparedCombine::new(&LoopNest::new(0, 0, [Mode::new(2, (1, 1))]), DType::F64, CombineOp::Sum)?;
/// let mut sum = [1.5f64, 2.0].map(f64::to_ne_bytes).as_flattened().to_vec();
/// combine.run(&mut sum, [0.25f64, f64::NAN].map(f64::to_ne_bytes).as_flattened())?;
/// assert_eq!(sum[..8], 1.75f64.to_ne_bytes());
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreparedCombine {
    op: CombineOp,
    dtype: DType,
    elements: Elements,
}

impl PreparedCombine {
    /// Prepares `target = target op source` over the pairs of a nest, counted in elements.
    ///
    /// Errors: [`Error::NoArithmetic`], [`Error::SubByte`], and those of [`PreparedCopy::new`](crate::PreparedCopy::new).
    pub fn new(nest: &LoopNest, dtype: DType, op: CombineOp) -> Result<PreparedCombine, Error> {
        dtype.check_combine(op)?;
        Ok(PreparedCombine { op, dtype, elements: Elements::new(nest, dtype)? })
    }

    /// Returns the operation.
    #[doc(hidden)]
    pub fn op(&self) -> CombineOp {
        self.op
    }

    /// Returns the bytes of the target that one run updates.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.elements.bytes
    }

    /// Combines, and returns the number of bytes updated; neither plans nor allocates.
    ///
    /// Errors: [`Error::OutOfBounds`], and then nothing was written.
    pub fn run(&self, dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
        self.elements.check(dst.len(), Some(src.len()))?;
        for_arithmetic!(self.dtype, T => self.elements.combine::<T>(dst, src, self.op));
        Ok(self.elements.bytes)
    }
}

/// Division of every element by a number, the end of an average: prepared once, run many times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreparedDivide {
    divisor: u32,
    dtype: DType,
    elements: Elements,
}

impl PreparedDivide {
    /// Prepares `target = target / divisor` over the target elements of a nest.
    ///
    /// Errors: [`Error::NoArithmetic`] unless the dtype has averages, [`Error::ZeroDivisor`], [`Error::Overflow`] for a
    /// divisor of 2^32 or more.
    pub fn new(nest: &LoopNest, dtype: DType, divisor: usize) -> Result<PreparedDivide, Error> {
        dtype.check_average()?;
        if divisor == 0 {
            return Err(Error::ZeroDivisor);
        }
        let divisor = u32::try_from(divisor).map_err(|_| Error::Overflow { what: "a divisor" })?;
        let modes = nest.modes.iter().map(|mode| mode.map(|(_, target)| (target, target)));
        let nest = LoopNest::new(nest.target_offset, nest.target_offset, modes);
        Ok(PreparedDivide { divisor, dtype, elements: Elements::new(&nest, dtype)? })
    }

    /// Divides in place; neither plans nor allocates.
    ///
    /// Errors: [`Error::OutOfBounds`], and then nothing was written.
    pub fn run(&self, dst: &mut [u8]) -> Result<usize, Error> {
        self.elements.check(dst.len(), None)?;
        let divisor = f64::from(self.divisor);
        for_arithmetic!(self.dtype, T => self.elements.update(dst, |x: T| x.divided_by(divisor)));
        Ok(self.elements.bytes)
    }
}

impl DType {
    /// Returns the bytes of the identity element of an operation.
    ///
    /// Errors: [`Error::NoArithmetic`].
    pub fn identity(self, op: CombineOp) -> Result<InlineVec<u8, 8>, Error> {
        self.check_combine(op)?;
        let mut bytes = InlineVec::from_elem(0, self.element_bytes()?);
        for_arithmetic!(self, T => T::identity(op).write(&mut bytes));
        Ok(bytes)
    }
}

/// A reduced nest in bytes with its ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Elements {
    nest: LoopNest,
    source: Range<usize>,
    target: Range<usize>,
    bytes: usize,
}

impl Elements {
    fn new(nest: &LoopNest, dtype: DType) -> Result<Elements, Error> {
        let item = dtype.element_bytes()?;
        nest.check_target_is_injective()?;
        let reduced = nest.reduce()?;
        let bytes = reduced.len()?.checked_mul(item).ok_or(Error::Overflow { what: "the size of a copy" })?;
        let nest = reduced.scale(item)?;
        let source = byte_range(&nest, CopySide::Source, item)?;
        let target = byte_range(&nest, CopySide::Target, item)?;
        Ok(Elements { nest, source, target, bytes })
    }

    fn check(&self, dst: usize, src: Option<usize>) -> Result<(), Error> {
        check_range(&self.target, dst, CopySide::Target)?;
        src.map_or(Ok(()), |src| check_range(&self.source, src, CopySide::Source))
    }

    /// Calls `body` with (source offset, target offset, fastest mode) at every point of the other modes.
    fn rows(&self, mut body: impl FnMut(usize, usize, Mode<(i64, i64)>)) {
        fn walk(
            modes: &[Mode<(i64, i64)>],
            (source, target): (i64, i64),
            body: &mut impl FnMut(usize, usize),
        ) {
            let Some((slowest, faster)) = modes.split_last() else {
                return body(source as usize, target as usize);
            };
            let (s, t) = slowest.stride;
            for i in 0..slowest.extent {
                walk(faster, (source + i * s, target + i * t), body);
            }
        }
        if self.bytes > 0 {
            let (fastest, rest) = match self.nest.modes.as_slice() {
                [] => (Mode::new(1, (0, 0)), &[][..]),
                [fastest, rest @ ..] => (*fastest, rest),
            };
            let offsets = (self.nest.source_offset, self.nest.target_offset);
            walk(rest, offsets, &mut |source, target| body(source, target, fastest));
        }
    }

    fn combine<T: Element>(&self, dst: &mut [u8], src: &[u8], op: CombineOp) {
        self.rows(|source, target, inner| {
            let dense = inner.stride == (T::BYTES as i64, T::BYTES as i64);
            if dense || inner.extent == 1 {
                let length = inner.extent as usize * T::BYTES;
                T::combine_dense(&mut dst[target..target + length], &src[source..source + length], op);
            } else {
                for i in 0..inner.extent {
                    let from = (source as i64 + i * inner.stride.0) as usize;
                    let at = (target as i64 + i * inner.stride.1) as usize;
                    let a = &mut dst[at..at + T::BYTES];
                    T::read(a).combined(T::read(&src[from..from + T::BYTES]), op).write(a);
                }
            }
        });
    }

    fn update<T: Element>(&self, dst: &mut [u8], op: impl Fn(T) -> T) {
        self.rows(|_, target, inner| {
            for i in 0..inner.extent {
                let at = (target as i64 + i * inner.stride.1) as usize;
                let a = &mut dst[at..at + T::BYTES];
                op(T::read(a)).write(a);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use reshard_test_support::properties;

    use super::*;
    use crate::dtype::Arithmetic;
    use crate::reference;

    /// Returns a few values of every kind, in the dtype's bytes.
    fn numbers(dtype: DType) -> Vec<f64> {
        let ints = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 100.0];
        if dtype.check_average().is_err() {
            return ints.to_vec();
        }
        let special = [-0.0, 0.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        ints.iter().chain(&special).copied().collect()
    }

    fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
        match dtype.arithmetic() {
            Arithmetic::F16 => f16::read(bytes).is_nan(),
            Arithmetic::BF16 => bf16::read(bytes).is_nan(),
            Arithmetic::F32 => f32::read(bytes).is_nan(),
            Arithmetic::F64 => f64::read(bytes).is_nan(),
            Arithmetic::None
            | Arithmetic::U8
            | Arithmetic::I8
            | Arithmetic::U16
            | Arithmetic::I16
            | Arithmetic::U32
            | Arithmetic::I32
            | Arithmetic::U64
            | Arithmetic::I64 => false,
        }
    }

    fn run(dtype: DType, op: CombineOp, a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut result = a.to_vec();
        let count = a.len() / dtype.element_bytes().unwrap();
        let nest = LoopNest::new(0, 0, [Mode::new(count as i64, (1, 1))]);
        assert_eq!(PreparedCombine::new(&nest, dtype, op).unwrap().run(&mut result, b), Ok(a.len()));
        result
    }

    macro_rules! compare_floats {
        ($dtype:expr, $t:ty, $from:expr, $to:expr, $rounding:expr) => {
            for op in CombineOp::ALL.into_iter().chain(CombineOp::NORMS) {
                for x in numbers($dtype) {
                    for y in numbers($dtype) {
                        let (a, b): ($t, $t) = ($from(x), $from(y));
                        let result = run($dtype, op, &a.to_ne_bytes(), &b.to_ne_bytes());
                        let got = $to(<$t>::from_ne_bytes(result.try_into().unwrap()));
                        let want = $to($from(reference::combine_f64(x, y, op)));
                        // A root is rounded, and so are the definition's powers.
                        let near = op.is_of_floats() && (got - want).abs() <= $rounding * want;
                        assert!(
                            near || got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                            "{op} {x} {y}: {got}"
                        );
                    }
                }
            }
        };
    }

    #[test]
    fn floats_agree_with_the_definition() {
        compare_floats!(DType::F64, f64, |x: f64| x, |x: f64| x, 4.0 * f64::EPSILON);
        compare_floats!(DType::F32, f32, |x: f64| x as f32, f64::from, f64::from(f32::EPSILON));
        compare_floats!(DType::F16, f16, f16::from_f64, f64::from, f16::EPSILON.to_f64());
        compare_floats!(DType::BF16, bf16, bf16::from_f64, f64::from, bf16::EPSILON.to_f64());
    }

    macro_rules! compare_ints {
        ($dtype:expr, $t:ty) => {
            for op in CombineOp::ALL {
                for a in [<$t>::MIN, <$t>::MAX, 0, 1, 3, 7, 100] {
                    for b in [<$t>::MIN, <$t>::MAX, 0, 1, 2, 55] {
                        let result = run($dtype, op, &a.to_ne_bytes(), &b.to_ne_bytes());
                        let want = reference::combine_int(i128::from(a), i128::from(b), op) as $t;
                        assert_eq!(<$t>::from_ne_bytes(result.try_into().unwrap()), want, "{op} {a} {b}");
                    }
                }
            }
        };
    }

    #[test]
    fn integers_agree_with_the_definition_and_wrap() {
        compare_ints!(DType::U8, u8);
        compare_ints!(DType::I8, i8);
        compare_ints!(DType::U16, u16);
        compare_ints!(DType::I16, i16);
        compare_ints!(DType::U32, u32);
        compare_ints!(DType::I32, i32);
        compare_ints!(DType::U64, u64);
        compare_ints!(DType::I64, i64);
    }

    #[test]
    fn the_identity_changes_no_bit() {
        for dtype in DType::ALL.into_iter().filter(|d| d.check_combine(CombineOp::Sum).is_ok()) {
            for op in CombineOp::ALL {
                let identity = dtype.identity(op).unwrap();
                let mut values: Vec<InlineVec<u8, 8>> =
                    CombineOp::ALL.into_iter().map(|op| dtype.identity(op).unwrap()).collect();
                values.push(InlineVec::from_elem(0, identity.len()));
                for value in values {
                    assert_eq!(run(dtype, op, &identity, &value), value.to_vec(), "{dtype} {op}");
                    assert_eq!(run(dtype, op, &value, &identity), value.to_vec(), "{dtype} {op}");
                }
            }
        }
        // For norms it is the identity among nonnegative values.
        for dtype in DType::ALL.into_iter().filter(|d| d.check_average().is_ok()) {
            for op in CombineOp::NORMS {
                let identity = dtype.identity(op).unwrap();
                for of in [CombineOp::Prod, CombineOp::Min, op] {
                    let value = dtype.identity(of).unwrap();
                    assert_eq!(run(dtype, op, &identity, &value), value.to_vec(), "{dtype} {op}");
                    assert_eq!(run(dtype, op, &value, &identity), value.to_vec(), "{dtype} {op}");
                }
            }
        }
        assert_eq!(DType::F32.identity(CombineOp::Sum).unwrap().as_slice(), (-0.0f32).to_ne_bytes());
        assert_eq!(
            DType::Bool.identity(CombineOp::Sum).unwrap_err().to_string(),
            "sum is not defined for bool"
        );
    }

    #[test]
    fn division_rounds_once_and_leaves_the_rest() {
        let nest = LoopNest::new(0, 1, [Mode::new(2, (1, 2))]);
        let mut values = [9.0f32, 1.0, 9.0, -7.0, 9.0].map(f32::to_ne_bytes).as_flattened().to_vec();
        PreparedDivide::new(&nest, DType::F32, 3).unwrap().run(&mut values).unwrap();
        let want = [9.0f32, 1.0 / 3.0, 9.0, -7.0 / 3.0, 9.0].map(f32::to_ne_bytes);
        assert_eq!(values, want.as_flattened());
        assert_eq!(
            PreparedDivide::new(&nest, DType::I32, 3).unwrap_err().to_string(),
            "avg is not defined for i32"
        );
        assert_eq!(PreparedDivide::new(&nest, DType::F32, 0).unwrap_err().code(), "arithmetic");
    }

    properties! {
        /// Rows use another code path than single elements, for 16-bit floats through batches.
        fn rows_agree_with_elements(a: Vec<u16>, b: Vec<u16>) -> bool {
            let bytes = |v: &[u16]| v.iter().cycle().take(300).flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
            if a.is_empty() || b.is_empty() {
                return true;
            }
            let (a, b) = (bytes(&a), bytes(&b));
            [DType::F16, DType::BF16, DType::F32, DType::I16].into_iter().all(|dtype| {
                CombineOp::ALL.into_iter().chain(CombineOp::NORMS).filter(|op| dtype.check_combine(*op).is_ok()).all(|op| {
                    let item = dtype.element_bytes().unwrap();
                    let row = run(dtype, op, &a, &b);
                    let single = a.chunks(item).zip(b.chunks(item)).flat_map(|(a, b)| run(dtype, op, a, b));
                    row.chunks(item).zip(single.collect::<Vec<u8>>().chunks(item)).all(|(x, y)| x == y || is_nan(dtype, x) && is_nan(dtype, y))
                })
            })
        }

        fn strided_sums_are_sums(data: Vec<u8>, rows: u8, columns: u8, transposed: bool) -> bool {
            let (rows, columns) = (i64::from(rows % 9), i64::from(columns % 9));
            let source: Vec<u8> = data.into_iter().chain(0..=255).take(100).collect();
            let nest = if transposed {
                LoopNest::new(3, 1, [Mode::new(columns, (10, 1)), Mode::new(rows, (1, columns))])
            } else {
                LoopNest::new(3, 1, [Mode::new(columns, (1, 1)), Mode::new(rows, (10, columns + 1))])
            };
            let mut fast: Vec<u8> = (0..100).collect();
            let mut slow = fast.clone();
            PreparedCombine::new(&nest, DType::U8, CombineOp::Sum).unwrap().run(&mut fast, &source).unwrap();
            for (from, to) in reference::pairs(&nest) {
                slow[to as usize] = slow[to as usize].wrapping_add(source[from as usize]);
            }
            fast == slow
        }
    }
}
