//! Missing ranks: replicas on other ranks are used, and only regions that no rank holds come from elsewhere.

use std::collections::BTreeSet;
use std::fs;

use reshard_checkpoint::{Checkpoint, ErrorClass, ReshardJob};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, Whole, draw, draw_sharding, job, read, slice, tensor, write};
use crate::reading::{draw_region, opened};

#[test]
fn what_lives_is_used_what_is_lost_is_named_and_filled() {
    let mut r = Random(91);
    let (mut with_losses, mut without, mut resharded) = (0, 0, 0);
    for turn in 0..24 {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut tensors = draw(&mut r);
        tensors.insert("plain".to_owned(), tensor(&mut r, Dtype::F32, &[12, 13, 6]));
        write(&path("w.safetensors"), &tensors);
        let (mesh, to) = draw_sharding(&mut r);
        let saved = ReshardJob { out: Some(path("saved")), ..job(&path("w.safetensors"), mesh, to, false) };
        if saved.run(&mut ()).is_err() {
            continue;
        }
        // An older checkpoint, of other values, on another mesh.
        let older: Tensors =
            tensors.iter().map(|(name, one)| (name.clone(), tensor(&mut r, one.dtype, &one.shape))).collect();
        write(&path("o.safetensors"), &older);
        let (older_mesh, older_to) = draw_sharding(&mut r);
        let older_job = ReshardJob {
            out: Some(path("older")),
            ..job(&path("o.safetensors"), older_mesh, older_to, false)
        };
        let filler = if older_job.run(&mut ()).is_ok() { path("older") } else { path("o.safetensors") };
        let whole = opened(&path("saved"));
        let ranks: Vec<usize> = whole.mesh().unwrap().ranks().collect();
        let world = whole.mesh().unwrap().world_size();
        let dead: BTreeSet<usize> = (0..=r.below(2)).map(|_| *r.pick(&ranks)).collect();
        for rank in &dead {
            let file = path("saved").join(format!("rank-{rank:05}-of-{world:05}.safetensors"));
            if turn % 2 == 0 { fs::remove_file(file).unwrap() } else { fs::write(file, "nonsense").unwrap() }
        }
        // By the definition: an element is lost if all ranks that hold it are missing.
        let mut expected = tensors.clone();
        let mut lost_bits = 0;
        for (name, one) in &tensors {
            let sharding = whole.tensor(name).unwrap().sharding().unwrap();
            let numel: usize = one.shape.iter().product();
            let mut lives = vec![false; numel];
            for rank in ranks.iter().filter(|rank| !dead.contains(rank)) {
                let region = sharding.region(*rank).unwrap();
                for run in region.runs(&one.shape).unwrap() {
                    run.indices().for_each(|index| lives[index as usize] = true);
                }
            }
            let bits = one.dtype.bitsize();
            let into = &mut expected.get_mut(name).unwrap().bytes;
            for at in lives
                .iter()
                .enumerate()
                .filter(|(_, lives)| !**lives)
                .flat_map(|(i, _)| i * bits..(i + 1) * bits)
            {
                lost_bits += 1;
                into[at / 8] = into[at / 8] & !(1 << (at % 8)) | older[name].bytes[at / 8] & 1 << (at % 8);
            }
        }
        let dead: Vec<usize> = dead.into_iter().collect();
        let remains = Checkpoint::open_degraded(&path("saved"), &dead).unwrap();
        assert_eq!(
            remains.lost().iter().map(|lost| lost.bytes * 8).sum::<u64>(),
            lost_bits,
            "{mesh} {to} {dead:?}"
        );
        assert!(remains.lost().iter().all(|lost| lost.ranks.iter().all(|rank| dead.contains(rank))));
        let made = if lost_bits == 0 {
            without += 1;
            remains.whole().unwrap()
        } else {
            with_losses += 1;
            let filled = remains.filled(&opened(&filler)).unwrap();
            let error = Checkpoint::open_degraded(&path("saved"), &dead).unwrap().whole().err().unwrap();
            assert_eq!((error.code(), error.class()), ("lost", ErrorClass::Refused));
            assert!(error.to_string().contains("--fill-from"), "{error}");
            filled
        };
        for (name, one) in &expected {
            for _ in 0..4 {
                let region = draw_region(&mut r, &one.shape, one.dtype.bitsize() < 8);
                assert_eq!(
                    made.read(name, &region).unwrap(),
                    slice(one, &region),
                    "{mesh} {to} {dead:?} {name}"
                );
            }
        }
        for unchecked in [false, true] {
            let (mesh, to) = draw_sharding(&mut r);
            let gather = path(&format!("{unchecked}.safetensors"));
            let fill_from = (lost_bits > 0).then(|| filler.clone());
            let job = ReshardJob {
                gather: Some(gather.clone()),
                missing_ranks: dead.clone(),
                fill_from,
                verify: !unchecked,
                ..job(&path("saved"), mesh, to, false)
            };
            let Ok(report) = job.run(&mut ()) else { continue };
            assert_eq!(report.unwrap().lost.is_empty(), lost_bits == 0);
            assert!(read(&gather) == expected, "{mesh} {to} {dead:?} {unchecked}");
            resharded += 1;
        }
    }
    assert!(with_losses > 3 && without > 3 && resharded > 20, "{with_losses} {without} {resharded}");
}

