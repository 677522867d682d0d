//! `reshard parallelize`: chooses the open types of a training program under a memory limit.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use reshard_checkpoint::read_text;
use reshard_ops::rules::OpTable;
use reshard_planner::{Planner, SearchBudget};
use reshard_program::{
    ComputeRates, Graph, MemorySize, MeshBound, Parallelized, Parallelizer, ShardingSolver,
};
use reshard_sharding::Mesh;
use serde::Serialize;

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::program::FileArg;

/// Arguments of `reshard parallelize`.
#[derive(Debug, Args)]
pub(crate) struct ParallelizeArgs {
    #[command(flatten)]
    file: FileArg,
    /// Memory of a rank, such as 80GB, 16GiB or 1000000 [default: no limit]
    #[arg(long, value_name = "BYTES")]
    memory: Option<MemorySize>,
    /// Choose the mesh of this many devices too, instead of the one in the program
    #[arg(long, value_name = "N")]
    devices: Option<usize>,
    /// Take this mesh instead of the one in the program, such as a=8,b=8
    #[arg(long, conflicts_with = "devices")]
    mesh: Option<Mesh>,
    /// Fix the type of an open input, such as 'w1: S(1),?'; may be repeated
    #[arg(long, value_name = "TYPE")]
    fix: Vec<String>,
    /// Compare with the best program in which an input has another type, such as 'w1: R,R'; may be repeated
    #[arg(long, value_name = "TYPE")]
    why: Vec<String>,
    /// Compare with a program that has all types
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Limit the search for prices, in units of about 10 ns [default: 400000000]
    #[arg(long, value_name = "UNITS")]
    search_budget: Option<SearchBudget>,
    #[command(flatten)]
    topology: TopologyArg,
    /// Print the program with all types and redistributions, itself a valid program, instead of the report
    #[arg(long, conflicts_with = "json")]
    print: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    mesh: String,
    ranks: usize,
    time_us: f64,
    /// No assignment of the model takes less.
    bound_us: f64,
    /// The part of the time above the bound.
    gap: f64,
    peak_bytes: u64,
    memory_bytes: Option<u64>,
    us_per_gb: f64,
    types: Vec<TypeAnswer>,
    meshes: Vec<MeshAnswer>,
    why: Vec<WhyAnswer>,
    from: Option<FromAnswer>,
    /// The typed program, with every redistribution.
    program: String,
}

#[derive(Debug, Serialize)]
struct TypeAnswer {
    name: String,
    r#type: String,
}

#[derive(Debug, Serialize)]
struct MeshAnswer {
    mesh: String,
    bound_us: f64,
    time_us: Option<f64>,
}

/// The best program with another type of an input.
#[derive(Debug, Serialize)]
struct WhyAnswer {
    r#type: String,
    /// No assignment with it takes less.
    bound_us: Option<f64>,
    /// `None` if no program was found that fits.
    time_us: Option<f64>,
}

/// A program that has all types.
#[derive(Debug, Serialize)]
struct FromAnswer {
    time_us: f64,
    peak_bytes: u64,
    /// `true` if it fits in the memory, with its recomputation.
    fits: bool,
}

/// A request: a program text with its mesh, the fixed types, and the network.
struct Request<'a> {
    text: &'a str,
    table: Arc<OpTable>,
    devices: Option<usize>,
    mesh: Option<&'a Mesh>,
    parallelizer: Parallelizer,
    rates: ComputeRates,
}

impl Request<'_> {
    /// Returns the best program with these types.
    fn answer(&self, fixed: &[&str]) -> Result<Parallelized, reshard_program::Error> {
        let fixes = |mut graph: Graph| {
            for text in fixed {
                let Some((name, is)) = text.split_once(':') else {
                    return Err(reshard_program::Error::Graph {
                        reason: format!("`{text}` is not a name and a type, such as `w1: S(1),?`"),
                    });
                };
                graph.restrict_open(name.trim(), is.trim())?;
            }
            Ok(graph)
        };
        let table = || Arc::clone(&self.table);
        let on = |mesh: &Mesh| fixes(Graph::parse_on(table(), self.text, mesh)?);
        match (self.mesh, self.devices) {
            (Some(mesh), _) => self.parallelizer.parallelize(&on(mesh)?),
            (None, Some(devices)) => self.parallelizer.parallelize_devices(devices, on),
            (None, None) => self.parallelizer.parallelize(&fixes(Graph::parse(table(), self.text)?)?),
        }
    }
}

