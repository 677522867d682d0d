//! The models in `examples/models`, scaled down: parsed, solved, parallelized, and compared with hand-made strategies.

use core::fmt::Write as _;
use std::path::PathBuf;

use reshard_planner::{Planner, Topology};
use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Parallelizer, Program, ShardingSolver};
use reshard_test_support::Sweep;

/// Extents from here on are divided by [`SCALE`]; heads, their widths, experts per token and slots stay.
const LARGE: usize = 200;
const SCALE: usize = 32;

/// Returns the files by name, in order.
fn files() -> Vec<(String, String)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models"));
    let mut files: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Returns the text on another mesh with this number of layers and smaller extents.
fn scaled(text: &str, mesh: &str, layers: usize) -> String {
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_whitespace().next() {
            Some("mesh") => write!(out, "mesh {mesh}").unwrap(),
            Some("repeat") => write!(out, "repeat {layers}").unwrap(),
            _ => out.push_str(&smaller(line)),
        }
        out.push('\n');
    }
    out
}

/// Returns a line with its large integers divided; digits of names and dtypes stay.
fn smaller(line: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '\'');
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        match word.parse::<usize>() {
            Ok(extent) if extent >= LARGE => out.push_str(&(extent / SCALE).to_string()),
            _ => out.push_str(word),
        }
        rest = after;
    }
    out
}

fn parsed(text: &str) -> Graph {
    text.parse().unwrap_or_else(|e| panic!("{text}{e}"))
}

#[test]
fn every_model_is_solved_on_replicas_without_a_redistribution() {
    let files = files();
    assert!(files.len() >= 5, "{}", files.len());
    for (name, text) in files {
        let text = scaled(&text, "a=2", 1);
        let replicas: String = text
            .lines()
            .map(|line| line.strip_suffix('?').map_or(line.into(), |l| format!("{l}I")) + "\n")
            .collect();
        let deny = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
        deny.solve(&parsed(&replicas)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn the_program_of_every_model_needs_no_more_redistributions() {
    let is_exhaustive = Sweep::asked().is_exhaustive();
    let rates = ComputeRates::uniform();
    for (name, text) in files() {
        // One layer of experts takes minutes in a debug build.
        if !is_exhaustive && !matches!(name.as_str(), "dit" | "llama3-8b") {
            continue;
        }
        let graph = parsed(&scaled(&text, "a=2", 1));
        let found = Parallelizer::new().parallelize(&graph).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.bound_us <= found.time_us + 2e-3, "{name}: {} < {}", found.time_us, found.bound_us);
        let explicit = parsed(&found.program.to_string());
        let deny = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny);
        let report = deny.solve(&explicit).unwrap_or_else(|e| panic!("{name}: {e}")).report(&rates);
        assert!((report.total_us() - found.time_us).abs() < 1e-6, "{name}");
        assert_eq!(report.peak.bytes, found.peak_bytes, "{name}");
    }
}

/// The use of a mesh axis in a hand-made strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    /// Data parallelism with replicas of parameters and states.
    Data,
    /// Data parallelism with sharded gradients and states: ZeRO-1 and ZeRO-2.
    States,
    /// Data parallelism with sharded parameters: ZeRO-3, FSDP.
    Fsdp,
    /// Tensor parallelism, in columns and then in rows.
    Tensor,
}

/// A hand-made strategy: the types of parameters, states and batch, and those between blocks.
#[derive(Clone, Debug)]
struct Way {
    axes: [Axis; 2],
    /// The sequence is sharded along tensor parallel axes between products.
    is_sequence_parallel: bool,
    /// Parameters are re-gathered for backward.
    gathers_again: bool,
}

impl Way {
    /// Returns all strategies of two axes: data parallel, hybrid, FSDP, tensor parallel with each of these, and both.
    fn all() -> Vec<Way> {
        let kinds = [Axis::Data, Axis::States, Axis::Fsdp, Axis::Tensor];
        let mut ways = Vec::new();
        for a in kinds {
            for b in kinds {
                let axes = [a, b];
                for is_sequence_parallel in [false, true] {
                    for gathers_again in [false, true] {
                        let is_same = is_sequence_parallel && !axes.contains(&Axis::Tensor)
                            || gathers_again && !axes.contains(&Axis::Fsdp);
                        if !is_same {
                            ways.push(Way { axes, is_sequence_parallel, gathers_again });
                        }
                    }
                }
            }
        }
        ways
    }

    /// Returns the dim in which each axis shards a parameter.
    fn dims(&self, name: &str, shape: &[usize], sizes: [usize; 2]) -> [Option<usize>; 2] {
        let mut left = shape.to_vec();
        let mut dims = [None; 2];
        let tensor = match name {
            "wq" | "wk" | "wv" | "w1" | "w3" | "head" => Some(1),
            "wo" | "w2" | "wte" => Some(0),
            "wm" => Some(2),
            _ => None,
        };
        for axis in (0..2).filter(|&axis| self.axes[axis] == Axis::Tensor) {
            dims[axis] = tensor.filter(|&dim| left[dim].is_multiple_of(sizes[axis]));
            if let Some(dim) = dims[axis] {
                left[dim] /= sizes[axis];
            }
        }
        for axis in (0..2).filter(|&axis| matches!(self.axes[axis], Axis::States | Axis::Fsdp)) {
            let even = (0..shape.len()).filter(|&dim| left[dim].is_multiple_of(sizes[axis]));
            // Rather a dim that tensor parallelism leaves whole.
            dims[axis] = even.min_by_key(|&dim| (left[dim] != shape[dim], dim));
            if let Some(dim) = dims[axis] {
                left[dim] /= sizes[axis];
            }
        }
        dims
    }

