//! Files of ranks that another program wrote: DTensors by `torch.save`, and files that a source describes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reshard_checkpoint::{Checkpoint, Error, ReshardJob, SourceSpec};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, Whole, draw, draw_sharding, job, read, slice, tensor, write};
use crate::reading::opened;
use crate::torch::{copied, data};

fn objects(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.objects().iter().map(reshard_checkpoint::Object::name).collect()
}

fn refusal(opened: Result<Checkpoint, Error>) -> String {
    let error = opened.err().expect("it was opened");
    assert_eq!(error.status(), 2, "{error}");
    error.to_string()
}

fn refused(path: &Path) -> String {
    refusal(Checkpoint::open(Some(path)))
}

#[test]
fn states_of_ranks_are_objects_of_these_ranks() {
    let ranks = opened(&data("ranks"));
    let mut expected = vec!["model.step".to_owned()];
    let of_rank = |rank| ["epoch", "rng.python"].map(|name| format!("extra_state.rank_{rank}.{name}"));
    expected.extend((0..4).flat_map(of_rank));
    expected.sort();
    assert_eq!(objects(&ranks), expected);
    // The weight of FSDP over tensor parallelism, a replica on a part of the mesh, and one on all ranks.
    let chunks = |name: &str| ranks.tensor(name).unwrap().chunks();
    assert_eq!(["weight", "rows", "replica"].map(|name| chunks(&format!("model.{name}"))), [Some(4); 3]);
}

#[test]
fn a_file_of_one_rank_is_not_a_checkpoint() {
    let said = refused(&data("ranks/model_world_size_4_rank_2.pt"));
    assert!(said.contains("rank 2") && said.contains("give the folder"), "{said}");
    let alone = opened(&data("ranks/extra_state_world_size_4_rank_1.pt"));
    assert_eq!(objects(&alone), ["epoch", "rng.python"]);
}

#[test]
fn files_of_ranks_are_all_there_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("ranks");
    let file = |name: &str, rank: usize| dir.join(format!("{name}_world_size_4_rank_{rank}.pt"));
    copied("ranks", &dir);
    fs::remove_file(file("model", 3)).unwrap();
    assert!(refused(&dir).contains("model_world_size_4_rank_3.pt is missing"), "{}", refused(&dir));
    fs::copy(file("model", 2), file("model", 3)).unwrap();
    assert!(refused(&dir).contains("were saved by rank 2"), "{}", refused(&dir));
    copied("ranks", &dir);
    fs::copy(file("model", 0), dir.join("model_world_size_2_rank_0.pt")).unwrap();
    assert!(refused(&dir).contains("several jobs, with {2, 4} ranks"), "{}", refused(&dir));
}

/// A changed byte of a replica is found by `verify` and by a run, also without checksums.
#[test]
fn replicas_that_differ_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let tensors: Tensors = [("w".to_owned(), tensor(&mut Random(3), Dtype::U8, &[6]))].into();
    let mut other = tensors.get("w").unwrap().bytes.clone();
    other[4] ^= 1;
    write(&folder.path().join("part-0.safetensors"), &tensors);
    let other = Whole { dtype: Dtype::U8, shape: vec![6], bytes: other };
    write(&folder.path().join("part-1.safetensors"), &[("w".to_owned(), other)].into());
    let source: SourceSpec =
        "[source]\nfiles = \"part-{r}.safetensors\"\nmesh = \"r=2\"\nplacements = { \"*\" = \"R\" }"
            .parse()
            .unwrap();
    let checkpoint = Checkpoint::open_source(folder.path(), &source).unwrap();
    let problems = checkpoint.verify(&mut ()).unwrap().problems;
    assert!(
        problems.len() == 1 && problems[0].to_string().contains("differs from its replica"),
        "{problems:?}"
    );
    let file = folder.path().join("source.toml");
    fs::write(&file, source.to_string()).unwrap();
    let out = folder.path().parent().unwrap().join("never_written");
    let job =
        ReshardJob { source: Some(file), out: Some(out.clone()), ..job(folder.path(), "a=2", "S(0)", false) };
    let error = job.run(&mut ()).unwrap_err();
    assert!(error.to_string().contains("should hold the same bytes") && !out.exists(), "{error}");
}

