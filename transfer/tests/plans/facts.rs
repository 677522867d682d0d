//! Facts of peers about transfers of models, where their table is next to the repository.

use std::collections::BTreeMap;

use reshard_mapping::{Dtype, Mapping, SourceTensor};
use reshard_transfer::{Options, Side, SideTensor, Transfer};
use serde_json::Value;

use crate::models::{Experts, Model, World, case, deepseek_v3, qwen3_32b};
use crate::published::check;

/// Returns the facts of a kind; none without the table.
fn facts(kind: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/model_transfers.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|fact| fact["kind"] == kind).collect()
}

fn shapes(of: &Value) -> Vec<(String, Vec<usize>)> {
    let shape = |shape: &Value| {
        shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect::<Vec<_>>()
    };
    of.as_object().unwrap().iter().map(|(name, value)| (name.clone(), shape(value))).collect()
}

/// Returns the models of the facts, and those that only their worlds name.
fn models() -> BTreeMap<String, Model> {
    let mut models =
        BTreeMap::from([("deepseek-v3".to_owned(), deepseek_v3()), ("qwen3-32b".to_owned(), qwen3_32b())]);
    for fact in facts("model") {
        let number = |key: &str| fact[key].as_u64().unwrap_or(0) as usize;
        let layers = number("layers");
        let layer: Vec<_> =
            shapes(&fact["layer"]).into_iter().map(|(name, shape)| (name, shape, 0..layers)).collect();
        // Rows of a head: the norm of the keys has that extent, or 128 in all models of the table.
        let norm = layer.iter().find(|(name, ..)| name.ends_with("k_norm.weight"));
        let head_rows = norm.map_or(128, |(_, shape, _)| shape[0]);
        let model = Model { layers, experts: number("experts"), layer, top: shapes(&fact["top"]), head_rows };
        models.insert(fact["name"].as_str().unwrap().to_owned(), model);
    }
    models
}

fn world(fact: &Value) -> World {
    let degree = |side: &str, key: &str| fact[side][key].as_u64().map_or(1, |n| n as usize);
    let source = |key: &str| degree("source", key);
    let target = |key: &str| degree("target", key);
    let stage = (source("tp") * source("cp") * source("dp")).max(source("ep") * source("etp"));
    let source_ranks = fact["source"]["gpus"].as_u64().map_or(stage * source("pp"), |n| n as usize);
    let target_ranks = fact["target"]["gpus"].as_u64().map_or(target("tp") * target("dp"), |n| n as usize);
    World {
        source_ranks,
        source_tp: source("tp"),
        pp: source("pp"),
        ep: source("ep"),
        target_tp: target("tp"),
        target_dp: target_ranks / target("tp"),
        target_ep: target("ep"),
    }
}

#[test]
fn worlds_are_planned_at_the_bound() {
    let models = models();
    for fact in facts("world") {
        let Some(model) = models.get(fact["model"].as_str().unwrap_or_default()) else { continue };
        let world = world(&fact);
        // One tensor an expert takes longer to prepare, so it is tried on the smaller worlds.
        let forms: &[Experts] = if world.target_ep > 1 || world.source_ranks > 64 {
            &[Experts::Stacked]
        } else {
            &[Experts::Stacked, Experts::StackedByRule]
        };
        for experts in forms {
            let case = case(model, world, *experts);
            let plan = check(&case, world, usize::MAX);
            if *experts == Experts::Stacked {
                plan.certificate().unwrap();
                let largest = plan.ranks().iter().map(|rank| plan.part(*rank).to_bytes().len()).max();
                assert!(largest < Some(1_000_000), "{fact}");
            }
        }
    }
}

