//! Requests that are rejected before writing: reserved names, and outputs inside an input folder.
//!
//! Also an error during a run: an input that has changed.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use reshard_checkpoint::{Checkpoint, CheckpointWriter, Observer, OutputFormat, ReshardJob, diff};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, job, tensor, write};
use crate::reading::opened;

/// Returns two tensors with these names.
fn named(names: [&str; 2]) -> Tensors {
    let mut r = Random(91);
    names.map(|name| (name.to_owned(), tensor(&mut r, Dtype::F32, &[6, 4]))).into()
}

const FORMATS: [OutputFormat; 4] =
    [OutputFormat::RankFiles, OutputFormat::Dcp, OutputFormat::DcpSafetensors, OutputFormat::Safetensors];

/// Returns a job to a folder, without options that the format does not accept.
fn to(input: &Path, out: &Path, format: OutputFormat) -> ReshardJob {
    let asked =
        ReshardJob { out: Some(out.to_owned()), format, force: true, ..job(input, "a=2", "S(0)", false) };
    if format == OutputFormat::Safetensors { ReshardJob { mesh: None, to: None, ..asked } } else { asked }
}

#[test]
fn names_that_an_output_keeps_for_itself_are_refused_and_the_old_output_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("w.safetensors"), &named(["a", "b"]));
    let reserved = |job: ReshardJob| ReshardJob { rename: vec!["s/^a$/__metadata__/".to_owned()], ..job };
    for format in FORMATS {
        let out = path("out");
        let asked = to(&path("w.safetensors"), &out, format);
        asked.run(&mut ()).unwrap();
        let done = reserved(asked.clone()).run(&mut ());
        if format == OutputFormat::Dcp {
            done.unwrap();
            assert!(opened(&out).tensor("__metadata__").is_ok());
            // From there it cannot go into a safetensors file.
            let error = to(&out, &path("back"), OutputFormat::RankFiles).run(&mut ()).unwrap_err();
            assert_eq!((error.code(), error.status()), ("name", 2), "{error}");
        } else {
            let error = done.unwrap_err();
            assert_eq!((error.code(), error.status()), ("name", 2), "{error}");
            assert!(
                error.to_string().contains("`__metadata__`") && error.to_string().contains("--rename"),
                "{error}"
            );
            assert!(opened(&out).tensor("a").is_ok(), "{format:?}: the old output stays");
        }
        fs::remove_dir_all(&out).unwrap();
    }
    let whole = ReshardJob {
        gather: Some(path("whole.safetensors")),
        ..to(&path("w.safetensors"), &path("dcp"), OutputFormat::Dcp)
    };
    for through_engine in [false, true] {
        let gathers =
            ReshardJob { out: None, format: OutputFormat::RankFiles, through_engine, ..whole.clone() };
        assert_eq!(reserved(gathers).run(&mut ()).unwrap_err().code(), "name");
    }
    assert_eq!(reserved(whole).run(&mut ()).unwrap_err().code(), "name");
    assert!(!path("whole.safetensors").exists() && !path("dcp").exists());
    let mesh: Mesh = "a=2".parse().unwrap();
    let rows = Sharding::parse(&mesh, &[4], "S(0)").unwrap();
    let begun = CheckpointWriter::begin(&path("saved"), &mesh, [("__metadata__", "U8", &rows)], false);
    assert_eq!(begun.err().unwrap().code(), "name");
    let texts = [("DCP_SHARDING_INFO", "{}")];
    let begun = CheckpointWriter::begin_with_texts(&path("saved"), &mesh, [("w", "U8", &rows)], false, texts);
    assert!(begun.err().unwrap().to_string().contains("`DCP_SHARDING_INFO`"));
    assert!(!path("saved").exists());
}