/// The whole tensors by their definition: each rank's file has the slice of its region.
#[test]
fn a_source_is_the_spec_of_outputs_read_backwards() {
    let mut r = Random(41);
    let mut parts = 0;
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (mesh_text, text) = draw_sharding(&mut r);
        let mesh: Mesh = mesh_text.parse().unwrap();
        let wholes = draw(&mut r);
        let mut files: BTreeMap<usize, Tensors> = mesh.ranks().map(|rank| (rank, Tensors::new())).collect();
        let (mut placements, mut expected) = (String::new(), Tensors::new());
        for (name, whole) in wholes {
            let replicated = vec!["R"; mesh.axes().len()].join(",");
            let text = if round % 3 == 0 { &replicated } else { text };
            let Ok(sharding) = Sharding::parse(&mesh, &whole.shape, text) else { continue };
            // A rank's file cannot hold half a byte.
            if whole.dtype.bitsize() % 8 != 0 {
                continue;
            }
            for (rank, file) in &mut files {
                let region = sharding.region(*rank).unwrap();
                let (dtype, shape) = (whole.dtype, sharding.local_shape(*rank).unwrap().to_vec());
                file.insert(name.clone(), Whole { dtype, shape, bytes: slice(&whole, &region) });
            }
            placements.extend(["\"", &name[..], "\" = \"", text, "\"\n"]);
            expected.insert(name, whole);
            parts += mesh.size();
        }
        let axes: Vec<String> =
            mesh.axes().iter().map(|axis| format!("{{{}:02}}", axis.name().as_str())).collect();
        let template = format!("rank/{}.safetensors", axes.join("_"));
        let source = format!(
            "[source]\nfiles = \"{template}\"\nmesh = \"{mesh_text}\"\n[source.placements]\n{placements}"
        );
        let source: SourceSpec = source.parse().unwrap();
        assert_eq!(source.to_string().parse::<SourceSpec>().unwrap(), source);
        fs::create_dir(folder.path().join("rank")).unwrap();
        for (rank, file) in &files {
            write(&folder.path().join(source.file(&mesh.coordinate(*rank).unwrap())), file);
        }
        let checkpoint = Checkpoint::open_source(folder.path(), &source).unwrap();
        assert_eq!(checkpoint.tensors().len(), expected.len());
        for (name, whole) in &expected {
            let tensor = checkpoint.tensor(name).unwrap();
            assert_eq!(tensor.shape(), whole.shape, "{name}: {text} on {mesh_text}");
            let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
            assert_eq!(
                checkpoint.shard(name, &all, 0).unwrap(),
                whole.bytes,
                "{name}: {text} on {mesh_text}"
            );
        }
    }
    assert!(parts > 300, "{parts}");
}

