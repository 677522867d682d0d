//! Tensors made by the rules of a mapping are, element by element, what its loop nests describe.
//!
//! `reshard-mapping` compares the nests with an evaluator of the rules. Here they are run on whole tensors, and compared
//! with the bytes that are read from any files, in any regions.

use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, JobReport, ReshardJob, diff};
use reshard_mapping::{Mapping, Piece, SourceTensor};
use reshard_sharding::Sharding;
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, Whole, draw_sharding, inputs, job, read, slice, tensor, write};
use crate::reading::{draw_region, opened};

/// Rules over the tensors of [`sources`].
const RULES: [&str; 18] = [
    "*.qkv = 4 *.q + 1 *.k + 1 *.v",
    "*.qkv = *.q | *.k | *.v",
    "*.qkv = 4 *.q + 1 *.k + 1 *.v by 2",
    "*.a + *.b = *.q by 4",
    "2 *.a + 6 *.b = *.q",
    "*.w = stack(*.e.#.up) + stack(*.e.#.down) on 1",
    "*.w = stack(rearrange(*.e.#.up, 'a b -> b a') on 2)",
    "stack(*.row.# on 1) = *.q",
    "*.q = rearrange(*.q, '(h two d) e -> (h d two) e', h=2, two=2)",
    "*.t = rearrange(*.q, 'a b -> b a')",
    "*.k = rearrange(*.k, '(g d) e -> (g r d) e', g=2, r=3)",
    "*.r = rearrange(*.v, 'a b -> r a b', r=2)",
    "*.q = *.q[3:14, 1:]",
    "*.p = pad(pad(*.k, 7), 9 on 1)",
    "*.c = cat(*.q[5:] + *.k)[1:9] + *.v[:2]",
    "rearrange(*.k, 'a b -> b a') = *.k",
    "lin = rearrange(conv, 'o i h w -> o (i h w)', h=2, w=3)",
    "a.one = a.q\nb.one = b.q\ndrop a.v\ndrop b.k",
];

fn sources(r: &mut Random, dtype: Dtype) -> Tensors {
    let mut tensors = Tensors::new();
    let mut add =
        |name: String, shape: &[usize], r: &mut Random| tensors.insert(name, tensor(r, dtype, shape));
    for layer in ["a", "b"] {
        for (name, rows) in [("q", 16), ("k", 4), ("v", 4)] {
            add(format!("{layer}.{name}"), &[rows, 5], r);
        }
        for expert in 0..3 {
            add(format!("{layer}.e.{expert}.up"), &[4, 3], r);
            add(format!("{layer}.e.{expert}.down"), &[4, 3], r);
        }
    }
    add("conv".to_owned(), &[2, 3, 2, 3], r);
    tensors
}

/// Runs loop nests, one element at a time.
fn run(shape: &[usize], pieces: &[Piece], held: &[(&String, &Whole)], dtype: Dtype) -> Whole {
    let item = dtype.bitsize() / 8;
    let offset = |shape: &[usize], index: &[usize]| {
        index.iter().zip(shape).fold(0, |at, (index, extent)| at * extent + index) * item
    };
    let mut bytes = vec![0; shape.iter().product::<usize>() * item];
    for piece in pieces {
        for number in 0..piece.elements() {
            let (mut target, mut source) = (piece.target_offset.clone(), piece.source_offset.clone());
            let mut rest = number;
            for axis in piece.axes.iter().rev() {
                let step = rest % axis.extent;
                rest /= axis.extent;
                target[axis.target_dim] += step * axis.target_step;
                if let Some(dim) = axis.source_dim {
                    source[dim] += step * axis.source_step;
                }
            }
            let Some(from) = piece.source else { continue };
            let whole = held[from].1;
            let (to, from) = (offset(shape, &target), offset(&whole.shape, &source));
            bytes[to..to + item].copy_from_slice(&whole.bytes[from..from + item]);
        }
    }
    Whole { dtype, shape: shape.to_vec(), bytes }
}

