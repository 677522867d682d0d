//! Plans the problems of one kind, for counting instructions: all pairs of its list in turn. `bound_` and a
//! kind only bounds their time.
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

/// Prefix of the names of bounds.
const BOUND: &str = "bound_";

/// Kinds whose bounds are counted.
const BOUNDED: [&str; 4] = ["closed_form_3", "closed_form_3_131072", "terms", "two_levels"];

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
            ExitCode::SUCCESS
        }
        [name, plans] => {
            let (bound, name) = name.strip_prefix(BOUND).map_or((false, name), |kind| (true, kind));
            let kind = KINDS.iter().find(|k| k.name == name);
            if let (Some(kind), Ok(plans)) = (kind, plans.parse::<usize>()) {
                let (planner, pairs) = ((kind.planner)(), kind.shardings());
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
