//! 500 random mappings between random worlds, from fixed seeds, against the slow definition of rules.

use std::collections::BTreeMap;

use reshard_mapping::{Mapping, SourceTensor};
use reshard_sharding::Mesh;
use reshard_test_support::{Random, random_mesh, random_sharding};
use reshard_transfer::{Commit, Options, RankPart, Side, SideTensor, Transfer};

use crate::definition;
use crate::drawing::Draw;
use crate::execute::{buffers, by_name, executed, parts};
use crate::runs::run;
use crate::tensor::{Tensor, Tensors, distinct};

/// Returns a mesh of a world of some ranks, which may begin anywhere.
fn mesh(random: &mut Random) -> Mesh {
    let mesh = random_mesh(random);
    if mesh.rank_table().is_some() || random.below(2) == 0 {
        return mesh;
    }
    format!("{mesh}@{}", random.below(12)).parse().unwrap()
}

/// Returns placements that are not partial, of a tensor with this shape.
fn placements(random: &mut Random, mesh: &Mesh, shape: &[usize]) -> String {
    loop {
        let sharding = random_sharding(random, mesh, shape);
        if !sharding.is_partial() {
            return sharding.to_string();
        }
    }
}

fn side(random: &mut Random, tensors: &BTreeMap<String, Tensor>) -> Side {
    let meshes = [mesh(random), mesh(random)];
    let of = |(name, tensor): (&String, &Tensor)| {
        let mesh = &meshes[usize::from(random.below(4) == 0)];
        let text = placements(random, mesh, &tensor.shape);
        SideTensor::new(name, tensor.dtype, &tensor.shape, mesh, &text)
    };
    Side::new(tensors.iter().map(of).collect()).unwrap()
}

fn sources(random: &mut Random) -> Tensors {
    let tensor = |number: usize| {
        let shape: Vec<usize> =
            (0..=random.below(3)).map(|_| *random.pick(&[1, 2, 3, 4, 6, 8, 12, 5])).collect();
        (format!("m.{number}.w"), distinct(number as u64, &shape))
    };
    (0..3).map(tensor).collect()
}

/// Returns a `|` of slices of a tensor, its dim and the extents of the parts.
fn local_concatenation(random: &mut Random, tensors: &Tensors) -> (String, usize, Vec<usize>) {
    let (name, tensor) = random.pick(tensors);
    let dim = random.below(tensor.shape.len());
    let (before, extent) = (":, ".repeat(dim), tensor.shape[dim]);
    let (mut parts, mut extents) = (Vec::new(), Vec::new());
    for _ in 0..2 + random.below(2) {
        let start = random.below(extent);
        parts.push(format!("{name}[{before}{start}:]"));
        extents.push(extent - start);
    }
    (format!("out = {} on {dim}", parts.join(" | ")), dim, extents)
}

