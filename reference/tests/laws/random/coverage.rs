//! Coverage of op classes by kinds of placements.

use core::fmt;
use std::collections::BTreeMap;

use reshard_program::{Program, Statement};
use reshard_sharding::ShardingType;

/// The kinds of placements of values and gradients along an axis of several ranks.
pub(crate) const KINDS: [&str; 8] = ["R", "I", "S", "SS", "RG", "P", "v|g", "other"];

/// The number of operands of each kind, for ops of each class.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, [u64; KINDS.len()]>);

impl Coverage {
    /// Counts the ops of a program.
    pub(crate) fn add(&mut self, classes: &BTreeMap<String, &'static str>, program: &Program) {
        let mut backward = false;
        for item in program.statements() {
            match item {
                Statement::Op { call, inputs, .. } => {
                    let name = call.name().unwrap_or("->");
                    let class = match classes.get(name) {
                        Some(&class) if class == "optimizer" || !backward => class,
                        Some(_) | None => "backward",
                    };
                    for v in inputs {
                        for kind in kinds(&program.get(*v).ty) {
                            self.0.entry(class).or_default()[kind] += 1;
                        }
                    }
                }
                Statement::NoGrad => backward = true,
                Statement::Input(_) | Statement::Redistribute { .. } => {}
            }
        }
    }
}

/// Returns the kind of a type along each axis of several ranks.
fn kinds(is: &ShardingType) -> Vec<usize> {
    let text = is.to_string();
    let mut depth = 0;
    let words: Vec<&str> = text
        .split(|c| {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .collect();
    let axes = is.value.mesh().axes();
    // A type that is not printed axis by axis is of the kind `other`.
    let at = |kind: &str| KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len() - 1);
    if words.len() != axes.len() {
        return vec![at("other")];
    }
    let several = words.iter().zip(axes).filter(|(_, axis)| axis.size() > 1);
    several
        .map(|(word, _)| match word {
            // Without a gradient.
            w if w.contains('|') && !w.ends_with("|-") => at("v|g"),
            w => at(w.split(['(', '|']).next().unwrap_or(w)),
        })
        .collect()
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:16}", "operands")?;
        for kind in KINDS {
            write!(f, "{kind:>8}")?;
        }
        for (class, counts) in &self.0 {
            write!(f, "\n{class:16}")?;
            for n in counts {
                write!(f, "{n:>8}")?;
            }
        }
        Ok(())
    }
}
