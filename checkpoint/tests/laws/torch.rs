//! Files of PyTorch and NumPy are read correctly.
//!
//! `scripts/make_dcp_facts.py` writes `tests/data`: the files, and their contents as safetensors files.

use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::{Checkpoint, ReshardJob, Tensor, diff};
use reshard_sharding::Sharding;
use reshard_test_support::{Random, Sweep};

use crate::files::{Tensors, draw_sharding, job, read, slice};
use crate::reading::{draw_region, opened};

/// Inputs, and the names of the files with their contents.
const HELD: [(&str, &str); 13] = [
    ("dcp", "dcp"),
    ("dcp/.metadata", "dcp"),
    ("dcp_files", "dcp_files"),
    ("dcp_safetensors", "dcp_safetensors"),
    ("ranks", "ranks"),
    ("state.pt", "state"),
    ("trainer.pt", "trainer"),
    ("hidden.pt", "hidden"),
    ("module.pt", "module"),
    ("alone.pt", "alone"),
    ("stored.npz", "arrays"),
    ("packed.npz", "arrays"),
    ("arrays.safetensors", "arrays"),
];

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn held() -> impl Iterator<Item = (PathBuf, Tensors)> {
    HELD.into_iter().map(|(input, held)| (data(input), read(&data(&format!("{held}.safetensors")))))
}

#[test]
fn what_pytorch_and_numpy_wrote_is_what_is_read() {
    let mut tensors = 0;
    for (input, held) in held() {
        let checkpoint = opened(&input);
        let names: Vec<&str> = checkpoint.tensors().iter().map(Tensor::name).collect();
        assert_eq!(names, held.keys().map(String::as_str).collect::<Vec<_>>(), "{input:?}");
        assert_eq!(checkpoint.bytes_read(), 0, "opening reads headers");
        for (tensor, (name, whole)) in checkpoint.tensors().iter().zip(&held) {
            assert_eq!(
                (tensor.shape(), tensor.dtype()),
                (&whole.shape[..], whole.dtype.to_string()),
                "{name}"
            );
            let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
            assert_eq!(checkpoint.shard(name, &all, 0).unwrap(), whole.bytes, "{input:?} {name}");
            tensors += 1;
        }
        assert!(checkpoint.verify(&mut ()).unwrap().problems.is_empty());
    }
    assert!(tensors > 120, "{tensors}");
}

#[test]
fn a_region_of_chunks_is_the_slice_and_no_byte_more_is_read() {
    let mut r = Random(21);
    for (input, held) in held() {
        let checkpoint = opened(&input);
        for (name, whole) in &held {
            for _ in 0..20 {
                let region = draw_region(&mut r, &whole.shape, false);
                let before = checkpoint.bytes_read();
                let bytes = checkpoint.read(name, &region).unwrap();
                assert_eq!(bytes, slice(whole, &region), "{input:?} {name} {region:?}");
                let read = checkpoint.bytes_read() - before;
                // Every second column of a matrix is read together with the columns between.
                let gaps = name == "part" && read > 0;
                assert!(read == bytes.len() as u64 || gaps, "{input:?} {name}: {read} for {}", bytes.len());
            }
            let (mesh, text) = draw_sharding(&mut r);
            let mesh = mesh.parse().unwrap();
            let Ok(sharding) = Sharding::parse(&mesh, &whole.shape, text) else { continue };
            for rank in mesh.ranks() {
                let shard = checkpoint.shard(name, &sharding, rank).unwrap();
                assert_eq!(
                    shard,
                    slice(whole, &sharding.region(rank).unwrap()),
                    "{input:?} {name} {sharding}"
                );
            }
        }
    }
}

#[test]
fn they_are_resharded_from_files_to_files_and_through_an_engine() {
    let mut r = Random(22);
    let mut done = 0;
    for (input, held) in held() {
        for (number, through_engine) in [false, true, false].into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let (out, gather) = (folder.path().join("out"), folder.path().join("whole.safetensors"));
            let (mesh, to) = draw_sharding(&mut r);
            let job = ReshardJob {
                out: Some(out.clone()),
                gather: Some(gather.clone()),
                verify: number != 2,
                ..job(&input, mesh, to, through_engine)
            };
            if let Err(error) = job.run(&mut ()) {
                // No tensor has the dim, or one has too many indices for this number of blocks.
                assert!(matches!(error.code(), "no_such_dim" | "placement"), "{input:?} {to} {error}");
                continue;
            }
            done += 1;
            assert_eq!(read(&gather), held, "{input:?} {mesh} {to}");
            let difference = diff(&opened(&out), &opened(&input), &mut ()).unwrap();
            assert!(difference.equal, "{input:?} {mesh} {to}: {difference:?}");
        }
    }
    assert!(done >= 15, "{done}");
}

