//! Requests: made from the parts of the notations with sizes at every edge, and then, one in six, mutated.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use reshard_test_support::Random;
use serde_json::{Value, json};

use crate::texts::{
    NAMES, call_on, draw, expression, mesh_text, program_text, sharding, size, sizes, topology,
};

/// One line of a batch.
pub(crate) struct Request {
    pub(crate) subcommand: &'static str,
    pub(crate) line: String,
}

/// The texts that a mutation inserts.
const PIECES: [&str; 34] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ":",
    "=",
    "@",
    "<=",
    "->",
    "*",
    "S(0)",
    "SS(0,2)",
    "R",
    "P",
    "Z(0)",
    "RG(0,[1,2])",
    "P(norm2)",
    "_S(0,2)",
    "T(1,0)",
    "last_tile_dim_replicate",
    "1e19",
    "1e308",
    "NaN",
    "inf",
    "\\u001b[31m",
    "\\n",
    "\\u202e",
    "é",
    "\\\\",
    "\\u0000",
];

/// The texts that the fuzzers start from.
fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
        let folders = fs::read_dir(root).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        let mut texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        texts.sort();
        texts.push("(4,2):(1,4)".to_owned());
        texts
    })
}

/// One line of a batch.
pub(crate) fn request(r: &mut Random) -> Request {
    let subcommand = *r.pick(&[
        "shards",
        "plan",
        "plan",
        "view",
        "rule",
        "grad",
        "propagate",
        "propagate",
        "layout",
        "check",
        "check",
        "trace",
        "random",
    ]);
    let axes = 1 + r.below(3);
    let line = match subcommand {
        "layout" if r.below(4) == 0 => r.pick(seeds()).replace('\n', " "),
        "layout" => expression(r, 3),
        _ => {
            let mut keys = match subcommand {
                "shards" => {
                    json!({"mesh": mesh_text(r, axes), "shape": sizes(r, 3), "placements": sharding(r, axes)})
                }
                "view" => json!({
                    "mesh": mesh_text(r, axes), "shape": sizes(r, 3), "to_shape": sizes(r, 3),
                    "placements": sharding(r, axes),
                }),
                "plan" => json!({
                    "mesh": mesh_text(r, axes), "shape": sizes(r, 3), "from": sharding(r, axes), "to": sharding(r, axes),
                }),
                "rule" | "grad" => {
                    let (call, shapes) = call_on(r);
                    json!({"op": call, "shapes": shapes})
                }
                "random" => json!({
                    "mesh": mesh_text(r, axes), "shape": sizes(r, 3), "placements": sharding(r, axes),
                    "rank": size(r).parse::<u64>().unwrap_or(0) % 8, "draw": draw(r),
                }),
                "check" => json!({"program": program_text(r, axes)}),
                "trace" => json!({"program": program_text(r, axes), "rank": r.below(4)}),
                _ => {
                    let (call, shapes) = call_on(r);
                    let inputs: Vec<String> = shapes.iter().map(|_| sharding(r, axes)).collect();
                    json!({"mesh": mesh_text(r, axes), "op": call, "shapes": shapes, "in": inputs})
                }
            };
            options(r, subcommand, axes, &mut keys);
            keys.to_string()
        }
    };
    let line = if r.below(6) == 0 { mutated(r, &line) } else { line };
    Request { subcommand, line: line.replace('\n', " ") }
}

