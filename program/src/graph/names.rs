//! The names of values: each has one, which is read and written, and no two have the same.

use std::sync::Arc;

use reshard_kernels::DType;
use rustc_hash::FxHashSet;

use crate::Error;
use crate::graph::{Graph, Known, ValueId};

/// The longest name of a value.
const LONGEST_NAME: usize = 1024;

/// What the gradient of a value is called where nobody says.
pub(crate) fn gradient_name(of: &str) -> String {
    format!("d{of}")
}

/// The name of which this is the [`gradient_name`].
pub(crate) fn gradient_of(name: &str) -> Option<&str> {
    name.strip_prefix('d')
}

impl Graph {
    /// A new value.
    pub(crate) fn named(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ValueId, Error> {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '\''));
        if name.len() > LONGEST_NAME {
            let shown: String = name.chars().take(32).collect();
            return Err(Error::Graph {
                reason: format!(
                    "{shown}.. is a name of {} letters, and one has at most {LONGEST_NAME}",
                    name.len()
                ),
            });
        }
        if !letters || name.is_empty() || name == "_" || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::Graph {
                reason: format!("{name:?} is no name of a value: letters, digits, _ . and '"),
            });
        }
        if self.names.contains_key(name) {
            return Err(Error::Graph {
                reason: format!("{name} is made twice: give one of them another name"),
            });
        }
        let value = ValueId(self.values.len());
        self.names.insert(name.to_owned(), value);
        self.values.push(Known {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            pinned: None,
            on: None,
            inner: false,
        });
        Ok(value)
    }

    /// Calls a value by another name.
    ///
    /// Fails for a name that is taken.
    pub(crate) fn rename(&mut self, value: ValueId, name: &str) -> Result<(), Error> {
        if self.names.contains_key(name) {
            return Err(Error::Graph {
                reason: format!("{name} is made twice: give one of them another name"),
            });
        }
        let known = &mut self.values[value.0];
        self.names.remove(&known.name);
        name.clone_into(&mut known.name);
        self.names.insert(name.to_owned(), value);
        Ok(())
    }

    /// All names.
    pub(crate) fn names(&self) -> Arc<FxHashSet<String>> {
        Arc::new(self.names.keys().cloned().collect())
    }

    /// Whether a value has a name, or it is reserved.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.reserved.contains(name)
    }

    /// A name that is free: this and a number.
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