/// The tensors that a mapping makes, by its loop nests.
fn made(mapping: &Mapping, tensors: &Tensors) -> Tensors {
    let held: Vec<(&String, &Whole)> = tensors.iter().collect();
    let of = |(name, whole): &(&'_ String, &'_ Whole)| ((*name).clone(), whole.shape.clone(), whole.dtype);
    let list: Vec<_> = held.iter().map(of).collect();
    let list: Vec<SourceTensor<'_>> =
        list.iter().map(|(name, shape, dtype)| SourceTensor { name, shape, dtype: *dtype }).collect();
    let mapped = mapping.apply(&list).unwrap();
    assert!(mapped.checks.is_empty());
    mapped
        .tensors
        .into_iter()
        .map(|made| (made.name.clone(), run(&made.shape, &made.pieces, &held, made.dtype)))
        .collect()
}

#[test]
fn made_tensors_are_their_loop_nests_element_by_element() {
    let mut r = Random(61);
    let mut regions = 0;
    for (number, rules) in RULES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = sources(&mut r, [Dtype::F32, Dtype::U8, Dtype::BF16][number % 3]);
        let mapping: Mapping = rules.parse().unwrap();
        let expected = made(&mapping, &tensors);
        for input in inputs(folder.path(), &tensors, &mut r) {
            let mapped = opened(&input).mapped(&mapping).unwrap();
            assert_eq!(mapped.tensors().len(), expected.len(), "{rules}");
            for (name, whole) in &expected {
                let tensor = mapped.tensor(name).unwrap();
                assert_eq!(
                    (tensor.shape(), tensor.dtype()),
                    (&whole.shape[..], whole.dtype.to_string()),
                    "{rules}"
                );
                let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
                assert!(mapped.shard(name, &all, 0).unwrap() == whole.bytes, "{rules}: {name} of {input:?}");
                for _ in 0..3 {
                    let region = draw_region(&mut r, &whole.shape, false);
                    let bytes = mapped.read(name, &region).unwrap();
                    assert!(bytes == slice(whole, &region), "{rules}: {name} of {input:?}, {region:?}");
                    regions += 1;
                }
            }
        }
    }
    assert!(regions > 1000, "{regions}");
}

fn mapped_job(folder: &Path, input: &Path, rules: &str, through_engine: bool) -> ReshardJob {
    let file = folder.join("rules.map");
    fs::write(&file, rules).unwrap();
    ReshardJob { map: Some(file), ..job(input, "a=2", "S(0)", through_engine) }
}

fn report(job: &ReshardJob) -> JobReport {
    job.run(&mut ()).unwrap().unwrap()
}

#[test]
fn they_are_resharded_from_files_to_files_and_through_an_engine() {
    let mut r = Random(62);
    let mut done = 0;
    for rules in RULES {
        let folder = tempfile::tempdir().unwrap();
        let tensors = sources(&mut r, Dtype::BF16);
        let expected = made(&rules.parse().unwrap(), &tensors);
        let through_engine = r.below(3) == 0;
        for input in inputs(folder.path(), &tensors, &mut r) {
            let (out, gather) = (folder.path().join("out"), folder.path().join("gathered.safetensors"));
            let (mesh, to) = draw_sharding(&mut r);
            let (mesh, to) = if to == "BL(0,3)" { ("a=2", "S(0)") } else { (mesh, to) };
            let outputs = ReshardJob {
                out: Some(out.clone()),
                gather: Some(gather.clone()),
                force: true,
                ..mapped_job(folder.path(), &input, rules, through_engine)
            };
            let outputs = ReshardJob { mesh: Some(mesh.to_owned()), to: Some(to.to_owned()), ..outputs };
            match outputs.run(&mut ()) {
                Ok(_) => {}
                // A block does not divide some tensor.
                Err(error) if error.code() == "placement" => continue,
                Err(error) if error.code() == "parts" && through_engine && rules.contains('|') => continue,
                Err(error) => panic!("{rules}, {mesh} {to}: {error}"),
            }
            done += 1;
            assert!(read(&gather) == expected, "{rules} of {input:?} on {mesh} {to}");
            assert!(diff(&opened(&out), &opened(&gather), &mut ()).unwrap().equal);
        }
    }
    assert!(done > 30, "{done}");
}