#[test]
fn arrays_of_numpy_alone_are_read() {
    let arrays = read(&data("arrays.safetensors"));
    for name in ["rows", "columns"] {
        let checkpoint = opened(&data(&format!("{name}.npy")));
        let all = Sharding::replicated(&"a=1".parse().unwrap(), &arrays[name].shape).unwrap();
        assert_eq!(checkpoint.shard("array", &all, 0).unwrap(), arrays[name].bytes, "{name}");
        assert_eq!(checkpoint.bytes_read(), arrays[name].bytes.len() as u64);
    }
}

#[test]
fn what_is_no_tensor_is_named_and_not_read() {
    let others = |name: &str| {
        opened(&data(name)).objects().iter().map(|one| one.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(others("dcp"), ["optimizer.groups.lr", "optimizer.state.0.name", "step"]);
    let named = ["bytes", "device", "epoch", "name", "nested.list.1", "nothing", "set", "size", "type"];
    assert_eq!(others("state.pt"), named);
    let named = [
        "args",
        "around",
        "config",
        "counts",
        "deep.1",
        "numbers",
        "numpy",
        "optimizer.param_groups.0.betas",
        "optimizer.param_groups.0.lr",
        "optimizer.param_groups.0.params",
        "pair.1",
        "stack",
        "stacked",
    ];
    assert_eq!(others("trainer.pt"), named);
    // Attributes are named if there are tensors in them.
    let named = ["around.<attributes>", "pairs.y", "quantized", "scaled.<attributes>"];
    assert_eq!(others("hidden.pt"), named);
    assert_eq!(others("packed.npz"), ["object", "text"]);
    assert!(others("stored.npz").is_empty() && others("dcp_safetensors").is_empty());
    let chunks = |tensor: &str| opened(&data("dcp")).tensor(tensor).unwrap().chunks();
    assert_eq!(
        (chunks("boxes"), chunks("model.matrix"), chunks("model.replicated")),
        (Some(4), Some(4), None)
    );
}

#[test]
fn what_is_not_read_is_refused_in_one_sentence() {
    for (name, why) in [
        ("legacy.pt", "before PyTorch 1.6"),
        ("object.pt", "`torch.nn.modules.linear.Linear`"),
        ("complex128.pt", "complex128"),
        ("conjugated.pt", "conjugated"),
        ("expanded.pt", "contiguous"),
        ("big.npy", "big-endian"),
        ("complex128.npy", "<c16"),
        ("object.npy", "|O"),
        ("records.npy", "records"),
        ("dcp/__0_0.distcp", "give its folder"),
        ("dcp_safetensors/shard-00001-model-00001-of-00001.safetensors", "give the folder"),
        ("dcp_safetensors/shard-00003-model-00001-of-00001.safetensors", "give the folder"),
        ("made_by", "not a valid safetensors file"),
    ] {
        let error = Checkpoint::open(Some(&data(name))).err().unwrap_or_else(|| panic!("{name} was read"));
        let said = error.to_string();
        assert!(said.contains(why) && said.contains(name) && !said.contains('\n'), "{name}: {said}");
        assert_eq!(error.status(), 2);
    }
}

/// Returns the bytes of a file with one text replaced by another of the same length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    [&bytes[..at], to, &bytes[at + to.len()..]].concat()
}

/// Copies a folder of the test data.
pub(crate) fn copied(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(data(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn chunks_that_do_not_make_up_a_tensor_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dcp");
    copied("dcp_files", &dir);
    let metadata = fs::read(dir.join(".metadata")).unwrap();
    let refused = |text: &[u8]| {
        fs::write(dir.join(".metadata"), text).unwrap();
        Checkpoint::open(Some(&dir)).err().unwrap()
    };
    // A matrix of 7 by 5 that is declared as 9 by 5: `torch.Size((7, 5))`, in which K is a small integer.
    let error = refused(&replaced(&metadata, b"K\x07K\x05\x86", b"K\x09K\x05\x86"));
    assert!(error.code() == "chunks" && error.to_string().contains("`matrix`"), "{error}");
    let error = refused(&replaced(&metadata, b"K\x07K\x05\x86", b"K\x06K\x05\x86"));
    assert!(error.to_string().contains("not within [6, 5]"), "{error}");
    let error = refused(&replaced(&metadata, b"__0_1.distcp", b"../1.distcp\0"));
    assert!(error.to_string().contains("not a file of this folder"), "{error}");
    let error = refused(&replaced(&metadata, b"__0_1.distcp", b"__9_1.distcp"));
    assert!(error.code() == "input" && error.to_string().contains("__9_1.distcp"), "{error}");
    let error = refused(&replaced(&metadata, b"bfloat16", b"bfloat61"));
    assert!(error.to_string().contains("`torch.bfloat61`"), "{error}");
    let error = refused(&replaced(&metadata, b"bfloat16", b"qint8123"));
    assert!(error.code() == "pickle", "{error}");
    // A file that is shorter than declared, and one that holds another tensor.
    fs::write(dir.join(".metadata"), &metadata).unwrap();
    let item = fs::read(dir.join("__0_1.distcp")).unwrap();
    fs::write(dir.join("__0_1.distcp"), &item[..item.len() - 1]).unwrap();
    assert_eq!(Checkpoint::open(Some(&dir)).err().unwrap().code(), "input");
    fs::copy(dir.join("__0_0.distcp"), dir.join("__0_1.distcp")).unwrap();
    let error = Checkpoint::open(Some(&dir)).err().unwrap();
    assert!(error.code() == "dcp" && error.to_string().contains(".metadata declares"), "{error}");
    let parts = folder.path().join("parts");
    copied("dcp_safetensors", &parts);
    fs::remove_file(parts.join("shard-00002-model-00001-of-00001.safetensors")).unwrap();
    assert_eq!(Checkpoint::open(Some(&parts)).err().unwrap().code(), "chunks");
}

/// Files with bytes changed, removed or doubled: they are read, or yield a message, but never panic.
#[test]
fn changed_files_are_read_or_refused_in_a_sentence() {
    let mut r = Random(Sweep::asked().seed() + 23);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dcp");
    copied("dcp_files", &dir);
    let (mut taken, mut left) = (0, 0);
    let mut look = |path: &Path| match Checkpoint::open(Some(path)) {
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'), "{error}");
            left += 1;
        }
        Ok(checkpoint) => {
            let bytes: u64 = checkpoint.tensors().iter().map(Tensor::byte_len).sum();
            assert!(bytes < 1 << 24, "{path:?} declares {bytes} bytes");
            let _ = checkpoint.verify(&mut ());
            let _ = diff(&checkpoint, &checkpoint, &mut ());
            taken += 1;
        }
    };
    let files = [
        ("dcp_files/.metadata", Some(".metadata")),
        ("dcp_files/__1_1.distcp", Some("__1_1.distcp")),
        ("state.pt", None),
        ("module.pt", None),
        ("alone.pt", None),
        ("stored.npz", None),
        ("packed.npz", None),
        ("rows.npy", None),
        ("columns.npy", None),
        ("records.npy", None),
    ];
    for (name, inside) in files {
        let bytes = fs::read(data(name)).unwrap();
        let path = inside.map_or_else(|| folder.path().join("changed"), |inside| dir.join(inside));
        for _ in 0..Sweep::asked().count(150, 4000) {
            let mut changed = bytes.clone();
            for _ in 0..=r.below(3) {
                let at = r.below(changed.len());
                match r.below(6) {
                    0 => changed[at] = *r.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                    1 => changed.truncate(at + 1),
                    2 => {
                        let again = &bytes[at.min(bytes.len() - 1)..];
                        changed.splice(at..at, again.iter().copied().take(9));
                    }
                    _ => changed[at] ^= 1 << r.below(8),
                }
            }
            fs::write(&path, &changed).unwrap();
            look(inside.map_or(&path, |_| &dir));
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(taken > 100 && left > 300, "{taken} {left}");
}
