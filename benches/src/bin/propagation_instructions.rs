//! Chooses strategies for one list, for counting instructions: for all its pairs of inputs in turn.
//!
//! ```text
//! propagation_instructions --list
//! propagation_instructions LIST CHOICES
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::propagating::lists;
use reshard_ops::propagate::Propagator;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Five axes with partial values take too long under callgrind.
    let counted: Vec<_> = lists().into_iter().filter(|l| !l.terms || l.axes < 4).collect();
    match arguments[..] {
        ["--list"] => {
            for list in counted {
                println!("{}", list.name());
            }
            ExitCode::SUCCESS
        }
        [name, choices] => {
            let list = counted.iter().find(|l| l.name() == name);
            if let (Some(list), Ok(choices)) = (list, choices.parse::<usize>()) {
                let p = list.problems().expect("a list");
                for inputs in p.inputs.iter().cycle().take(choices) {
                    let choice = Propagator::new().propagate(&p.op, &p.mesh, black_box(inputs), &[]);
                    black_box(choice.expect("a choice"));
                }
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown list {name}, or {choices} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: propagation_instructions --list | LIST CHOICES");
            ExitCode::from(2)
        }
    }
}
