//! Metadata of arrays as writers write it, features that are rejected, and damage.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::bytes::checksum::crc32c;
use crate::bytes::packing::{Packing, Step};
use crate::error::{Error, ErrorKind};
use crate::formats::orbax::zarr::shard::IndexLocation;
use crate::formats::orbax::zarr::{Array, MOST_CHUNK, Storage, Version};

/// The metadata that TensorStore writes for Orbax.
fn v2() -> Value {
    json!({"chunks": [30, 8], "compressor": {"id": "zstd", "level": 1}, "dimension_separator": ".", "dtype": "bfloat16",
        "fill_value": null, "filters": null, "order": "C", "shape": [61, 16], "zarr_format": 2})
}

fn v3() -> Value {
    json!({"chunk_grid": {"configuration": {"chunk_shape": [4, 6]}, "name": "regular"},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"configuration": {"chunk_shape": [2, 3],
            "codecs": [{"configuration": {"endian": "little"}, "name": "bytes"},
                {"configuration": {"checksum": false, "level": 3}, "name": "zstd"}],
            "index_codecs": [{"configuration": {"endian": "little"}, "name": "bytes"}, {"name": "crc32c"}]},
            "name": "sharding_indexed"}],
        "data_type": "float32", "fill_value": 0.0, "node_type": "array", "shape": [7, 11], "zarr_format": 3})
}

fn parse(version: Version, json: &Value) -> Result<Array, Error> {
    Array::parse(version, json.to_string().as_bytes())
}

/// Parses with one member replaced, named by its JSON pointer.
fn with(version: Version, pointer: &str, value: Value) -> Result<Array, Error> {
    let mut json = if version == Version::Two { v2() } else { v3() };
    match json.pointer_mut(pointer) {
        Some(member) => *member = value,
        None => drop(json.as_object_mut().unwrap().insert(pointer[1..].to_owned(), value)),
    }
    parse(version, &json)
}

#[test]
fn chunks_have_keys_and_positions() {
    let array = parse(Version::Two, &v2()).unwrap();
    assert_eq!(
        (array.dtype, array.grid.shape(), array.grid.chunk_shape()),
        (Dtype::BF16, &[61, 16][..], &[30, 8][..])
    );
    assert_eq!(array.storage, Storage::Chunk(Packing(vec![Step::Zstd])));
    let keys = |array: &Array| array.chunks().map(|chunk| chunk.key).collect::<Vec<_>>();
    assert_eq!(keys(&array), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]);
    let last = array.chunks().last().unwrap();
    assert_eq!((last.start, last.shape), (vec![60, 8], vec![1, 8]));
    let slashes = with(Version::Two, "/dimension_separator", json!("/")).unwrap();
    assert_eq!(keys(&slashes)[1], "0/1");
    let mut rank_0 = v2();
    (rank_0["shape"], rank_0["chunks"]) = (json!([]), json!([]));
    assert_eq!(keys(&parse(Version::Two, &rank_0).unwrap()), ["0"]);
    let array = parse(Version::Three, &v3()).unwrap();
    assert_eq!(keys(&array), ["c/0/0", "c/0/1", "c/1/0", "c/1/1"]);
    let encoded =
        |encoding: Value| keys(&with(Version::Three, "/chunk_key_encoding", encoding).unwrap())[1].clone();
    assert_eq!(encoded(json!("default")), "c/0/1");
    assert_eq!(encoded(json!({"name": "default", "configuration": {"separator": "."}})), "c.0.1");
    assert_eq!(encoded(json!({"name": "v2"})), "0.1");
    let mut rank_0 = v3();
    (rank_0["shape"], rank_0["chunk_grid"]["configuration"]["chunk_shape"]) = (json!([]), json!([]));
    rank_0["codecs"][0]["configuration"]["chunk_shape"] = json!([]);
    assert_eq!(keys(&parse(Version::Three, &rank_0).unwrap()), ["c"]);
}

