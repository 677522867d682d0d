//! Numbers of a narrower type than that in which ops compute, as in a communication dtype.
//!
//! They are rounded to the nearest where they are made.

use bytemuck::{Pod, pod_read_unaligned};
use half::{bf16, f16};
use ndarray::ArrayD;
use reshard_kernels::DType;

use crate::{Error, Number};

/// An element type among others of the type `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// `T` itself.
    No,
    BF16,
    F16,
    F32,
}

impl Narrow {
    pub(crate) fn of<T: Number>(dtype: DType) -> Narrow {
        if dtype == DType::BF16 {
            Narrow::BF16
        } else if dtype == DType::F16 {
            Narrow::F16
        } else if dtype == DType::F32 && T::DTYPE == DType::F64 {
            Narrow::F32
        } else {
            Narrow::No
        }
    }
}

/// Checks that a tensor of this dtype may be among others of the type `T`.
pub(crate) fn check<T: Number>(what: &str, dtype: DType) -> Result<(), Error> {
    if dtype == T::DTYPE || Narrow::of::<T>(dtype) != Narrow::No {
        return Ok(());
    }
    let reason = format!(
        "{what}: a tensor is {dtype}, but these kernels compute in {}; convert the program to {} before compiling it",
        T::DTYPE,
        T::DTYPE
    );
    Err(Error::Input { reason })
}

fn read<T: Number, E: Pod>(bytes: &[u8], wide: impl Fn(E) -> f64) -> Vec<T> {
    bytes.chunks_exact(size_of::<E>()).map(|b| T::of(wide(pod_read_unaligned(b)))).collect()
}

fn write<'a, T: Number, E: Pod>(
    numbers: impl Iterator<Item = &'a T>,
    bytes: &mut [u8],
    of: impl Fn(f64) -> E,
) {
    for (number, at) in numbers.zip(bytes.chunks_exact_mut(size_of::<E>())) {
        at.copy_from_slice(bytemuck::bytes_of(&of(number.wide())));
    }
}

/// Converts bytes of elements of a type to numbers.
pub(crate) fn numbers<T: Number>(bytes: &[u8], dtype: DType) -> Vec<T> {
    match Narrow::of::<T>(dtype) {
        Narrow::BF16 => read(bytes, bf16::to_f64),
        Narrow::F16 => read(bytes, f16::to_f64),
        Narrow::F32 => read(bytes, |x: f32| f64::from(x)),
        Narrow::No => bytes.chunks_exact(size_of::<T>()).map(pod_read_unaligned).collect(),
    }
}

/// Converts numbers to bytes of elements of a type.
pub(crate) fn put<'a, T: Number>(numbers: impl Iterator<Item = &'a T>, dtype: DType, bytes: &mut [u8]) {
    match Narrow::of::<T>(dtype) {
        Narrow::BF16 => write(numbers, bytes, bf16::from_f64),
        Narrow::F16 => write(numbers, bytes, f16::from_f64),
        Narrow::F32 => write(numbers, bytes, |x| x as f32),
        Narrow::No => {
            for (number, at) in numbers.zip(bytes.chunks_exact_mut(size_of::<T>())) {
                at.copy_from_slice(bytemuck::bytes_of(number));
            }
        }
    }
}

/// The bytes of one element.
pub(crate) fn item_bytes<T: Number>(dtype: DType) -> usize {
    match Narrow::of::<T>(dtype) {
        Narrow::BF16 | Narrow::F16 => 2,
        Narrow::F32 => 4,
        Narrow::No => size_of::<T>(),
    }
}

/// Converts all numbers of a tensor to bytes.
pub(crate) fn bytes_of<T: Number>(a: &ArrayD<T>, dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; a.len() * item_bytes::<T>(dtype)];
    put(a.iter(), dtype, &mut bytes);
    bytes
}

/// Rounds to the nearest numbers of a type.
pub(crate) fn rounded<T: Number>(a: ArrayD<T>, dtype: DType) -> ArrayD<T> {
    match Narrow::of::<T>(dtype) {
        Narrow::BF16 => a.mapv(|x| T::of(bf16::from_f64(x.wide()).to_f64())),
        Narrow::F16 => a.mapv(|x| T::of(f16::from_f64(x.wide()).to_f64())),
        Narrow::F32 => a.mapv(|x| T::of(f64::from(x.wide() as f32))),
        Narrow::No => a,
    }
}
