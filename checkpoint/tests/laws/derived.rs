//! Derived checkpoints: fused and split tensors match the definition element by element, and casts round.
//!
//! All of them are read, resharded and checked as any other checkpoint.

use std::fs;
use std::path::Path;

use half::bf16;
use reshard_checkpoint::{Checkpoint, ErrorClass, Mapping, PlacementSpec, ReshardJob, diff};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{
    Tensors, Whole, draw_sharding, inputs, job, output, read, sharding, slice, tensor, write,
};
use crate::reading::{draw_region, opened};

/// Fuses parts by the definition: for each element of the whole, finds its part and its index there.
fn fused(parts: &[&Whole], dim: usize, blocks: usize) -> Whole {
    let mut shape = parts[0].shape.clone();
    shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
    let bits = parts[0].dtype.bitsize();
    let numel: usize = shape.iter().product();
    let mut whole = vec![0_u8; numel * bits / 8];
    let period = shape[dim] / blocks;
    for flat in 0..numel {
        let mut index: Vec<usize> = Vec::new();
        let mut rest = flat;
        for extent in shape.iter().rev() {
            index.insert(0, rest % extent);
            rest /= extent;
        }
        let (block, mut within) = (index[dim] / period, index[dim] % period);
        let mut number = 0;
        while within >= parts[number].shape[dim] / blocks {
            within -= parts[number].shape[dim] / blocks;
            number += 1;
        }
        index[dim] = block * (parts[number].shape[dim] / blocks) + within;
        let from = index.iter().zip(&parts[number].shape).fold(0, |at, (i, extent)| at * extent + i);
        for k in 0..bits {
            let bit = |at: usize| (at / 8, at % 8);
            let ((from, a), (to, b)) = (bit(from * bits + k), bit(flat * bits + k));
            whole[to] |= (parts[number].bytes[from] >> a & 1) << b;
        }
    }
    Whole { dtype: parts[0].dtype, shape, bytes: whole }
}

fn job_to(out: &Path, input: &Path, mesh: &str, to: &str) -> ReshardJob {
    ReshardJob { out: Some(out.to_owned()), ..job(input, mesh, to, false) }
}