/// A tensor that a rule only renames keeps its sharding and its checksums; others are made of parts.
#[test]
fn a_renamed_tensor_is_the_same_tensor() {
    let mut r = Random(63);
    let folder = tempfile::tempdir().unwrap();
    let names = ["a.q", "a.k", "b.q"].into_iter();
    let tensors: Tensors = names.map(|name| (name.to_owned(), tensor(&mut r, Dtype::F4, &[6, 4]))).collect();
    let whole = folder.path().join("whole.safetensors");
    write(&whole, &tensors);
    let ranks = folder.path().join("ranks");
    ReshardJob { out: Some(ranks.clone()), ..job(&whole, "a=2", "S(0)", false) }.run(&mut ()).unwrap();
    let mapped = opened(&ranks).mapped(&"x.* = a.*".parse().unwrap()).unwrap();
    assert_eq!(mapped.tensor("x.q").unwrap().sharding().unwrap().to_string(), "S(0)");
    assert!(mapped.tensor("a.q").is_err() && mapped.tensor("b.q").is_ok());
}

/// Two F4 share a byte, and four F6 three: rules that split no unit work, on all dims.
#[test]
fn elements_that_share_bytes_are_not_split() {
    let mut r = Random(66);
    for dtype in [Dtype::F4, Dtype::F6_E2M3] {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b"].into_iter();
        let tensors: Tensors = names.map(|name| (name.to_owned(), tensor(&mut r, dtype, &[8, 16]))).collect();
        for input in inputs(folder.path(), &tensors, &mut r) {
            let made = |rules: &str| opened(&input).mapped(&rules.parse().unwrap());
            for (there, back) in [
                ("x = a + b by 4", "a + b = x by 4"),
                ("x = a + b on 1 by 2", "a + b = x on 1 by 2"),
                ("x = rearrange(a, 'a (b c) -> b a c', c=4)", "a = rearrange(x, 'b a c -> a (b c)')"),
                ("x = a[2:4] + a[:2] + a[4:]", "a = x[2:4] + x[:2] + x[4:]"),
                ("x = a[:, 8:] + a[:, :8] on 1", "a = x[:, 8:] + x[:, :8] on 1"),
            ] {
                let again = made(there).unwrap().mapped(&back.parse().unwrap()).unwrap();
                let all = Sharding::replicated(&"a=1".parse().unwrap(), &[8, 16]).unwrap();
                assert!(again.shard("a", &all, 0).unwrap() == tensors["a"].bytes, "{there} of {input:?}");
            }
            for (rules, why) in [
                ("x = a[:, 1:5]", "keep the last dim last"),
                ("x = rearrange(a, 'a b -> b a')", "keep the last dim last"),
                ("x = a[:, :6] + a[:, 6:9] on 1", "end inside one"),
            ] {
                let error = made(rules).err().unwrap();
                assert_eq!(error.code(), "packed", "{error}");
                assert!(error.to_string().contains(why), "{rules}: {error}");
            }
        }
    }
}