#[test]
fn what_is_missing_without_a_word_is_refused_with_the_way_out() {
    let mut r = Random(92);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tensors: Tensors = [("w".to_owned(), tensor(&mut r, Dtype::F32, &[8, 2]))].into();
    write(&path("w.safetensors"), &tensors);
    ReshardJob { out: Some(path("saved")), ..job(&path("w.safetensors"), "a=4", "S(0)", false) }
        .run(&mut ())
        .unwrap();
    fs::remove_file(path("saved").join("rank-00002-of-00004.safetensors")).unwrap();
    let said = |error: reshard_checkpoint::Error, kind: &str, part: &str| {
        assert_eq!((error.code(), error.class()), (kind, ErrorClass::Refused), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    said(Checkpoint::open(Some(&path("saved"))).err().unwrap(), "rank_files", "--missing-ranks 2");
    said(Checkpoint::open_degraded(&path("saved"), &[3]).err().unwrap(), "rank_files", "rank-00002");
    said(Checkpoint::open_degraded(&path("saved"), &[2, 4]).err().unwrap(), "dead", "rank 4");
    said(
        Checkpoint::open_degraded(&path("w.safetensors"), &[0]).err().unwrap(),
        "dead",
        "not a folder of rank files",
    );
    let lost = Checkpoint::open_degraded(&path("saved"), &[2]).unwrap();
    said(lost.whole().err().unwrap(), "lost", "16 bytes of `w` of rank 2");
    let other = |tensors: Tensors| {
        write(&path("o.safetensors"), &tensors);
        Checkpoint::open_degraded(&path("saved"), &[2]).unwrap().filled(&opened(&path("o.safetensors")))
    };
    let of = |dtype, shape: &[usize], r: &mut Random| -> Whole { tensor(r, dtype, shape) };
    said(
        other([("v".to_owned(), of(Dtype::F32, &[8, 2], &mut r))].into()).err().unwrap(),
        "lost",
        "no tensor of this name",
    );
    said(
        other([("w".to_owned(), of(Dtype::F32, &[8, 3], &mut r))].into()).err().unwrap(),
        "lost",
        "F32 [8, 3]",
    );
    let job = ReshardJob { fill_from: Some(path("w.safetensors")), ..job(&path("saved"), "a=1", "R", false) };
    said(job.run(&mut ()).unwrap_err(), "usage", "`--missing-ranks`");
}

/// The checkpoint that fills has no checksums; the data that is still there has.
#[test]
fn what_lives_is_compared_with_its_checksums_whatever_fills_the_rest() {
    let mut r = Random(92);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = path("w.safetensors");
    write(&whole, &[("w".to_owned(), tensor(&mut r, Dtype::F32, &[8, 5]))].into());
    ReshardJob { out: Some(path("saved")), ..job(&whole, "a=4", "S(0)", false) }.run(&mut ()).unwrap();
    let filled = || ReshardJob {
        out: Some(path("out")),
        missing_ranks: vec![1],
        fill_from: Some(whole.clone()),
        force: true,
        ..job(&path("saved"), "a=2", "S(1)", false)
    };
    filled().run(&mut ()).unwrap();
    let file = path("saved").join("rank-00002-of-00004.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = filled().run(&mut ()).unwrap_err();
    assert!(error.code() == "checksum" && error.to_string().contains("rank-00002"), "{error}");
}
