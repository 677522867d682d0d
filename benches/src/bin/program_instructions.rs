//! Takes a training step of 24 layers so far a number of times, each time from nothing, for counting instructions.
//!
//! ```text
//! program_instructions --list
//! program_instructions UNTIL TIMES
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_benches::layers::Until;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for until in Until::ALL {
                println!("{}", until.name());
            }
            ExitCode::SUCCESS
        }
        [name, times] => {
            let until = Until::ALL.into_iter().find(|until| until.name() == name);
            if let (Some(until), Ok(times)) = (until, times.parse::<usize>()) {
                for _ in 0..times {
                    black_box(until.run().expect("it is right"));
                }
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown operation {name}, or {times} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: program_instructions --list | UNTIL TIMES");
            ExitCode::from(2)
        }
    }
}
