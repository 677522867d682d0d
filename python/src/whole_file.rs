//! Whole tensors in, one file of safetensors out.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use reshard_kernels::DType;

use crate::arrays;
use crate::failure::{Answer, refused};
use crate::sequences::listed;

/// The type of elements as safetensors has it.
fn stored(dtype: DType) -> safetensors::Dtype {
    use safetensors::Dtype;
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::F4 => Dtype::F4,
        DType::F6_E2M3 => Dtype::F6_E2M3,
        DType::F6_E3M2 => Dtype::F6_E3M2,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::F8_E5M2 => Dtype::F8_E5M2,
        DType::F8_E4M3 => Dtype::F8_E4M3,
        DType::F8_E8M0 => Dtype::F8_E8M0,
        DType::F8_E4M3FNUZ => Dtype::F8_E4M3FNUZ,
        DType::F8_E5M2FNUZ => Dtype::F8_E5M2FNUZ,
        DType::I16 => Dtype::I16,
        DType::U16 => Dtype::U16,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::F32 => Dtype::F32,
        DType::C64 => Dtype::C64,
        DType::F64 => Dtype::F64,
        DType::I64 => Dtype::I64,
        DType::U64 => Dtype::U64,
    }
}

/// Whole tensors in one file, which appears whole or not at all.
#[pyfunction]
fn write_whole(
    py: Python<'_>,
    path: PathBuf,
    tensors: &Bound<'_, PyDict>,
    texts: Option<std::collections::HashMap<String, String>>,
) -> Answer<()> {
    let mut all: Vec<(String, DType, Vec<usize>, Vec<u8>)> = Vec::with_capacity(tensors.len());
    for (name, array) in tensors.iter() {
        let name: String = name.extract()?;
        let dtype = array.getattr("dtype")?.extract::<crate::dtype::DTypeArgument>()?.0;
        let shape: Vec<usize> = listed(&array.getattr("shape")?)?;
        let bytes = arrays::read(&array, dtype, &shape, &name)?;
        all.push((name, dtype, shape, bytes));
    }
    py.detach(|| {
        let failed = |what: String| refused("io", format!("writing {} failed: {what}", path.display()));
        let mut views = Vec::with_capacity(all.len());
        for (name, dtype, shape, bytes) in &all {
            let view = safetensors::tensor::TensorView::new(stored(*dtype), shape.clone(), bytes);
            views.push((name.as_str(), view.map_err(|error| failed(error.to_string()))?));
        }
        let beside = beside(&path);
        safetensors::serialize_to_file(views, texts, &beside).map_err(|error| failed(error.to_string()))?;
        std::fs::rename(&beside, &path).map_err(|error| failed(error.to_string()))
    })
}

/// A name beside a file, that only this process has.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(write_whole, module)?)
}
