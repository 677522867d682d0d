//! Names of values: unique, and preserved by printing and parsing.

use std::sync::Arc;

use reshard_kernels::DType;
use rustc_hash::FxHashSet;

use crate::Error;
use crate::graph::{Graph, Known, ValueId};

/// The maximum length of a name, in bytes.
const LONGEST_NAME: usize = 1024;

/// Returns the default name of the gradient of a value.
pub(crate) fn gradient_name(of: &str) -> String {
    format!("d{of}")
}

/// Returns the name of which this is the [`gradient_name`].
pub(crate) fn gradient_of(name: &str) -> Option<&str> {
    name.strip_prefix('d')
}

impl Graph {
    /// Adds a value.
    pub(crate) fn named(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ValueId, Error> {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '\''));
        if name.len() > LONGEST_NAME {
            let shown: String = name.chars().take(32).collect();
            return Err(Error::Graph {
                reason: format!(
                    "the name {shown}.. has {} characters; the limit is {LONGEST_NAME}",
                    name.len()
                ),
            });
        }
        if !letters || name.is_empty() || name == "_" || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::Graph {
                reason: format!(
                    "invalid value name {name:?}; use letters, digits, `_`, `.` and `'`, and begin with a letter"
                ),
            });
        }
        if self.names.contains_key(name) {
            return Err(Error::Graph { reason: format!("`{name}` is defined twice; rename one of the two") });
        }
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Known {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            pinned: None,
            open: None,
            letters: None,
            on: None,
            inner: false,
            part: false,
        });
        Ok(value)
    }

    /// Renames a value.
    ///
    /// Returns an error for a used name.
    pub(crate) fn rename(&mut self, value: ValueId, name: &str) -> Result<(), Error> {
        if self.names.contains_key(name) {
            return Err(Error::Graph { reason: format!("`{name}` is defined twice; rename one of the two") });
        }
        let known = &mut self.values[value.0];
        self.names.remove(&known.name);
        name.clone_into(&mut known.name);
        self.names.insert(name.to_owned(), value);
        Ok(())
    }

    /// Returns all names.
    pub(crate) fn names(&self) -> Arc<FxHashSet<String>> {
        Arc::new(self.names.keys().cloned().collect())
    }

    /// Returns `true` if a name is used or reserved.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.reserved.contains(name)
    }

    /// Returns an unused name: the prefix and a number.
    pub(crate) fn fresh(&self, prefix: &str) -> String {
        let mut number = self.values.len();
        loop {
            let name = format!("{prefix}.{number}");
            if !self.knows(&name) {
                return name;
            }
            number += 1;
        }
    }
}