/// Answers the flags.
pub(crate) fn run(args: &ParallelizeArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let text = args.file.read(console)?;
    let topology = network::topology(args.topology.name().unwrap_or("uniform"))?;
    let rates = ComputeRates::for_topology(&topology);
    let planner = Planner::new().topology(topology);
    let mut parallelizer = Parallelizer::new().planner(planner.clone()).rates(rates);
    let memory = args.memory.map(|memory| memory.bytes);
    if let Some(memory) = memory {
        parallelizer = parallelizer.memory(memory);
    }
    if let Some(budget) = args.search_budget {
        parallelizer = parallelizer.search_budget(budget);
    }
    let request = Request {
        text: &text,
        table: Arc::new(OpTable::standard()),
        devices: args.devices.or_else(|| Graph::open_devices(&text)),
        mesh: args.mesh.as_ref(),
        parallelizer,
        rates,
    };
    let fixed: Vec<&str> = args.fix.iter().map(String::as_str).collect();
    let found = request.answer(&fixed)?;
    if args.print {
        return console.print(&found.program.to_string());
    }
    let mut answer = Answer::of(&found, memory);
    for other in &args.why {
        let with: Vec<&str> = fixed.iter().copied().chain([other.as_str()]).collect();
        let found = match request.answer(&with) {
            Ok(found) => Some((found.bound_us, found.time_us)),
            Err(reshard_program::Error::Memory { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let (bound_us, time_us) = found.unzip();
        answer.why.push(WhyAnswer { r#type: other.clone(), bound_us, time_us });
    }
    if let Some(path) = &args.from {
        let solver = ShardingSolver::new().planner(planner).rates(rates);
        answer.from = Some(FromAnswer::of(path, &request, &solver, memory)?);
    }
    if args.format.json {
        return console.print_json(&answer);
    }
    console.print(&answer.text())
}
impl Answer {
    fn of(found: &Parallelized, memory_bytes: Option<u64>) -> Answer {
        let types = found.chosen.iter();
        let types = types.map(|(name, is)| TypeAnswer { name: name.clone(), r#type: is.to_string() });
        let Parallelized { program, time_us, peak_bytes, bound_us, us_per_gb, meshes, .. } = found;
        let gap = if *time_us > 0.0 { 1.0 - bound_us / time_us } else { 0.0 };
        let meshes = meshes.iter().map(|of| {
            let MeshBound { mesh, bound_us, time_us } = of;
            MeshAnswer { mesh: mesh.to_string(), bound_us: *bound_us, time_us: *time_us }
        });
        let mesh = program.meshes().first();
        Answer {
            mesh: mesh.to_string(),
            ranks: mesh.size(),
            time_us: *time_us,
            bound_us: *bound_us,
            gap,
            peak_bytes: *peak_bytes,
            memory_bytes,
            us_per_gb: *us_per_gb,
            types: types.collect(),
            meshes: meshes.collect(),
            why: Vec::new(),
            from: None,
            program: program.to_string(),
        }
    }

    /// Returns the report.
    fn text(&self) -> String {
        let mut lines = self.summary();
        lines.push(String::new());
        let width = self.types.iter().map(|is| is.name.len()).max().unwrap_or(0);
        let of = |TypeAnswer { name, r#type }: &TypeAnswer| format!("{name:width$}  {type}");
        lines.extend(self.types.iter().map(of));
        lines.join("\n") + "\n"
    }

    /// Returns the lines on times.
    fn summary(&self) -> Vec<String> {
        let Answer { mesh, ranks, time_us, bound_us, peak_bytes, us_per_gb, .. } = self;
        let limit = self.memory_bytes.map_or_else(String::new, |limit| format!(" of {limit}"));
        let gap = self.gap * 100.0;
        let mut lines = vec![format!(
            "on {mesh} ({ranks} ranks): {time_us:.1} us a step, at least {bound_us:.1} us (gap {gap:.2} %), peak {peak_bytes} bytes{limit}"
        )];
        if *us_per_gb > 0.0 {
            lines.push(format!("the bound falls by {us_per_gb:.1} us for each GB more per rank"));
        }
        lines.extend(self.from.iter().map(|from| from.text(self)));
        let above = |time: f64| (time / time_us - 1.0) * 100.0;
        let others = self.meshes.iter().filter(|of| of.mesh != *mesh);
        lines.extend(others.map(|MeshAnswer { mesh, bound_us, time_us }| match time_us {
            Some(time) => {
                format!("on {mesh}: {time:.1} us ({:+.1} %), at least {bound_us:.1} us", above(*time))
            }
            None => format!("on {mesh}: at least {bound_us:.1} us ({:+.1} %)", above(*bound_us)),
        }));
        lines.extend(self.why.iter().map(|WhyAnswer { r#type, bound_us, time_us }| {
            let Some((time, bound_us)) = time_us.zip(*bound_us) else {
                return format!("with {type}: no program that fits was found");
            };
            let (of_time, of_bound) = (above(time), above(bound_us));
            format!(
                "with {type}: {time:.1} us ({of_time:+.1} %), at least {bound_us:.1} us ({of_bound:+.1} %)"
            )
        }));
        lines
    }
}

impl FromAnswer {
    /// Returns the time of the program in a file, with the recomputation that it needs.
    fn of(
        path: &str,
        request: &Request<'_>,
        solver: &ShardingSolver,
        memory: Option<u64>,
    ) -> Result<FromAnswer, CliError> {
        let text = read_text(Path::new(path)).map_err(|error| {
            CliError::refused("io", format!("the program `{path}` cannot be read: {error}"))
        })?;
        let graph = Graph::parse(Arc::clone(&request.table), &text)?;
        let program = solver.solve(&graph)?;
        let rates = &request.rates;
        let fitted = memory.map(|limit| program.rematerialize_to_fit(limit, rates)).transpose();
        let (program, fits) = match fitted {
            Ok(fitted) => (fitted.unwrap_or(program), true),
            Err(reshard_program::Error::Memory { .. }) => (program, false),
            Err(error) => return Err(error.into()),
        };
        let report = program.report(rates);
        Ok(FromAnswer { time_us: report.total_us(), peak_bytes: report.peak.bytes, fits })
    }

    fn text(&self, answer: &Answer) -> String {
        let FromAnswer { time_us, peak_bytes, fits } = self;
        let above = |other: f64| (time_us / other - 1.0) * 100.0;
        let (of_answer, of_bound) = (above(answer.time_us), above(answer.bound_us));
        let unless = if *fits { "" } else { ", which does not fit" };
        format!(
            "yours: {time_us:.1} us ({of_answer:+.1} %, {of_bound:+.1} % of the bound), peak {peak_bytes} bytes{unless}"
        )
    }
}
