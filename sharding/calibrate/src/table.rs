//! Tables of measured times: one measurement, or one curve of them, a JSON line.
//!
//! ```text
//! {"what":"nccl-tests on two nodes"}                                                        a header
//! {"collective":"all_gather","nodes":1,"ranks":8,"bytes":1048576,"us":17.1,"dtype":"f16"}   one measurement
//! {"collective":"all_reduce","nodes":2,"ranks_per_node":8,"bytes":[512,1024],"us":[36,37]}  two
//! ```
//!
//! `ranks` is the number of ranks of the group in all, `ranks_per_node` the number on each node; one of them is
//! enough, and `nodes` is 1 if it is left out. `bytes` is the size that nccl-tests reports: the gathered
//! tensor, the input of a reduction, the buffer of one rank of an all-to-all. `us` is the time in
//! microseconds. The same measurement on several lines is a repeat. Other keys are only for [`Filter`].

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use reshard_planner::StepOp;
use reshard_planner::internal::MEASURED;
use serde_json::{Map, Value};

use crate::error::{Error, Fault};

const NAMES: &str = "one of: all_gather, reduce_scatter, all_reduce, all_to_all";
const TIMES: &str = "microseconds from 1e-6 to 1e9";
const SIZES: &str = "a whole number of bytes from 1";
const COUNT: &str = "a whole number from 1 to 2147483647";

/// One measured time of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The collective: all-gather, reduce-scatter, all-reduce or all-to-all.
    pub collective: StepOp,
    /// The number of nodes, each with as many ranks.
    pub nodes: usize,
    /// The number of ranks in all.
    pub ranks: usize,
    /// The size of the tensor in bytes, as nccl-tests counts it.
    pub bytes: u64,
    /// The time in microseconds.
    pub us: f64,
}

/// Conditions on the lines of a table: keys with the values that they must have.
///
/// A line that lacks the key is left out. Texts are compared as they are, other values as JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Keys and values; all must be satisfied.
    pub conditions: Vec<(String, String)>,
}

/// The measurements of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The measurements in their order.
    pub measurements: Vec<Measurement>,
    /// The element type, if the table has one.
    pub dtype: Option<String>,
    /// The number of lines that the filter left out.
    pub left_out: usize,
    /// Other keys whose texts differ between measurements, with these texts.
    pub differing: BTreeMap<String, Vec<String>>,
}

impl Table {
    /// Parses a table.
    ///
    /// A first line without `collective` is a header; blank lines and those that begin with `#` are skipped. A
    /// line that the filter leaves out must be a JSON object, and is otherwise not checked.
    ///
    /// ```
    /// use reshard_calibrate::{Filter, Table};
    /// let text = r#"{"collective":"all_gather","ranks":8,"bytes":[1024,1048576],"us":[10.2,17.1]}"#;
    /// let table = Table::parse(text, &Filter::default())?;
    /// assert_eq!((table.measurements.len(), table.measurements[1].us), (2, 17.1));
    /// let error = Table::parse(&text.replace("10.2", "0"), &Filter::default()).unwrap_err();
    /// assert_eq!(error.to_string(), "line 1 has `us` 0; expected microseconds from 1e-6 to 1e9");
    /// # Ok::<(), reshard_calibrate::Error>(())
    /// ```
    pub fn parse(text: &str, filter: &Filter) -> Result<Table, Error> {
        let mut table =
            Table { measurements: Vec::new(), dtype: None, left_out: 0, differing: BTreeMap::new() };
        let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut known: Vec<BTreeSet<String>> = vec![BTreeSet::new(); filter.conditions.len()];
        let is_blank = |line: &str| line.trim().is_empty() || line.starts_with('#');
        let lines = text.lines().enumerate().filter(|(_, line)| !is_blank(line));
        for (i, (at, line)) in lines.enumerate() {
            let on_line = |fault: Fault| Error::Line { line: at + 1, fault };
            let keys: Map<String, Value> =
                serde_json::from_str(line).map_err(|_| on_line(Fault::NotAnObject))?;
            if i == 0 && !keys.contains_key("collective") {
                continue;
            }
            for ((key, _), known) in filter.conditions.iter().zip(&mut known) {
                known.extend(keys.get(key).map(plain));
            }
            let is_met = |(key, value): &(String, String)| keys.get(key).is_some_and(|v| plain(v) == *value);
            if !filter.conditions.iter().all(is_met) {
                table.left_out += 1;
                continue;
            }
            table.measurements.extend(measurements(&keys).map_err(on_line)?);
            for (key, value) in keys {
                if let Value::String(text) = value
                    && key != "collective"
                {
                    texts.entry(key).or_default().insert(text);
                }
            }
        }
        if table.measurements.is_empty() {
            // The first condition that no line satisfies; else no line satisfies all of them.
            let unmet =
                filter.conditions.iter().zip(known).find(|((_, value), known)| !known.contains(value));
            let unmet = unmet.map(|((key, value), known)| (format!("{key}={value}"), Vec::from_iter(known)));
            let all = || filter.conditions.iter().map(|(key, value)| format!("{key}={value}"));
            let together = (!filter.conditions.is_empty())
                .then(|| (all().collect::<Vec<_>>().join(" and "), Vec::new()));
            return Err(Error::Empty { unmet: unmet.or(together) });
        }
        if let Some(dtypes) = texts.remove("dtype") {
            let mut dtypes = Vec::from_iter(dtypes);
            if dtypes.len() > 1 {
                return Err(Error::Dtypes { dtypes });
            }
            table.dtype = dtypes.pop();
        }
        texts.retain(|key, values| key != "run" && values.len() > 1);
        table.differing = texts.into_iter().map(|(key, values)| (key, Vec::from_iter(values))).collect();
        Ok(table)
    }
}

