//! Saving by ranks: a checkpoint holds what the ranks saved, whichever process commits.
//!
//! A partly written checkpoint is never visible, and no other files stay.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use reshard_checkpoint::{Checkpoint, CheckpointWriter, Error, ErrorClass};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, draw, draw_sharding, slice, tensor};

/// Random tensors, and a sharding of each over one mesh.
struct Held {
    mesh: Mesh,
    shardings: BTreeMap<String, Sharding>,
    tensors: Tensors,
}

impl Held {
    fn draw(r: &mut Random) -> Self {
        let (mesh, to) = draw_sharding(r);
        let mesh: Mesh = mesh.parse().unwrap();
        let mut tensors = draw(r);
        tensors.insert("plain".to_owned(), tensor(r, Dtype::F32, &[6, 7, 5]));
        tensors.retain(|_, whole| whole.dtype.bitsize() >= 8);
        let sharding = |(name, whole): (&String, &crate::files::Whole)| {
            let wanted = Sharding::parse(&mesh, &whole.shape, to);
            (name.clone(), wanted.unwrap_or_else(|_| Sharding::replicated(&mesh, &whole.shape).unwrap()))
        };
        let shardings = tensors.iter().map(sharding).collect();
        Self { mesh, shardings, tensors }
    }

    fn begin(&self, out: &Path, force: bool) -> Result<CheckpointWriter, Error> {
        let all = self.shardings.iter();
        let dtypes: Vec<String> = self.tensors.values().map(|whole| whole.dtype.to_string()).collect();
        let all = all.zip(&dtypes).map(|((name, sharding), dtype)| (&name[..], &dtype[..], sharding));
        CheckpointWriter::begin_with_texts(out, &self.mesh, all, force, [("step", "1000")])
    }

    fn save(&self, writer: &CheckpointWriter, rank: usize) -> Result<(), Error> {
        let shards: Vec<(&str, Vec<u8>)> = (self.tensors.iter())
            .map(|(name, whole)| (&name[..], slice(whole, &self.shardings[name].region(rank).unwrap())))
            .collect();
        writer.save(rank, shards.iter().rev().map(|(name, bytes)| (*name, &bytes[..])))
    }

