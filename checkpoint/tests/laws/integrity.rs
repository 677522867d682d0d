//! A bit that is flipped anywhere is found and named, and so are differences between two checkpoints.

use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, ReshardJob, diff};
use reshard_test_support::{Random, Sweep};
use safetensors::Dtype;

use crate::files::{Tensors, job, tensor, write};

fn made(folder: &Path, mesh: &str, to: &str) -> (Tensors, std::path::PathBuf) {
    let mut r = Random(31);
    let tensors: Tensors = [
        ("square".to_owned(), tensor(&mut r, Dtype::F32, &[4, 4])),
        ("vector".to_owned(), tensor(&mut r, Dtype::BF16, &[7])),
        ("scalar".to_owned(), tensor(&mut r, Dtype::F64, &[])),
    ]
    .into();
    let (whole, out) = (folder.join("w.safetensors"), folder.join("out"));
    write(&whole, &tensors);
    ReshardJob { out: Some(out.clone()), ..job(&whole, mesh, to, false) }.run(&mut ()).unwrap();
    (tensors, out)
}

/// Returns the problems of a folder, or the reason why it does not open; `None` if there are none.
fn said(out: &Path) -> Option<String> {
    match Checkpoint::open(Some(out)) {
        Err(error) => Some(error.to_string()),
        Ok(checkpoint) => {
            let problems = checkpoint.verify(&mut ()).unwrap().problems;
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
    }
}

/// The checksums do not depend on the path that the bytes took.
#[test]
fn an_engine_writes_the_checksums_of_a_run_from_files_to_files() {
    let folder = tempfile::tempdir().unwrap();
    for (mesh, to) in [("a=2,b=2", "S(0),S(1)"), ("a=3", "R"), ("a=2,b=2", "S(1),R"), ("a=2", "BL(0,4)")] {
        let (_, out) = made(folder.path(), mesh, to);
        let engine = folder.path().join("engine");
        let input = folder.path().join("w.safetensors");
        ReshardJob { out: Some(engine.clone()), ..job(&input, mesh, to, true) }.run(&mut ()).unwrap();
        for entry in fs::read_dir(&out).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(
                fs::read(out.join(&name)).unwrap() == fs::read(engine.join(&name)).unwrap(),
                "{mesh} {to} {name:?}"
            );
        }
        let file = engine
            .join(format!("rank-00000-of-{:05}.safetensors", fs::read_dir(&engine).unwrap().count() - 1));
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(said(&engine).is_some(), "{mesh} {to} {file:?}");
        let unchecked = ReshardJob {
            verify: false,
            force: true,
            out: Some(engine.clone()),
            ..job(&input, mesh, to, true)
        };
        unchecked.run(&mut ()).unwrap();
        assert!(!Checkpoint::open(Some(&engine)).unwrap().has_checksums());
        for made in [out, engine] {
            fs::remove_dir_all(made).unwrap();
        }
    }
}

/// Flips one bit of every byte of every file, or every bit in a full sweep.
#[test]
fn a_flipped_bit_anywhere_is_found_and_its_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, out) = made(folder.path(), "a=2,b=2", "S(0),S(1)");
    assert_eq!(said(&out), None);
    let (mut flipped, mut total) = (0, 0);
    for entry in fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let good = fs::read(&path).unwrap();
        total += good.len();
        for at in 0..good.len() {
            for bit in (0..8).filter(|bit| Sweep::asked().takes_one_in(8, bit + 3 * at)) {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                fs::write(&path, &bad).unwrap();
                let said =
                    said(&out).unwrap_or_else(|| panic!("bit {bit} of byte {at} of {name} is not found"));
                let names_it = said.contains(name);
                // A manifest that names other files is detected because these files are missing.
                assert!(names_it || name == "sharding.json", "bit {bit} of byte {at} of {name}: {said}");
                flipped += 1;
            }
        }
        fs::write(&path, good).unwrap();
    }
    assert_eq!(said(&out), None);
    assert!(flipped >= total && total > 1_000, "{flipped} of {total}");
}

#[test]
fn a_wrong_shard_is_named_with_its_tensor_and_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (_, out) = made(folder.path(), "a=3", "S(0)");
    let file = out.join("rank-00001-of-00003.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let verified = Checkpoint::open(Some(&out)).unwrap().verify(&mut ()).unwrap();
    assert!(verified.checksums);
    let [problem] = &verified.problems[..] else { panic!("{verified:?}") };
    assert_eq!(problem.tensor.as_deref(), Some("vector"));
    assert!(problem.file.ends_with("rank-00001-of-00003.safetensors"));
}

/// Without checksums, replicas are still compared.
#[test]
fn replicas_that_differ_are_named_without_checksums_too() {
    let folder = tempfile::tempdir().unwrap();
    let (_, out) = made(folder.path(), "a=3", "R");
    let unchecked = folder.path().join("unchecked");
    ReshardJob { out: Some(unchecked.clone()), verify: false, ..job(&out, "a=3", "R", false) }
        .run(&mut ())
        .unwrap();
    assert_eq!(said(&unchecked), None);
    let file = unchecked.join("rank-00002-of-00003.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let said = said(&unchecked).unwrap();
    assert!(
        said.contains("rank-00002") && said.contains("`vector`") && said.contains("rank-00000"),
        "{said}"
    );
}

#[test]
fn diff_names_what_differs_and_looks_through_shardings() {
    let folder = tempfile::tempdir().unwrap();
    let (tensors, out) = made(folder.path(), "a=2,b=2", "S(0),S(1)");
    let sharded = Checkpoint::open(Some(&out)).unwrap();
    let compared = |other: &Tensors| {
        let path = folder.path().join("other.safetensors");
        write(&path, other);
        diff(&sharded, &Checkpoint::open(Some(&path)).unwrap(), &mut ()).unwrap()
    };
    assert!(compared(&tensors).equal);
    let mut other = tensors.clone();
    let square = &mut other.get_mut("square").unwrap().bytes;
    square[4 * 6] ^= 1;
    square[4 * 11 + 3] ^= 0x80;
    let difference = compared(&other);
    let [different] = &difference.different[..] else { panic!("{difference:?}") };
    assert!(!difference.equal && difference.tensors == 3);
    assert_eq!((&different.name[..], &different.first), ("square", &Some(vec![1, 2])));
    assert!(different.what.contains("2 of 16"), "{different:?}");
    let scalar = other.remove("scalar").unwrap();
    other.insert("another".to_owned(), scalar);
    other.get_mut("square").unwrap().shape = vec![2, 8];
    other.get_mut("vector").unwrap().dtype = Dtype::F16;
    let difference = compared(&other);
    assert_eq!(
        (&difference.only_first[..], &difference.only_second[..]),
        (&["scalar".to_owned()][..], &["another".to_owned()][..])
    );
    let what: Vec<&str> = difference.different.iter().map(|different| &different.what[..]).collect();
    assert_eq!(what, ["it is [4, 4] and [2, 8]", "it is BF16 and F16"]);
}