/// Compares the plan of a mapping, in all forms of its parts, with the definition.
fn compare(
    random: &mut Random,
    rule: &str,
    tensors: &Tensors,
    made: &BTreeMap<String, Tensor>,
    of_parts: &BTreeMap<String, (usize, Vec<usize>)>,
) {
    let mapping: Mapping = rule.parse().unwrap();
    let source = side(random, &by_name(tensors));
    // The plan must not depend on the order of the source.
    let target = loop {
        let side = side(random, made);
        if of_parts.is_empty() {
            break side;
        }
        // Placements part by part; the other dims must be divided equally.
        let one = |tensor: &SideTensor| match of_parts.get(&tensor.name) {
            Some((dim, extents)) => {
                let shape = |extent: usize| {
                    let mut shape = made[&tensor.name].shape.clone();
                    shape[*dim] = extent;
                    shape
                };
                let texts: Vec<String> =
                    extents.iter().map(|extent| placements(random, &tensor.mesh, &shape(*extent))).collect();
                let mut tensor = tensor.clone();
                tensor.placements = Some(texts.join(" | "));
                tensor
            }
            None => tensor.clone(),
        };
        let side = Side::new(side.tensors().iter().map(one).collect()).unwrap();
        if Transfer::plan(&source, &side, &mapping, &Options::default()).is_ok() {
            break side;
        }
    };
    let what = format!("{rule}\nsource:\n{source}target:\n{target}");
    let options = match random.below(3) {
        0 => Options::default().with_ranks_per_node(1 + random.below(8)),
        _ => Options::default(),
    };
    let plan = Transfer::plan(&source, &target, &mapping, &options).unwrap_or_else(|e| panic!("{e}\n{what}"));
    let certificate = plan.certificate().unwrap_or_else(|e| panic!("{e}\n{what}"));
    let parts = parts(&plan);
    for part in &parts {
        assert_eq!(RankPart::from_json(&part.to_json()).as_ref(), Ok(part), "{what}");
        assert_eq!(RankPart::from_bytes(&part.to_bytes()).as_ref(), Ok(part), "{what}");
    }
    let held = buffers(&source, &by_name(tensors), &BTreeMap::new());
    let expected = buffers(&target, made, of_parts);
    assert_eq!(executed(&parts, &held, &expected), expected, "{what}");
    // Threads for all ranks cost more than the rest, so a part of the plans runs over an engine.
    if random.below(4) == 0 {
        let commit = [Commit::All, Commit::Bucket][random.below(2)];
        let written = run(&plan, &held, commit, 1 + random.below(200));
        let filled = expected.iter().filter(|(_, data)| !data.is_empty());
        assert!(written.iter().eq(filled), "{written:?} {expected:?} {what}");
    }

    // Elements are distinct, so the buffers alone show which ones a rank lacks.
    let distinct_sources = tensors.iter().all(|(_, tensor)| tensor.data.iter().all(|x| *x != 7));
    for of in certificate.ranks() {
        let own: std::collections::HashSet<u64> = held
            .iter()
            .filter(|((rank, _), _)| *rank == of.rank)
            .flat_map(|(_, data)| data.iter().copied())
            .collect();
        let lacking = expected
            .iter()
            .filter(|((rank, _), _)| *rank == of.rank)
            .flat_map(|(_, data)| data)
            .filter(|x| **x != 0 && !own.contains(x))
            .count() as u64;
        if distinct_sources {
            assert_eq!((of.received, of.lacking), (4 * lacking, 4 * lacking), "rank {}\n{what}", of.rank);
        }
    }
    let (sent, received) = certificate.ranks().iter().fold((0, 0), |(a, b), x| (a + x.sent, b + x.received));
    assert_eq!(sent, received, "{what}");
}

#[test]
fn plans_of_drawn_mappings_equal_the_definition() {
    let mut compared = 0;
    let mut seed = 0;
    while compared < 500 {
        seed += 1;
        let mut random = Random(seed * 7919 + 3);
        let tensors = sources(&mut random);
        if random.below(4) == 0 {
            let (rule, dim, extents) = local_concatenation(&mut random, &tensors);
            let as_sum = rule.replace('|', "+");
            let Ok(Some(made)) = definition::apply(&as_sum, &tensors) else { continue };
            let of_parts = BTreeMap::from([("out".to_owned(), (dim, extents))]);
            compare(&mut random, &rule, &tensors, &made, &of_parts);
            compared += 1;
            continue;
        }
        let names = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect();
        let depth = random.below(4);
        let (right, shape) = Draw { random: &mut random, names }.expr(depth);
        let mut draw = Draw { random: &mut random, names: Vec::new() };
        let (left, end) = draw.left("out", &shape, 1);
        let rule = match (&end[..], right.starts_with("cat(")) {
            ("", _) => format!("{left} = {right}"),
            (_, true) => format!("out = {right}"),
            (_, false) => format!("{left} = {right}{end}"),
        };
        let Ok(Some(made)) = definition::apply(&rule, &tensors) else { continue };
        // All sources are f32 there, and copies are compared by the engine that runs a mapping, not by a plan.
        let list: Vec<SourceTensor<'_>> = tensors
            .iter()
            .map(|(name, tensor)| SourceTensor { name, shape: &tensor.shape, dtype: tensor.dtype })
            .collect();
        assert!(rule.parse::<Mapping>().unwrap().apply(&list).is_ok(), "{rule}");
        compare(&mut random, &rule, &tensors, &made, &BTreeMap::new());
        compared += 1;
    }
}
