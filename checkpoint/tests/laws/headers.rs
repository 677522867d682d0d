//! Headers of safetensors files with too many or duplicate declarations.

use std::fs;
use std::path::Path;

use reshard_checkpoint::Checkpoint;

fn refused(path: &Path, header: &str) -> String {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend([0; 8]);
    fs::write(path, file).unwrap();
    let error = Checkpoint::open(Some(path)).err().unwrap();
    assert_eq!((error.code(), error.status()), ("safetensors", 2));
    error.to_string()
}

#[test]
fn headers_have_as_many_parts_as_there_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.safetensors");
    let list =
        |entry: &dyn Fn(usize) -> String, count: usize| (0..count).map(entry).collect::<Vec<_>>().join(",");
    let empty = |at: usize| format!(r#""{at}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let said = refused(&path, &format!("{{{}}}", list(&empty, (1 << 20) + 1)));
    assert!(said.contains("more than 1048576 tensors"), "{said}");
    let texts = list(&|at| format!(r#""{at}":"""#), (1 << 20) + 1);
    let said = refused(&path, &format!(r#"{{"__metadata__":{{{texts}}}}}"#));
    assert!(said.contains("more than 1048576 free texts"), "{said}");
    let said = refused(
        &path,
        &format!(r#"{{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}}}}"#, list(&|_| "1".into(), 65)),
    );
    assert!(said.contains("more than 64 dims"), "{said}");
    // The safetensors library rejected each of these, or hid it.
    for (header, why) in [
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#,
            "offset",
        ),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,8]}}"#, "shape"),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, "incomplete"),
        (r#"{"a":{"dtype":"U9","shape":[8],"data_offsets":[0,8]}}"#, "U9"),
        (r#"{"a":{"dtype":"U8","data_offsets":[0,8]}}"#, "shape"),
        (r#"{"a":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#, "overflow"),
        (r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,8]}}"#, "byte"),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
            "same name",
        ),
        (r#"{"__metadata__":{"a":1},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#, "string"),
        (r#"["a"]"#, "tensors"),
    ] {
        let said = refused(&path, header);
        assert!(said.to_lowercase().contains(&why.to_lowercase()) && !said.contains('\n'), "{why}: {said}");
    }
}