#[test]
fn fusing_and_splitting_are_what_they_are_element_by_element() {
    let mut r = Random(71);
    let (mut compared, mut resharded) = (0, 0);
    for turn in 0..7 {
        let dtype = *r.pick(&[Dtype::F32, Dtype::BF16, Dtype::U8, Dtype::F4]);
        let (dim, blocks) = (r.below(3), 1 + r.below(3));
        let mut shape = vec![1 + r.below(4), 1 + r.below(5), 8 * (1 + r.below(2))];
        let shares: Vec<usize> = (0..2 + r.below(2)).map(|_| 1 + r.below(3)).collect();
        let unit = blocks * if dim == 2 { 8 } else { 1 + r.below(2) };
        let mut tensors = Tensors::new();
        for layer in 0..2 {
            for (part, share) in shares.iter().enumerate() {
                shape[dim] = share * unit;
                tensors.insert(format!("l.{layer}.{part}.w"), tensor(&mut r, dtype, &shape));
            }
        }
        tensors.insert("other".to_owned(), tensor(&mut r, Dtype::F32, &[5]));
        let names: Vec<String> =
            shares.iter().enumerate().map(|(part, share)| format!("{share} l.*.{part}.*")).collect();
        let text = format!("l.*.all.* = {} on {dim} by {blocks}", names.join(" + "));
        let rule: Mapping = text.parse().unwrap();
        let mut expected = Tensors::new();
        expected.insert("other".to_owned(), tensors["other"].clone());
        for layer in 0..2 {
            let parts: Vec<&Whole> =
                (0..shares.len()).map(|part| &tensors[&format!("l.{layer}.{part}.w")]).collect();
            expected.insert(format!("l.{layer}.all.w"), fused(&parts, dim, blocks));
        }
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("parts"), folder.path().join("wholes"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        for (way, folder, from, to) in
            [("fuse", &one, &tensors, &expected), ("split", &two, &expected, &tensors)]
        {
            for (number, input) in inputs(folder, from, &mut r).iter().enumerate() {
                let input_checkpoint = opened(input);
                let rule = if way == "fuse" { rule.clone() } else { rule.inverse().unwrap() };
                let made = input_checkpoint.mapped(&rule);
                let made = made.unwrap_or_else(|error| panic!("{turn} {text} {input:?}: {error}"));
                let names: Vec<&str> = made.tensors().iter().map(reshard_checkpoint::Tensor::name).collect();
                assert_eq!(names.len(), to.len(), "{names:?}");
                for (name, whole) in to {
                    let tensor = made.tensor(name).unwrap();
                    assert_eq!((tensor.shape(), tensor.dtype()), (&whole.shape[..], whole.dtype.to_string()));
                    for _ in 0..3 {
                        let region = draw_region(&mut r, &whole.shape, whole.dtype.bitsize() < 8);
                        let before = made.bytes_read();
                        let bytes = made.read(name, &region).unwrap();
                        assert_eq!(bytes, slice(whole, &region), "{turn} {text} {input:?} {name} {region:?}");
                        // If a whole is split on an inner dim or in blocks, single elements are read with the
                        // short gaps between them.
                        if way == "fuse" || (dim == 0 && blocks == 1) {
                            assert_eq!(
                                made.bytes_read() - before,
                                bytes.len() as u64,
                                "no byte more is read"
                            );
                        }
                        compared += 1;
                    }
                }
                for unchecked in [false, true] {
                    let (mesh, sharding) = draw_sharding(&mut r);
                    let gather = folder.join(format!("{way}-{number}-{unchecked}.safetensors"));
                    let out = folder.join(format!("{way}-{number}-{unchecked}"));
                    let mut job = ReshardJob {
                        gather: Some(gather.clone()),
                        verify: !unchecked,
                        ..job_to(&out, input, mesh, sharding)
                    };
                    let said = vec![text.clone()];
                    if way == "fuse" {
                        job.fuse = said;
                    } else {
                        job.split = said;
                    }
                    if job.run(&mut ()).is_ok() {
                        assert!(read(&gather) == *to, "{turn} {text} {input:?} {mesh} {sharding}");
                        assert!(diff(&made, &opened(&out), &mut ()).unwrap().equal);
                        resharded += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 150 && resharded > 40, "{compared} {resharded}");
}

/// Query groups: four query heads, a key head and a value head, eight times, over four ranks and from two.
#[test]
fn attention_is_fused_group_by_group_on_any_mesh() {
    let mut r = Random(72);
    let head = 3;
    let tensors: Tensors = [("q", 4 * 8), ("k", 8), ("v", 8)]
        .into_iter()
        .map(|(name, heads)| {
            (format!("attn.{name}.weight"), tensor(&mut r, Dtype::BF16, &[heads * head, 10]))
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("w.safetensors"), &tensors);
    job_to(&path("two"), &path("w.safetensors"), "tp=2", "S(0)").run(&mut ()).unwrap();
    let rule = "attn.qkv.* = 4 attn.q.* + attn.k.* + attn.v.* by 8";
    let job =
        ReshardJob { fuse: vec![rule.to_owned()], ..job_to(&path("four"), &path("two"), "tp=4", "S(0)") };
    job.run(&mut ()).unwrap();
    let parts: Vec<&Whole> =
        ["q", "k", "v"].iter().map(|name| &tensors[&format!("attn.{name}.weight")]).collect();
    let whole = fused(&parts, 0, 8);
    let four = opened(&path("four"));
    let quarters = sharding("tp=4", &whole.shape, "S(0)");
    for rank in 0..4 {
        let shard = four.shard("attn.qkv.weight", &quarters, rank).unwrap();
        // Two groups, which begin with eight query heads.
        assert_eq!(shard, slice(&whole, &quarters.region(rank).unwrap()));
        assert_eq!(shard[..4 * head * 20], parts[0].bytes[rank * 8 * head * 20..][..4 * head * 20]);
    }
    let again =
        ReshardJob { split: vec![rule.to_owned()], ..job_to(&path("again"), &path("four"), "tp=3", "S(1)") };
    again.run(&mut ()).unwrap();
    assert!(diff(&opened(&path("w.safetensors")), &opened(&path("again")), &mut ()).unwrap().equal);
    // Each rule reads the result of the one before.
    let regrouped = ReshardJob {
        split: vec![rule.to_owned()],
        fuse: vec!["kv.* = attn.k.* + attn.v.*".to_owned(), "qkv = attn.q.weight + kv.weight".to_owned()],
        ..job_to(&path("regrouped"), &path("four"), "tp=2", "S(0)")
    };
    regrouped.run(&mut ()).unwrap();
    let made = opened(&path("regrouped"));
    let all = sharding("tp=1", &whole.shape, "S(0)");
    assert!(made.tensors().len() == 1 && made.shard("qkv", &all, 0).unwrap() == fused(&parts, 0, 1).bytes);
    // Damage is found under the new name too.
    let file = path("two").join("rank-00001-of-00002.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&file, bytes).unwrap();
    let error = ReshardJob { force: true, ..job }.run(&mut ()).unwrap_err();
    assert_eq!((error.code(), error.class()), ("checksum", ErrorClass::Refused));
    assert!(error.to_string().contains("attn.qkv") && error.to_string().contains("rank-00001"), "{error}");
}

#[test]
fn rounded_tensors_are_their_rounded_elements_wherever_they_are_read() {
    let mut r = Random(73);
    let tensors: Tensors = [
        ("w".to_owned(), tensor(&mut r, Dtype::F32, &[13, 9])),
        ("b".to_owned(), tensor(&mut r, Dtype::BF16, &[7])),
        ("steps".to_owned(), tensor(&mut r, Dtype::I64, &[3])),
        ("scalar".to_owned(), tensor(&mut r, Dtype::F64, &[])),
    ]
    .into();
    let rounded: Tensors = tensors
        .iter()
        .map(|(name, whole)| {
            #[allow(clippy::wildcard_enum_match_arm, reason = "the others stay as they are")]
            let bytes = match whole.dtype {
                Dtype::F32 => (whole.bytes.chunks(4))
                    .flat_map(|x| bf16::from_f32(f32::from_le_bytes(x.try_into().unwrap())).to_le_bytes())
                    .collect(),
                // For random bits, rounding through 32 bits gives the same result.
                Dtype::F64 => (whole.bytes.chunks(8))
                    .flat_map(|x| {
                        bf16::from_f32(f64::from_le_bytes(x.try_into().unwrap()) as f32).to_le_bytes()
                    })
                    .collect(),
                _ => whole.bytes.clone(),
            };
            let dtype = if whole.dtype == Dtype::I64 { Dtype::I64 } else { Dtype::BF16 };
            (name.clone(), Whole { dtype, shape: whole.shape.clone(), bytes })
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    for (number, input) in inputs(folder.path(), &tensors, &mut r).iter().enumerate() {
        let made = opened(input).cast("BF16").unwrap();
        for (name, whole) in &rounded {
            for _ in 0..8 {
                let region = draw_region(&mut r, &whole.shape, false);
                assert_eq!(made.read(name, &region).unwrap(), slice(whole, &region), "{input:?} {name}");
            }
        }
        for unchecked in [false, true] {
            let place = |name: &str| folder.path().join(format!("{name}-{number}-{unchecked}"));
            let (gather, dtype) = (Some(place("whole")), Some("bf16".to_owned()));
            let job = ReshardJob {
                gather,
                dtype: dtype.into_iter().collect(),
                verify: !unchecked,
                ..job_to(&place("out"), input, "a=2,b=2", "S(0),R")
            };
            let report = job.run(&mut ()).unwrap().unwrap();
            assert_eq!(report.bytes, rounded.values().map(|one| one.bytes.len() as u64).sum::<u64>());
            assert!(read(&place("whole")) == rounded);
            assert!(diff(&made, &opened(&place("out")), &mut ()).unwrap().equal);
        }
    }
    // Numbers that become infinite are counted.
    let large = Whole {
        dtype: Dtype::F32,
        shape: vec![3],
        bytes: [1e5_f32, 3.0, -1e30].iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    write(&folder.path().join("large"), &[("large".to_owned(), large)].into());
    let large = opened(&folder.path().join("large")).cast("f16").unwrap();
    let spec = PlacementSpec::new([("*", "R")]).unwrap();
    let out = folder.path().join("large.safetensors");
    let report = output("a=1", &out).run_on(&large, Some(&spec), &mut ()).unwrap();
    assert_eq!(report.tensors[0].overflowed, 2);
}

#[test]
fn a_checkpoint_that_cannot_be_made_is_refused_in_one_sentence() {
    let block = Checkpoint::open(None).unwrap();
    let said = |error: reshard_checkpoint::Error, kind: &str, part: &str| {
        assert_eq!((error.code(), error.class()), (kind, ErrorClass::Refused), "{error}");
        assert!(error.to_string().contains(part) && !error.to_string().contains('\n'), "{error}");
    };
    said(block.filter(["mlp.*", "absent.*"]).err().unwrap(), "unused_pattern", "absent.*");
    said(block.filter(["["]).err().unwrap(), "pattern", "not a valid glob");
    said(block.filter(["/(/"]).err().unwrap(), "pattern", "not a valid regular expression");
    said(block.renamed("s/absent/x/").err().unwrap(), "rename", "any tensor");
    said(block.renamed("s/attention.key/attention.query/").err().unwrap(), "rename", "both");
    said(block.renamed("s/.*//").err().unwrap(), "rename", "empty");
    said(block.cast("f8").err().unwrap(), "dtype", "f16, bf16, f32 or f64");
    said(block.cast("bf16").unwrap().cast("f16").err().unwrap(), "dtype", "twice");
    for (text, part) in [
        ("a", "expected ` = `"),
        ("a = b + c by 0", "at least one block"),
        ("*.e = *.x + *.y", "`*.x` matches no tensor"),
        (
            "*.e = *.query.weight + *.absent",
            "`attention.query.weight`: there is no tensor `attention.absent`",
        ),
        ("e = embedding.weight + attention.query.weight", "F32 and BF16; convert one of them by cast(..)"),
        ("e = mlp.up.weight + attention.query.weight on 1", "differ on other dims than 1"),
        ("e = embedding.weight + attention.query.weight on 2", "over the dims of the shape [2003, 256]"),
        ("e = mlp.norm.weight + attention.norm.weight by 3", "the extent 256 of dim 0"),
        ("e = 2 attention.key.weight + attention.query.weight", "ratio of the shares [2, 1]"),
    ] {
        let fuse = ReshardJob { fuse: vec![text.to_owned()], ..ReshardJob::default() };
        said(fuse.run(&mut ()).unwrap_err(), "mapping", part);
    }
    for (text, part) in [
        ("absent = a + b", "`absent` matches no tensor"),
        ("embedding.weight = a + b", "the extent 2003 of dim 0"),
        ("embedding.weight = a + b on 2", "over the dims of the shape [2003, 256]"),
        ("embedding.weight = attention.query.weight + b on 1", "`attention.query.weight` is made twice"),
        ("drop mlp.*", "a dropped tensor cannot be computed"),
        ("a = b[1:]", "a slice on the side that is made"),
    ] {
        let split = ReshardJob { split: vec![text.to_owned()], ..ReshardJob::default() };
        said(split.run(&mut ()).unwrap_err(), "mapping", part);
    }
    for text in ["", "// x = a + b", "x = a\ny = b"] {
        let fuse = ReshardJob { fuse: vec![text.to_owned()], ..ReshardJob::default() };
        said(fuse.run(&mut ()).unwrap_err(), "usage", "`--fuse` needs one rule, like 'qkv = q + k + v'");
    }
    let engine = ReshardJob { dtype: vec!["bf16".to_owned()], ..ReshardJob::default() };
    said(engine.run(&mut ()).unwrap_err(), "usage", "`--dtype` works from files to files only");
}
