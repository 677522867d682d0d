//! Facts of other libraries: the device shards of jax, the local shapes and offsets of torch, and the
//! placements that the tests of both expect of views. The first line of each file names the source of its
//! facts.
//!
//! Each test goes over all lines and lists those with another answer; every allowed difference has a reason
//! here.
use reshard_sharding::{Mesh, Sharding};
use serde_json::Value;

fn facts(text: &str) -> Vec<Value> {
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|n| usize::try_from(n.as_u64().unwrap()).unwrap()).collect()
}

/// Compares a rank's shard with that of jax: per dim `[start, length]`.
fn holds(s: &Sharding, rank: usize, want: &Value) -> bool {
    let region = s.region(rank).unwrap();
    let want: Vec<Vec<usize>> = want.as_array().unwrap().iter().map(numbers).collect();
    let have: Vec<Vec<usize>> =
        region.dims.iter().map(|dim| dim.iter().flat_map(|x| [x.start, x.len]).collect()).collect();
    let nothing = |x: &[usize]| x.is_empty() || x.get(1) == Some(&0);
    have.len() == want.len() && have.iter().zip(&want).all(|(h, w)| h == w || (nothing(h) && nothing(w)))
}

/// Returns the difference from a line of `jax_maps.jsonl`, if any.
fn otherwise(fact: &Value) -> Option<String> {
    let (text, shape) = (fact["text"].as_str().unwrap(), numbers(&fact["shape"]));
    let mesh: Mesh = match fact["mesh"].as_str().unwrap().parse() {
        Ok(mesh) => mesh,
        Err(e) => return Some(format!("{text}: {e}")),
    };
    let s = match Sharding::parse(&mesh, &shape, text) {
        Ok(s) => s,
        Err(e) => return Some(format!("{text} of {shape:?} on {mesh}: {e}")),
    };
    let ranks = fact["ranks"].as_object().unwrap();
    assert_eq!(ranks.len(), mesh.size(), "{text}");
    let wrong = ranks.iter().find(|(rank, want)| !holds(&s, rank.parse().unwrap(), want));
    wrong.map(|(rank, want)| format!("{text} of {shape:?} on {mesh} is {s}, and rank {rank} holds {want}"))
}

#[test]
fn every_device_holds_what_jax_says() {
    let all = facts(include_str!("../data/jax_maps.jsonl"));
    let list: Vec<String> = all.iter().filter_map(otherwise).collect();
    assert!(list.is_empty(), "{} of {}, otherwise:\n{}", list.len(), all.len(), list.join("\n"));
    assert!(all.len() > 500, "{}", all.len());
}

#[test]
fn views_have_the_placements_that_others_expect() {
    let mut list = Vec::new();
    for fact in facts(include_str!("../data/views.jsonl")) {
        let ask = &fact["ask"];
        let mesh: Mesh = ask["mesh"].as_str().unwrap().parse().unwrap();
        let (shape, to) = (numbers(&ask["shape"]), numbers(&ask["to_shape"]));
        let view = Sharding::parse(&mesh, &shape, ask["placements"].as_str().unwrap()).unwrap().view(&to);
        let want = Sharding::parse(&mesh, &to, fact["want"].as_str().unwrap()).unwrap();
        if view.as_ref() != Ok(&want) {
            list.push(format!("{ask}: {want}, and not {view:?}"));
        }
    }
    assert!(list.is_empty(), "{}", list.join("\n"));
}

#[test]
fn local_shapes_and_offsets_are_torchs() {
    let mut list = Vec::new();
    for fact in facts(include_str!("../data/torch_offsets.jsonl")) {
        let sizes = numbers(&fact["mesh"]);
        let mesh = Mesh::new(["a", "b", "c", "d"].into_iter().zip(sizes)).unwrap();
        let shape = numbers(&fact["shape"]);
        let s = Sharding::parse(&mesh, &shape, fact["placements"].as_str().unwrap()).unwrap();
        let answers: Vec<&Value> =
            ["torch", "expect"].into_iter().map(|key| &fact[key]).filter(|v| !v.is_null()).collect();
        for want in answers {
            for (rank, want) in want.as_array().unwrap().iter().enumerate() {
                let (local, offset) = (numbers(&want[0]), numbers(&want[1]));
                let region = s.region(rank).unwrap();
                let first: Vec<usize> = region
                    .dims
                    .iter()
                    .zip(&shape)
                    .map(|(d, &len)| d.first().map_or(len, |x| x.start))
                    .collect();
                if s.local_shape(rank).unwrap().as_slice() != local || first != offset {
                    list.push(format!("{} of {shape:?} on {mesh}, rank {rank}: {local:?} at {offset:?}, and not {:?} at {first:?}", fact["placements"], s.local_shape(rank).unwrap()));
                }
            }
        }
    }
    assert!(list.is_empty(), "{}", list.join("\n"));
}
