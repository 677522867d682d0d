//! Placements by part: the file of a rank has the concatenated shards of the parts, along the dim of the rule.
//!
//! The expected files are made from the parts by definition: each part is split by its sharding, and the
//! shards of a rank are concatenated row by row.

use std::fs;
use std::path::{Path, PathBuf};

use reshard_checkpoint::{Checkpoint, OutputFormat, ReshardJob, diff};
use reshard_sharding::Sharding;
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, Whole, contents, read, slice, tensor, write};
use crate::reading::opened;

/// The parts of one tensor, and how each rank concatenates them.
struct Case {
    folder: tempfile::TempDir,
    parts: Vec<Whole>,
    dim: usize,
    mesh: &'static str,
    placements: Vec<String>,
}

const MESHES: [&str; 6] = ["a=1", "a=3", "a=2,b=2", "a=2,b=3", "a=2:1,b=2:2", "a=2,b=2@3"];

/// Draws parts with placements that split the dim of the parts freely, and other dims equally.
fn draw(r: &mut Random) -> Case {
    let mesh = *r.pick(&MESHES);
    let axes = mesh.matches('=').count();
    let dims = 1 + r.below(3);
    let dim = r.below(dims);
    let dtype = *r.pick(&[Dtype::F32, Dtype::BF16, Dtype::U8]);
    let mut shape: Vec<usize> = (0..dims).map(|_| 1 + r.below(7)).collect();
    let mut part = |r: &mut Random| {
        shape[dim] = r.below(9);
        tensor(r, dtype, &shape)
    };
    let parts: Vec<Whole> = (0..2 + r.below(3)).map(|_| part(r)).collect();
    let alike: Vec<Option<usize>> =
        (0..axes).map(|_| (r.below(3) == 0).then(|| r.below(dims)).filter(|other| *other != dim)).collect();
    let placement = |other: &Option<usize>, r: &mut Random| match other {
        Some(other) => format!("S({other})"),
        None if r.below(2) == 0 => format!("S({dim})"),
        None => "R".to_owned(),
    };
    let mut one = || alike.iter().map(|other| placement(other, r)).collect::<Vec<_>>().join(",");
    let placements = parts.iter().map(|_| one()).collect();
    Case { folder: tempfile::tempdir().unwrap(), parts, dim, mesh, placements }
}

impl Case {
    fn shardings(&self) -> Vec<Sharding> {
        let mesh = self.mesh.parse().unwrap();
        let of = |(part, text): (&Whole, &String)| Sharding::parse(&mesh, &part.shape, text).unwrap();
        self.parts.iter().zip(&self.placements).map(of).collect()
    }

    /// The tensor in the file of a rank.
    fn of_rank(&self, rank: usize) -> Whole {
        let shard = |(part, sharding): (&Whole, Sharding)| {
            let region = sharding.region(rank).unwrap();
            Whole { dtype: part.dtype, shape: region.local_shape().to_vec(), bytes: slice(part, &region) }
        };
        concatenated(&self.parts.iter().zip(self.shardings()).map(shard).collect::<Vec<_>>(), self.dim)
    }

    fn input(&self) -> PathBuf {
        let name = |at: usize| format!("part.{at}");
        let mut tensors: Tensors =
            self.parts.iter().enumerate().map(|(at, part)| (name(at), part.clone())).collect();
        tensors
            .insert("other".to_owned(), Whole { dtype: Dtype::U8, shape: vec![5], bytes: (1..6).collect() });
        let file = self.folder.path().join("in.safetensors");
        write(&file, &tensors);
        file
    }

    fn job(&self, out: &Path) -> ReshardJob {
        let rules = self.folder.path().join("rules.toml");
        let names: Vec<String> = (0..self.parts.len()).map(|at| format!("part.{at}")).collect();
        let (names, dim, by_part) = (names.join(" | "), self.dim, self.placements.join(" | "));
        let others = vec!["R"; self.mesh.matches('=').count()].join(",");
        let text = format!(
            "mapping = \"w = {names} on {dim}\"\n[placements]\nw = \"{by_part}\"\nother = \"{others}\"\n"
        );
        fs::write(&rules, text).unwrap();
        ReshardJob {
            input: Some(self.input()),
            out: Some(out.to_owned()),
            mesh: Some(self.mesh.to_owned()),
            map: Some(rules),
            force: true,
            ..ReshardJob::default()
        }
    }
}