/// Any other text is a valid name: quotes, NUL, slashes, dots, or the empty text.
#[test]
fn any_other_text_is_a_name_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let names = ["", "\0", "a/../b", "\"\\\n", "..", "sharding.json", "größe \u{1f600}", "__metadata__.x"];
    let mut r = Random(92);
    let tensors: Tensors = names.map(|name| (name.to_owned(), tensor(&mut r, Dtype::U8, &[4]))).into();
    write(&path("w.safetensors"), &tensors);
    for format in FORMATS {
        to(&path("w.safetensors"), &path("out"), format).run(&mut ()).unwrap();
        let written = opened(&path("out"));
        assert!(names.iter().all(|name| written.tensor(name).is_ok()), "{format:?}");
        assert!(written.verify(&mut ()).unwrap().problems.is_empty(), "{format:?}");
        fs::remove_dir_all(path("out")).unwrap();
    }
}

#[test]
fn one_name_is_not_nested_inside_another() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let dcp = crate::torch::data("dcp");
    // `optimizer` would be both a tensor and a dict.
    let asked =
        ReshardJob { rename: vec!["s/^boxes$/optimizer/".to_owned()], ..to(&dcp, &out, OutputFormat::Dcp) };
    let error = asked.run(&mut ()).unwrap_err();
    assert!(error.code() == "name" && error.to_string().contains("inside `optimizer`"), "{error}");
    assert!(!out.exists());
}

#[test]
fn nothing_is_written_into_a_folder_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("w.safetensors"), &named(["a", "b"]));
    let refused = |job: ReshardJob| {
        let error = job.run(&mut ()).unwrap_err();
        assert_eq!((error.code(), error.status()), ("output", 2), "{error}");
        assert!(error.to_string().contains("inside the input folder"), "{error}");
    };
    for format in FORMATS {
        let dir = path(&format!("{format:?}"));
        to(&path("w.safetensors"), &dir, format).run(&mut ()).unwrap();
        let before = fs::read_dir(&dir).unwrap().count();
        for through_engine in [false, true] {
            let into = |out: Option<&str>, gather: Option<&str>| ReshardJob {
                out: out.map(|name| dir.join(name)),
                gather: gather.map(|name| dir.join(name)),
                through_engine,
                ..to(&dir, &dir, OutputFormat::RankFiles)
            };
            refused(into(None, Some("new.safetensors")));
            let dots = ReshardJob {
                input: Some(dir.join("..").join(dir.file_name().unwrap())),
                ..into(None, Some("x.safetensors"))
            };
            refused(dots);
            refused(into(Some("new"), None));
            refused(into(Some("deep/er/new"), None));
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&dir, path("link")).unwrap();
            refused(to(&dir, &path("link").join("new"), OutputFormat::RankFiles));
            refused(to(&path("link"), &dir.join("new"), OutputFormat::RankFiles));
            fs::remove_file(path("link")).unwrap();
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), before);
        assert!(Checkpoint::open(Some(&dir)).is_ok());
        // A sibling of the input, and the input's own path, are valid outputs.
        to(&dir, &dir, format).run(&mut ()).unwrap();
        to(&dir, &path("beside"), OutputFormat::RankFiles).run(&mut ()).unwrap();
    }
    let dir = path("Safetensors");
    refused(to(&dir.join("model.safetensors.index.json"), &dir.join("new"), OutputFormat::RankFiles));
    // The folder that fills lost regions is an input too.
    let filled = ReshardJob {
        missing_ranks: vec![0],
        fill_from: Some(dir.clone()),
        ..to(&path("RankFiles"), &dir.join("new"), OutputFormat::RankFiles)
    };
    refused(filled);
}

#[test]
fn a_foreign_file_beside_rank_files_is_named_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("w.safetensors"), &named(["a", "b"]));
    to(&path("w.safetensors"), &path("ranks"), OutputFormat::RankFiles).run(&mut ()).unwrap();
    fs::copy(path("w.safetensors"), path("ranks").join("new.safetensors")).unwrap();
    fs::write(path("ranks").join("rank-00000-of-00007.safetensors"), "no tensors").unwrap();
    let foreign = ["new.safetensors", "rank-00000-of-00007.safetensors"];
    assert_eq!(opened(&path("ranks")).ignored(), foreign);
    for through_engine in [false, true] {
        let asked =
            ReshardJob { through_engine, ..to(&path("ranks"), &path("out"), OutputFormat::RankFiles) };
        assert_eq!(asked.run(&mut ()).unwrap().unwrap().ignored, foreign);
    }
    assert!(opened(&path("out")).ignored().is_empty());
}

