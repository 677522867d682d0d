//! Requests: made from the parts of the notations with sizes at every edge, and then, one in six, mutated.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use reshard_test_support::Random;
use serde_json::{Value, json};

use crate::program;

/// One line of a batch.
pub(crate) struct Request {
    pub(crate) subcommand: &'static str,
    pub(crate) line: String,
}

/// Sizes at the edges of what is held and of what is looped over.
const EDGES: [&str; 22] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "65536",
    "1048576",
    "1048577",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "1000000000000",
    "1099511627776",
    "4611686018427387903",
    "4611686018427387904",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
];

/// What a mutation puts in.
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

/// A size: mostly small, often at an edge.
pub(crate) fn size(r: &mut Random) -> String {
    if r.below(20) == 0 { (*r.pick(&EDGES)).to_owned() } else { (1 + r.below(12)).to_string() }
}

fn sizes(r: &mut Random, most: usize) -> String {
    let n = if r.below(6) == 0 { r.below(most + 1) } else { most };
    (0..n).map(|_| size(r)).collect::<Vec<_>>().join(",")
}

const NAMES: [&str; 4] = ["x", "y", "z", "w"];

/// A mesh: axes, sometimes with strides, an offset or a list of ranks.
fn mesh_text(r: &mut Random, axes: usize) -> String {
    let axes = (0..axes).map(|i| {
        let mut axis = format!("{}={}", NAMES[i], size(r));
        if r.below(16) == 0 {
            axis = format!("{axis}:{}", size(r));
        }
        axis
    });
    let mut text = axes.collect::<Vec<_>>().join(",");
    match r.below(12) {
        0 => text = format!("{text}@{}", size(r)),
        1 => text = format!("{text}@[{}]", sizes(r, 5)),
        _ => {}
    }
    text
}

fn placement(r: &mut Random) -> String {
    let dim = if r.below(24) == 0 { size(r) } else { r.below(3).to_string() };
    match r.below(12) {
        0..=3 => format!("S({dim})"),
        4 | 5 => "R".to_owned(),
        6 => "P".to_owned(),
        7 => format!("P({})", r.pick(&["sum", "avg", "max", "min", "prod", "norm2", "norm1e300"])),
        8 => format!("SS({dim},{})", size(r)),
        9 => format!("RG({dim},[{}])", sizes(r, 4)),
        10 => format!("_S({dim},{})", size(r)),
        _ => format!("Z({dim})"),
    }
}

fn sharding(r: &mut Random, axes: usize) -> String {
    let dims = |r: &mut Random| {
        let entry = |r: &mut Random| match r.below(4) {
            0 => String::new(),
            1 => format!("{}:({}){}", r.pick(&NAMES), size(r), size(r)),
            _ => (*r.pick(&NAMES)).to_owned(),
        };
        (0..r.below(4)).map(|_| format!("{{{}}}", entry(r))).collect::<Vec<_>>().join(",")
    };
    match r.below(12) {
        0 => format!("[{}]", dims(r)),
        1 => format!("{{devices=[{}]<=[{}]}}", sizes(r, 3), sizes(r, 3)),
        2 => format!("{{devices=[{}]<=[{}]T(1,0) last_tile_dim_replicate}}", sizes(r, 3), sizes(r, 2)),
        3 => format!("{{devices=[{}]{}}}", sizes(r, 3), sizes(r, 5)),
        4 => format!("P('x', ('y', None), {})", size(r)),
        5 => format!("#sdy.sharding<mesh<[\"x\"={}]>, [{{\"x\":({}){}}}]>", size(r), size(r), size(r)),
        _ => (0..axes).map(|_| placement(r)).collect::<Vec<_>>().join(","),
    }
}

fn topology(r: &mut Random) -> String {
    let number = |r: &mut Random| match r.below(5) {
        0 => (*r.pick(&["1e19", "1e308", "1e-320", "0", "-0", "1e9", "1e-6", "NaN", "inf"])).to_owned(),
        _ => size(r),
    };
    match r.below(4) {
        0 => "uniform".to_owned(),
        1 => "h100".to_owned(),
        _ => {
            let inner = if r.below(2) == 0 {
                String::new()
            } else {
                format!(";level={}:{}:{}", size(r), number(r), number(r))
            };
            format!("launch={};message={}{inner};level=*:{}:{}", number(r), number(r), number(r), number(r))
        }
    }
}

/// An op, with the names and the types of its arguments.
type NamedOp = (String, Vec<(String, String)>);