/// The concatenation of tensors, row by row of the dims before `dim`.
fn concatenated(parts: &[Whole], dim: usize) -> Whole {
    let mut shape = parts[0].shape.clone();
    shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
    let rows: usize = shape[..dim].iter().product();
    let mut bytes = Vec::new();
    for row in 0..rows {
        for part in parts {
            let len = part.bytes.len() / rows;
            bytes.extend_from_slice(&part.bytes[row * len..(row + 1) * len]);
        }
    }
    Whole { dtype: parts[0].dtype, shape, bytes }
}

fn rank_file(out: &Path, case: &Case, rank: usize) -> PathBuf {
    let world = case.shardings()[0].mesh().world_size();
    out.join(format!("rank-{rank:05}-of-{world:05}.safetensors"))
}

#[test]
fn files_of_ranks_hold_their_shards_of_the_parts_in_order_and_are_read_as_the_whole() {
    let mut r = Random(71);
    let mut split = 0;
    for _ in 0..150 {
        let case = draw(&mut r);
        let (out, verify) = (case.folder.path().join("out"), r.below(3) > 0);
        let gather = case.folder.path().join("whole.safetensors");
        let job = ReshardJob { gather: Some(gather.clone()), verify, ..case.job(&out) };
        let about = format!("{} on {}: {:?}", case.placements.join(" | "), case.mesh, case.dim);
        job.run(&mut ()).unwrap_or_else(|error| panic!("{about}: {error}"));
        let whole = concatenated(&case.parts, case.dim);
        assert!(read(&gather)["w"] == whole, "{about}");
        for rank in case.shardings()[0].mesh().ranks() {
            let held = &read(&rank_file(&out, &case, rank))["w"];
            assert!(*held == case.of_rank(rank), "{about}, rank {rank}");
            split += usize::from(held.shape != whole.shape);
        }
        let again = opened(&out);
        assert!(diff(&again, &opened(&gather), &mut ()).unwrap().equal, "{about}");
        let verified = again.verify(&mut ()).unwrap();
        assert!(verified.problems.is_empty() && verified.checksums == verify, "{about}: {verified:?}");
        // Other formats have chunks of the parts.
        for format in [OutputFormat::Dcp, OutputFormat::DcpSafetensors] {
            let chunks = case.folder.path().join("chunks");
            ReshardJob { format, gather: None, ..case.job(&chunks) }.run(&mut ()).unwrap();
            assert!(diff(&opened(&chunks), &opened(&gather), &mut ()).unwrap().equal, "{about}, {format:?}");
        }
    }
    assert!(split > 300, "{split}");
}

#[test]
fn their_files_are_inputs_of_the_same_placements() {
    let mut r = Random(72);
    for _ in 0..30 {
        let (case, other) = (draw(&mut r), draw(&mut r));
        let (out, again) = (case.folder.path().join("out"), case.folder.path().join("again"));
        case.job(&out).run(&mut ()).unwrap();
        let to = case.placements.join(" | ");
        let spec = case.folder.path().join("spec.toml");
        let others = vec!["R"; case.mesh.matches('=').count()].join(",");
        fs::write(&spec, format!("w = \"{to}\"\nother = \"{others}\"")).unwrap();
        let job = ReshardJob { input: Some(out.clone()), map: None, spec: Some(spec), ..case.job(&again) };
        job.run(&mut ()).unwrap();
        assert_eq!(contents(&out), contents(&again), "{to} on {}", case.mesh);
        // The inverse makes the parts again, if the rule has their shares; its placements are those of the output.
        let shares: Vec<usize> = case.parts.iter().map(|part| part.shape[case.dim]).collect();
        if !shares.contains(&0) {
            let part = |(at, shares): (usize, &usize)| format!("{shares} part.{at}");
            let names: Vec<String> = shares.iter().enumerate().map(part).collect();
            let (names, dim) = (names.join(" | "), case.dim);
            let rules = case.folder.path().join("shares.toml");
            fs::write(&rules, format!("mapping = \"w = {names} on {dim}\"\n[placements]\nw = \"R\""))
                .unwrap();
            let whole = case.folder.path().join("parts.safetensors");
            let job =
                ReshardJob { input: Some(out.clone()), map: Some(rules), mesh: None, ..case.job(&whole) };
            ReshardJob { inverse: true, ..job }.run(&mut ()).unwrap();
            assert!(diff(&opened(&whole), &opened(&case.input()), &mut ()).unwrap().equal);
        }
        // One sharding for all parts is that of each part.
        let mesh = other.mesh;
        let one = vec![format!("S({})", case.dim); mesh.matches('=').count()].join(",");
        let (mesh, to) = (Some(mesh.to_owned()), Some(one));
        let job = ReshardJob { input: Some(out.clone()), map: None, mesh, to, ..case.job(&again) };
        job.run(&mut ()).unwrap();
        assert!(diff(&opened(&out), &opened(&again), &mut ()).unwrap().equal);
    }
}

