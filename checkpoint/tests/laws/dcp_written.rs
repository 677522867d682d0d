//! Written PyTorch distributed checkpoints and indexed folders: they hold the input once, in valid archives.
//!
//! `scripts/check_dcp.sh` checks that PyTorch reads them, where PyTorch is installed.

use std::fs;
use std::path::Path;

use rawzip::ZipArchive;
use reshard_checkpoint::{Checkpoint, Engine, OutputFormat, PlacementSpec, ReshardJob, diff};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, draw, draw_sharding, inputs, job, output, read, tensor, write};
use crate::reading::opened;

/// Draws tensors of all types that PyTorch has.
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

/// Checks that each entry of the archives in a folder matches its checksum; returns the number of storages.
fn storages(folder: &Path) -> usize {
    let mut storages = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "distcp") {
            continue;
        }
        let mut bytes = &fs::read(&path).unwrap()[..];
        // Archives are contiguous: each ends 22 bytes after its end-of-directory mark.
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
            let job = ReshardJob {
                out: Some(out.clone()),
                format: OutputFormat::Dcp,
                force: true,
                verify: round % 2 != 1,
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

/// The blocks of a large tensor arrive in any order, and the checksums of its archives are right.
#[test]
fn large_chunks_have_the_checksums_of_their_bytes() {
    let mut r = Random(32);
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("whole.safetensors"), folder.path().join("dcp"));
    let tensors: Tensors = [("large".to_owned(), tensor(&mut r, Dtype::F64, &[1501, 1003]))].into();
    write(&input, &tensors);
    for (mesh, to, chunks) in [("a=2,b=3", "S(1),S(0)", 6), ("a=1", "R", 1), ("a=2,b=2", "SS(0,2),S(0)", 4)] {
        let spec = PlacementSpec::new([("*", to)]).unwrap();
        let job = ReshardJob { format: OutputFormat::Dcp, force: true, ..output(mesh, &out) };
        job.run_on(&opened(&input), Some(&spec), &mut ()).unwrap();
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
    let dcp = |job: ReshardJob| ReshardJob { format: OutputFormat::Dcp, ..job };
    let asked = || ReshardJob { out: Some(out.clone()), ..job(&input, "a=2", "S(0)", false) };
    let refused = |job: ReshardJob| {
        let error = dcp(job).run(&mut ()).unwrap_err();
        assert!(error.status() == 2 && !out.exists(), "{error}");
        error.to_string()
    };
    assert!(refused(asked()).contains("`packed`: its elements are F4"));
    assert!(refused(ReshardJob { through_engine: true, ..asked() }).contains("drop `--engine`"));
    assert!(refused(ReshardJob { engine: Engine::Threads, out: None, ..asked() }).contains("--out"));
}

#[test]
fn force_replaces_a_dcp_that_a_run_wrote_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("dcp");
    let run = |to: &str| {
        let asked = ReshardJob {
            out: Some(out.clone()),
            format: OutputFormat::Dcp,
            force: true,
            mesh: Some("a=2".to_owned()),
            to: Some(to.to_owned()),
            only: vec!["mlp.up.bias".to_owned()],
            ..ReshardJob::default()
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

/// The formats that store each element once, in safetensors files.
const IN_SAFETENSORS: [OutputFormat; 2] = [OutputFormat::DcpSafetensors, OutputFormat::Safetensors];

/// Returns the total tensor bytes in the files of a folder, read with the safetensors crate.
fn held(folder: &Path) -> usize {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.map(|path| read(&path).values().map(|tensor| tensor.bytes.len()).sum::<usize>()).sum()
}

#[test]
fn what_is_written_in_safetensors_is_what_was_read_once() {
    let mut r = Random(34);
    let (mut written, mut chunks) = (0, 0);
    for round in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let mut tensors = if round % 3 == 0 { draw(&mut r) } else { drawn(&mut r) };
        // PyTorch does not read this type from safetensors files, so it is not written to them.
        tensors.retain(|_, tensor| tensor.dtype != Dtype::F8_E8M0);
        let bytes: usize = tensors.values().map(|tensor| tensor.bytes.len()).sum();
        for input in inputs(folder.path(), &tensors, &mut r) {
            for format in IN_SAFETENSORS {
                let out = folder.path().join(format!("{format:?}"));
                let (mesh, to) = draw_sharding(&mut r);
                let whole = format == OutputFormat::Safetensors;
                let asked = ReshardJob {
                    out: Some(out.clone()),
                    format,
                    file_bytes: (r.below(2) == 0).then(|| r.below(2000) as u64),
                    force: true,
                    verify: round % 2 != 1,
                    ..job(&input, mesh, to, false)
                };
                let asked = if whole { ReshardJob { mesh: None, to: None, ..asked } } else { asked };
                if let Err(error) = asked.run(&mut ()) {
                    assert!(!whole, "{error}");
                    continue;
                }
                let checkpoint = opened(&out);
                let difference = diff(&checkpoint, &opened(&input), &mut ()).unwrap();
                assert!(difference.equal, "{format:?} {input:?} {mesh} {to}: {difference:?}");
                assert_eq!(held(&out), bytes, "each element is written once");
                let texts: Vec<_> = checkpoint.metadata().map(|(key, _)| key).collect();
                assert!(!texts.iter().any(|key| key.starts_with("DCP")), "{texts:?}");
                let verified = checkpoint.verify(&mut ()).unwrap();
                assert_eq!((verified.bytes, verified.problems.len()), (bytes as u64, 0));
                (written, chunks) = (written + 1, chunks + verified.shards);
            }
        }
    }
    assert!(written > 40 && chunks > 1000, "{written} {chunks}");
}

/// Formats are detected by content: the files are renamed.
#[test]
fn every_format_that_is_written_is_told_by_its_content() {
    let mut r = Random(35);
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("whole.safetensors"), folder.path().join("out"));
    let tensors: Tensors = [
        ("a.matrix".to_owned(), tensor(&mut r, Dtype::F32, &[6, 8])),
        ("b.vector".to_owned(), tensor(&mut r, Dtype::BF16, &[9])),
    ]
    .into();
    write(&input, &tensors);
    let spec = PlacementSpec::new([("*", "S(0)")]).unwrap();
    let reshard_to = |format: OutputFormat, out: &Path| {
        let job = ReshardJob { format, force: true, file_bytes: Some(100), ..output("a=3", out) };
        job.run_on(&opened(&input), Some(&spec), &mut ())
    };
    for format in
        [OutputFormat::RankFiles, OutputFormat::Dcp, OutputFormat::DcpSafetensors, OutputFormat::Safetensors]
    {
        // Each output replaces the one before it.
        reshard_to(format, &out).unwrap();
        reshard_to(format, &out).unwrap();
        let moved = folder.path().join("moved.bin");
        fs::rename(&out, &moved).unwrap();
        assert!(diff(&opened(&moved), &opened(&input), &mut ()).unwrap().equal, "{format:?}");
        fs::rename(&moved, &out).unwrap();
    }
    for format in IN_SAFETENSORS {
        reshard_to(format, &out).unwrap();
        fs::write(out.join("notes"), "mine").unwrap();
        assert!(reshard_to(format, &out).unwrap_err().to_string().contains("holds notes"), "{format:?}");
        fs::remove_file(out.join("notes")).unwrap();
    }
    let index = out.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"reshard\"", "\"another\"")).unwrap();
    let error = reshard_to(OutputFormat::Safetensors, &out).unwrap_err().to_string();
    assert!(error.contains("of another program"), "{error}");
    let pytorch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dcp_safetensors");
    let chunks = folder.path().join("chunks");
    fs::create_dir(&chunks).unwrap();
    for file in fs::read_dir(pytorch).unwrap().flatten() {
        fs::copy(file.path(), chunks.join(file.file_name())).unwrap();
    }
    let error = reshard_to(OutputFormat::DcpSafetensors, &chunks).unwrap_err().to_string();
    assert!(error.contains("chunks of another program"), "{error}");
}