/// Pipeline stages number their layers from 0; the first and the last stage share an embedding.
#[test]
fn stages_are_renumbered_below_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Random(9);
    let mut of = |shape: &[usize]| tensor(&mut r, Dtype::U8, shape);
    let embedding = of(&[4, 2]);
    for stage in 0..2 {
        let mut file: Tensors =
            (0..2).map(|layer| (format!("state.model.layers.{layer}.w"), of(&[3]))).collect();
        file.insert(
            "state.model.embedding".to_owned(),
            Whole { bytes: embedding.bytes.clone(), dtype: embedding.dtype, shape: embedding.shape.clone() },
        );
        file.insert("state.model.layers.7x.w".to_owned(), of(&[1]));
        file.insert("state.rng".to_owned(), of(&[2]));
        if stage == 1 {
            file.remove("state.model.layers.7x.w");
        }
        write(&folder.path().join(format!("{stage}.bin")), &file);
    }
    let text = r#"
        [source]
        files = "{pp}.bin"
        mesh = "pp=2"
        under = "state.model"
        stages = { axis = "pp", renumber = "layers.#", by = 2 }
        placements = { "*" = "R" }
    "#;
    let source: SourceSpec = text.parse().unwrap();
    assert_eq!(source.to_string().parse::<SourceSpec>().unwrap(), source);
    let checkpoint = Checkpoint::open_source(folder.path(), &source).unwrap();
    let names: Vec<&str> = checkpoint.tensors().iter().map(reshard_checkpoint::Tensor::name).collect();
    assert_eq!(names, ["embedding", "layers.0.w", "layers.1.w", "layers.2.w", "layers.3.w", "layers.7x.w"]);
    assert_eq!(objects(&checkpoint), ["state.rng"]);
    let second = read(&folder.path().join("1.bin"));
    let all = Sharding::replicated(&"a=1".parse().unwrap(), &[3]).unwrap();
    assert_eq!(checkpoint.shard("layers.3.w", &all, 0).unwrap(), second["state.model.layers.1.w"].bytes);
    assert_eq!(checkpoint.tensor("embedding").unwrap().chunks(), Some(2));
}

/// Layers beyond those of a stage would be layers of the next one.
#[test]
fn a_stage_with_more_layers_than_it_should_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Random(19);
    for stage in 0..2 {
        let file: Tensors =
            (0..3).map(|layer| (format!("layers.{layer}"), tensor(&mut r, Dtype::U8, &[2]))).collect();
        write(&folder.path().join(format!("{stage}.bin")), &file);
    }
    let source = |by: usize| {
        let text = format!(
            "[source]\nfiles = \"{{pp}}.bin\"\nmesh = \"pp=2\"\nplacements = {{ \"*\" = \"R\" }}\nstages = {{ axis = \"pp\", renumber = \"layers.#\", by = {by} }}"
        );
        Checkpoint::open_source(folder.path(), &text.parse().unwrap())
    };
    assert_eq!(source(3).unwrap().tensors().len(), 6);
    for by in [0, 2, usize::MAX] {
        let said = refusal(source(by));
        assert!(said.contains("a stage has the numbers below by = "), "{said}");
    }
    let other = |key: &str| {
        let text = format!(
            "[source]\nfiles = \"{{pp}}.bin\"\nmesh = \"pp=2\"\nplacements = {{ \"*\" = \"R\" }}\n{key}"
        );
        refusal(text.parse().and_then(|source| Checkpoint::open_source(folder.path(), &source)))
    };
    let typo = other("stages = { axis = \"pp\", renumber = \"layer.#\", by = 3 }");
    assert!(typo.contains("no tensor has a name of renumber = `layer.#`"), "{typo}");
    assert!(other("under = \"model\"").contains("no file has a tensor below under = `model`"));
}

/// Entries of any file are listed; each rank has a separate file, in a folder.
#[test]
fn every_file_of_a_source_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Random(23);
    let mut of = || tensor(&mut r, Dtype::U8, &[2]);
    write(&folder.path().join("1.bin"), &[("m.w".to_owned(), of()), ("a".to_owned(), of())].into());
    write(&folder.path().join("11.bin"), &[("m.w".to_owned(), of()), ("b".to_owned(), of())].into());
    let open = |files: &str, mesh: &str, path: &Path| {
        let text = format!(
            "[source]\nfiles = \"{files}\"\nmesh = \"{mesh}\"\nunder = \"m\"\nplacements = {{ \"*\" = \"S(0)\" }}"
        );
        text.parse().and_then(|source| Checkpoint::open_source(path, &source))
    };
    write(&folder.path().join("0.bin"), &[("m.w".to_owned(), of())].into());
    let checkpoint = open("{r}.bin", "r=2", folder.path()).unwrap();
    assert_eq!(objects(&checkpoint), ["a"]);
    let said = refusal(open("{a}{b}.bin", "a=12,b=12", folder.path()));
    assert!(said.contains("would both be in") && said.contains("11"), "{said}");
    assert!(refusal(open("{r}.bin", "r=2", &folder.path().join("0.bin"))).contains("is not a folder"));
}

