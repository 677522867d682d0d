//! The target placements of a checkpoint's tensors: for all, or by patterns of names.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reshard_checkpoint::PlacementSpec;
use reshard_sharding::{Mesh, Sharding};

use crate::failure::{Answer, refused};
use crate::sequences::printed;
use crate::texts::words;

/// The target shardings: one for all tensors that have its dims, or by name patterns.
pub(crate) enum Wanted {
    All(String),
    ByName(Vec<(String, String)>),
}

impl Wanted {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Answer<Wanted> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Wanted::All(words(text)?.into_owned()));
        }
        let Ok(rules) = object.cast::<PyDict>() else {
            return Err(refused(
                "usage",
                "expected placements such as 'S(0)', or a dict such as {'*.weight': 'S(0)', '*': 'R'}",
            ));
        };
        let text = |object: Bound<'_, PyAny>| -> PyResult<String> { printed(&object) };
        let rules = rules.iter().map(|(pattern, to)| Ok((text(pattern)?, text(to)?)));
        Ok(Wanted::ByName(rules.collect::<PyResult<_>>()?))
    }

    /// The sharding of each of these tensors, in their order.
    pub(crate) fn shardings(&self, mesh: &Mesh, tensors: &[(&str, &[usize])]) -> Answer<Vec<Sharding>> {
        let about = |name: &str, error: &reshard_sharding::Error| {
            refused(error.code(), format!("tensor `{name}`: {error}"))
        };
        match self {
            Wanted::All(text) => {
                let lenient = |(name, shape): &(&str, &[usize])| match Sharding::parse(mesh, shape, text) {
                    // A tensor that lacks its dims is replicated.
                    Err(
                        reshard_sharding::Error::NoSuchDim { .. } | reshard_sharding::Error::DimCount { .. },
                    ) => Ok(Sharding::replicated(mesh, shape)?),
                    parsed => parsed.map_err(|error| about(name, &error)),
                };
                tensors.iter().map(lenient).collect()
            }
            Wanted::ByName(rules) => {
                let specs =
                    rules.iter().map(|(pattern, to)| PlacementSpec::new([(pattern.as_str(), to.as_str())]));
                let specs = specs.collect::<Result<Vec<_>, _>>()?;
                let mut used = vec![false; specs.len()];
                let mut all = Vec::with_capacity(tensors.len());
                for (name, shape) in tensors {
                    let found = specs.iter().position(|spec| spec.placements(name).is_some());
                    let Some(rule) = found else {
                        let reason =
                            format!("tensor `{name}`: no pattern matches it; add a last pattern \"*\"");
                        return Err(refused("spec", reason));
                    };
                    used[rule] = true;
                    all.push(
                        Sharding::parse(mesh, shape, &rules[rule].1).map_err(|error| about(name, &error))?,
                    );
                }
                match used.iter().position(|used| !used) {
                    None => Ok(all),
                    Some(rule) => {
                        let pattern = &rules[rule].0;
                        let reason = format!(
                            "the pattern `{pattern}` selects no tensor; correct it, or put it before the patterns that match first"
                        );
                        Err(refused("spec", reason))
                    }
                }
            }
        }
    }
}
