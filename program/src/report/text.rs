//! Text form of a report: values, communicating redistributions, and sums.

use core::fmt::{self, Write as _};

use crate::report::{CommCost, CommScope, Pass, RedistributionReport, Report, ValueClass};

/// Table rows; each column is as wide as its widest cell, and the last column is not padded.
struct Rows(Vec<Vec<String>>);

/// The maximum width of a padded column.
const WIDEST: usize = 256;

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.0
                .iter()
                .filter_map(|row| row.get(c))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .min(WIDEST)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                // Writing to a string does not fail.
                let _ = write!(line, "{cell:width$}   ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats a scope: `over tp`, `over ep on experts`, `from default to experts`.
fn worded(over: &CommScope) -> String {
    match over {
        CommScope::Axes(_) | CommScope::AxesOf { .. } => format!("over {over}"),
        CommScope::BetweenMeshes { .. } => format!("from {over}"),
    }
}

fn cells(list: &[&str]) -> Vec<String> {
    list.iter().map(|&cell| cell.to_owned()).collect()
}

impl Report {
    /// Returns the values named in the text of a graph, and the outputs of its gradients and updates.
    fn values_named(&self) -> Rows {
        let mut rows = vec![cells(&["value", "class", "shape", "type"])];
        let named =
            |name: &str| !name.rsplit('.').next().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        for value in self.values.iter().filter(|value| named(&value.name)) {
            let is = if value.pass == Pass::Forward { value.text.clone() } else { value.value_text.clone() };
            let shape = format!("{}{:?}", value.dtype, value.ty.value.shape()).replace(", ", ",");
            rows.push(vec![value.name.clone(), value.class.as_str().to_owned(), shape, is]);
        }
        Rows(rows)
    }

    fn sums(&self) -> Rows {
        let mut rows = vec![cells(&["", "steps", "received", "communicating", "operations", "computing"])];
        for pass in Pass::ALL {
            let CommCost { steps, received_bytes, cost_us } = *self.traffic.of(pass);
            let (operations, compute_us) = (*self.operations.of(pass), *self.compute_us.of(pass));
            if steps == 0 && operations == 0.0 && compute_us == 0.0 {
                continue;
            }
            rows.push(vec![
                pass.as_str().to_owned(),
                steps.to_string(),
                format!("{received_bytes} B"),
                format!("{cost_us:.1} us"),
                format!("{operations:.0}"),
                format!("{compute_us:.1} us"),
            ]);
            for (over, traffic) in &self.by_axes {
                let CommCost { steps, received_bytes, cost_us } = *traffic.of(pass);
                if steps > 0 {
                    rows.push(vec![
                        format!("  {}", worded(over)),
                        steps.to_string(),
                        format!("{received_bytes} B"),
                        format!("{cost_us:.1} us"),
                    ]);
                }
            }
        }
        Rows(rows)
    }
}

impl fmt::Display for RedistributionReport {
    /// Writes a line for the redistribution, and one for each of its communicating steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedistributionReport { value, consumer: at, texts: [from, to], .. } = self;
        let place = if value == at { value.clone() } else { format!("{value} at {at}") };
        write!(f, "{place}: {from} -> {to}")?;
        for step in &self.steps {
            let CommCost { received_bytes, cost_us, .. } = step.traffic;
            write!(
                f,
                "\n  {:8}  {} {} ({}): {received_bytes} B, {cost_us:.1} us",
                step.pass.as_str(),
                step.op,
                worded(&step.over),
                step.group
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    /// Writes values by name, communicating redistributions, sums by pass and axes, notes, and the peak.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "on {}", self.meshes.first())?;
        for (name, mesh) in self.meshes.named() {
            writeln!(f, "{name}: {mesh}")?;
        }
        writeln!(f, "{}", self.values_named())?;
        let communicating = self.redistributions.iter().filter(|row| row.communicates()).count();
        writeln!(f, "communicating redistributions: {communicating} of {}", self.redistributions.len())?;
        for row in self.redistributions.iter().filter(|row| row.communicates()) {
            writeln!(f, "{row}")?;
        }
        writeln!(f, "\n{}", self.sums())?;
        if !self.has_explicit_backward && self.values.iter().any(|value| value.ty.gradient.is_some()) {
            writeln!(f, "backward is an estimate: the program has no `gradient`")?;
        }
        if self.optimality_gap_us >= 0.05 {
            writeln!(f, "a cheaper program may exist, by at most {:.1} us", self.optimality_gap_us)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let classes = ValueClass::ALL.iter().filter(|&&class| self.peak.of(class) > 0);
        let mut parts: Vec<String> =
            classes.map(|&class| format!("{} {}", class.as_str(), self.peak.of(class))).collect();
        if self.peak.staging > 0 {
            parts.push(format!("staging {}", self.peak.staging));
        }
        write!(f, "peak {} B at {}: {}", self.peak.bytes, self.peak.at, parts.join(", "))
    }
}