#[test]
fn what_is_not_supported_is_named() {
    let named = |version, pointer, value: Value, name: &str| {
        let error = with(version, pointer, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    for id in ["blosc", "gzip", "zlib", "bz2", "lz4"] {
        named(Version::Two, "/compressor", json!({"id": id}), id);
        named(Version::Three, "/codecs/0/configuration/codecs/1", json!({"name": id}), id);
    }
    named(Version::Two, "/filters", json!([{"id": "delta"}]), "delta");
    named(Version::Two, "/order", json!("F"), "order");
    named(Version::Two, "/dtype", json!(">f4"), "big-endian");
    named(Version::Two, "/dtype", json!([["x", "<f4"]]), "records");
    for dtype in ["<c16", "<M8[ns]", "int4", "|V2", "<f16", "é", ""] {
        named(Version::Two, "/dtype", json!(dtype), dtype);
        named(Version::Three, "/data_type", json!(dtype), dtype);
    }
    named(Version::Three, "/data_type", json!({"name": "numpy.datetime64"}), "datetime64");
    named(Version::Three, "/codecs/0/name", json!("transpose"), "transpose");
    named(
        Version::Three,
        "/codecs/0/configuration/codecs/0",
        json!({"name": "sharding_indexed"}),
        "sharding_indexed",
    );
    named(Version::Three, "/codecs/0/configuration/index_codecs/1", json!({"name": "zstd"}), "compressed");
    named(
        Version::Three,
        "/codecs/0/configuration/codecs/0/configuration/endian",
        json!("big"),
        "big-endian",
    );
    named(Version::Three, "/chunk_grid/name", json!("rectangular"), "rectangular");
    named(Version::Three, "/chunk_key_encoding/name", json!("suffix"), "suffix");
    named(Version::Three, "/storage_transformers", json!([{"name": "cache"}]), "cache");
    named(Version::Three, "/extra", json!({"name": "x"}), "extra");
    with(Version::Three, "/extra", json!({"must_understand": false})).unwrap();
    with(Version::Three, "/attributes", json!({"a": 1})).unwrap();
    with(Version::Two, "/compressor", Value::Null).unwrap();
    with(Version::Two, "/filters", json!([])).unwrap();
    with(Version::Two, "/dtype", json!("|b1")).unwrap();
}

#[test]
fn sizes_are_bounded() {
    let huge = json!([u64::MAX, u64::MAX]);
    with(Version::Two, "/shape", huge.clone()).unwrap_err();
    with(Version::Two, "/chunks", huge.clone()).unwrap_err();
    with(Version::Two, "/chunks", json!([0, 1])).unwrap_err();
    with(Version::Two, "/chunks", json!([1])).unwrap_err();
    with(Version::Two, "/shape", json!([-1, 1])).unwrap_err();
    with(Version::Two, "/shape", json!([1.5, 1])).unwrap_err();
    with(Version::Three, "/shape", huge.clone()).unwrap_err();
    with(Version::Three, "/codecs/0/configuration/chunk_shape", json!([3, 3])).unwrap_err();
    with(Version::Three, "/codecs/0/configuration/chunk_shape", huge).unwrap_err();
    let most = MOST_CHUNK as u64 / 2;
    with(Version::Two, "/chunks", json!([1, most])).unwrap();
    assert_eq!(
        with(Version::Two, "/chunks", json!([1, most + 1])).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    // Chunks that are not compressed are read in any ranges, and have no limit.
    let mut raw = v2();
    (raw["compressor"], raw["chunks"]) = (Value::Null, json!([1, most + 1]));
    parse(Version::Two, &raw).unwrap();
}

#[test]
fn a_chunk_decodes_to_exactly_its_length() {
    let array = parse(Version::Two, &v2()).unwrap();
    let elements: Vec<u8> = (0..30 * 8 * 2).map(|at| (at * at) as u8).collect();
    let packed = compress_to_vec(&elements[..], CompressionLevel::Fastest);
    let Storage::Chunk(packing) = &array.storage else { panic!() };
    let decode = |bytes: Vec<u8>| packing.decode(&bytes, elements.len());
    assert_eq!(decode(packed.clone()).unwrap(), elements);
    for len in 0..packed.len() {
        decode(packed[..len].to_vec()).unwrap_err();
    }
    for other in [&elements[1..], &[&elements[..], &[0]].concat()] {
        decode(compress_to_vec(other, CompressionLevel::Fastest)).unwrap_err();
    }
    let both = Packing(vec![Step::Crc32c, Step::Zstd, Step::Crc32c]);
    let checked = |bytes: &[u8]| [bytes, &crc32c(bytes).to_le_bytes()].concat();
    let packed = checked(&compress_to_vec(&checked(&elements)[..], CompressionLevel::Fastest));
    assert_eq!(both.decode(&packed, elements.len()).unwrap(), elements);
    for at in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[at] ^= 1;
        both.decode(&damaged, elements.len()).unwrap_err();
    }
}

#[test]
fn shards_have_inner_chunks() {
    let array = parse(Version::Three, &v3()).unwrap();
    let Storage::Shard(sharding) = &array.storage else { panic!() };
    assert_eq!((sharding.index_len(), sharding.index_location), (68, IndexLocation::End));
    let mut index = Vec::new();
    for (offset, len) in [(0_u64, 10_u64), (u64::MAX, u64::MAX), (10, 5), (3, 0)] {
        index.extend(offset.to_le_bytes());
        index.extend(len.to_le_bytes());
    }
    index.extend(crc32c(&index).to_le_bytes());
    let shards: Vec<_> = array.chunks().collect();
    let inner = |at: usize, index: &[u8], len| sharding.inner_chunks(&shards[at], index, len);
    let ranges: Vec<_> = inner(0, &index, 83)
        .unwrap()
        .into_iter()
        .map(|inner| (inner.start, inner.shape, inner.range))
        .collect();
    assert_eq!(
        ranges,
        [
            (vec![0, 0], vec![2, 3], Some(0..10)),
            (vec![0, 3], vec![2, 3], None),
            (vec![2, 0], vec![2, 3], Some(10..15)),
            (vec![2, 3], vec![2, 3], Some(3..3)),
        ]
    );
    // The last shard has 3 x 5 of 4 x 6 elements inside the array.
    let shapes: Vec<_> =
        inner(3, &index, 83).unwrap().into_iter().map(|inner| (inner.start, inner.shape)).collect();
    assert_eq!(
        shapes,
        [
            (vec![4, 6], vec![2, 3]),
            (vec![4, 9], vec![2, 2]),
            (vec![6, 6], vec![1, 3]),
            (vec![6, 9], vec![1, 2])
        ]
    );
    inner(0, &index, 14).unwrap_err();
    sharding.index_range(67).unwrap_err();
    assert_eq!(sharding.index_range(100).unwrap(), 32..100);
    for at in 0..index.len() {
        let mut damaged = index.clone();
        damaged[at] ^= 4;
        inner(0, &damaged, 83).unwrap_err();
        inner(0, &index[..at], 83).unwrap_err();
    }
    let mut at_start = v3();
    at_start["codecs"][0]["configuration"]["index_location"] = json!("start");
    let Storage::Shard(sharding) = parse(Version::Three, &at_start).unwrap().storage else { panic!() };
    assert_eq!(sharding.index_range(100).unwrap(), 0..68);
}

#[test]
fn fill_values_are_elements() {
    let fill = |dtype: &str, value: Value| {
        let mut json = v3();
        (json["data_type"], json["fill_value"]) = (json!(dtype), value);
        parse(Version::Three, &json).unwrap().fill().ok()
    };
    assert_eq!(parse(Version::Two, &v2()).unwrap().fill().unwrap(), [0, 0]);
    assert_eq!(fill("float32", json!(1.5)), Some(1.5_f32.to_le_bytes().to_vec()));
    assert_eq!(fill("float64", json!("-Infinity")), Some(f64::NEG_INFINITY.to_le_bytes().to_vec()));
    assert_eq!(fill("int16", json!(-2)), Some(vec![0xfe, 0xff]));
    assert_eq!(fill("uint64", json!(u64::MAX)), Some(vec![0xff; 8]));
    assert_eq!(fill("bool", json!(true)), Some(vec![1]));
    assert_eq!(fill("bfloat16", json!("0x7fc0")), Some(vec![0xc0, 0x7f]));
    assert_eq!(fill("bfloat16", json!(0)), Some(vec![0, 0]));
    assert_eq!(fill("complex64", json!([1.0, "NaN"])).map(|bytes| bytes.len()), Some(8));
    for (dtype, value) in [
        ("bfloat16", json!(1.0)),
        ("bfloat16", json!("0x7fc")),
        ("bfloat16", json!("0x+fc0")),
        ("bfloat16", json!("0xé0")),
        ("int8", json!(200)),
        ("bool", json!(0)),
        ("float32", json!("x")),
        ("float16", json!(-0.0)),
        ("complex64", json!([1.0])),
        ("float32", json!({"a": 1})),
    ] {
        assert_eq!(fill(dtype, value.clone()), None, "{dtype} {value}");
    }
}

#[test]
fn damaged_metadata_does_not_panic() {
    for (version, json) in [(Version::Two, v2().to_string()), (Version::Three, v3().to_string())] {
        let json = json.as_bytes();
        for at in 0..json.len() {
            Array::parse(version, &json[..at]).unwrap_err();
            for byte in (0..=255).step_by(3) {
                let mut damaged = json.to_vec();
                damaged[at] = byte;
                let _ = Array::parse(version, &damaged).map(|array| array.chunks().take(100).count());
            }
            let more = [&json[..at], b"9999999999", &json[at..]].concat();
            let _ = Array::parse(version, &more).map(|array| array.chunks().take(100).count());
        }
        Array::parse(version, &vec![b'['; 100_000]).unwrap_err();
    }
}
