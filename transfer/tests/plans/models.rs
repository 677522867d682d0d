//! Whole models on the meshes of trainers and servers, from the shapes of their tensors.

use std::collections::BTreeMap;

use reshard_mapping::{Dtype, Mapping};
use reshard_sharding::Mesh;
use reshard_transfer::{Side, SideTensor};

/// The shapes of a model. Names have `{l}` for a layer and `{e}` for an expert.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) layers: usize,
    pub(crate) experts: usize,
    /// Name, shape, and the layers that have it.
    pub(crate) layer: Vec<(String, Vec<usize>, std::ops::Range<usize>)>,
    pub(crate) top: Vec<(String, Vec<usize>)>,
    /// Rows of a KV head; 0 if there are no KV heads.
    pub(crate) head_rows: usize,
}

/// The degrees of both worlds: the server follows the trainer in the numbering of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) source_ranks: usize,
    pub(crate) source_tp: usize,
    pub(crate) pp: usize,
    pub(crate) ep: usize,
    pub(crate) target_tp: usize,
    pub(crate) target_dp: usize,
    /// Ranks of the server that divide the experts among them; 1 if TP divides each expert.
    pub(crate) target_ep: usize,
}

/// The form of the experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Experts {
    /// One tensor for all on both sides.
    Stacked,
    /// One tensor for each on both sides.
    Each,
    /// One tensor for each on the source, and one for all on the target.
    StackedByRule,
}

/// A transfer, and the bytes of its tensors: the input of the bounds.
pub(crate) struct Case {
    pub(crate) source: Side,
    pub(crate) target: Side,
    pub(crate) mapping: Mapping,
    /// By source tensor: the bytes that all servers want in total, and the ranks that hold it, all equally much.
    pub(crate) wanted: Vec<(u64, Vec<usize>)>,
    /// Bytes of the buffers of a server rank.
    pub(crate) buffers: u64,
}

/// The dim that tensor parallelism splits; `None` for a tensor that is replicated.
fn split_dim(name: &str) -> Option<usize> {
    let last = name.trim_end_matches(".weight").rsplit('.').next().unwrap();
    match last {
        "q_proj" | "k_proj" | "v_proj" | "gate_proj" | "up_proj" | "q_b_proj" | "kv_b_proj"
        | "embed_tokens" | "lm_head" => Some(0),
        "o_proj" | "down_proj" => Some(1),
        _ => None,
    }
}

/// Returns `n` parts of `0 .. all`, the first ones longer by one.
fn part(all: usize, n: usize, k: usize) -> std::ops::Range<usize> {
    let (each, more) = (all / n, all % n);
    let start = |k: usize| k * each + k.min(more);
    start(k)..start(k + 1)
}

