//! The properties of calibrations.
#![allow(clippy::float_cmp, reason = "numbers of tables are read and written without a change")]

mod acceptance;
mod drawn;
mod planner;
mod profiles;
mod sampler;
mod tables;

use reshard_calibrate::{Filter, Measurement, Table};

/// Measured times inside one node.
pub(crate) const INSIDE: &str = include_str!("../data/nccl_tables.jsonl");

/// Measured times, and latencies and rates of the library's tuner, over several nodes.
pub(crate) const BETWEEN: &str = include_str!("../data/nccl_nodes.jsonl");

/// Returns the lines of a table with these values of keys.
pub(crate) fn table(text: &str, conditions: &[(&str, &str)]) -> Table {
    let conditions = conditions.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Table::parse(text, &Filter { conditions }).unwrap()
}

/// Returns a table of the chosen measurements of another.
pub(crate) fn part(table: &Table, is_chosen: impl Fn(&Measurement) -> bool) -> Table {
    let measurements = table.measurements.iter().filter(|m| is_chosen(m)).cloned().collect();
    Table { measurements, ..table.clone() }
}