#[test]
fn damage_is_found_and_replicas_replace_missing_ranks() {
    let mut r = Random(73);
    let (mut found, mut saved, mut lost) = (0, 0, 0);
    for _ in 0..60 {
        let case = draw(&mut r);
        let out = case.folder.path().join("out");
        case.job(&out).run(&mut ()).unwrap();
        let whole = concatenated(&case.parts, case.dim);
        let ranks: Vec<usize> = case.shardings()[0].mesh().ranks().collect();
        let rank = *r.pick(&ranks);
        let file = rank_file(&out, &case, rank);
        let sound = fs::read(&file).unwrap();
        if !case.of_rank(rank).bytes.is_empty() {
            let mut bytes = sound.clone();
            // The tensor of narrower elements comes last.
            let at = sound.len() - 1 - r.below(5 + case.of_rank(rank).bytes.len());
            bytes[at] ^= 1;
            fs::write(&file, &bytes).unwrap();
            assert_eq!(opened(&out).verify(&mut ()).unwrap().problems.len(), 1);
            let again = case.folder.path().join("again");
            let to = Some(vec!["R"; case.mesh.matches('=').count()].join(","));
            let job = ReshardJob { input: Some(out.clone()), map: None, to, ..case.job(&again) };
            let error = job.run(&mut ()).unwrap_err();
            assert!(["checksum", "replicas"].contains(&error.code()), "{error}");
            found += 1;
        }
        fs::remove_file(&file).unwrap();
        let remains = Checkpoint::open_degraded(&out, &[rank]).unwrap();
        let is_lost =
            |region: &reshard_checkpoint::LostRegion| region.tensor == "w" && region.ranks == [rank];
        if remains.lost().is_empty() {
            let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
            assert!(remains.whole().unwrap().shard("w", &all, 0).unwrap() == whole.bytes);
            saved += 1;
        } else if ranks.len() > 1 {
            assert!(remains.lost().iter().all(is_lost), "{:?}", remains.lost());
            lost += 1;
        }
    }
    assert!(found > 40 && saved > 10 && lost > 10, "{found} {saved} {lost}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case {
        folder: tempfile::tempdir().unwrap(),
        parts: vec![tensor(&mut Random(1), Dtype::F32, &[4, 6]), tensor(&mut Random(2), Dtype::F32, &[2, 6])],
        dim: 0,
        mesh: "a=2",
        placements: Vec::new(),
    };
    let out = case.folder.path().join("out");
    let said = |placements: &[&str], through_engine: bool| {
        let placements = placements.iter().map(|text| (*text).to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let case = Case { folder, parts: case.parts.clone(), placements, ..case };
        let job = ReshardJob { through_engine, ..case.job(&out) };
        let error = job.run(&mut ()).unwrap_err();
        assert!(error.status() == 2 && !out.exists(), "{error}");
        error.to_string()
    };
    assert!(
        said(&["S(0)", "R", "R"], false).contains("placements for 3 parts, but each rank concatenates 2")
    );
    assert!(said(&["S(1)", "R"], false).contains("rank 0 would concatenate [4, 3] and [2, 6] on dim 0"));
    assert!(said(&["S(0)", "P(sum)"], false).contains("partial sum"));
    assert!(said(&["S(0)", "S(3)"], false).contains('3'));
    assert!(said(&["S(0)", "R"], true).contains("drop `--engine`"));
    let to = Some("S(0) | R".to_owned());
    let job = ReshardJob { map: None, to, ..case.job(&out) };
    assert!(job.run(&mut ()).unwrap_err().to_string().contains("no rule with `|` makes it"));
}
