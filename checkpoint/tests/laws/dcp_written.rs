//! Distributed checkpoints of PyTorch that are written: what was read is in them, once, in archives that are whole. Whether PyTorch
//! reads them is looked at where there is a PyTorch: `scripts/check_dcp.sh`.

use std::fs;
use std::path::Path;

use rawzip::ZipArchive;
use reshard_checkpoint::{Checkpoint, Engine, Job, Options, OutputFormat, Spec, diff, reshard};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, draw, draw_sharding, inputs, job, tensor, write};
use crate::reading::opened;

/// Tensors of all types that PyTorch has.
fn drawn(r: &mut Random) -> Tensors {
    let kinds = [
        Dtype::BOOL,
        Dtype::I8,
        Dtype::U16,
        Dtype::I16,
        Dtype::U32,
        Dtype::I32,
        Dtype::I64,
        Dtype::U64,
        Dtype::F16,
        Dtype::C64,
        Dtype::F8_E4M3,
        Dtype::F8_E5M2,
        Dtype::F8_E8M0,
        Dtype::F8_E4M3FNUZ,
        Dtype::F8_E5M2FNUZ,
    ];
    let mut tensors: Tensors =
        draw(r).into_iter().filter(|(_, tensor)| tensor.dtype.bitsize() >= 8).collect();
    for kind in kinds {
        let shape: Vec<usize> = (0..r.below(4)).map(|_| r.below(9)).collect();
        tensors.insert(format!("kind.{kind}"), tensor(r, kind, &shape));
    }
    tensors
}

/// The archives of all files of a folder: each entry has the checksum that its bytes have. Says how many storages there are.
fn storages(folder: &Path) -> usize {
    let mut storages = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "distcp") {
            continue;
        }
        let mut bytes = &fs::read(&path).unwrap()[..];
        // One after the other: an archive ends 22 bytes after the mark of its end.
        while !bytes.is_empty() {
            let end = bytes.windows(4).position(|window| window == b"PK\x05\x06").unwrap() + 22;
            let archive = ZipArchive::from_slice(&bytes[..end]).unwrap();
            for entry in archive.entries() {
                let entry = entry.unwrap();
                let found = archive.get_entry(entry.wayfinder()).unwrap();
                assert_eq!(rawzip::crc32(found.data()), entry.crc32(), "{}", path.display());
                assert_eq!(found.local_header().crc32(), entry.crc32(), "{}", path.display());
                let (start, _) = found.compressed_data_range();
                let is_storage = entry.file_path().as_bytes() == b"archive/data/0";
                assert!(!is_storage || start % 64 == 0, "{}: a storage at {start}", path.display());
                storages += usize::from(is_storage);
            }
            bytes = &bytes[end..];
        }
    }
    storages
}

#[test]
fn what_is_written_as_dcp_is_what_was_read_once_and_in_whole_archives() {
    let mut r = Random(31);
    let (mut written, mut chunks) = (0, 0);
    for round in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let tensors = drawn(&mut r);
        for input in inputs(folder.path(), &tensors, &mut r) {
            let out = folder.path().join("dcp");
            let (mesh, to) = draw_sharding(&mut r);
            let job = Job {
                out: Some(out.clone()),
                format: OutputFormat::Dcp,
                force: true,
                unchecked: round % 2 == 1,
                ..job(&input, mesh, to, false)
            };
            if job.run(&mut ()).is_err() {
                continue;
            }
            let (checkpoint, whole) = (opened(&out), opened(&input));
            let difference = diff(&checkpoint, &whole, &mut ()).unwrap();
            assert!(difference.equal, "{input:?} {mesh} {to}: {difference:?}");
            let verified = checkpoint.verify(&mut ()).unwrap();
            let bytes: usize = tensors.values().map(|tensor| tensor.bytes.len()).sum();
            assert_eq!(verified.bytes, bytes as u64, "each element is written once");
            let found = storages(&out);
            assert_eq!(found, verified.shards);
            (written, chunks) = (written + 1, chunks + found);
        }
    }
    assert!(written > 20 && chunks > 1000, "{written} {chunks}");
}

/// Slabs of a large tensor come in any order, and the checksums of its archives are right.
#[test]
fn large_chunks_have_the_checksums_of_their_bytes() {
    let mut r = Random(32);
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("whole.safetensors"), folder.path().join("dcp"));
    let tensors: Tensors = [("large".to_owned(), tensor(&mut r, Dtype::F64, &[1501, 1003]))].into();
    write(&input, &tensors);
    for (mesh, to, chunks) in [("a=2,b=3", "S(1),S(0)", 6), ("a=1", "R", 1), ("a=2,b=2", "SS(0,2),S(0)", 4)] {
        let spec = Spec::new([("*", to)]).unwrap();
        let options = Options { format: OutputFormat::Dcp, force: true, ..Options::default() };
        reshard(&opened(&input), &mesh.parse().unwrap(), &spec, &out, options).unwrap();
        assert_eq!(storages(&out), chunks, "{to}");
        assert!(diff(&opened(&out), &opened(&input), &mut ()).unwrap().equal, "{to}");
    }
}

#[test]
fn what_cannot_be_a_dcp_is_refused_before_anything_is_written() {
    let mut r = Random(33);
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("whole.safetensors"), folder.path().join("dcp"));
    let tensors: Tensors = [("packed".to_owned(), tensor(&mut r, Dtype::F4, &[4, 8]))].into();
    write(&input, &tensors);
    let dcp = |job: Job| Job { format: OutputFormat::Dcp, ..job };
    let asked = || Job { out: Some(out.clone()), ..job(&input, "a=2", "S(0)", false) };
    let refused = |job: Job| {
        let error = dcp(job).run(&mut ()).unwrap_err();
        assert!(error.status() == 2 && !out.exists(), "{error}");
        error.to_string()
    };
    assert!(refused(asked()).contains("`packed`: its elements are F4"));
    assert!(refused(Job { through_engine: true, ..asked() }).contains("leave the engine out"));
    assert!(refused(Job { engine: Engine::Threads, out: None, ..asked() }).contains("--out"));
}

#[test]
fn force_replaces_a_dcp_that_a_run_wrote_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("dcp");
    let run = |to: &str| {
        let asked = Job {
            out: Some(out.clone()),
            format: OutputFormat::Dcp,
            force: true,
            mesh: Some("a=2".to_owned()),
            to: Some(to.to_owned()),
            tensor: Some("mlp.up.bias".to_owned()),
            ..Job::default()
        };
        asked.run(&mut ())
    };
    run("R").unwrap();
    run("R").unwrap();
    fs::write(out.join("notes"), "mine").unwrap();
    assert!(run("R").unwrap_err().to_string().contains("holds notes"));
    fs::remove_file(out.join("notes")).unwrap();
    let pytorch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dcp_files/.metadata");
    fs::copy(pytorch, out.join(".metadata")).unwrap();
    let error = run("R").unwrap_err();
    assert!(error.to_string().contains("of another program"), "{error}");
    assert!(Checkpoint::open(Some(&out)).is_err());
}
