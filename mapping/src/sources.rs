//! The sources of a mapping, by name.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, shown};
use crate::mapped::SourceTensor;
use crate::value::{Value, check_shape};

/// The sources, with an index of their names.
pub(crate) struct Sources<'a> {
    pub(crate) list: &'a [SourceTensor<'a>],
    by_name: HashMap<&'a str, usize>,
    sorted: Vec<&'a str>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(list: &'a [SourceTensor<'a>]) -> Result<Self, Error> {
        let mut by_name = HashMap::with_capacity(list.len());
        for (index, source) in list.iter().enumerate() {
            check_shape(source.shape).map_err(|error| error.in_rule(source.name))?;
            if by_name.insert(source.name, index).is_some() {
                let message = format!("two sources are named `{}`; rename one of them", shown(source.name));
                return Err(Error::new(ErrorKind::Duplicate, message));
            }
        }
        let mut sorted: Vec<&str> = list.iter().map(|source| source.name).collect();
        sorted.sort_unstable();
        Ok(Self { list, by_name, sorted })
    }

    /// Returns the index of the source of this name.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Error> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let message = format!("there is no tensor `{}`; check the names of the sources", shown(name));
            Error::new(ErrorKind::Missing, message)
        })
    }

    pub(crate) fn value(&self, index: usize) -> Value {
        let source = &self.list[index];
        Value::source(index, source.shape, source.dtype)
    }

    /// Returns the names that start with a text, sorted.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = &'a str> {
        let start = self.sorted.partition_point(|name| *name < prefix);
        self.sorted[start..].iter().copied().take_while(move |name| name.starts_with(prefix))
    }
}
