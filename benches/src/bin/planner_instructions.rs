//! Plans the problems of one kind, for counting instructions: all pairs of its list in turn. `bound_` and a
//! kind only bounds their time, `measured_` and a kind plans them by measured curves. Pairs of two meshes have a
//! name each.
//!
//! ```text
//! planner_instructions --list
//! planner_instructions KIND PLANS
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use reshard_kernels::DType;
use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::planning::KINDS;
use reshard_planner::{Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

/// Prefix of the names of bounds.
const BOUND: &str = "bound_";

/// Kinds whose bounds are counted.
const BOUNDED: [&str; 4] = ["closed_form_3", "closed_form_3_131072", "terms", "two_levels"];

/// Prefix of the names of plans by measured curves.
const MEASURED: &str = "measured_";

/// Kinds that are planned by measured curves too: at most one and a half times the instructions is the goal.
const BY_CURVES: [&str; 5] = ["time", "terms", "two_levels", "two_levels_terms", "mixed"];

/// Pairs of two meshes: name, source, target, of 1,024 ranks each; [`WHOLE`] is the tensor.
const BETWEEN: [(&str, [&str; 2], [&str; 2]); 2] = [
    ("between_1024_replicated", ["dp=32,tp=32", "R,S(0)"], ["dp=128,tp=8@1024", "R,S(1)"]),
    ("between_1024_sharded", ["x=1024", "S(0)"], ["dp=128,tp=8@1024", "R,S(1)"]),
];

/// The extents of the tensor of these.
const WHOLE: [usize; 2] = [8192, 8192];

/// Plans a pair of two meshes a number of times.
fn plan_between([from, to]: [[&str; 2]; 2], plans: usize) {
    let parse = |[mesh, placements]: [&str; 2]| {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        Sharding::parse(&mesh, &WHOLE, placements).expect("a sharding")
    };
    let (planner, from, to) = (Planner::new().topology(Topology::h100_lines()), parse(from), parse(to));
    for _ in 0..plans {
        black_box(planner.plan(black_box(&from), black_box(&to), DType::BF16).expect("a plan"));
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for kind in KINDS {
                println!("{}", kind.name);
            }
            for kind in BOUNDED {
                println!("{BOUND}{kind}");
            }
            for kind in BY_CURVES {
                println!("{MEASURED}{kind}");
            }
            for (name, ..) in BETWEEN {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, plans] => {
            let between = BETWEEN.iter().find(|pair| pair.0 == name);
            if let (Some(&(_, from, to)), Ok(plans)) = (between, plans.parse()) {
                plan_between([from, to], plans);
                return ExitCode::SUCCESS;
            }
            let (bound, name) = name.strip_prefix(BOUND).map_or((false, name), |kind| (true, kind));
            let (measured, name) = name.strip_prefix(MEASURED).map_or((false, name), |kind| (true, kind));
            let kind = KINDS.iter().find(|k| k.name == name);
            if let (Some(kind), Ok(plans)) = (kind, plans.parse::<usize>()) {
                let (mut planner, pairs) = ((kind.planner)(), kind.shardings());
                if measured {
                    planner = planner.topology(Topology::h100());
                }
                for (from, to) in pairs.iter().cycle().take(plans) {
                    let (from, to) = (black_box(from), black_box(to));
                    if bound {
                        black_box(planner.lower_bound_us(from, to, DType::F32).expect("a bound"));
                    } else {
                        black_box(planner.plan(from, to, DType::F32).expect("a plan"));
                    }
                }
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown kind {name}, or {plans} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: planner_instructions --list | KIND PLANS");
            ExitCode::from(2)
        }
    }
}