/// A file's region that a rule uses whole is compared with its checksum, in whatever regions it lands.
#[test]
fn a_flipped_bit_of_the_input_is_found_through_a_mapping() {
    let mut r = Random(67);
    let mut found = 0;
    for (rules, name) in [
        ("x = 2 a + 1 b + 1 c by 4", "a"),
        ("x = a | b", "b"),
        ("x = b + c on 1 by 2", "c"),
        ("x = stack(e.#) + stack(e.#) on 1", "e.0"),
        ("x = stack(e.#)", "e.1"),
        ("x = pad(b, 20)", "b"),
        ("x = a + b[3:7]", "a"),
        ("x = rearrange(b, '(h d) e -> h (d e)', h=4)", "b"),
    ] {
        for (mesh, to) in
            [("a=3", "S(0)"), ("a=3", "S(1)"), ("a=2,b=2", "SS(0,2),S(0)"), ("a=2", "Z(0)"), ("a=1", "R")]
        {
            let folder = tempfile::tempdir().unwrap();
            let shapes = [("a", 16), ("b", 8), ("c", 8), ("e.0", 8), ("e.1", 8)].into_iter();
            let tensors: Tensors = shapes
                .map(|(name, rows)| (name.to_owned(), tensor(&mut r, Dtype::F32, &[rows, 4])))
                .collect();
            let whole = folder.path().join("whole.safetensors");
            write(&whole, &tensors);
            let (ranks, out) = (folder.path().join("ranks"), folder.path().join("out"));
            ReshardJob { out: Some(ranks.clone()), ..job(&whole, mesh, to, false) }.run(&mut ()).unwrap();
            let mapped =
                || ReshardJob { out: Some(out.clone()), ..mapped_job(folder.path(), &ranks, rules, false) };
            flip(&ranks, name);
            // A shard keeps the order of its elements if no dim is merged or split.
            if rules.contains("rearrange") && to != "R" {
                continue;
            }
            let error = mapped().run(&mut ()).unwrap_err();
            assert_eq!(error.code(), "checksum", "{rules} of {to}: {error}");
            assert!(!out.exists());
            ReshardJob { verify: false, ..mapped() }.run(&mut ()).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 36);
}

/// Flips a bit of the last byte of a tensor, in a rank file that has some of it.
fn flip(ranks: &Path, name: &str) {
    for entry in fs::read_dir(ranks).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let mut bytes = fs::read(&entry).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let json: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
        let ends =
            json[name]["data_offsets"].as_array().unwrap().iter().map(|end| end.as_u64().unwrap() as usize);
        let ends: Vec<usize> = ends.collect();
        if ends[0] < ends[1] {
            bytes[header + ends[1] - 1] ^= 1;
            return fs::write(&entry, bytes).unwrap();
        }
    }
    panic!("no rank has some of `{name}`");
}

#[test]
fn what_must_be_equal_is_compared() {
    let mut r = Random(64);
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = Tensors::new();
    let embedding = tensor(&mut r, Dtype::F32, &[6, 4]);
    let copy =
        || Whole { dtype: embedding.dtype, shape: embedding.shape.clone(), bytes: embedding.bytes.clone() };
    tensors.insert("embed".to_owned(), copy());
    tensors.insert("head".to_owned(), copy());
    let twice = [&embedding.bytes[..], &embedding.bytes[..]].concat();
    tensors.insert("twice".to_owned(), Whole { dtype: Dtype::F32, shape: vec![12, 4], bytes: twice });
    let file = folder.path().join("w.safetensors");
    write(&file, &tensors);
    let rules = "drop head == embed\none = rearrange(twice, '(r a) b -> a b', r=2)";
    let out = folder.path().join("out.safetensors");
    let whole =
        |rules: &str| ReshardJob { out: Some(out.clone()), ..mapped_job(folder.path(), &file, rules, false) };
    let said = report(&whole(rules));
    assert_eq!((said.dropped, said.kept), (vec!["head".to_owned()], vec!["embed".to_owned()]));
    assert!(read(&out)["one"].bytes == embedding.bytes);
    fs::remove_file(&out).unwrap();
    for (name, at, why) in [
        ("head", 40, "head and embed must be equal, but 1 of 24 elements differ, the first at [2, 2]"),
        ("twice", 100, "must be equal, but 1 of 24 elements differ, the first at [0, 0, 1]"),
    ] {
        let mut other: Tensors = read(&file);
        other.get_mut(name).unwrap().bytes[at] ^= 1;
        write(&file, &other);
        let error = whole(rules).run(&mut ()).unwrap_err();
        assert!(error.to_string().contains(why) && error.status() == 2 && !out.exists(), "{error}");
        write(&file, &tensors);
    }
}

