//! The floating-point types that tensors can be converted between.

use reshard_kernels::{Cast, DType};
use safetensors::Dtype;

use crate::error::Error;
use crate::shown::Shown;

/// The types, with the names that the kernels have for them.
const FLOATS: [(DType, Dtype); 4] = [
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

fn of(dtype: Dtype) -> Option<DType> {
    FLOATS.into_iter().find(|(_, known)| *known == dtype).map(|(float, _)| float)
}

/// Returns `true` if elements of a type can be converted.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    of(dtype).is_some()
}

/// Returns the conversion between two types; `None` if they are equal or one cannot be converted.
pub(crate) fn cast(from: Dtype, to: Dtype) -> Option<Cast> {
    let cast = Cast::new(of(from)?, of(to)?)?;
    (from != to).then_some(cast)
}

/// Returns the dtype of this name, in reshard's, NumPy's or PyTorch's spelling.
pub(crate) fn named(name: &str) -> Result<Dtype, Error> {
    let named = name.parse::<DType>().ok();
    let found = FLOATS.into_iter().find(|(known, _)| Some(*known) == named);
    found.map(|(_, dtype)| dtype).ok_or_else(|| {
        let message = format!("tensors can be converted to f16, bf16, f32 or f64, not to `{}`", name.shown());
        Error::unsupported("dtype", message)
    })
}