/// Runs a closure when everything is decided and nothing is read yet.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Observer for Then<F> {
    fn on_start(&mut self, _bytes: u64) {
        (self.0)();
    }
}

/// Changes the last byte of a file, but not its length, inode number or modification time.
#[cfg(unix)]
fn change(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(path).unwrap();
    let kind = file.metadata().unwrap();
    let (last, mut byte) = (kind.len() - 1, [0]);
    file.read_exact_at(&mut byte, last).unwrap();
    // File system timestamps are coarse.
    thread::sleep(Duration::from_millis(20));
    file.write_all_at(&[byte[0] ^ 1], last).unwrap();
    file.set_modified(kind.modified().unwrap()).unwrap();
    assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), kind.modified().unwrap());
}

#[cfg(unix)]
#[test]
fn an_input_that_is_changed_and_says_an_old_time_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("w.safetensors"), &named(["a", "b"]));
    for format in FORMATS {
        let asked = to(&path("w.safetensors"), &path("out"), format);
        let error = asked.run(&mut Then(|| change(&path("w.safetensors")))).unwrap_err();
        assert!(
            error.code() == "input" && error.to_string().contains("was changed while it was read"),
            "{error}"
        );
        assert!(!path("out").exists());
        asked.run(&mut ()).unwrap();
        fs::remove_dir_all(path("out")).unwrap();
    }
    let opened = opened(&path("w.safetensors"));
    change(&path("w.safetensors"));
    assert_eq!(opened.verify(&mut ()).unwrap_err().code(), "input");
}

/// Returns the names in a folder, including hidden ones.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn runs_that_go_on_at_once_leave_one_output_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut r = Random(93);
    let tensors: Tensors = [("a", 600), ("b", 500)]
        .map(|(name, rows)| (name.to_owned(), tensor(&mut r, Dtype::F32, &[rows, 64])))
        .into();
    write(&path("w.safetensors"), &tensors);
    let one_file = ReshardJob {
        gather: Some(path("out")),
        out: None,
        ..to(&path("w.safetensors"), &path("out"), OutputFormat::RankFiles)
    };
    let jobs =
        FORMATS.map(|format| to(&path("w.safetensors"), &path("out"), format)).into_iter().chain([one_file]);
    for (round, asked) in jobs.cycle().take(20).enumerate() {
        let asked = ReshardJob { resume: round % 4 != 3, force: false, ..asked };
        let begin = Barrier::new(4);
        let meet = || {
            begin.wait();
        };
        let run = || asked.run(&mut Then(meet)).is_ok();
        let done = thread::scope(|scope| {
            let runs: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            runs.into_iter().map(|run| run.join().unwrap()).filter(|done| *done).count()
        });
        assert_eq!(
            (done, names(folder.path())),
            (1, vec!["out".to_owned(), "w.safetensors".to_owned()]),
            "{asked:?}"
        );
        assert!(diff(&opened(&path("out")), &opened(&path("w.safetensors")), &mut ()).unwrap().equal);
        if path("out").is_dir() { fs::remove_dir_all(path("out")) } else { fs::remove_file(path("out")) }
            .unwrap();
    }
}

#[cfg(unix)]
#[test]
fn the_run_that_ends_first_removes_what_others_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["w.safetensors", "x.safetensors"] {
        write(&path(name), &named(["a", "b"]));
    }
    let asked = to(&path("w.safetensors"), &path("out"), OutputFormat::RankFiles);
    // It leaves its partial work, which can be resumed.
    let fails = ReshardJob { resume: true, input: Some(path("x.safetensors")), ..asked.clone() };
    let mut left = 0;
    let mut during = Then(|| {
        fails.run(&mut Then(|| change(&path("x.safetensors")))).unwrap_err();
        left = names(folder.path()).iter().filter(|name| name.starts_with(".out.")).count();
    });
    asked.run(&mut during).unwrap();
    assert_eq!(
        (left, names(folder.path())),
        (2, ["out", "w.safetensors", "x.safetensors"].map(str::to_owned).to_vec())
    );
}