/// The ops of the table, each with the names and the types of its arguments.
fn ops() -> &'static [NamedOp] {
    static OPS: OnceLock<Vec<NamedOp>> = OnceLock::new();
    OPS.get_or_init(|| {
        let table = program::reshard(&["rule", "--json"]).json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let arguments = |op: &Value| -> Vec<(String, String)> {
            let list = op["arguments"].as_array().into_iter().flatten();
            list.map(|argument| (text(&argument["name"]), text(&argument["type"]))).collect()
        };
        let all = table["ops"].as_array().expect("a list of ops");
        all.iter().map(|op| (text(&op["op"]), arguments(op))).collect()
    })
}

fn call(r: &mut Random) -> String {
    if r.below(8) == 0 {
        return (*r.pick(&["mk,kn->mn", "ij*->i", "a(bc)->ab,c", "i,j->", "(ab)->a,b", "i*,*j->ij"]))
            .to_owned();
    }
    let (name, arguments) = r.pick(ops());
    let mut given = Vec::new();
    for (argument, kind) in arguments {
        if r.below(3) == 0 {
            continue;
        }
        let value = match (&kind[..], r.below(5)) {
            ("dim" | "int" | "size" | "integer", _) | (_, 0) => size(r),
            ("bool", _) => (*r.pick(&["true", "false"])).to_owned(),
            (_, 1 | 2) => format!("[{}]", sizes(r, 4)),
            (_, _) => (*r.pick(&["true", "false", "mean", "sum", "none", "constant"])).to_owned(),
        };
        given.push(format!("{argument}={value}"));
    }
    if given.is_empty() { name.clone() } else { format!("{name}({})", given.join(",")) }
}

/// A call and the shapes of its inputs.
fn call_on(r: &mut Random) -> (String, Vec<String>) {
    let call = call(r);
    let dims = r.below(5);
    let alike = (0..dims).map(|_| size(r)).collect::<Vec<_>>().join(",");
    let shapes = (0..=r.below(3)).map(|_| if r.below(4) == 0 { sizes(r, 4) } else { alike.clone() });
    let shapes = shapes.collect();
    (call, shapes)
}

/// A program: a few inputs, calls of what there is, moves, sometimes a gradient, and sometimes a second mesh.
fn program_text(r: &mut Random, axes: usize) -> String {
    const CALLS: [&str; 8] = [
        "add",
        "mul",
        "relu",
        "mm",
        "mk,kn->mn",
        "sum(dims=[0])",
        "softmax(dim=-1)",
        "transpose(dim0=0,dim1=1)",
    ];
    let others = r.below(3) == 0;
    let is = |r: &mut Random| match r.below(12) {
        0..=8 => (0..axes).map(|_| *r.pick(&["I", "R", "S(0)", "S(1)", "P"])).collect::<Vec<_>>().join(","),
        9 => format!("({})|({})", sharding(r, axes), sharding(r, axes)),
        _ => sharding(r, axes),
    };
    let typed = |r: &mut Random| {
        let on = match r.below(12) {
            0..=3 if others => " on e",
            4 if others => *r.pick(&[" on default", " on f", "on e", " on"]),
            _ => "",
        };
        format!("{}{on}", is(r))
    };
    let side = size(r);
    let plain = (0..axes).map(|i| format!("{}={}", NAMES[i], 1 + r.below(4))).collect::<Vec<_>>().join(",");
    let mesh = if r.below(4) == 0 { mesh_text(r, axes) } else { plain };
    let mut lines = vec![format!("mesh {mesh}")];
    if others {
        let part =
            (0..axes).map(|i| format!("{}={}", NAMES[i], 1 + r.below(2))).collect::<Vec<_>>().join(",");
        let first = if r.below(3) == 0 { format!("@{}", r.below(3)) } else { String::new() };
        let mesh = if r.below(4) == 0 { mesh_text(r, axes) } else { part + &first };
        lines.push(format!("mesh {}: {mesh}", r.pick(&["e", "e", "e", "e", "default", "f", ""])));
    }
    let mut names = Vec::new();
    for name in ["a", "b", "c"].iter().take(1 + r.below(3)) {
        let dtype = *r.pick(&["f32", "f32", "bf16", "i64", "f4"]);
        let shape = if r.below(4) == 0 { sizes(r, 3) } else { format!("{side},{side}") };
        lines.push(format!("{name}: {dtype}[{shape}] {}", typed(r)));
        names.push((*name).to_owned());
    }
    for i in 0..=r.below(5) {
        let made = format!("v{i}");
        if r.below(5) == 0 {
            lines.push(format!("{made}: {} = {}", typed(r), r.pick(&names)));
        } else {
            let called = if r.below(4) == 0 { call(r) } else { (*r.pick(&CALLS)).to_owned() };
            let (callee, arguments) = called.split_once('(').unwrap_or((&called, ")"));
            let operands = 1 + usize::from(matches!(callee, "add" | "mul" | "mm" | "mk,kn->mn"));
            let operands: Vec<String> = (0..operands).map(|_| r.pick(&names).clone()).collect();
            let between = if arguments == ")" { "" } else { ", " };
            let pin = if r.below(6) == 0 { format!(": {}", typed(r)) } else { String::new() };
            lines.push(format!("{made}{pin} = {callee}({}{between}{arguments}", operands.join(", ")));
        }
        names.push(made);
    }
    match r.below(4) {
        0 => lines.push(format!("gradient {}", r.pick(&names))),
        1 => lines.push(format!("gradient {} wrt {}", r.pick(&names), r.pick(&names))),
        2 => lines.push(format!("no_grad\nz = add({}, {})", r.pick(&names), r.pick(&names))),
        _ => {}
    }
    lines.join("\n")
}