#[test]
fn a_source_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut r = Random(17);
    for rank in 0..2 {
        let shape = [2 + rank, 3];
        let file = [("w".to_owned(), tensor(&mut r, Dtype::F32, &shape))].into();
        write(&folder.path().join(format!("{rank}.safetensors")), &file);
    }
    let open = |files: &str, mesh: &str, placements: &str| {
        let text =
            format!("[source]\nfiles = \"{files}\"\nmesh = \"{mesh}\"\nplacements = {{ {placements} }}");
        text.parse::<SourceSpec>().and_then(|source| Checkpoint::open_source(folder.path(), &source))
    };
    let files = "{r}.safetensors";
    // Chunks of 5 rows are 3 and 2, and the files have 2 and 3.
    for (files, mesh, placements, why) in [
        (files, "r=2", "\"*\" = \"S(0)\"", "it is [2, 3] in"),
        (files, "r=2", "\"*\" = \"S(1)\"", "`S(1)` of [2, 6] gives rank 1 [2, 3]"),
        (files, "r=2", "\"*\" = \"R\"", "gives rank"),
        (files, "r=2", "\"v\" = \"R\"", "no pattern of [source.placements]"),
        (files, "r=2", "\"*\" = \"RG(0,[2,3])\", \"v\" = \"R\"", "`v`"),
        (files, "r=2", "\"*\" = \"P\"", "partial"),
        (files, "r=2", "\"*\" = 3", "as a string"),
        (files, "r=3", "\"*\" = \"R\"", "2.safetensors of rank 2 is missing"),
        (files, "r=2,q=2", "\"*\" = \"R\"", "the axis `q` of the mesh is in no braces"),
        ("{q}", "r=2", "\"*\" = \"R\"", "q"),
        ("{r:x2}", "r=2", "\"*\" = \"R\"", "number of digits"),
        ("{r", "r=2", "\"*\" = \"R\"", "does not close"),
        ("../{r}", "r=2", "\"*\" = \"R\"", "below the folder"),
        ("{r}", "r=100000", "\"*\" = \"R\"", "at most 65536 files"),
    ] {
        let said = refusal(open(files, mesh, placements));
        assert!(said.contains(why) && !said.contains('\n'), "{files} {mesh} {placements}: {said}");
    }
    for text in ["", "[source]\nfiles = 1", "[source]\nfiles = \"{r}\"\nmesh = \"r=1\"\nplacement = {}"] {
        let said = text.parse::<SourceSpec>().unwrap_err().to_string();
        assert!(said.contains("line ") && !said.contains('\n'), "{said}");
    }
}

/// Files of Llama: the embedding is split by columns up to version 2, and by rows since version 3.
#[test]
fn files_of_llama_need_no_source() {
    for by_rows in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut r = Random(5);
        let embedding = tensor(&mut r, Dtype::F32, &[6, 4]);
        let norm = tensor(&mut r, Dtype::F32, &[4]);
        let output = tensor(&mut r, Dtype::F32, &[6, 4]);
        let text = |dim: usize| format!("S({dim})");
        for rank in 0..2 {
            let part = |whole: &Whole, text: &str| {
                let sharding = Sharding::parse(&"tp=2".parse().unwrap(), &whole.shape, text).unwrap();
                let bytes = slice(whole, &sharding.region(rank).unwrap());
                Whole { dtype: whole.dtype, shape: sharding.local_shape(rank).unwrap().to_vec(), bytes }
            };
            let file: Tensors = [
                ("tok_embeddings.weight".to_owned(), part(&embedding, &text(usize::from(!by_rows)))),
                ("norm.weight".to_owned(), part(&norm, "R")),
                ("output.weight".to_owned(), part(&output, "S(0)")),
            ]
            .into();
            write(&folder.path().join(format!("consolidated.{rank:02}.pth")), &file);
        }
        let checkpoint = opened(folder.path());
        for (name, whole) in [("tok_embeddings.weight", &embedding), ("output.weight", &output)] {
            let all = Sharding::replicated(&"a=1".parse().unwrap(), &whole.shape).unwrap();
            assert_eq!(checkpoint.shard(name, &all, 0).unwrap(), whole.bytes, "{name}, by rows: {by_rows}");
        }
        let mut other = read(&folder.path().join("consolidated.01.pth"));
        other.insert("adapter.weight".to_owned(), tensor(&mut r, Dtype::F32, &[2]));
        write(&folder.path().join("consolidated.01.pth"), &other);
        let said = refused(folder.path());
        assert!(said.contains("adapter.weight") && said.contains("--source FILE"), "{said}");
        let path = |rank: usize| folder.path().join(format!("consolidated.{rank:02}.pth"));
        fs::rename(path(1), path(2)).unwrap();
        let said = refused(folder.path());
        assert!(said.contains("has consolidated.02.pth, but not consolidated.01.pth"), "{said}");
    }
}

