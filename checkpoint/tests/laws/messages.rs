//! Messages for invalid inputs: they give the cause in the vocabulary of the writing program.

use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, CheckpointWriter};
use reshard_sharding::{Mesh, Sharding};

use crate::torch::data;

/// Returns the message for a file of these bytes.
fn said(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    said_of(&path)
}

fn said_of(path: &Path) -> String {
    let error = Checkpoint::open(Some(path)).err().unwrap_or_else(|| panic!("{} was read", path.display()));
    assert_eq!(error.status(), 2);
    error.to_string()
}

/// Returns a NumPy array with this header.
fn npy(header: &str) -> Vec<u8> {
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), &[0; 4]].concat()
}

#[test]
fn a_header_of_numpy_is_shown_as_it_is() {
    let text = said("a.npy", &npy("{'descr': '<f4', \"shape\": (1,), 'x\n': 1}"));
    assert!(text.contains(r#"`{'descr': '<f4', "shape": (1,), 'x\n': 1}`"#), "{text}");
    let text = said("a.npy", &npy("{'descr': '<c\"16', 'fortran_order': False, 'shape': (1,)}"));
    assert!(text.contains("`<c\"16`"), "{text}");
}

#[test]
fn too_many_dims_are_called_so() {
    let ones = "1,".repeat(70);
    let text = said("a.npy", &npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({ones})}}")));
    assert!(text.contains("70 dims, and at most 64"), "{text}");
    let header =
        format!("{{\"w\":{{\"dtype\":\"F32\",\"shape\":[{}1],\"data_offsets\":[0,4]}}}}", "1,".repeat(69));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    let text = said("w.safetensors", &bytes);
    assert!(text.contains("`w`: it has more than 64 dims") && !text.contains("valid"), "{text}");
}

/// Returns an archive with another compression method in its deflated entries.
fn packed_by(method: u16) -> Vec<u8> {
    let mut bytes = fs::read(data("packed.npz")).unwrap();
    let mut changed = 0;
    for at in 0..bytes.len() - 12 {
        let place = match &bytes[at..at + 4] {
            b"PK\x03\x04" => at + 8,
            b"PK\x01\x02" => at + 10,
            _ => continue,
        };
        if bytes[place..place + 2] == [8, 0] {
            bytes[place..place + 2].copy_from_slice(&method.to_le_bytes());
            changed += 1;
        }
    }
    assert!(changed > 2);
    bytes
}

#[test]
fn an_entry_of_an_archive_is_compressed_by_what_it_says() {
    for (method, name) in
        [(12, "bzip2"), (14, "LZMA"), (93, "Zstandard"), (95, "xz"), (9, "Deflate64"), (77, "77")]
    {
        let text = said("a.npz", &packed_by(method));
        assert!(text.contains("compressed by") && text.contains(name), "{text}");
    }
}

#[test]
fn a_key_that_is_there_twice_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(
        &index,
        r#"{"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "a": "y.safetensors"}}"#,
    )
    .unwrap();
    let text = said_of(&index);
    assert!(text.contains("`a` is in it twice"), "{text}");
    let manifest = folder.path().join("sharding.json");
    let entry = r#"{"shape": [2], "dtype": "F32", "sharding": "S(0)"}"#;
    let text = format!(
        r#"{{"format": "reshard", "version": 1, "mesh": "a=2", "world": 2, "tensors": {{"a": {entry}, "a": {entry}}}}}"#
    );
    fs::write(&manifest, text).unwrap();
    let text = said_of(folder.path());
    assert!(text.contains("`a` is in it twice"), "{text}");
}

#[test]
fn types_are_named_as_frameworks_name_them() {
    let mesh: Mesh = "a=2".parse().unwrap();
    let rows = Sharding::parse(&mesh, &[4], "S(0)").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let begin = |name: &str, dtype: &str| {
        CheckpointWriter::begin(&folder.path().join(name), &mesh, [("w", dtype, &rows)], false)
    };
    for (dtype, found) in
        [("torch.bfloat16", "BF16"), ("half", "F16"), ("float32", "F32"), ("F8_E4M3", "F8_E4M3")]
    {
        assert_eq!(begin(dtype, dtype).unwrap().expects("w", 0).unwrap().0, found);
    }
    let error = begin("no", "float33").err().unwrap();
    assert!(error.code() == "dtype" && error.to_string().contains("expected one of bool"), "{error}");
    let block = Checkpoint::open(None).unwrap();
    for dtype in ["bf16", "bfloat16", "torch.bfloat16", "ml_dtypes.bfloat16"] {
        assert_eq!(block.cast(dtype).unwrap().tensor("scale").unwrap().dtype(), "BF16");
    }
    assert!(block.cast("int8").err().unwrap().to_string().contains("f16, bf16, f32 or f64"));
}
