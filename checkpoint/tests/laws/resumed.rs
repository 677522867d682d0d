//! Resumed runs: the same job continues work that was not put in place, and another job does not.

use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::{ErrorClass, Observer, OutputFormat, ReshardJob, diff};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, job, tensor, write};
use crate::reading::opened;

/// Runs a closure when everything is written and verified, and not yet in place.
struct AtTheEnd<F: FnMut()>(F);

impl<F: FnMut()> Observer for AtTheEnd<F> {
    fn on_finish(&mut self) {
        (self.0)();
    }
}

/// Returns the names in a folder, including hidden ones.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a job whose last rename fails, because its parent folder is renamed; then restores that folder.
fn fails_at_the_end(asked: &ReshardJob, folder: &Path) -> reshard_checkpoint::Error {
    let [above, away] = ["above", "away"].map(|name| folder.join(name));
    let error = asked.run(&mut AtTheEnd(|| fs::rename(&above, &away).unwrap())).unwrap_err();
    assert!(!above.exists());
    fs::rename(&away, &above).unwrap();
    error
}

fn setting(folder: &Path) -> (PathBuf, PathBuf) {
    let mut r = Random(95);
    let tensors: Tensors = [("a", 60), ("b", 50)]
        .map(|(name, rows)| (name.to_owned(), tensor(&mut r, Dtype::F32, &[rows, 6])))
        .into();
    fs::create_dir(folder.join("above")).unwrap();
    write(&folder.join("w.safetensors"), &tensors);
    (folder.join("w.safetensors"), folder.join("above").join("out"))
}

#[test]
fn finished_work_that_could_not_be_put_in_place_is_gone_on_with() {
    for format in [OutputFormat::RankFiles, OutputFormat::Dcp, OutputFormat::DcpSafetensors] {
        let folder = tempfile::tempdir().unwrap();
        let (input, out) = setting(folder.path());
        let asked =
            ReshardJob { out: Some(out.clone()), format, resume: true, ..job(&input, "a=2", "S(0)", false) };
        let error = fails_at_the_end(&asked, folder.path());
        assert_eq!((error.code(), error.class()), ("io", ErrorClass::Failed), "{error}");
        let report = asked.run(&mut ()).unwrap().unwrap();
        assert_eq!(report.resumed_bytes, report.bytes, "{format:?}");
        assert!(diff(&opened(&out), &opened(&input), &mut ()).unwrap().equal);
        assert_eq!(names(out.parent().unwrap()), ["out"]);
    }
}

/// The second of two runs leaves nothing, because there is nothing to resume.
#[test]
fn work_that_another_run_has_done_first_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = setting(folder.path());
    let asked = ReshardJob { out: Some(out.clone()), resume: true, ..job(&input, "a=2", "S(0)", false) };
    let first = || {
        fs::create_dir(&out).unwrap();
        fs::write(out.join("somebody"), "else").unwrap();
    };
    let error = asked.run(&mut AtTheEnd(first)).unwrap_err();
    assert_eq!((error.code(), error.class()), ("output", ErrorClass::Refused), "{error}");
    assert_eq!(names(out.parent().unwrap()), ["out"]);
}

/// A journal belongs to one request: the work of a different request is neither used nor retained.
#[test]
fn the_work_of_another_request_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = setting(folder.path());
    let other = folder.path().join("other.safetensors");
    let mut r = Random(96);
    let tensors =
        [("a", 60), ("b", 50)].map(|(name, rows)| (name.to_owned(), tensor(&mut r, Dtype::F32, &[rows, 6])));
    write(&other, &tensors.into());
    let asked = ReshardJob { out: Some(out.clone()), resume: true, ..job(&input, "a=2", "S(0)", false) };
    let others = [
        ReshardJob { to: Some("S(1)".into()), ..asked.clone() },
        ReshardJob { mesh: Some("b=2".into()), ..asked.clone() },
        ReshardJob { format: OutputFormat::DcpSafetensors, ..asked.clone() },
        ReshardJob { input: Some(other.clone()), ..asked.clone() },
        ReshardJob { only: vec!["a".into()], ..asked.clone() },
        ReshardJob { rename: vec!["s/^a$/c/".into()], ..asked.clone() },
        ReshardJob { dtype: vec!["bf16".into()], ..asked.clone() },
    ];
    for (number, another) in others.into_iter().enumerate() {
        fails_at_the_end(&asked, folder.path());
        let report = another.run(&mut ()).unwrap().unwrap();
        assert_eq!((report.resumed_bytes, report.verified), (0, true), "{number}");
        assert_eq!(names(out.parent().unwrap()), ["out"], "{number}");
        assert!(opened(&out).verify(&mut ()).unwrap().problems.is_empty());
        let equal = diff(&opened(&out), &opened(another.input.as_deref().unwrap()), &mut ()).unwrap().equal;
        assert_eq!(equal, number < 4, "{number}");
        fs::remove_dir_all(&out).unwrap();
    }
}
