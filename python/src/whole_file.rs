//! Whole tensors in, one file of safetensors out.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use reshard_kernels::DType;

use crate::arrays;
use crate::failure::{Answer, refused};
use crate::texts::text;

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

/// Writes whole tensors to one file, which appears whole or not at all, from pairs of a name and an array.
///
/// The bytes of an array are copied before the next pair is requested, so an iterator may make one array at a
/// time.
#[pyfunction]
fn write_whole(
    py: Python<'_>,
    #[pyo3(from_py_with = text)] path: PathBuf,
    tensors: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = text)] texts: Option<std::collections::HashMap<String, String>>,
) -> Answer<()> {
    let mut all: BTreeMap<String, (DType, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for pair in tensors.try_iter()? {
        let (name, array): (String, Bound<'_, PyAny>) = text(&pair?)?;
        let tensor = arrays::whole(&array, &name)?;
        match all.entry(name) {
            Entry::Vacant(place) => drop(place.insert(tensor)),
            Entry::Occupied(other) => {
                return Err(refused("input", format!("two tensors have the name `{}`", other.key())));
            }
        }
    }
    py.detach(|| {
        let failed = |what: String| refused("io", format!("writing {} failed: {what}", path.display()));
        let mut views = Vec::with_capacity(all.len());
        for (name, (dtype, shape, bytes)) in &all {
            let view = safetensors::tensor::TensorView::new(stored(*dtype), shape.clone(), bytes);
            views.push((name.as_str(), view.map_err(|error| failed(error.to_string()))?));
        }
        let beside = beside(&path);
        safetensors::serialize_to_file(views, texts, &beside).map_err(|error| failed(error.to_string()))?;
        std::fs::rename(&beside, &path).map_err(|error| failed(error.to_string()))
    })
}

/// A name in the folder of a file that only this process uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(write_whole, module)?)
}
