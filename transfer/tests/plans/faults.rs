//! 1,000 faults planted in exported parts, each of which the proof finds.

use reshard_mapping::Mapping;
use reshard_test_support::Random;
use reshard_transfer::{ErrorKind, Options, RankPart, Side, Transfer, check};
use serde_json::{Value, json};

/// A trainer with replicas, and a server with replicas, fused tensors and padding.
pub(crate) fn plan() -> Transfer {
    let trainer = r#"{"mesh": "dp=2,tp=2", "tensors": [
        {"name": "l.0.q", "dtype": "f32", "shape": [64, 64], "placements": "SS(0,2),S(0)"},
        {"name": "l.0.k", "dtype": "f32", "shape": [16, 64], "placements": "SS(0,2),S(0)"},
        {"name": "l.0.v", "dtype": "f32", "shape": [16, 64], "placements": "R,S(0)"},
        {"name": "l.0.o", "dtype": "f32", "shape": [64, 64], "placements": "R,S(1)"},
        {"name": "l.0.e.0.up", "dtype": "f32", "shape": [24, 16], "placements": "R,S(0)"},
        {"name": "l.0.e.1.up", "dtype": "f32", "shape": [24, 16], "placements": "S(0),R"},
        {"name": "l.0.norm", "dtype": "f32", "shape": [64], "axes": ["dp"], "placements": "S(0)"},
        {"name": "embed", "dtype": "f32", "shape": [50, 64], "placements": "R,S(0)"}]}"#;
    let server = r#"{"mesh": "dp=2,kv=2,rep=2@4", "tensors": [
        {"name": "l.0.qkv", "dtype": "bf16", "local_shape": [32, 64], "placements": "R,S(0),S(0) | R,S(0),R | R,S(0),R"},
        {"name": "l.0.o", "dtype": "bf16", "shape": [64, 64], "placements": "R,S(1),S(1)"},
        {"name": "l.0.up", "dtype": "bf16", "shape": [2, 24, 16], "placements": "R,S(2),S(2)"},
        {"name": "l.0.norm", "dtype": "f32", "shape": [64], "placements": "R,R,R"},
        {"name": "embed", "dtype": "bf16", "shape": [64, 64], "placements": "R,S(0),S(0)"}]}"#;
    let mapping: Mapping =
        "*.qkv = *.q | *.k | *.v\n*.up = stack(*.e.#.up)\nembed = pad(embed, 64)".parse().unwrap();
    let mapping = mapping.with_cast("*.norm", "keep").unwrap().with_cast("*", "bf16").unwrap();
    let (trainer, server) = (Side::from_json(trainer).unwrap(), Side::from_json(server).unwrap());
    Transfer::plan(&trainer, &server, &mapping, &Options::default()).unwrap()
}

fn proved(parts: &[Value]) -> Result<(), ErrorKind> {
    let read = parts.iter().map(|part| RankPart::from_json(&part.to_string()));
    check(read).map(|_| ()).map_err(|error| error.kind())
}

/// Returns the ranks whose parts have entries in a list.
fn with_entries(parts: &[Value], list: &str) -> Vec<usize> {
    (0..parts.len()).filter(|rank| parts[*rank][list].as_array().is_some_and(|all| !all.is_empty())).collect()
}

#[test]
fn each_of_1000_planted_faults_is_found() {
    let plan = plan();
    let right: Vec<Value> =
        plan.ranks().iter().map(|rank| serde_json::from_str(&plan.part(*rank).to_json()).unwrap()).collect();
    assert_eq!(proved(&right), Ok(()));
    let mut random = Random(2026);
    let mut found = std::collections::BTreeMap::<(&str, &str), usize>::new();
    let mut planted = 0;
    while planted < 1000 {
        let mut parts = right.clone();
        let list = *random.pick(&["receives", "receives", "sends", "fills"]);
        let ranks = with_entries(&parts, list);
        let rank = *random.pick(&ranks);
        let entries = parts[rank][list].as_array().unwrap().len();
        let k = random.below(entries);
        let fault = *random.pick(&["lost", "doubled", "shifted", "swapped", "looped"]);
        match fault {
            "lost" => drop(parts[rank][list].as_array_mut().unwrap().remove(k)),
            "doubled" => {
                let entry = parts[rank][list][k].clone();
                parts[rank][list].as_array_mut().unwrap().push(entry);
            }
            "shifted" => {
                let keys: &[&str] =
                    if list == "fills" { &["offset"] } else { &["source_offset", "target_offset"] };
                let key = *random.pick(keys);
                let old = parts[rank][list][k][key].as_u64().unwrap();
                let new = if old > 0 && random.below(2) == 0 { old - 1 } else { old + 1 };
                parts[rank][list][k][key] = json!(new);
            }
            "swapped" => {
                let other = *random.pick(&ranks);
                let j = random.below(parts[other][list].as_array().unwrap().len());
                let (a, b) = (parts[rank][list][k].clone(), parts[other][list][j].clone());
                // Replicas have equal entries: exchanging them changes nothing.
                if a == b || other == rank {
                    continue;
                }
                parts[rank][list][k] = b;
                parts[other][list][j] = a;
            }
            _ => {
                if list == "fills" || parts[rank][list][k]["loops"][0][0].as_u64() <= Some(2) {
                    continue;
                }
                let old = parts[rank][list][k]["loops"][0][0].as_u64().unwrap();
                parts[rank][list][k]["loops"][0][0] = json!(old - 1);
            }
        }
        planted += 1;
        let kind = proved(&parts).expect_err(&format!("{fault} {list} {k} of rank {rank}"));
        *found.entry((fault, kind.code())).or_default() += 1;
    }
    // Each kind of fault was planted often, and found by a reason that fits it.
    for fault in ["lost", "doubled", "shifted", "swapped", "looped"] {
        let all: usize = found.iter().filter(|((name, _), _)| *name == fault).map(|(_, n)| n).sum();
        assert!(all > 80, "{found:?}");
    }
    assert!(found.contains_key(&("lost", "unwritten")) && found.contains_key(&("lost", "messages_differ")));
    assert!(found.contains_key(&("doubled", "written_twice")));
}

#[test]
fn parts_of_other_plans_and_missing_ranks_are_errors() {
    let plan = plan();
    let parts: Vec<RankPart> = plan.ranks().iter().map(|rank| plan.part(*rank)).collect();
    let kind = |parts: Vec<RankPart>| check(parts.into_iter().map(Ok)).unwrap_err().kind();
    assert_eq!(kind(parts[..11].to_vec()), ErrorKind::MessagesDiffer);
    assert_eq!(kind(parts[1..].to_vec()), ErrorKind::MessagesDiffer);
    assert_eq!(kind([&parts[..], &parts[..1]].concat()), ErrorKind::Invalid);
    let mut other: Value = serde_json::from_str(&parts[3].to_json()).unwrap();
    other["hash"] = json!("00000000000000ff");
    let mut mixed = parts.clone();
    mixed[3] = RankPart::from_json(&other.to_string()).unwrap();
    assert_eq!(kind(mixed), ErrorKind::HashDiffers);
}