/// Returns the sides of a model, and the mapping between them.
pub(crate) fn case(model: &Model, world: World, experts: Experts) -> Case {
    let World { source_ranks, source_tp, pp, ep, target_tp, target_dp, target_ep } = world;
    let stage = source_ranks / pp;
    // Ranks of the server: replicas, then KV heads or groups of them, then copies of a KV head.
    let heads = model.layer.iter().find(|(name, ..)| name.ends_with("k_proj.weight"));
    let heads = heads.map_or(target_tp, |(_, shape, _)| shape[0] / model.head_rows);
    let kv = heads.min(target_tp);
    let server = format!("dp={target_dp},kv={kv},rep={}@{source_ranks}", target_tp / kv);
    let server: Mesh = server.parse().unwrap();
    let shared = format!("edp={},ep={target_ep}@{source_ranks}", target_tp * target_dp / target_ep);
    let shared: Mesh = shared.parse().unwrap();
    let (mut sources, mut targets, mut wanted, mut buffers) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let servers = (target_tp * target_dp) as u64;
    let mut add = |name: &str, shape: &[usize], stage_of: usize, expert: bool, one: Option<usize>| {
        let first = stage_of * stage;
        // An expert is on one of the `ep` ranks; all others are split by TP and replicated in the stage.
        let (mesh, placements): (Mesh, String) = match (expert, one) {
            (true, Some(e)) => {
                let holder = e * ep / model.experts;
                let copies = stage / ep;
                (format!("edp={copies}:{ep}@{}", first + holder).parse().unwrap(), "R".to_owned())
            }
            (true, None) => {
                (format!("edp={},ep={ep}@{first}", stage / ep).parse().unwrap(), "R,S(0)".to_owned())
            }
            (false, _) => {
                let text = split_dim(name).map_or("R,R".to_owned(), |dim| format!("R,S({dim})"));
                (format!("dp={},tp={source_tp}@{first}", stage / source_tp).parse().unwrap(), text)
            }
        };
        let dim = split_dim(name).map(|dim| dim + usize::from(expert && experts != Experts::Each));
        let is_kv = name.ends_with(".k_proj.weight") || name.ends_with(".v_proj.weight");
        let (text, split) = match dim {
            _ if expert && target_ep > 1 => ("R,S(0)".to_owned(), target_ep),
            None => ("R,R,R".to_owned(), 1),
            Some(dim) if is_kv => (format!("R,S({dim}),R"), kv),
            Some(dim) => (format!("R,S({dim}),S({dim})"), target_tp),
        };
        let bytes = shape.iter().product::<usize>() as u64 * 2;
        wanted.push((bytes / split as u64 * servers, mesh.ranks().collect()));
        buffers += bytes / split as u64;
        sources.push(SideTensor::new(name, Dtype::BF16, shape, &mesh, &placements));
        (text, shape.to_vec())
    };
    let mut put = |name: &str, shape: &[usize], placements: &str| {
        // Only experts have placements on two axes.
        let mesh =
            if placements.split('|').next().unwrap().matches(',').count() == 1 { &shared } else { &server };
        targets.push(SideTensor::new(name, Dtype::BF16, shape, mesh, placements));
    };
    let mut rules = String::new();
    let has_qkv = model.layer.iter().any(|(name, ..)| name.ends_with("q_proj.weight"));
    if has_qkv {
        rules.push_str("*.self_attn.qkv_proj.weight = *.self_attn.q_proj.weight | *.self_attn.k_proj.weight | *.self_attn.v_proj.weight\n");
    }
    if model.experts > 0 {
        rules.push_str(match experts {
            Experts::Stacked => "*.w13 = *.experts.gate_proj.weight | *.experts.up_proj.weight on 1\n",
            Experts::Each => "",
            Experts::StackedByRule => {
                "*.w13 = stack(*.experts.#.gate_proj.weight) | stack(*.experts.#.up_proj.weight) on 1\n\
                 *.experts.down_proj.weight = stack(*.experts.#.down_proj.weight)\n"
            }
        });
    }
    for l in 0..model.layers {
        let stage_of = (0..pp).find(|k| part(model.layers, pp, *k).contains(&l)).unwrap();
        let (mut qkv, mut w13) = (BTreeMap::new(), Vec::new());
        for (name, shape, _) in model.layer.iter().filter(|(.., layers)| layers.contains(&l)) {
            let name = format!("layers.{l}.{name}");
            if let Some((before, after)) = name.split_once(".{e}") {
                let all = [&[model.experts][..], shape].concat();
                let fused = format!("{before}{after}");
                let mut text = String::new();
                if experts == Experts::Stacked {
                    text = add(&fused, &all, stage_of, true, None).0;
                } else {
                    for e in 0..model.experts {
                        let name = format!("{before}.{e}{after}");
                        text = add(&name, shape, stage_of, true, Some(e)).0;
                        if experts == Experts::Each {
                            put(&name, shape, &text);
                        }
                    }
                }
                if experts != Experts::Each && fused.ends_with("down_proj.weight") {
                    put(&fused, &all, &text);
                } else if experts != Experts::Each {
                    w13.push((text, all));
                }
                continue;
            }
            let (text, shape) = add(&name, shape, stage_of, false, None);
            // The parts are in the order of the rule, whatever that of the model.
            let ends = ["q_proj.weight", "k_proj.weight", "v_proj.weight"];
            match ends.iter().position(|end| has_qkv && name.ends_with(end)) {
                Some(k) => drop(qkv.insert(k, (text, shape))),
                None => put(&name, &shape, &text),
            }
        }
        for (name, dim, parts) in
            [("self_attn.qkv_proj.weight", 0, qkv.into_values().collect()), ("mlp.w13", 1, w13)]
        {
            if parts.is_empty() {
                continue;
            }
            let mut shape = parts[0].1.clone();
            shape[dim] = parts.iter().map(|(_, shape)| shape[dim]).sum();
            let texts: Vec<&str> = parts.iter().map(|(text, _)| &text[..]).collect();
            put(&format!("layers.{l}.{name}"), &shape, &texts.join(" | "));
        }
    }
    for (name, shape) in &model.top {
        let stage_of = if name.contains("embed") { 0 } else { pp - 1 };
        let (text, shape) = add(name, shape, stage_of, false, None);
        put(name, &shape, &text);
    }
    let (source, target) = (Side::new(sources).unwrap(), Side::new(targets).unwrap());
    Case { source, target, mapping: rules.parse().unwrap(), wanted, buffers }
}