/// A folder of files without an index is their union; an index of PyTorch has the form of the other.
#[test]
fn files_without_an_index_and_with_one_of_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::copy(data("module.pt"), path("pytorch_model-00001-of-00002.bin")).unwrap();
    fs::copy(data("alone.pt"), path("pytorch_model-00002-of-00002.bin")).unwrap();
    let names = |checkpoint: &Checkpoint| {
        checkpoint.tensors().iter().map(|tensor| tensor.name().to_owned()).collect::<Vec<_>>()
    };
    // A trainer's arguments are next to its model, and are not a part of it.
    fs::copy(data("object.pt"), path("training_args.bin")).unwrap();
    let union = names(&opened(folder.path()));
    assert_eq!(union.len(), 8, "{union:?}");
    let map = union.iter().map(|name| {
        let number = if name == "tensor" { 2 } else { 1 };
        format!("\"{name}\": \"pytorch_model-0000{number}-of-00002.bin\"")
    });
    let map = map.collect::<Vec<_>>().join(",");
    fs::write(path("pytorch_model.bin.index.json"), format!("{{\"weight_map\": {{{map}}}}}")).unwrap();
    let indexed = opened(folder.path());
    assert_eq!(names(&indexed), union);
    assert_eq!(names(&opened(&path("pytorch_model.bin.index.json"))), union);
    assert!(indexed.has_checksums() && indexed.verify(&mut ()).unwrap().problems.is_empty());
    fs::write(
        path("pytorch_model.bin.index.json"),
        format!("{{\"weight_map\": {{{map}, \"x\": \"pytorch_model-00001-of-00002.bin\"}}}}"),
    )
    .unwrap();
    assert!(refused(folder.path()).contains("`x` is not in"));
    fs::remove_file(path("pytorch_model.bin.index.json")).unwrap();
    fs::copy(data("alone.pt"), path("pytorch_model.bin")).unwrap();
    assert!(
        refused(folder.path()).contains("both in pytorch_model-00002-of-00002.bin and in pytorch_model.bin"),
        "{}",
        refused(folder.path())
    );
}

#[test]
fn formats_that_another_program_converts_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    // A model next to a converted one is that model.
    fs::copy(data("alone.safetensors"), folder.path().join("model.safetensors")).unwrap();
    fs::write(folder.path().join("model.gguf"), "GGUF").unwrap();
    assert_eq!(opened(folder.path()).tensors().len(), 1);
    for (file, why) in [
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_to_fp32.py"),
        ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "DeepSpeed ZeRO"),
        ("model.gguf", "GGUF"),
        ("rank0.engine", "TensorRT"),
        ("mp_rank_00", "Megatron-LM"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), "GGUF").unwrap();
        let said = refused(folder.path());
        assert!(said.contains(why) && said.contains(file) && !said.contains('\n'), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model");
    fs::write(&file, "GGUF\x03\0\0\0 and more").unwrap();
    assert!(refused(&file).contains("is a GGUF file"));
}
