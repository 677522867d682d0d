//! Texts of every notation, made from its parts with sizes at every edge.

use std::sync::OnceLock;

use reshard_test_support::Random;
use serde_json::Value;

use crate::program;

/// Sizes at the limits of storage and of loops.
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

/// A size: mostly small, often at an edge.
pub(crate) fn size(r: &mut Random) -> String {
    if r.below(20) == 0 { (*r.pick(&EDGES)).to_owned() } else { (1 + r.below(12)).to_string() }
}

pub(crate) fn sizes(r: &mut Random, most: usize) -> String {
    let n = if r.below(6) == 0 { r.below(most + 1) } else { most };
    (0..n).map(|_| size(r)).collect::<Vec<_>>().join(",")
}

pub(crate) const NAMES: [&str; 4] = ["x", "y", "z", "w"];

/// A mesh: axes, sometimes with strides, an offset or a list of ranks.
pub(crate) fn mesh_text(r: &mut Random, axes: usize) -> String {
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

pub(crate) fn sharding(r: &mut Random, axes: usize) -> String {
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

pub(crate) fn topology(r: &mut Random) -> String {
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
pub(crate) fn call_on(r: &mut Random) -> (String, Vec<String>) {
    let call = call(r);
    let dims = r.below(5);
    let alike = (0..dims).map(|_| size(r)).collect::<Vec<_>>().join(",");
    let shapes = (0..=r.below(3)).map(|_| if r.below(4) == 0 { sizes(r, 4) } else { alike.clone() });
    let shapes = shapes.collect();
    (call, shapes)
}

/// Makes a program: a few inputs, calls, redistributions, sometimes a gradient, and sometimes a second mesh.
pub(crate) fn program_text(r: &mut Random, axes: usize) -> String {
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
pub(crate) fn draw(r: &mut Random) -> String {
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
pub(crate) fn expression(r: &mut Random, depth: usize) -> String {
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