/// Writes a line for each measurement, which [`Table::parse`] reads as the same table.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Measurement { collective, nodes, ranks, bytes, us } in &self.measurements {
            write!(
                f,
                r#"{{"collective":"{collective}","nodes":{nodes},"ranks":{ranks},"bytes":{bytes},"us":{us}"#
            )?;
            if let Some(dtype) = &self.dtype {
                write!(f, r#","dtype":{}"#, Value::from(dtype.as_str()))?;
            }
            f.write_str("}\n")?;
        }
        Ok(())
    }
}

/// Returns a text as it is, and any other value as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Returns the measurements of a line.
fn measurements(keys: &Map<String, Value>) -> Result<Vec<Measurement>, Fault> {
    let wrong = |key: &'static str, value: &Value, expected: &'static str| {
        let text = value.to_string();
        let value = if text.len() > 40 { text.chars().take(40).chain("..".chars()).collect() } else { text };
        Fault::Value { key, value, expected }
    };
    let given = |key: &'static str| keys.get(key).ok_or(Fault::Missing { key });
    let name = given("collective")?;
    let collective = (name.as_str().and_then(|name| name.parse().ok()))
        .filter(|op| MEASURED.contains(op))
        .ok_or_else(|| wrong("collective", name, NAMES))?;
    let count = |key: &'static str| -> Result<Option<usize>, Fault> {
        let Some(value) = keys.get(key) else { return Ok(None) };
        let number = value.as_u64().filter(|n| (1..=i32::MAX as u64).contains(n));
        number.map(|n| Some(n as usize)).ok_or_else(|| wrong(key, value, COUNT))
    };
    let nodes = count("nodes")?.unwrap_or(1);
    let ranks = match (count("ranks")?, count("ranks_per_node")?) {
        (Some(ranks), None) if ranks % nodes == 0 => ranks,
        (Some(ranks), None) => return Err(Fault::Uneven { ranks, nodes }),
        (None, Some(each)) => {
            let all = each.checked_mul(nodes).filter(|&n| i32::try_from(n).is_ok());
            all.ok_or_else(|| wrong("ranks_per_node", &each.into(), COUNT))?
        }
        (Some(ranks), Some(each)) if Some(ranks) == each.checked_mul(nodes) => ranks,
        (Some(ranks), Some(ranks_per_node)) => return Err(Fault::Ranks { ranks, nodes, ranks_per_node }),
        (None, None) => return Err(Fault::Missing { key: "ranks" }),
    };
    if ranks == 1 {
        return Err(Fault::OneRank);
    }
    let [sizes, times] = [each(given("bytes")?), each(given("us")?)];
    if sizes.len() != times.len() {
        return Err(Fault::Lengths { bytes: sizes.len(), us: times.len() });
    }
    let one = |(size, time): (&Value, &Value)| {
        let bytes = size.as_u64().filter(|&n| n > 0).ok_or_else(|| wrong("bytes", size, SIZES))?;
        // The range of times of the planner.
        let us = time.as_f64().filter(|us| (1e-6..=1e9).contains(us));
        let us = us.ok_or_else(|| wrong("us", time, TIMES))?;
        Ok(Measurement { collective, nodes, ranks, bytes, us })
    };
    sizes.iter().zip(times).map(one).collect()
}

/// Returns the elements of a list, or the one value.
fn each(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            core::slice::from_ref(value)
        }
    }
}