fn layer(
    list: &[(&str, &[usize])],
    layers: std::ops::Range<usize>,
) -> Vec<(String, Vec<usize>, std::ops::Range<usize>)> {
    list.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec(), layers.clone())).collect()
}

fn top(vocabulary: usize, hidden: usize) -> Vec<(String, Vec<usize>)> {
    let matrix = vec![vocabulary, hidden];
    vec![
        ("embed_tokens.weight".to_owned(), matrix.clone()),
        ("lm_head.weight".to_owned(), matrix),
        ("norm.weight".to_owned(), vec![hidden]),
    ]
}

/// Qwen3-235B-A22B, by its public configuration.
pub(crate) fn qwen3_235b() -> Model {
    let list: &[(&str, &[usize])] = &[
        ("self_attn.q_proj.weight", &[8192, 4096]),
        ("self_attn.k_proj.weight", &[512, 4096]),
        ("self_attn.v_proj.weight", &[512, 4096]),
        ("self_attn.o_proj.weight", &[4096, 8192]),
        ("self_attn.q_norm.weight", &[128]),
        ("self_attn.k_norm.weight", &[128]),
        ("input_layernorm.weight", &[4096]),
        ("post_attention_layernorm.weight", &[4096]),
        ("mlp.gate.weight", &[128, 4096]),
        ("mlp.experts.{e}.gate_proj.weight", &[1536, 4096]),
        ("mlp.experts.{e}.up_proj.weight", &[1536, 4096]),
        ("mlp.experts.{e}.down_proj.weight", &[4096, 1536]),
    ];
    Model { layers: 94, experts: 128, layer: layer(list, 0..94), top: top(151_936, 4096), head_rows: 128 }
}

/// Qwen3-32B, by its public configuration.
pub(crate) fn qwen3_32b() -> Model {
    let list: &[(&str, &[usize])] = &[
        ("self_attn.q_proj.weight", &[8192, 5120]),
        ("self_attn.k_proj.weight", &[1024, 5120]),
        ("self_attn.v_proj.weight", &[1024, 5120]),
        ("self_attn.o_proj.weight", &[5120, 8192]),
        ("self_attn.q_norm.weight", &[128]),
        ("self_attn.k_norm.weight", &[128]),
        ("input_layernorm.weight", &[5120]),
        ("post_attention_layernorm.weight", &[5120]),
        ("mlp.gate_proj.weight", &[25_600, 5120]),
        ("mlp.up_proj.weight", &[25_600, 5120]),
        ("mlp.down_proj.weight", &[5120, 25_600]),
    ];
    Model { layers: 64, experts: 0, layer: layer(list, 0..64), top: top(151_936, 5120), head_rows: 128 }
}

/// DeepSeek-V3, by its public configuration, without the router's bias.
pub(crate) fn deepseek_v3() -> Model {
    let all: &[(&str, &[usize])] = &[
        ("self_attn.q_a_proj.weight", &[1536, 7168]),
        ("self_attn.q_a_layernorm.weight", &[1536]),
        ("self_attn.q_b_proj.weight", &[24_576, 1536]),
        ("self_attn.kv_a_proj_with_mqa.weight", &[576, 7168]),
        ("self_attn.kv_a_layernorm.weight", &[512]),
        ("self_attn.kv_b_proj.weight", &[32_768, 512]),
        ("self_attn.o_proj.weight", &[7168, 16_384]),
        ("input_layernorm.weight", &[7168]),
        ("post_attention_layernorm.weight", &[7168]),
    ];
    let dense: &[(&str, &[usize])] = &[
        ("mlp.gate_proj.weight", &[18_432, 7168]),
        ("mlp.up_proj.weight", &[18_432, 7168]),
        ("mlp.down_proj.weight", &[7168, 18_432]),
    ];
    let sparse: &[(&str, &[usize])] = &[
        ("mlp.gate.weight", &[256, 7168]),
        ("mlp.shared_experts.gate_proj.weight", &[2048, 7168]),
        ("mlp.shared_experts.up_proj.weight", &[2048, 7168]),
        ("mlp.shared_experts.down_proj.weight", &[7168, 2048]),
        ("mlp.experts.{e}.gate_proj.weight", &[2048, 7168]),
        ("mlp.experts.{e}.up_proj.weight", &[2048, 7168]),
        ("mlp.experts.{e}.down_proj.weight", &[7168, 2048]),
    ];
    let layer = [layer(all, 0..61), layer(dense, 0..3), layer(sparse, 3..61)].concat();
    Model { layers: 61, experts: 256, layer, top: top(129_280, 7168), head_rows: 0 }
}
