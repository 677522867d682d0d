//! Checkpoints of random tensors, and their expected contents by definition.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::ReshardJob;
use reshard_sharding::{Mesh, Region, Sharding};
use reshard_test_support::Random;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// A tensor with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Tensors = BTreeMap<String, Whole>;

pub(crate) fn draw(r: &mut Random) -> Tensors {
    let dtypes = [Dtype::F32, Dtype::BF16, Dtype::U8, Dtype::F64, Dtype::F4, Dtype::F6_E2M3, Dtype::BOOL];
    let count = 3 + r.below(4);
    (0..count)
        .map(|at| {
            let dtype = *r.pick(&dtypes);
            let mut shape: Vec<usize> = (0..r.below(4)).map(|_| r.below(14)).collect();
            if dtype.bitsize() < 8 {
                shape.push(8 * (1 + r.below(3)));
            }
            (format!("layer.{at}.weight"), tensor(r, dtype, &shape))
        })
        .collect()
}

pub(crate) fn tensor(r: &mut Random, dtype: Dtype, shape: &[usize]) -> Whole {
    let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let bytes = (0..len).map(|_| (r.next_u64() >> 40) as u8).collect();
    Whole { dtype, shape: shape.to_vec(), bytes }
}

pub(crate) fn write(path: &Path, tensors: &Tensors) {
    let views =
        tensors.iter().map(|(name, t)| (name, TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

pub(crate) fn read(path: &Path) -> Tensors {
    let file = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap().tensors().into_iter().map(|(name, view)| {
        (name, Whole { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() })
    });
    tensors.collect()
}

/// Draws a mesh and a sharding: even or not, strided, blocked, zigzag, replicated, or on a subset of ranks.
pub(crate) fn draw_sharding(r: &mut Random) -> (&'static str, &'static str) {
    *r.pick(&[
        ("a=1", "R"),
        ("a=3", "S(0)"),
        ("a=5", "S(1)"),
        ("a=2,b=3", "S(0),S(0)"),
        ("a=2,b=3", "S(1),S(0)"),
        ("a=2,b=3", "SS(0,3),S(0)"),
        ("a=2,b=2", "R,S(1)"),
        ("a=2,b=2", "S(0),R"),
        ("a=4", "BL(0,2)"),
        ("a=3", "BL(1,1)"),
        ("a=2", "Z(0)"),
        ("a=2:1,b=4:2", "S(1),S(0)"),
        ("a=2,b=2@4", "S(0),R"),
        ("a=2,b=2,c=2", "S(2),S(0),S(1)"),
    ])
}

/// Returns the bytes of a region by its definition: element by element, bit by bit.
pub(crate) fn slice(whole: &Whole, region: &Region) -> Vec<u8> {
    let bits = whole.dtype.bitsize();
    let bit = |at: usize| whole.bytes[at / 8] >> (at % 8) & 1;
    let indices = region.runs(&whole.shape).unwrap().flat_map(|run| run.indices().collect::<Vec<_>>());
    let bits: Vec<u8> =
        indices.flat_map(|index| (0..bits).map(move |k| index as usize * bits + k)).map(bit).collect();
    bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |all, (k, bit)| all | bit << k)).collect()
}

pub(crate) fn sharding(mesh: &str, shape: &[usize], text: &str) -> Sharding {
    let mesh: Mesh = mesh.parse().unwrap();
    Sharding::parse(&mesh, shape, text).unwrap()
}

/// Returns a job, which uses the threads engine if `through_engine`.
pub(crate) fn job(input: &Path, mesh: &str, to: &str, through_engine: bool) -> ReshardJob {
    let (mesh, to) = (Some(mesh.to_owned()), Some(to.to_owned()));
    ReshardJob { input: Some(input.to_owned()), mesh, to, through_engine, ..ReshardJob::default() }
}

/// Returns a job that writes an opened checkpoint to `out`.
pub(crate) fn output(mesh: &str, out: &Path) -> ReshardJob {
    ReshardJob { mesh: Some(mesh.to_owned()), out: Some(out.to_owned()), ..ReshardJob::default() }
}

/// Writes the same tensors as a file, as a folder with an index, and as rank files; returns the paths.
pub(crate) fn inputs(folder: &Path, tensors: &Tensors, r: &mut Random) -> Vec<PathBuf> {
    let file = folder.join("whole.safetensors");
    write(&file, tensors);
    let indexed = folder.join("indexed");
    fs::create_dir(&indexed).unwrap();
    let mut map = serde_json::Map::new();
    for (at, (name, tensor)) in tensors.iter().enumerate() {
        let part = format!("part-{}.safetensors", at % 2);
        let same = |(other, _): &(usize, _)| other % 2 == at % 2;
        let all = tensors.iter().enumerate().filter(same).map(|(_, (name, t))| (name.clone(), t.clone()));
        write(&indexed.join(&part), &all.collect());
        map.insert(name.clone(), part.into());
        assert_eq!(&tensors[name], tensor);
    }
    let index = serde_json::json!({ "weight_map": map });
    fs::write(indexed.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let mut all = vec![file.clone(), indexed];
    for number in 0..2 {
        // Written through the engine, which is not the code under test.
        let sharded = folder.join(format!("sharded-{number}"));
        let (mesh, to) = draw_sharding(r);
        let made = ReshardJob { out: Some(sharded.clone()), ..job(&file, mesh, to, true) };
        if made.run(&mut ()).is_ok() {
            all.push(sharded);
        }
    }
    all
}

/// Returns the contents of a folder by file name; a manifest is reduced to its tensors.
pub(crate) fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = fs::read(&path).unwrap();
        if name == "sharding.json" {
            let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            strip(&mut manifest);
            bytes = manifest.to_string().into_bytes();
        }
        (name, bytes)
    };
    files.map(content).collect()
}

/// Removes the checksums of a manifest.
fn strip(value: &mut serde_json::Value) {
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !key.ends_with("crc64nvme"));
        object.values_mut().for_each(strip);
    }
}