    /// Returns the type along each axis, separated by commas.
    fn along(&self, of: impl Fn(usize, Axis) -> String) -> String {
        format!("{},{}", of(0, self.axes[0]), of(1, self.axes[1]))
    }

    /// Returns the program with all types of inputs given.
    fn write(&self, text: &str, sizes: [usize; 2]) -> String {
        let wrt = text.lines().find_map(|line| line.strip_prefix("gradient loss wrt ")).unwrap();
        let parameters: Vec<&str> = wrt.split(", ").collect();
        let shape_of = |name: &str| -> Vec<usize> {
            let start = format!("{name}: bf16[");
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&start)).unwrap();
            line.split(']').next().unwrap().split(',').map(|extent| extent.parse().unwrap()).collect()
        };
        let none = "R|-".to_owned();
        let mut out = String::new();
        for line in text.lines() {
            let name = line.trim_start().split([':', ' ']).next().unwrap();
            let owner = name.split(['.', '\'']).next().unwrap();
            let dims = if parameters.contains(&owner) {
                self.dims(owner, &shape_of(owner), sizes)
            } else {
                [None; 2]
            };
            let state = |axis: usize, _| dims[axis].map_or(none.clone(), |dim| format!("S({dim})|-"));
            if let Some(open) = line.strip_suffix('?') {
                let is = if owner != name {
                    self.along(state)
                } else if parameters.contains(&name) {
                    self.along(|axis, of| match (dims[axis], of) {
                        (None, _) => "I".to_owned(),
                        (Some(dim), Axis::States) => format!("R|S({dim})"),
                        (Some(dim), _) => format!("S({dim})"),
                    })
                } else if matches!(name, "cos" | "sin" | "places") {
                    self.along(|_, _| none.clone())
                } else {
                    self.along(|_, of| if of == Axis::Tensor { none.clone() } else { "S(0)|-".to_owned() })
                };
                writeln!(out, "{open}{is}").unwrap();
            } else if name.ends_with('\'') && line.contains("= cast(") {
                // The new parameter is stored as the old one.
                let call = line.split_once("= ").unwrap().1;
                let stored =
                    self.along(|axis, of| if of == Axis::States { none.clone() } else { state(axis, of) });
                writeln!(out, "{owner}.n = {call}\n{name}: {stored} = {owner}.n").unwrap();
            } else if self.is_sequence_parallel && matches!(name, "x" | "y") && line.contains(" = add(") {
                let is = self.along(|_, of| if of == Axis::Tensor { "S(1)" } else { "S(0)" }.to_owned());
                out.push_str(&line.replacen(" =", &format!(": {is} ="), 1));
                out.push('\n');
            } else {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

/// No hand-made strategy is cheaper than the answer or below the bound, at five limits.
///
/// Takes half an hour in a release build, with `--ignored`; the programs of each violation are printed.
#[test]
#[ignore = "takes half an hour in a release build"]
fn no_hand_made_way_is_cheaper() {
    let (rates, planner) = (ComputeRates::h100(), Planner::new().topology(Topology::h100()));
    let mut violations = String::new();
    for (name, text) in files() {
        if !matches!(name.as_str(), "dit" | "llama3-8b") {
            continue;
        }
        for sizes in [[2, 4], [4, 2]] {
            let mesh = format!("a={},b={}", sizes[0], sizes[1]);
            let open = with_layers(&text, &mesh, 2);
            let solver = ShardingSolver::new().planner(planner.clone()).rates(rates);
            let ways: Vec<(Way, Program)> = Way::all()
                .into_iter()
                .filter_map(|way| {
                    let program = solver.solve(&parsed(&way.write(&open, sizes))).ok()?;
                    let again = program.gathered_parameters();
                    let program =
                        if way.gathers_again { program.rematerialize(&again).ok()? } else { program };
                    Some((way, program))
                })
                .collect();
            assert!(ways.len() >= 8, "{}", ways.len());
            let parallelizer = || Parallelizer::new().planner(planner.clone()).rates(rates);
            let graph = parsed(&open);
            let free = parallelizer().parallelize(&graph).unwrap();
            for part in [100, 90, 80, 70, 60] {
                let limit = free.peak_bytes * part / 100;
                let found = parallelizer().memory(limit).parallelize(&graph);
                for (way, program) in &ways {
                    let Ok(fitted) = program.rematerialize_to_fit(limit, &rates) else { continue };
                    let time = fitted.report(&rates).total_us();
                    let is_fine = found
                        .as_ref()
                        .is_ok_and(|found| time >= found.bound_us - 2e-3 && time >= found.time_us * 0.999);
                    if !is_fine {
                        let answer = found.as_ref().map(|found| (found.time_us, found.bound_us));
                        let program = way.write(&open, sizes);
                        writeln!(violations, "{name} on {mesh} within {limit}: {time} us").unwrap();
                        writeln!(violations, "answer, bound {answer:?}, {way:?}\n{program}").unwrap();
                    }
                }
            }
        }
    }
    assert!(violations.is_empty(), "{violations}");
}

/// Returns the text on another mesh with this number of layers.
fn with_layers(text: &str, mesh: &str, layers: usize) -> String {
    text.lines()
        .map(|line| match line.split_whitespace().next() {
            Some("mesh") => format!("mesh {mesh}\n"),
            Some("repeat") => format!("repeat {layers}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}
