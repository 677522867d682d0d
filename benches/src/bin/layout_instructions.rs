//! Runs one operation of the layout algebra a number of times, for counting instructions.
//!
//! ```text
//! layout_instructions --list
//! layout_instructions OPERATION TIMES
//! ```
//!
//! `instructions.sh` runs it under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use reshard_layout::{Layout, algebra::Tiler};

fn layout(text: &str) -> Layout {
    text.parse().expect("a layout")
}

fn repeat<T>(times: u32, mut operation: impl FnMut() -> T) {
    for _ in 0..times {
        black_box(operation());
    }
}

type Operation = (&'static str, fn(u32));

fn compose(a: &str, b: &str, times: u32) {
    let (a, b) = (layout(a), layout(b));
    repeat(times, || black_box(&a).compose(black_box(&b)));
}

const OPERATIONS: &[Operation] = &[
    ("compose_1", |n| compose("(6,2):(8,2)", "(4,3):(3,1)", n)),
    ("compose_2", |n| compose("(128,64):(64,1)", "((8,16),(4,16)):((1,8),(128,512))", n)),
    ("compose_3", |n| compose("(4,8,2,16):(1,4,32,64)", "((2,4),(8,16)):((1,2),(8,64))", n)),
    ("coalesce", |n| {
        let a = layout("((2,4),(1,8),16):((1,2),(77,8),128)");
        repeat(n, || black_box(&a).coalesce());
    }),
    ("complement", |n| {
        let a = layout("(4,2,8):(2,64,128)");
        repeat(n, || black_box(&a).complement(4096));
    }),
    ("right_inverse", |n| {
        let a = layout("(4,8,2,16):(16,64,1,512)");
        repeat(n, || black_box(&a).right_inverse());
    }),
    ("left_inverse", |n| {
        let a = layout("(4,8,2,16):(16,64,1,1024)");
        repeat(n, || black_box(&a).left_inverse());
    }),
    ("logical_divide", |n| {
        let (a, t) = (layout("(16,64):(64,1)"), Tiler::Layout(layout("(4,8):(1,16)")));
        repeat(n, || black_box(&a).logical_divide(black_box(&t)));
    }),
    ("logical_product", |n| {
        let (a, b) = (layout("(4,8):(8,1)"), Tiler::Layout(layout("(3,4):(4,1)")));
        repeat(n, || black_box(&a).logical_product(black_box(&b)));
    }),
    ("display", |n| {
        let a = layout("((2,2),3):((24,2),8)");
        repeat(n, || black_box(&a).to_string());
    }),
    ("from_str", |n| repeat(n, || black_box("((2,2),3):((24,2),8)").parse::<Layout>())),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => {
            for (name, _) in OPERATIONS {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, times] => {
            let operation = OPERATIONS.iter().find(|(other, _)| *other == name);
            if let (Some((_, operation)), Ok(times)) = (operation, times.parse()) {
                operation(times);
                return ExitCode::SUCCESS;
            }
            eprintln!("unknown operation {name}, or {times} is not a number");
            ExitCode::from(2)
        }
        _ => {
            eprintln!("usage: layout_instructions --list | OPERATION TIMES");
            ExitCode::from(2)
        }
    }
}
