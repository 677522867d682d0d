//! Makes a number of plans of one kind of question, for counting instructions: of all pairs of its list in turn.
//!
//! ```text
//! planner_instructions --list
//! planner_instructions KIND PLANS
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::planning::KINDS;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for kind in KINDS {
                println!("{}", kind.name);
            }
            ExitCode::SUCCESS
        }
        [name, plans] => {
            let kind = KINDS.iter().find(|k| k.name == name);
            if let (Some(kind), Ok(plans)) = (kind, plans.parse::<usize>()) {
                let (planner, pairs) = ((kind.planner)(), kind.shardings());
                for (from, to) in pairs.iter().cycle().take(plans) {
                    black_box(planner.plan(black_box(from), black_box(to), 4).expect("a plan"));
                }
                return ExitCode::SUCCESS;
            }
            eprintln!("there is no kind {name}, or {plans} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: planner_instructions --list | KIND PLANS");
            ExitCode::from(2)
        }
    }
}