/// The computed figures are those of boxes: bytes to a target, the balanced share, and descriptors.
#[test]
fn computed_figures_are_reached() {
    let rows = [
        ("qwen235b-gb200", "qwen3-235b-a22b", [64, 2, 4, 16], [8, 8]),
        ("skyrl-like 235b TP4PP2EP8 -> TP8 DP2", "qwen3-235b-a22b", [16, 4, 2, 8], [8, 2]),
        ("dsv3-256", "deepseek-v3", [128, 1, 8, 16], [8, 16]),
        ("qwen3-32b-gb200", "qwen3-32b", [16, 2, 4, 1], [1, 16]),
    ];
    for fact in facts("computed") {
        let Some((_, model, [source_ranks, source_tp, pp, ep], [target_tp, target_dp])) =
            rows.into_iter().find(|(name, ..)| fact["name"] == *name)
        else {
            continue;
        };
        let world = World { source_ranks, source_tp, pp, ep, target_tp, target_dp, target_ep: 1 };
        let case = case(&models()[model], world, Experts::Stacked);
        let of = &fact["descriptors_per_target"];
        let most = of["stacked"].as_u64().or_else(|| of.as_u64()).unwrap() as usize;
        let plan = check(&case, world, most);
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        let bytes = plan.bytes();
        let received = gigabytes(bytes.iter().map(|of| of.received).max().unwrap());
        assert!((received - fact["recv_per_target_GB"].as_f64().unwrap()).abs() < 0.01, "{fact} {received}");
        let sent = gigabytes(bytes.iter().map(|of| of.sent).max().unwrap());
        assert!(sent <= 1.02 * fact["sent_balanced_pull_GB"].as_f64().unwrap(), "{fact} {sent}");
    }
}

/// Each mapping with parts, on small tensors in the ratio of a model, planned and proved.
#[test]
fn mappings_are_planned() {
    for fact in facts("mapping") {
        let parts: Vec<&str> =
            fact["parts"].as_array().map_or(Vec::new(), |all| all.iter().filter_map(Value::as_str).collect());
        let target = fact["target"].as_str().unwrap();
        let sources: Vec<(&str, Vec<usize>)> = parts
            .iter()
            .enumerate()
            .map(|(k, name)| (*name, vec![if fact["op"] == "tie" || k == 0 { 32 } else { 16 }, 8]))
            .collect();
        let (rule, sources) = match fact["op"].as_str().unwrap() {
            "|" => (format!("{target} = {}", parts.join(" | ")), sources),
            "+ by groups" => (format!("{target} = 2 {} by 4", parts.join(" + 1 ")), sources),
            "tie" => (format!("{target} = {0}\nembed = {0}", parts[0]), sources),
            "permute" => (
                format!("{target} = rearrange(w, '(h two d) e -> (h d two) e', h=4, two=2)"),
                vec![("w", vec![32, 8])],
            ),
            "stack twice" => (
                format!("{target} = rearrange(stack(t.#), 'l (e o) i -> l e o i', e=4)"),
                vec![("t.0", vec![32, 8]), ("t.1", vec![32, 8])],
            ),
            op => panic!("{op}: {fact}"),
        };
        let mapping: Mapping = rule.parse().unwrap();
        let list: Vec<SourceTensor<'_>> =
            sources.iter().map(|(name, shape)| SourceTensor { name, shape, dtype: Dtype::BF16 }).collect();
        let made = mapping.apply(&list).unwrap();
        let trainer = "dp=2,tp=2".parse().unwrap();
        let server = "dp=2,tp=4@4".parse().unwrap();
        let tensors =
            sources.iter().map(|(name, shape)| SideTensor::new(name, Dtype::BF16, shape, &trainer, "R,S(0)"));
        let source = Side::new(tensors.collect()).unwrap();
        let tensors = made.tensors.iter().map(|of| {
            let dim = usize::from(of.shape.len() == 4) * 2;
            SideTensor::new(&of.name, of.dtype, &of.shape, &server, &format!("R,S({dim})"))
        });
        let target = Side::new(tensors.collect()).unwrap();
        let plan = Transfer::plan(&source, &target, &mapping, &Options::default()).unwrap();
        plan.certificate().unwrap_or_else(|error| panic!("{error}: {fact}"));
    }
}
