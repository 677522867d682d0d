//! Small checkpoints, written and read with the safetensors crate.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// A tensor with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Tensors = BTreeMap<String, Tensor>;

/// A tensor whose bytes differ from one another as far as they can.
pub(crate) fn tensor(name: &str, dtype: Dtype, shape: &[usize]) -> (String, Tensor) {
    let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let mut state = name.bytes().fold(7_u32, |state, byte| state.wrapping_mul(31).wrapping_add(byte.into()));
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    (name.to_owned(), Tensor { dtype, shape: shape.to_vec(), bytes: bytes.take(len).collect() })
}

/// Matrices, vectors, a scalar, an empty tensor, and every width of element.
pub(crate) fn mixed() -> Tensors {
    [
        tensor("embed.weight", Dtype::F32, &[37, 16]),
        tensor("layer.0.weight", Dtype::BF16, &[16, 24]),
        tensor("layer.0.bias", Dtype::BF16, &[24]),
        tensor("layer.1.weight", Dtype::F8_E4M3, &[24, 16]),
        tensor("layer.1.scale", Dtype::F8_E8M0, &[5, 3, 2]),
        tensor("positions", Dtype::I64, &[1, 50]),
        tensor("mask", Dtype::BOOL, &[7, 7]),
        tensor("ids", Dtype::U16, &[9, 2]),
        tensor("waves", Dtype::C64, &[4, 6]),
        tensor("packed.four", Dtype::F4, &[8, 16]),
        tensor("packed.six", Dtype::F6_E2M3, &[4, 8]),
        tensor("nothing", Dtype::F32, &[0, 16]),
        tensor("scalar", Dtype::F64, &[]),
    ]
    .into()
}

/// Writes one file.
pub(crate) fn write(path: &Path, tensors: &Tensors) {
    write_with(path, tensors, &[("format", "pt"), ("step", "12")]);
}

/// Writes one file with these free texts.
pub(crate) fn write_with(path: &Path, tensors: &Tensors, texts: &[(&str, &str)]) {
    let views = tensors.iter().map(|(name, tensor)| {
        (
            name,
            TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).expect("bytes fit the shape"),
        )
    });
    let texts: HashMap<String, String> =
        texts.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let texts = (!texts.is_empty()).then_some(texts);
    safetensors::serialize_to_file(views, texts, path).unwrap();
}

/// Reads one file: its tensors and its free texts.
pub(crate) fn read(path: &Path) -> (Tensors, BTreeMap<String, String>) {
    let file = std::fs::read(path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&file).unwrap();
    let texts = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
    let tensors = SafeTensors::deserialize(&file).unwrap().tensors().into_iter().map(|(name, view)| {
        let tensor =
            Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
        (name, tensor)
    });
    (tensors.collect(), texts)
}

/// The rank files of a directory, by rank.
pub(crate) fn rank_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    files.sort();
    files
}

/// Writes a folder with an index: each file with its tensors.
pub(crate) fn write_indexed(dir: &Path, files: &[(&str, Tensors)]) {
    std::fs::create_dir_all(dir).unwrap();
    let mut map = serde_json::Map::new();
    for (file, tensors) in files {
        write(&dir.join(file), tensors);
        map.extend(tensors.keys().map(|name| (name.clone(), (*file).into())));
    }
    write_index(dir, &serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map}));
}

/// Writes the index alone.
pub(crate) fn write_index(dir: &Path, index: &serde_json::Value) {
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}
