//! Runs one kind of sharding operation many times, for counting instructions.
//!
//! ```text
//! sharding_instructions --list
//! sharding_instructions OPERATION TIMES
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use reshard_kernels::DType;
use std::hint::black_box;
use std::process::ExitCode;

use reshard_planner::{Objective, Plan, Planner};
use reshard_sharding::{Mesh, Placements, Sharding};

/// Eight even shardings of a tensor of 4096 x 1024 x 8192 over dp=4, cp=2, tp=8.
const EVEN: [&str; 8] = [
    "S(0),S(1),S(2)",
    "SS(0,8),S(1),S(0)",
    "S(0),S(0),S(0)",
    "SS(0,4),R,SS(0,2)",
    "R,R,S(2)",
    "P,S(0),S(1)",
    "SS(2,16),SS(2,8),S(2)",
    "S(1),S(0),SS(1,16)",
];
const SHAPE: [usize; 3] = [4096, 1024, 8192];

const OPERATIONS: [&str; 10] = [
    "construct",
    "equality",
    "placements",
    "flatten",
    "split",
    "ownership",
    "region",
    "replicated",
    "group",
    "messages",
];

/// The inputs of all operations.
struct Subjects {
    mesh: Mesh,
    placements: Vec<Placements>,
    shardings: Vec<Sharding>,
    others: Vec<Sharding>,
    plans: Vec<Plan>,
}

impl Subjects {
    fn new() -> Subjects {
        let mesh: Mesh = "dp=4,cp=2,tp=8".parse().expect("a mesh");
        let placements: Vec<Placements> = EVEN.iter().map(|t| t.parse().expect("placements")).collect();
        let all = || -> Vec<Sharding> {
            placements.iter().map(|p| Sharding::new(&mesh, &SHAPE, p).expect("a sharding")).collect()
        };
        let (shardings, others) = (all(), all());
        let planner = Planner::new().objective(Objective::Bytes);
        let next = |i: usize| {
            let to = &shardings[(i + 1) % shardings.len()];
            let to = if to.is_partial() { &shardings[0] } else { to };
            planner.plan(&shardings[i], to, DType::F32).expect("a plan")
        };
        let plans = (0..shardings.len()).map(next).collect();
        Subjects { mesh, placements, shardings, others, plans }
    }

    fn run(&self, operation: &str, i: usize) -> bool {
        let k = i % EVEN.len();
        let s = black_box(&self.shardings[k]);
        match operation {
            "construct" => drop(black_box(Sharding::new(&self.mesh, &SHAPE, black_box(&self.placements[k])))),
            "equality" => drop(black_box(s == black_box(&self.others[k]))),
            "placements" => drop(black_box(s.placements())),
            "flatten" => drop(black_box(s.view(black_box(&[4096 * 1024, 8192])))),
            "split" => drop(black_box(s.view(black_box(&[4096, 1024, 64, 128])))),
            "ownership" => drop(black_box(s.ownership())),
            "region" => drop(black_box(s.region(black_box(37)))),
            "replicated" => drop(black_box(s.replicated_axes())),
            "group" => drop(black_box(self.mesh.group_of_axes(black_box(&["dp", "tp"])))),
            "messages" => drop(black_box(self.plans[k].phases(black_box(37)))),
            _ => return false,
        }
        true
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for operation in OPERATIONS {
                println!("{operation}");
            }
            ExitCode::SUCCESS
        }
        [operation, times] => {
            let subjects = Subjects::new();
            if times.parse().is_ok_and(|n: usize| (0..n).all(|i| subjects.run(operation, i))) {
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown operation {operation}, or {times} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: sharding_instructions --list | OPERATION TIMES");
            ExitCode::from(2)
        }
    }
}