/// Sometimes what else a request may have.
fn options(r: &mut Random, subcommand: &str, axes: usize, keys: &mut Value) {
    let planned = matches!(subcommand, "plan" | "propagate");
    if planned && r.below(4) == 0 {
        keys["topology"] = json!(topology(r));
    }
    if planned && r.below(8) == 0 {
        keys["objective"] = json!(r.pick(&["time", "bytes", "peak"]));
    }
    if subcommand == "plan" {
        match r.below(10) {
            0 => keys["to_mesh"] = json!(mesh_text(r, axes)),
            1 => keys["groups"] = json!(r.pick(&["axes", "x", "x,y", "4:1", "{{0,1},{2,3}}"])),
            2 => keys["groups"] = json!(format!("{}:{}", size(r), size(r))),
            3 => keys["explain"] = json!(true),
            4 => keys["max_peak_bytes"] = json!(size(r).parse::<u64>().unwrap_or(0)),
            5 | 6 => {
                keys["types"] = json!(true);
                let sides = ["from", "to"].map(|side| (side, [sharding(r, axes), sharding(r, axes)]));
                for (side, [value, gradient]) in sides {
                    match r.below(5) {
                        0 => keys[side] = json!(vec!["I"; axes].join(",")),
                        1 => keys[side] = json!(format!("({value})|({gradient})")),
                        2 => keys[side] = json!(format!("{value}|{gradient}")),
                        3 => keys[side] = json!(format!("({value})|-")),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if subcommand == "propagate" {
        match r.below(8) {
            0 => keys["out"] = json!([sharding(r, axes)]),
            1 => {
                keys["prefer"] = json!([sharding(r, axes)]);
                keys["penalty_us"] = json!(r.pick(&[0.0, 1.0, 1e19, 1e300]));
            }
            2 => keys["top"] = json!(size(r).parse::<u64>().unwrap_or(3)),
            3 => keys["explicit"] = json!(true),
            _ => {}
        }
    }
    if subcommand == "trace" {
        match r.below(8) {
            0 => keys["typed"] = json!(true),
            1 => keys["axes"] = json!(format!("x={}", size(r))),
            2 => keys["time"] = json!(true),
            3 => keys["in_flight_bytes"] = json!(size(r).parse::<u64>().unwrap_or(u64::MAX)),
            5 => keys["overlap_chunks"] = json!(size(r).parse::<u64>().unwrap_or(3)),
            4 => keys["max_memory_bytes"] = json!(size(r).parse::<u64>().unwrap_or(1 << 12)),
            _ => {}
        }
    }
    if subcommand == "check" {
        match r.below(6) {
            0 => keys["explicit"] = json!("none"),
            1 => keys["explicit"] = json!("local-only"),
            2 => keys["axes"] = json!(format!("x={}", size(r))),
            3 => keys["topology"] = json!(topology(r)),
            _ => {}
        }
    }
    if subcommand == "random" {
        if r.below(2) == 0 {
            keys["dtype"] =
                json!(r.pick(&["f64", "f32", "bf16", "f16", "u8", "i32", "u64", "i64", "bool", "f4", "c64"]));
        }
        match r.below(8) {
            0 => keys["seed"] = json!(size(r).parse::<u64>().unwrap_or(0)),
            1 => keys["key"] = json!(r.pick(&["threefry2x32:00000000,ffffffff", "philox4x32-10:0,0", ":"])),
            2 => keys["generator"] = json!(r.pick(&["threefry", "philox", "mt19937"])),
            3 => keys["limit"] = json!(size(r).parse::<u64>().unwrap_or(0)),
            _ => {}
        }
    }
    if subcommand == "rule" && r.below(6) == 0 {
        keys["out_shapes"] = json!([sizes(r, 4)]);
    }
}

/// Applies a few edits to a text: numbers at an edge, texts inserted, spans removed, doubled or exchanged.
pub(crate) fn mutated(r: &mut Random, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=r.below(3) {
        let at = r.below(chars.len() + 1);
        let end = (at + r.below(8)).min(chars.len());
        match r.below(6) {
            0 | 1 => {
                let Some(first) = chars.iter().skip(at).position(char::is_ascii_digit) else { continue };
                let first = at + first;
                let digits = chars[first..].iter().take_while(|c| c.is_ascii_digit()).count();
                chars.splice(first..first + digits, size(r).chars());
            }
            2 => drop(chars.splice(at..at, r.pick(&PIECES).chars())),
            3 => drop(chars.drain(at..end)),
            4 => {
                let span: Vec<char> = chars[at..end].to_vec();
                for _ in 0..*r.pick(&[1, 1, 1, 40, 3000]) {
                    chars.splice(at..at, span.iter().copied());
                }
            }
            _ => {
                let other: Vec<char> = r.pick(seeds()).chars().take(12).collect();
                chars.splice(at..end, other);
            }
        }
    }
    chars.into_iter().collect()
}

/// The arguments of `reshard mesh`.
pub(crate) fn mesh(r: &mut Random) -> Vec<String> {
    let recipe = || ["ep:dp_shard=2,cp=2,tp=2,ep=4", "fsdp:dp_shard=8", "tp:tp=4"];
    let axes = 1 + r.below(3);
    let text = if r.below(3) == 0 { (*r.pick(&recipe())).to_owned() } else { mesh_text(r, axes) };
    let text = if r.below(2) == 0 { mutated(r, &text) } else { text };
    let mut arguments = vec!["mesh".to_owned(), text.replace('\0', "")];
    for (flag, value) in [
        ("--groups", format!("{}:({}){}", r.pick(&NAMES), size(r), size(r))),
        ("--groups", "x,y".to_owned()),
        ("--topology", topology(r)),
        ("--world-size", size(r)),
        ("--json", String::new()),
    ] {
        if r.below(3) == 0 && !arguments.iter().any(|argument| argument == flag) {
            arguments.push(flag.to_owned());
            arguments.extend((!value.is_empty()).then_some(value));
        }
    }
    arguments
}

/// The beginning of a text, to be shown.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(1500).collect()
}