/// A draw, with numbers or without.
fn draw(r: &mut Random) -> String {
    let number = |r: &mut Random| match r.below(4) {
        0 => (*r.pick(&["NaN", "inf", "1e308", "-1e-320", "1e39", "65505", "-0"])).to_owned(),
        1 => size(r),
        _ => (*r.pick(&["0", "1", "-1", "0.5", "2"])).to_owned(),
    };
    match r.below(8) {
        0 => "bits".to_owned(),
        1 => format!("randint({},{})", size(r), size(r)),
        2 => format!("bernoulli({})", number(r)),
        3 => (*r.pick(&["exponential", "gumbel", "normal", "uniform"])).to_owned(),
        _ => {
            let name = *r.pick(&["uniform", "uniform", "normal", "truncated_normal"]);
            format!("{name}({},{})", number(r), number(r))
        }
    }
}

/// A layout, an operation on such, or a seed of the fuzzers.
fn expression(r: &mut Random, depth: usize) -> String {
    const FUNCTIONS: [&str; 24] = [
        "coalesce",
        "complement",
        "composition",
        "compose",
        "logical_divide",
        "zipped_divide",
        "tiled_divide",
        "logical_product",
        "blocked_product",
        "raked_product",
        "right_inverse",
        "left_inverse",
        "size",
        "cosize",
        "filter",
        "nullspace",
        "recast",
        "swizzle",
        "zip",
        "split",
        "select",
        "slice",
        "flatten",
        "same_function",
    ];
    if depth == 0 || r.below(3) == 0 {
        let modes = 1 + r.below(3);
        let list = |r: &mut Random| (0..modes).map(|_| size(r)).collect::<Vec<_>>().join(",");
        return format!("({}):({})", list(r), list(r));
    }
    let arguments: Vec<String> =
        (0..=r.below(2)).map(|_| if r.below(3) == 0 { size(r) } else { expression(r, depth - 1) }).collect();
    format!("{}({})", r.pick(&FUNCTIONS), arguments.join(","))
}

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
            2 => keys["advise"] = json!(size(r).parse::<u64>().unwrap_or(3)),
            3 => keys["explicit"] = json!(true),
            _ => {}
        }
    }
    if subcommand == "trace" {
        match r.below(8) {
            0 => keys["typed"] = json!(true),
            1 => keys["axes"] = json!(format!("x={}", size(r))),
            2 => keys["time"] = json!(true),
            3 => keys["hoist_bytes"] = json!(size(r).parse::<u64>().unwrap_or(u64::MAX)),
            5 => keys["pieces"] = json!(size(r).parse::<u64>().unwrap_or(3)),
            4 => keys["memory_bytes"] = json!(size(r).parse::<u64>().unwrap_or(1 << 12)),
            _ => {}
        }
    }
    if subcommand == "check" {
        match r.below(6) {
            0 => keys["explicit"] = json!("none"),
            1 => keys["explicit"] = json!("free-moves"),
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

/// A text with a few edits: numbers at an edge, pieces put in, spans left out, doubled or exchanged.
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
        ("--world", size(r)),
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