/// A name occurs once in a file: boxes of one rank are in separate files, with PyTorch's names.
#[test]
fn chunks_in_safetensors_have_the_names_and_offsets_of_pytorch() {
    let mut r = Random(36);
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("whole.safetensors"), folder.path().join("out"));
    let tensors: Tensors = [("m".to_owned(), tensor(&mut r, Dtype::F32, &[8, 2]))].into();
    write(&input, &tensors);
    let spec = PlacementSpec::new([("*", "Z(0)")]).unwrap();
    let job = ReshardJob { format: OutputFormat::DcpSafetensors, ..output("a=2", &out) };
    job.run_on(&opened(&input), Some(&spec), &mut ()).unwrap();
    let mut found = Vec::new();
    for file in fs::read_dir(&out).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let texts = header.metadata().clone().unwrap();
        let rows = read(&path)["m"].shape.clone();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.push((name, texts["DCP_SHARDING_INFO"].clone(), rows));
    }
    found.sort();
    let one = |shard: usize, file: usize, row: usize, rows: usize| {
        let name = format!("shard-{shard:05}-model-{file:05}-of-00002.safetensors");
        (name, format!(r#"{{"m":{{"saved_offsets":[{row},0]}}}}"#), vec![rows, 2])
    };
    // Rank 0 of two has the rows 0, 1, 6, 7, and rank 1 those between.
    assert_eq!(found, [one(1, 1, 0, 2), one(1, 2, 6, 2), one(2, 1, 2, 4)]);
}

#[test]
fn whole_tensors_and_chunks_are_asked_for_without_contradiction() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let asked = |job: ReshardJob| ReshardJob { out: Some(out.clone()), ..job };
    let refused = |job: ReshardJob| {
        let error = job.run(&mut ()).unwrap_err();
        assert!(error.status() == 2 && !out.exists(), "{error}");
        error.to_string()
    };
    let of =
        |format: OutputFormat| ReshardJob { format, mesh: Some("a=2".to_owned()), ..ReshardJob::default() };
    let to = Some("S(0)".to_owned());
    let said = refused(asked(ReshardJob { to: to.clone(), ..of(OutputFormat::Safetensors) }));
    assert!(said.contains("drop `--to` and `--spec`"), "{said}");
    for format in IN_SAFETENSORS {
        let said = refused(asked(ReshardJob { through_engine: true, ..of(format) }));
        assert!(said.contains("drop `--engine`"), "{said}");
        assert!(refused(of(format)).contains("--out"));
    }
    let mut r = Random(37);
    let scales = folder.path().join("scales.safetensors");
    write(&scales, &[("scale".to_owned(), tensor(&mut r, Dtype::F8_E8M0, &[4]))].into());
    let said = refused(asked(ReshardJob { input: Some(scales), to, ..of(OutputFormat::DcpSafetensors) }));
    assert!(said.contains("`scale`: its elements are F8_E8M0"), "{said}");
    let block = Checkpoint::open(None).unwrap();
    let file = folder.path().join("out.safetensors");
    let spec = PlacementSpec::new([("*", "S(0)")]).unwrap();
    let job = ReshardJob { format: OutputFormat::Dcp, ..output("a=2", &file) };
    let error = job.run_on(&block, Some(&spec), &mut ()).unwrap_err();
    assert!(error.code() == "usage" && !file.exists(), "{error}");
}
