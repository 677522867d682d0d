//! File-to-file resharding: the result equals that of the threads engine, and invalid requests are rejected.

use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, ErrorClass, Observer, PlacementSpec, Replicas, ReshardJob, diff};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{
    Tensors, contents, draw, draw_sharding, inputs, job, output, read, sharding, slice, tensor, write,
};
use crate::reading::opened;

#[test]
fn files_to_files_gives_what_the_threads_engine_gives() {
    let mut r = Random(21);
    let mut same = 0;
    for _ in 0..16 {
        let folder = tempfile::tempdir().unwrap();
        let tensors = draw(&mut r);
        for (number, input) in inputs(folder.path(), &tensors, &mut r).iter().enumerate() {
            let place = |name: &str| folder.path().join(format!("{name}-{number}"));
            let (mesh, to) = draw_sharding(&mut r);
            let run = |name: &str, through_engine: bool, unchecked: bool| {
                let (out, gather) = (Some(place(name)), Some(place(&format!("{name}.safetensors"))));
                let job =
                    ReshardJob { out, gather, verify: !unchecked, ..job(input, mesh, to, through_engine) };
                job.run(&mut ()).map(|report| report.unwrap())
            };
            let engine = run("engine", true, false);
            for (name, unchecked) in [("offline", false), ("unchecked", true)] {
                match (&engine, run(name, false, unchecked)) {
                    (Ok(engine), Ok(offline)) => {
                        assert_eq!((offline.verified, offline.through_engine), (!unchecked, false));
                        assert_eq!(engine.bytes, offline.bytes);
                        assert!(
                            contents(&place("engine")) == contents(&place(name)),
                            "{input:?} {mesh} {to}"
                        );
                        let whole = read(&place(&format!("{name}.safetensors")));
                        assert!(whole == tensors, "{input:?} {mesh} {to}");
                        same += 1;
                    }
                    (Err(one), Err(other)) => {
                        assert_eq!((one.code(), one.to_string()), (other.code(), other.to_string()));
                        assert!(!place(name).exists());
                    }
                    (engine, offline) => panic!("{engine:?} and {offline:?}"),
                }
            }
        }
    }
    assert!(same > 60, "{same}");
}

/// Blocks are smaller than these tensors, and ranges long enough for copies by the operating system.
#[test]
fn large_tensors_are_cut_and_put_together_by_slabs() {
    let mut r = Random(22);
    let tensors: Tensors = [
        ("tall".to_owned(), tensor(&mut r, Dtype::F32, &[4099, 513])),
        ("wide".to_owned(), tensor(&mut r, Dtype::BF16, &[3, 2_100_001])),
        ("deep".to_owned(), tensor(&mut r, Dtype::U8, &[2, 3, 7, 200_003])),
    ]
    .into();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("whole.safetensors"), &tensors);
    for unchecked in [false, true] {
        let mut input = path("whole.safetensors");
        for (at, (mesh, to)) in
            [("a=3", "S(0)"), ("a=2,b=2", "S(1),S(0)"), ("a=7", "S(1)"), ("a=2,b=2", "R,SS(0,2)")]
                .into_iter()
                .enumerate()
        {
            let out = path(&format!("{at}-{unchecked}"));
            let job =
                ReshardJob { out: Some(out.clone()), verify: !unchecked, ..job(&input, mesh, to, false) };
            job.run(&mut ()).unwrap();
            let opened = Checkpoint::open(Some(&out)).unwrap();
            assert_eq!(opened.has_checksums(), !unchecked);
            for (name, whole) in &tensors {
                let sharding = sharding(mesh, &whole.shape, to);
                for rank in 0..2 {
                    let shard = opened.shard(name, &sharding, rank).unwrap();
                    if whole.bytes.len() < 5 << 20 {
                        assert!(shard == slice(whole, &sharding.region(rank).unwrap()));
                    }
                }
            }
            input = out;
        }
        let gather = path(&format!("{unchecked}.safetensors"));
        ReshardJob { gather: Some(gather.clone()), verify: !unchecked, ..job(&input, "a=1", "R", false) }
            .run(&mut ())
            .unwrap();
        assert!(read(&gather) == tensors);
    }
}

#[derive(Default)]
struct Told {
    begun: u64,
    moved: u64,
    ended: bool,
    failed: Option<&'static str>,
}

impl Observer for Told {
    fn on_start(&mut self, bytes: u64) {
        self.begun += bytes;
    }

