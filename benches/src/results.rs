//! Raw results of a benchmark program: `benches/results/NAME.jsonl`, from which `make figures` renders the table.
//!
//! The first line describes the run; each other line is one measurement. `scripts/figures.py` documents the
//! fields and rejects unknown ones.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// The value that a measurement must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The minimum of the ratio of this library's value to the peer's.
    RatioAtLeast(f64),
    /// The maximum of that ratio.
    RatioAtMost(f64),
    /// The maximum of this library's value, in its unit.
    OursAtMost(f64),
}

impl Limit {
    /// Returns the limit as it is written in a result.
    fn text(self) -> String {
        match self {
            Limit::RatioAtLeast(least) => format!("ratio >= {least}"),
            Limit::RatioAtMost(most) => format!("ratio <= {most}"),
            Limit::OursAtMost(most) => format!("ours <= {most}"),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name of the measured operation.
    pub what: String,
    /// This library's value.
    pub ours: f64,
    /// The peer's name and its value in the same run.
    pub peer: Option<(String, f64)>,
    /// The unit of both values: `us`, `GB/s`.
    pub unit: &'static str,
    /// The ratio of the first to the second, if not of these two values, such as a median of ratios.
    pub ratio: Option<f64>,
    /// The value to reach.
    pub limit: Option<Limit>,
}

impl Measured {
    /// Returns a measurement without a peer.
    pub fn alone(what: impl Into<String>, ours: f64, unit: &'static str, limit: Option<Limit>) -> Measured {
        Measured { what: what.into(), ours, peer: None, unit, ratio: None, limit }
    }

    fn line(&self) -> Value {
        let mut line = json!({ "what": self.what, "ours": rounded(self.ours), "unit": self.unit });
        if let Some((name, value)) = &self.peer {
            line["peer"] = json!(rounded(*value));
            line["peer_name"] = json!(name);
        }
        if let Some(ratio) = self.ratio {
            line["ratio"] = json!(rounded(ratio));
        }
        if let Some(limit) = self.limit {
            line["limit"] = json!(limit.text());
        }
        line
    }
}

/// Returns the number with four significant digits, more than any measurement has.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The measurements of one run of a program.
#[derive(Clone, Debug)]
pub struct Results {
    header: Value,
    name: &'static str,
    lines: Vec<Value>,
}

impl Results {
    /// Begins a run: notes the date, the machine and its load.
    ///
    /// `page` is the page of `docs/reference/benchmarks` that describes the measurement.
    pub fn new(name: &'static str, command: &str, page: &str) -> io::Result<Results> {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
        let header = json!({
            "program": name,
            "command": command,
            "page": page,
            "date": printed("date", &["-u", "+%F"])?,
            "machine": processor.map_or(std::env::consts::ARCH, |(_, name)| name),
            "cores": std::thread::available_parallelism()?.get(),
            "load": load,
            "versions": { "reshard": env!("CARGO_PKG_VERSION"), "commit": printed("git", &["rev-parse", "--short=8", "HEAD"])? },
        });
        Ok(Results { header, name, lines: Vec::new() })
    }

    /// Sets the version of a peer.
    pub fn version(&mut self, of: &str, version: &str) {
        self.header["versions"][of] = json!(version);
    }

    /// Adds a measurement.
    pub fn add(&mut self, measured: &Measured) {
        self.lines.push(measured.line());
    }

    /// Writes the file if `RESHARD_WRITE` is set: a usual run must not change the working tree.
    pub fn write(&self) -> io::Result<()> {
        if std::env::var_os("RESHARD_WRITE").is_none() {
            return Ok(());
        }
        let file = format!("{}.jsonl", self.name);
        let lines = std::iter::once(&self.header).chain(&self.lines).map(|line| format!("{line}\n"));
        std::fs::write(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(file),
            lines.collect::<String>(),
        )
    }
}

/// Returns the output of a command, run in this folder, without the line's end; an empty text if it fails.
fn printed(command: &str, arguments: &[&str]) -> io::Result<String> {
    let done = Command::new(command).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