    fn check(&self, out: &Path) {
        let saved = Checkpoint::open(Some(out)).unwrap();
        assert!(saved.has_checksums() && saved.verify(&mut ()).unwrap().problems.is_empty());
        assert_eq!((saved.mesh(), saved.tensors().len()), (Some(&self.mesh), self.tensors.len()));
        assert_eq!(saved.metadata().collect::<Vec<_>>(), [("step", "1000")]);
        for (name, whole) in &self.tensors {
            assert_eq!(saved.tensor(name).unwrap().sharding(), Some(&self.shardings[name]));
            for rank in self.mesh.ranks() {
                let shard = saved.shard(name, &self.shardings[name], rank).unwrap();
                assert_eq!(shard, slice(whole, &self.shardings[name].region(rank).unwrap()));
            }
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[allow(clippy::needless_pass_by_value, reason = "it is what unwrap_err gives")]
fn said(error: Error, kind: &str, part: &str) {
    assert_eq!((error.code(), error.class()), (kind, ErrorClass::Refused), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn what_ranks_save_is_what_is_read_and_exactly_one_commits() {
    let mut r = Random(81);
    for turn in 0..10 {
        let held = Held::draw(&mut r);
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let begun = held.begin(&out, false).unwrap();
        let committed = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for (number, rank) in held.mesh.ranks().enumerate() {
                let (held, begun, committed, out) = (&held, &begun, &committed, &out);
                threads.spawn(move || {
                    // Some threads share the writer, and some join it as other processes do.
                    let joined =
                        (number % 2 == 1).then(|| CheckpointWriter::join(out, begun.token()).unwrap());
                    let writer = joined.as_ref().unwrap_or(begun);
                    held.save(writer, rank).unwrap();
                    committed.fetch_add(usize::from(writer.commit_if_last().unwrap()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(committed.into_inner(), 1, "{turn}");
        held.check(&out);
        drop(begun);
        assert_eq!(names(folder.path()), ["out"], "{turn}");
    }
}

#[test]
fn what_is_not_whole_is_not_committed_and_nothing_of_it_stays() {
    let mut r = Random(82);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("above").join("out");
    let rows = Sharding::parse(&"a=2,b=2".parse().unwrap(), &[4, 3], "S(0),R").unwrap();
    let begin = |force| CheckpointWriter::begin(&out, rows.mesh(), [("w", "f32", &rows)], force);
    let bytes: Vec<u8> = (0..24).map(|_| r.next_u64() as u8).collect();
    let writer = begin(false).unwrap();
    for rank in [0, 1, 3] {
        writer.save(rank, [("w", &bytes[..])]).unwrap();
    }
    said(writer.commit().unwrap_err(), "rank_missing", "1 of 4 ranks have not saved their shards: 2");
    assert!(!writer.commit_if_last().unwrap() && !out.exists());
    said(writer.save(3, [("w", &bytes[..])]).unwrap_err(), "rank", "already being saved, or was saved");
    said(writer.save(4, [("w", &bytes[..])]).unwrap_err(), "rank", "not in the mesh");
    said(
        writer.save(2, [("w", &bytes[1..])]).unwrap_err(),
        "shard",
        "rank 2 holds 24 bytes of it, but 23 are given",
    );
    said(writer.save(2, [("v", &bytes[..])]).unwrap_err(), "no_such_tensor", "`v`");
    said(writer.save(2, []).unwrap_err(), "shard", "`w`: rank 2 has not written");
    said(writer.save(2, [("w", &bytes[..]), ("w", &bytes[..])]).unwrap_err(), "shard", "already written it");
    // A rank that failed may begin again; ranks 2 and 3 are replicas.
    let mut other = bytes.clone();
    other[7] ^= 1;
    writer.save(2, [("w", &other[..])]).unwrap();
    said(writer.commit().unwrap_err(), "replicas", "ranks 2 and 3 should hold the same bytes");
    said(writer.commit().unwrap_err(), "committed", "");
    let token = writer.token().to_owned();
    drop(writer);
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    for token in [&token[..], "0-0", "x", "7-a"] {
        said(CheckpointWriter::join(&out, token).err().unwrap(), "token", "no process is saving");
    }
    // A later attempt at the same path has another token.
    let writer = begin(false).unwrap();
    said(CheckpointWriter::join(&out, &token).err().unwrap(), "token", "another attempt");
    for rank in 0..4 {
        writer.save(rank, [("w", &bytes[..])]).unwrap();
    }
    writer.commit().unwrap();
    said(writer.rank(0).err().unwrap(), "committed", "nothing can be added");
    drop(writer);
    said(begin(false).err().unwrap(), "output", "--force");
    let writer = begin(true).unwrap();
    let joined = CheckpointWriter::join(&out, writer.token()).unwrap();
    for rank in 0..4 {
        let writer = if rank % 2 == 0 { &writer } else { &joined };
        writer.save(rank, [("w", &bytes[..])]).unwrap();
    }
    drop(writer);
    joined.commit().unwrap();
    drop(joined);
    assert_eq!(names(out.parent().unwrap()), ["out"]);
    assert!(Checkpoint::open(Some(&out)).unwrap().verify(&mut ()).unwrap().problems.is_empty());
}

#[test]
fn what_cannot_be_saved_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mesh: Mesh = "a=2".parse().unwrap();
    let of = |shape: &[usize], text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    let begin = |dtype: &str, sharding: &Sharding| {
        CheckpointWriter::begin(&out, &mesh, [("w", dtype, sharding)], false).err().unwrap()
    };
    said(begin("float33", &of(&[4], "R")), "dtype", "`float33`");
    said(begin("F32", &of(&[4], "P")), "partial_target", "reduce it first");
    said(begin("F4", &of(&[2, 6], "S(1)")), "packed", "share");
    said(begin("F32", &Sharding::parse(&"b=2".parse().unwrap(), &[4], "R").unwrap()), "mesh", "b=2");
    let rows = of(&[4], "R");
    said(
        CheckpointWriter::begin(&out, &mesh, [("w", "U8", &rows), ("w", "U8", &rows)], false).err().unwrap(),
        "name",
        "twice",
    );
    assert!(names(folder.path()).is_empty());
}

/// The environment variable by which this test starts itself as one rank.
const RANK: &str = "RESHARD_TEST_RANK";

/// Separate processes save; one of them is killed. The second attempt, by all of them, commits a checkpoint.
#[test]
fn a_process_that_is_killed_leaves_no_checkpoint() {
    let rows = |rank: usize| vec![rank as u8; 1 << 16];
    if let Ok(told) = std::env::var(RANK) {
        let [out, token, rank] = told.split('|').collect::<Vec<_>>()[..] else { unreachable!("{told}") };
        let writer = CheckpointWriter::join(out.as_ref(), token).unwrap();
        let number: usize = rank.trim_end_matches('!').parse().unwrap();
        let mut file = writer.rank(number).unwrap();
        file.write("w", &rows(number)).unwrap();
        if rank.ends_with('!') {
            // Written, but killed before it is recorded as done.
            Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
        }
        file.finish().unwrap();
        writer.commit_if_last().unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mesh: Mesh = "a=3".parse().unwrap();
    let sharding = Sharding::parse(&mesh, &[3 << 16], "S(0)").unwrap();
    for attempt in 0..2 {
        let writer = CheckpointWriter::begin(&out, &mesh, [("w", "U8", &sharding)], false).unwrap();
        let ranks = ["0", if attempt == 0 { "1!" } else { "1" }, "2"];
        let children: Vec<_> = (ranks.iter())
            .map(|rank| {
                let told = format!("{}|{}|{rank}", out.display(), writer.token());
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["writer::a_process_that_is_killed", "--test-threads", "1"]).env(RANK, told);
                command.stdout(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let ended: Vec<bool> =
            children.into_iter().map(|mut child| child.wait().unwrap().success()).collect();
        assert_eq!(ended, [true, attempt == 1, true]);
        if attempt == 0 {
            said(writer.commit().unwrap_err(), "rank_missing", "1 of 3 ranks");
            assert!(!out.exists());
        }
        drop(writer);
    }
    let saved = Checkpoint::open(Some(&out)).unwrap();
    for rank in 0..3 {
        assert_eq!(saved.shard("w", &sharding, rank).unwrap(), rows(rank));
    }
    assert_eq!(names(folder.path()), ["out"]);
}