#[test]
fn options_that_do_not_fit_are_refused_before_anything_is_written() {
    let mut r = Random(65);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.safetensors");
    let mut tensors = sources(&mut r, Dtype::F32);
    tensors.insert("half".to_owned(), tensor(&mut r, Dtype::BF16, &[16, 5]));
    write(&file, &tensors);
    let out = folder.path().join("out");
    let base =
        |rules: &str| ReshardJob { out: Some(out.clone()), ..mapped_job(folder.path(), &file, rules, false) };
    let toml = folder.path().join("rules.toml");
    let by_toml = |text: &str| {
        fs::write(&toml, text).unwrap();
        ReshardJob { map: Some(toml.clone()), to: None, ..base("") }
    };
    let said = |job: ReshardJob| {
        let error = job.run(&mut ()).unwrap_err();
        assert!(error.status() == 2 && !out.exists() && !error.to_string().contains('\n'), "{error}");
        error.to_string()
    };
    for (rules, why) in [
        ("x = nothing", "no"),
        ("x = a.q + a.missing", "a.missing"),
        ("x = a.q\nx = b.q", "x"),
        ("x = a.q + half", "F32 and BF16"),
        ("x = cast(a.q, bf16) + half", "convert the tensors to one dtype"),
        ("x = cast(cast(a.q, f16), bf16)", "rounded 2 times"),
        ("x = a.q by", "column"),
        ("x = rearrange(a.q, '(h d) e -> h d e', h=$h)", "$h"),
    ] {
        let text = said(base(rules));
        assert!(text.contains(why), "{rules}: {text}");
    }
    assert!(said(ReshardJob { strict: true, ..base("x.* = a.*") }).contains("--strict: no rule"));
    assert!(said(ReshardJob { inverse: true, ..base("x = a.q[1:]") }).contains("rule"));
    assert!(said(ReshardJob { numbers: vec!["h".into()], ..base("x = a.q") }).contains("like h=32"));
    assert!(said(ReshardJob { split: vec!["a.q = x + y".into()], ..base("x = a.k") }).contains("`--split`"));
    assert!(said(ReshardJob { map: None, inverse: true, ..base("") }).contains("need `--map`"));
    let spec = folder.path().join("spec.toml");
    fs::write(&spec, "\"*\" = \"S(0)\"").unwrap();
    let both = by_toml("mapping = \"x = a.q\"\n[placements]\n\"*\" = \"R\"");
    assert!(said(ReshardJob { spec: Some(spec), ..both }).contains("both `--spec` and the mapping"));
    assert!(said(by_toml("mapping = \"x = a.q\"\nversion = 2")).contains("version"));
    assert!(said(by_toml("mapping = \"x = a.q\"\nrest = \"error\"")).contains("a."));
    // The placements of the mapping are those of the output.
    let job = by_toml(
        "mapping = \"x = rearrange(a.q, '(h d) e -> h d e', h=$h)\"\n[let]\nh = 2\n[placements]\nx = \"S(1)\"\n\"*\" = \"S(0)\"",
    );
    let job = ReshardJob { numbers: vec!["h=4".into()], ..job };
    report(&job);
    let made = opened(&out);
    let shown = |name: &str| made.tensor(name).unwrap().sharding().unwrap().to_string();
    assert_eq!(
        (made.tensor("x").unwrap().shape(), shown("x"), shown("b.q")),
        (&[4, 4, 5][..], "S(1)".to_owned(), "S(0)".to_owned())
    );
    assert!(Checkpoint::open(Some(&out)).is_ok());
}
