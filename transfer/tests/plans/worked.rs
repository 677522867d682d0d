//! Eight heads and two KV heads, from FSDP and TP to a server with more ranks than KV heads, box by box.

use std::collections::BTreeMap;

use reshard_mapping::{Dtype, Mapping};
use reshard_transfer::{Options, Side, Transfer, check};
use serde_json::{Value, json};

use crate::execute::{buffers, by_name, executed, parts};
use crate::tensor::{Tensor, sources};

const TRAINER: &str = r#"{"mesh": "dp=2,tp=2", "tensors": [
    {"name": "q_proj.weight", "dtype": "f32", "shape": [64, 64], "placements": "SS(0,2),S(0)"},
    {"name": "k_proj.weight", "dtype": "f32", "shape": [16, 64], "placements": "SS(0,2),S(0)"},
    {"name": "v_proj.weight", "dtype": "f32", "shape": [16, 64], "placements": "SS(0,2),S(0)"}]}"#;

const SERVER: &str = r#"{"mesh": "kv=2,rep=2@4", "tensors": [
    {"name": "qkv_proj.weight", "dtype": "bf16", "local_shape": [32, 64],
     "placements": "S(0),S(0) | S(0),R | S(0),R"}]}"#;

const RULE: &str = "qkv_proj.weight = q_proj.weight | k_proj.weight | v_proj.weight";

fn plan() -> (Side, Side, Transfer) {
    let (trainer, server) = (Side::from_json(TRAINER).unwrap(), Side::from_json(SERVER).unwrap());
    let mapping: Mapping = RULE.parse::<Mapping>().unwrap().with_cast("*", "bf16").unwrap();
    let plan = Transfer::plan(&trainer, &server, &mapping, &Options::default()).unwrap();
    (trainer, server, plan)
}

#[test]
fn the_boxes_of_rank_5_are_those_of_the_table() {
    let (_, _, plan) = plan();
    let part: Value = serde_json::from_str(&plan.part(5).to_json()).unwrap();
    let copy = |from: usize, name: &str, target: usize, count: usize| {
        json!({"from": from, "source": format!("{name}_proj.weight"), "target": "qkv_proj.weight",
               "cast": ["f32", "bf16"], "source_offset": 0, "target_offset": target, "loops": [[count, 1, 1]]})
    };
    let expected = [
        copy(2, "q", 0, 1024),
        copy(0, "k", 1024, 256),
        copy(2, "k", 1280, 256),
        copy(0, "v", 1536, 256),
        copy(2, "v", 1792, 256),
    ];
    assert_eq!(part["receives"], json!(expected));
    assert_eq!((&part["sends"], &part["fills"]), (&json!([]), &json!([])));
    assert_eq!((&part["version"], &part["rank"]), (&json!(1), &json!(5)));
    assert_eq!(part["hash"], json!(format!("{:016x}", plan.hash())));
}

#[test]
fn bytes_are_those_that_the_server_lacks() {
    let (_, _, plan) = plan();
    let certificate = plan.certificate().unwrap();
    for rank in &certificate.ranks()[4..] {
        assert_eq!((rank.received, rank.lacking, rank.sent, rank.copied), (4096, 4096, 0, 0));
        assert_eq!(rank.descriptors, 5);
    }
    // No region of the source has a second owner, so senders are not chosen.
    for rank in &certificate.ranks()[..4] {
        assert_eq!((rank.received, rank.sent, rank.share), (0, 4096, 4096));
    }
    assert_eq!(certificate.coverage(), check(parts(&plan).into_iter().map(Ok)).unwrap());
    assert_eq!(certificate.coverage().elements, 4 * 2048);
}

#[test]
fn every_element_arrives() {
    let (trainer, server, plan) = plan();
    let tensors =
        sources(&[("q_proj.weight", &[64, 64]), ("k_proj.weight", &[16, 64]), ("v_proj.weight", &[16, 64])]);
    let data = tensors.iter().flat_map(|(_, tensor)| tensor.data.clone()).collect();
    let fused = Tensor { shape: vec![96, 64], dtype: Dtype::F32, data };
    let name = "qkv_proj.weight".to_owned();
    let of_parts = BTreeMap::from([(name.clone(), (0, vec![64, 16, 16]))]);
    let expected = buffers(&server, &BTreeMap::from([(name, fused)]), &of_parts);
    let held = buffers(&trainer, &by_name(&tensors), &BTreeMap::new());
    assert_eq!(executed(&parts(&plan), &held, &expected), expected);
}
