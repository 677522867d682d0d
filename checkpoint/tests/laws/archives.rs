//! Checksums of zip archives: a flipped bit in a file of PyTorch or NumPy is found, and its tensor is named.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rawzip::ZipArchive;
use reshard_checkpoint::{Checkpoint, OutputFormat, ReshardJob, diff};
use reshard_test_support::{Random, Sweep};
use safetensors::Dtype;

use crate::files::{Tensors, job, tensor, write};
use crate::reading::opened;
use crate::torch::{copied, data};

/// Returns the problems of an input, or the reason why it does not open; `None` if there are none.
fn said(path: &Path) -> Option<String> {
    match Checkpoint::open(Some(path)) {
        Err(error) => Some(error.to_string()),
        Ok(checkpoint) => {
            let verified = checkpoint.verify(&mut ()).unwrap();
            let all: Vec<String> = verified.problems.iter().map(ToString::to_string).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
    }
}

/// Returns the bytes of all entries of the archives in a file, or only of archives with a storage.
fn payloads(bytes: &[u8], of_storages: bool) -> Vec<(String, Range<usize>)> {
    let (mut all, mut begin) = (Vec::new(), 0);
    while begin < bytes.len() {
        let rest = &bytes[begin..];
        let end = rest.windows(4).position(|window| window == b"PK\x05\x06").unwrap() + 22;
        let archive = ZipArchive::from_slice(&rest[..end]).unwrap();
        let mut entries = Vec::new();
        for entry in archive.entries() {
            let entry = entry.unwrap();
            let name = String::from_utf8(entry.file_path().as_bytes().to_vec()).unwrap();
            let (start, stop) = archive.get_entry(entry.wayfinder()).unwrap().compressed_data_range();
            entries.push((name, begin + start as usize..begin + stop as usize));
        }
        // Chunks without elements, and entries that are not tensors, are never read.
        let of_tensor = |(name, place): &(String, Range<usize>)| name.contains("/data/") && !place.is_empty();
        if !of_storages || entries.iter().any(of_tensor) {
            all.extend(entries);
        }
        begin += end;
    }
    all
}

/// Copies inputs, and returns each with a file of it that consists of archives.
fn inputs(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut all = Vec::new();
    for name in ["state.pt", "module.pt", "alone.pt", "stored.npz", "packed.npz"] {
        let path = folder.join(name);
        fs::copy(data(name), &path).unwrap();
        all.push((path.clone(), path));
    }
    for name in ["dcp", "dcp_files"] {
        let dir = folder.join(name);
        copied(name, &dir);
        for file in fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "distcp") {
                all.push((dir.clone(), file));
            }
        }
    }
    // A checkpoint written by this crate as well.
    let mut r = Random(51);
    let tensors: Tensors = [("large".to_owned(), tensor(&mut r, Dtype::F32, &[1300, 900]))].into();
    write(&folder.join("w.safetensors"), &tensors);
    let out = folder.join("ours");
    let written = ReshardJob {
        out: Some(out.clone()),
        format: OutputFormat::Dcp,
        ..job(&folder.join("w.safetensors"), "a=1", "R", false)
    };
    written.run(&mut ()).unwrap();
    all.push((out.clone(), out.join("__0_0.distcp")));
    all
}

#[test]
fn a_flipped_bit_of_what_is_in_an_archive_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Random(Sweep::asked().seed() + 52);
    let (mut flipped, mut named) = (0, 0);
    for (input, file) in inputs(folder.path()) {
        assert_eq!(said(&input), None, "{input:?}");
        assert!(Checkpoint::open(Some(&input)).unwrap().has_checksums());
        let bytes = fs::read(&file).unwrap();
        let in_folder = input != file;
        for (name, place) in payloads(&bytes, in_folder) {
            if place.is_empty() {
                continue;
            }
            for _ in 0..Sweep::asked().count(2, 40) {
                let mut changed = bytes.clone();
                changed[place.start + r.below(place.len())] ^= 1 << r.below(8);
                fs::write(&file, &changed).unwrap();
                let Some(found) = said(&input) else {
                    // The last bits of compressed data may have no effect.
                    assert!(input.ends_with("packed.npz"), "{file:?} {name}: nothing was found");
                    let good = folder.path().join("good");
                    fs::write(&good, &bytes).unwrap();
                    let same = diff(&opened(&input), &opened(&good), &mut ()).unwrap().equal;
                    assert!(same, "{file:?} {name}: nothing was found");
                    continue;
                };
                let file_name = file.file_name().unwrap().to_str().unwrap();
                assert!(found.contains(file_name) && !found.contains('\n'), "{name}: {found}");
                named += usize::from(name.contains("/data/") && found.contains("tensor `"));
                flipped += 1;
            }
        }
        fs::write(&file, &bytes).unwrap();
        assert_eq!(said(&input), None, "{input:?}");
    }
    assert!(flipped > 300 && named > 80, "{flipped} {named}");
}

/// Replaces the checksums of some entries by 0 in the directory of the only archive of a file.
fn without_checksums(bytes: &[u8], which: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let records: Vec<usize> =
        (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    for (_, at) in records.into_iter().enumerate().filter(|(number, _)| which(*number)) {
        changed[at + 16..at + 20].fill(0);
    }
    changed
}

/// PyTorch can be configured to compute no checksums, and then writes 0 for every entry.
#[test]
fn an_archive_that_says_no_checksum_is_told_from_one_that_says_a_wrong_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.pt");
    let bytes = fs::read(data("state.pt")).unwrap();
    fs::write(&path, without_checksums(&bytes, |_| true)).unwrap();
    let checkpoint = Checkpoint::open(Some(&path)).unwrap();
    let verified = checkpoint.verify(&mut ()).unwrap();
    assert!(verified.problems.is_empty() && !verified.checksums && !checkpoint.has_checksums());
    for (one, (_, place)) in payloads(&bytes, false).into_iter().enumerate() {
        if place.is_empty() {
            continue;
        }
        fs::write(&path, without_checksums(&bytes, |number| number == one)).unwrap();
        let found = said(&path).unwrap_or_else(|| panic!("entry {one}"));
        assert!(found.contains("the archive has 00000000"), "{found}");
    }
    // In an archive without checksums a changed byte of a large tensor is read, and cannot be detected.
    let mut changed = without_checksums(&bytes, |_| true);
    let (_, place) = payloads(&bytes, false).into_iter().find(|(name, _)| name.contains("/data/")).unwrap();
    changed[place.start] ^= 1;
    fs::write(&path, changed).unwrap();
    assert_eq!(said(&path), None);
}
