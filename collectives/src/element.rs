//! Rust types whose values are the elements of tensors.
//!
//! Engines transfer bytes; types exist only at the edge. A slice of elements is lent to the engine as its
//! bytes, and a target is allocated as elements and lent as bytes, so nothing is copied or converted.

use bytemuck::Pod;
use half::{bf16, f16};
use reshard_kernels::DType;
use reshard_planner::Plan;

use crate::Error;

/// A type whose values are the elements of a tensor; [`u8`] stands for the bytes of any dtype.
///
/// ```
/// use reshard_collectives::Element;
/// use reshard_kernels::DType;
/// assert_eq!(<f32 as Element>::DTYPE, DType::F32);
/// assert_eq!(<[f32; 2] as Element>::DTYPE, DType::C64);
/// ```
pub trait Element: Pod + Send + Sync {
    /// The type of the elements.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty: $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}
elements!(u8: U8, i8: I8, u16: U16, i16: I16, u32: U32, i32: I32, u64: U64, i64: I64);
elements!(f16: F16, bf16: BF16, f32: F32, f64: F64, [f32; 2]: C64);

/// Succeeds if values of this type are the elements of a plan's tensor, or its bytes.
pub(crate) fn check<T: Element>(plan: &Plan) -> Result<(), Error> {
    if T::DTYPE == plan.dtype() || T::DTYPE == DType::U8 {
        return Ok(());
    }
    Err(Error::DType { needed: plan.dtype(), given: T::DTYPE })
}

/// Returns `count` zeros, for engines whose memory is the host's.
///
/// Errors: [`Error::Memory`] of this rank if the allocation fails.
///
/// ```
/// assert_eq!(reshard_collectives::zeros::<f32>(0, 2)?, [0.0; 2]);
/// let error = reshard_collectives::zeros::<u8>(3, 1 << 62).unwrap_err();
/// assert_eq!(error.to_string(), "memory of rank 3: cannot allocate 4611686018427387904 elements of 1 bytes");
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[doc(hidden)]
pub fn zeros<T: Element>(rank: usize, count: usize) -> Result<Vec<T>, Error> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| {
        let message = format!("cannot allocate {count} elements of {} bytes", size_of::<T>());
        Error::Memory { rank, message }
    })
}