    fn on_progress(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    fn on_finish(&mut self) {
        self.ended = true;
    }

    fn on_error(&mut self, error: &reshard_checkpoint::Error) {
        self.failed = Some(error.code());
    }
}

#[test]
fn one_call_reshards_and_tells_every_byte_once() {
    let folder = tempfile::tempdir().unwrap();
    let block = Checkpoint::open(None).unwrap();
    let spec = PlacementSpec::new([("*.weight", "S(0),R")]).unwrap();
    let mesh = "a=3,b=2";
    let out = folder.path().join("out");
    let mut told = Told::default();
    let job = |out: &Path| ReshardJob { to: Some("R,S(0)".to_owned()), ..output(mesh, out) };
    let report = job(&out).run_on(&block, Some(&spec), &mut told).unwrap();
    assert!(report.verified && told.ended);
    assert_eq!((told.begun, told.moved), (report.bytes, report.bytes));
    let sharded = Checkpoint::open(Some(&out)).unwrap();
    assert_eq!(sharded.mesh(), Some(&mesh.parse().unwrap()));
    assert!(diff(&block, &sharded, &mut ()).unwrap().equal);
    assert!(sharded.verify(&mut ()).unwrap().problems.is_empty());
    // A name that ends in .safetensors is one file of whole tensors.
    let file = folder.path().join("whole.safetensors");
    job(&file).run_on(&sharded, None, &mut ()).unwrap();
    assert!(diff(&block, &Checkpoint::open(Some(&file)).unwrap(), &mut ()).unwrap().equal);
    // An existing output is not changed.
    let mut told = Told::default();
    let error = job(&out).run_on(&block, Some(&spec), &mut told).unwrap_err();
    assert_eq!((error.code(), error.class(), told.failed), ("output", ErrorClass::Refused, Some("output")));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 7);
    // Options of an input or of an engine, and two specs, are errors.
    let elsewhere = folder.path().join("elsewhere");
    for (job, why) in [
        (ReshardJob { input: Some(out.clone()), ..job(&elsewhere) }, "drop `input`"),
        (ReshardJob { through_engine: true, ..job(&elsewhere) }, "drop the engine"),
        (ReshardJob { spec: Some(out.clone()), ..job(&elsewhere) }, "both the job and the call have a spec"),
        (ReshardJob { out: None, ..job(&elsewhere) }, "there is no output"),
    ] {
        let error = job.run_on(&block, Some(&spec), &mut ()).unwrap_err();
        assert!(error.to_string().contains(why) && !elsewhere.exists(), "{error}");
    }
}

#[test]
fn a_damaged_input_leaves_the_old_output_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (whole, sharded, out) = (path("w.safetensors"), path("sharded"), path("out"));
    let mut r = Random(23);
    write(&whole, &[("w".to_owned(), tensor(&mut r, Dtype::F32, &[64, 64]))].into());
    ReshardJob { out: Some(sharded.clone()), ..job(&whole, "a=4", "S(0)", false) }.run(&mut ()).unwrap();
    ReshardJob { out: Some(out.clone()), ..job(&sharded, "a=2", "S(0)", false) }.run(&mut ()).unwrap();
    let before = contents(&out);
    let file = sharded.join("rank-00002-of-00004.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&file, bytes).unwrap();
    let again = ReshardJob { out: Some(out.clone()), force: true, ..job(&sharded, "a=3", "S(1)", false) };
    let error = again.run(&mut ()).unwrap_err();
    assert_eq!((error.code(), error.class()), ("checksum", ErrorClass::Refused));
    let said = error.to_string();
    assert!(said.contains("rank-00002") && said.contains("`w`"), "{said}");
    assert!(contents(&out) == before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left");
    // Without checks it is not noticed; the manifest of the output then has no checksums.
    ReshardJob { verify: false, ..again }.run(&mut ()).unwrap();
    assert!(!Checkpoint::open(Some(&out)).unwrap().has_checksums());
}

/// With replicas once, every byte is in one file, and each file has its part of every tensor within one row.
#[test]
fn data_of_several_ranks_is_written_once() {
    let mut r = Random(91);
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let tensors: Tensors = (0..3)
            .map(|at| {
                let shape = [8 + r.below(20), 8 + r.below(20)];
                (format!("t.{at}"), tensor(&mut r, Dtype::F32, &shape))
            })
            .collect();
        let input = folder.path().join("w.safetensors");
        write(&input, &tensors);
        let (mesh, to) = *r.pick(&[
            ("a=4", "R"),
            ("a=2,b=2", "R,R"),
            ("a=2,b=2", "R,S(0)"),
            ("a=2,b=2", "S(1),R"),
            ("a=2,b=3", "R,SS(0,2)"),
        ]);
        let out = |name: &str| folder.path().join(name);
        let once = ReshardJob {
            out: Some(out("once")),
            replicas: Replicas::Once,
            ..job(&input, mesh, to, round % 4 == 0)
        };
        let report = once.run(&mut ()).unwrap().unwrap();
        assert!(report.tensors.iter().all(|tensor| tensor.to == to), "{mesh} {to}");
        let world = mesh.parse::<reshard_sharding::Mesh>().unwrap().size();
        let mut total = 0;
        let mut files = 0;
        for entry in fs::read_dir(out("once")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "safetensors") {
                continue;
            }
            files += 1;
            let mine: usize = read(&path).values().map(|part| part.bytes.len()).sum();
            let rows: usize = tensors.values().map(|whole| whole.shape.iter().max().unwrap() * 4).sum();
            let share = tensors.values().map(|whole| whole.bytes.len()).sum::<usize>() / world;
            assert!(mine <= share + 2 * rows, "{mesh} {to}: {mine} bytes, and a share is {share}");
            total += mine;
        }
        assert_eq!((total, files), (tensors.values().map(|whole| whole.bytes.len()).sum(), world));
        // The folder is an input like any other, and also for a run that wants replicas.
        let again = ReshardJob { out: Some(out("every")), ..job(&out("once"), mesh, to, false) };
        again.run(&mut ()).unwrap();
        assert!(diff(&opened(&out("every")), &opened(&input), &mut ()).unwrap().equal);
        assert!(opened(&out("once")).verify(&mut ()).unwrap().problems.is_empty());
    }
}
