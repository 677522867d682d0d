//! `reshard report`: everything that can be seen of an answer, on one page of HTML that works offline.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reshard_draw::Page;
use reshard_layout::internal::counted;
use serde_json::json;

use super::console::Console;
use super::error::CliError;
use super::{check, inspect, pictures, plan, required, step, trace};

/// Arguments of `reshard report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    of: Of,
    /// Write the page to this file
    #[arg(long, global = true, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The subjects of a page; each takes the arguments of the subcommand of its name.
#[derive(Debug, Subcommand)]
enum Of {
    /// Draw a plan: its cost and steps, and the shards before and after
    Plan(plan::PlanArgs),
    /// Draw a program: its values and redistributions, time by axis, and live bytes
    Check(check::CheckArgs),
    /// Draw a measured run: the times of all ranks, compared with the cost model
    Step(step::StepArgs),
    /// Draw the modelled times of all ranks, and the critical path
    Trace(trace::TraceArgs),
    /// Draw a checkpoint: its tensors and their shardings
    Inspect(inspect::InspectArgs),
}

impl ReportArgs {
    /// Returns a flag that a page does not support, because it has the picture anyway or cannot have it.
    fn other(&self) -> Option<&'static str> {
        let (pictures, others) = match &self.of {
            Of::Plan(args) => (&args.pictures, None),
            Of::Check(args) => (&args.pictures, args.print.then_some("--print")),
            Of::Step(args) => (&args.pictures, args.chrome_trace.as_ref().map(|_| "--chrome-trace")),
            Of::Trace(args) => (&args.pictures, args.chrome_trace.as_ref().map(|_| "--chrome-trace")),
            Of::Inspect(args) => (&args.pictures, None),
        };
        pictures.flag().or(others)
    }

    /// Returns `true` if the answer is a JSON object.
    pub(crate) fn json(&self) -> bool {
        match &self.of {
            Of::Plan(args) => args.format.json,
            Of::Check(args) => args.format.json,
            Of::Step(args) => args.format.json,
            Of::Trace(args) => args.format.json,
            Of::Inspect(args) => args.format.json,
        }
    }
}

/// Makes the page and writes it.
pub(crate) fn run(args: &ReportArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let path = required("html", args.html.as_ref())?;
    if let Some(flag) = args.other() {
        return Err(CliError::refused(
            "usage",
            format!("`reshard report` writes only the page, which has its own pictures; drop `{flag}`"),
        ));
    }
    let (page, failed): (Page, Option<String>) = match &args.of {
        Of::Plan(args) => (plan::page(args)?, None),
        Of::Check(args) => (check::page(args, console)?, None),
        Of::Step(args) => step::page(args, console)?,
        Of::Trace(args) => (trace::page(args, console)?, None),
        Of::Inspect(args) => (inspect::page(args)?, None),
    };
    let html = page.html();
    pictures::write(path, &html)?;
    let pictures: usize = page.sections.iter().map(|section| section.scenes.len()).sum();
    if args.json() {
        let answer = json!({"html": path.display().to_string(), "bytes": html.len(), "pictures": pictures});
        console.print_json(&answer)?;
    } else {
        console.print(&format!(
            "{pictures} pictures in {} ({})\n",
            path.display(),
            counted(html.len(), "byte", "bytes")
        ))?;
    }
    failed.map_or(Ok(()), |verdict| Err(CliError::failed("verification", verdict)))
}

/// Rejects a batch: a page is of one answer.
pub(crate) fn of_one(batch: bool) -> Result<(), CliError> {
    if batch {
        return Err(CliError::refused("usage", "`reshard report` draws one answer; drop `--batch`"));
    }
    Ok(())
}
