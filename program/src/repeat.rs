//! Repeated layers of a text: statements that are parsed several times, each time with separate values.
//!
//! ```text
//! x: f32[64,32] S(0)
//! repeat 24                        the lines to "end", 24 times
//!   w: f32[32,32] R                w_0, w_1, .. w_23
//!   h = mm(x, w)                   x from above in the first layer, else x of the layer before
//!   x = relu(h)                    x_0, .. x_23
//! end
//! loss = sum(x)                    x_23
//! gradient loss wrt w              dw_0, .. dw_23
//! repeat 24
//!   w' = sgd(w, dw)                w_0', .. from w_0 and dw_0, ..
//! end
//! ```
//!
//! A name in a layer refers, in this order, to a value of that layer or of the same layer number in another
//! block, to a value of the layer before, and to a value above the block. Below the block, it is that of the
//! last layer. `repeat 12 dec` names values `w_dec0`, if another block uses the plain numbers. A graph has no
//! layers, only statements; repeated layers cost one cache lookup per statement.

use reshard_sharding::ShardingType;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::graph::{Graph, ValueId};

/// The maximum number of statements that all blocks of a text expand to.
const MOST: usize = 1 << 16;

/// A block to be parsed several times.
#[derive(Clone, Debug)]
pub(crate) struct Block<'t> {
    times: usize,
    label: &'t str,
    /// The line number of its start.
    pub(crate) line: usize,
    /// Its statements, with their line numbers.
    pub(crate) body: Vec<(usize, &'t str)>,
    /// The number of shard maps open at the next line.
    regions: usize,
}

impl<'t> Block<'t> {
    /// Returns the block that a line opens, if it does: `repeat 24`, `repeat 12 dec`.
    pub(crate) fn begun(line: usize, text: &'t str) -> Option<Result<Block<'t>, Error>> {
        let rest = text.strip_prefix("repeat ")?.trim();
        if rest.starts_with([':', '=']) {
            // A value named `repeat`.
            return None;
        }
        let (times, label) = rest.split_once(' ').map_or((rest, ""), |(times, label)| (times, label.trim()));
        let letters = label.chars().all(|c| c.is_ascii_alphabetic());
        Some(match times.parse() {
            Ok(times) if times > 0 && letters => {
                Ok(Block { times, label, line, body: Vec::new(), regions: 0 })
            }
            Ok(_) | Err(_) => {
                let reason = format!(
                    "invalid {text:?}; write `repeat 24`, or `repeat 24 dec` to add letters to the names"
                );
                Err(Error::Parse { reason }.on(line))
            }
        })
    }

    /// Returns `true` if the next line is in a shard map, whose `end` does not close the block.
    pub(crate) fn is_in_region(&self) -> bool {
        self.regions > 0
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, number: usize, line: &'t str) {
        if crate::shard_map::begins(line).is_some() {
            self.regions += 1;
        } else if line == "end" {
            self.regions -= 1;
        }
        self.body.push((number, line));
    }

    /// Returns the number of repetitions.
    pub(crate) fn times(&self) -> usize {
        self.times
    }
}

/// The graph values that the names of a text refer to.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The values of each name, by layer, of the last block that defined it.
    layers: FxHashMap<String, Vec<String>>,
    /// All names defined in layers.
    made: FxHashSet<String>,
    /// The names of inputs among them.
    inputs: FxHashSet<String>,
    /// The label and the number of the current layer.
    layer: Option<(String, usize)>,
    /// The number of statements from blocks.
    statements: usize,
    /// Parsed types by text and shape, because layers repeat them.
    types: FxHashMap<String, FxHashMap<Vec<usize>, ShardingType>>,
}

/// Returns the name in a layer: `w` in the third layer of `repeat 12 dec` is `w_dec2`, and `w'` is `w_dec2'`.
fn in_layer(name: &str, label: &str, number: usize) -> String {
    let base = name.trim_end_matches('\'');
    format!("{base}_{label}{number}{}", &name[base.len()..])
}

/// The number of characters of an unknown name that an error shows.
const SHOWN: usize = 80;

impl Scope {
    /// Counts the statements of a block.
    ///
    /// Returns an error for an empty block, and if all blocks have too many statements.
    pub(crate) fn counts(&mut self, block: &Block<'_>) -> Result<(), Error> {
        let (times, each) = (block.times, block.body.len());
        self.statements = self.statements.saturating_add(times.saturating_mul(each));
        if each == 0 || self.statements > MOST {
            return Err(Error::Parse {
                reason: format!(
                    "repeat {times} of {each} statements: a program repeats 1 to {MOST} statements in total, not {}",
                    self.statements
                ),
            });
        }
        Ok(())
    }

    /// Begins a layer of a block.
    pub(crate) fn enter(&mut self, block: &Block<'_>, number: usize) {
        self.layer = Some((block.label.to_owned(), number));
    }

    /// Returns the parsed type of a text for a shape; cached.
    pub(crate) fn read(
        &mut self,
        shape: &[usize],
        text: &str,
        read: impl FnOnce() -> Result<ShardingType, Error>,
    ) -> Result<ShardingType, Error> {
        if let Some(known) = self.types.get(text).and_then(|shapes| shapes.get(shape)) {
            return Ok(known.clone());
        }
        let is = read()?;
        self.types.entry(text.to_owned()).or_default().insert(shape.to_vec(), is.clone());
        Ok(is)
    }

    /// Ends the layers of a block.
    pub(crate) fn leave(&mut self) {
        self.layer = None;
    }

    /// Returns `true` inside a layer.
    pub(crate) fn is_in_layer(&self) -> bool {
        self.layer.is_some()
    }

    /// Returns the graph name of a value that a statement defines, and records it.
    pub(crate) fn makes(&mut self, name: &str, is_input: bool) -> String {
        let Some((label, number)) = self.layer.as_ref().filter(|_| name != "_") else {
            return name.to_owned();
        };
        let full = in_layer(name, label, *number);
        self.made.insert(full.clone());
        if is_input {
            self.inputs.insert(full.clone());
        }
        let layers = self.layers.entry(name.to_owned()).or_default();
        if *number == 0 {
            layers.clear();
        }
        layers.push(full.clone());
        full
    }

    /// Registers the gradient of a layer's value as a name of the layer.
    pub(crate) fn gradient_of(&mut self, name: &str, gradient: &str) {
        if self.made.contains(name) {
            self.made.insert(gradient.to_owned());
        }
    }

    /// Returns the value that a name refers to.
    pub(crate) fn takes(&self, graph: &Graph, name: &str) -> Result<ValueId, Error> {
        let own = self.layer.as_ref().map(|(label, number)| in_layer(name, label, *number));
        let last = self.layers.get(name).and_then(|list| list.last());
        let known = own.as_ref().filter(|own| self.made.contains(*own)).or(last);
        let name = known.map_or(name, String::as_str);
        graph.value(name).ok_or_else(|| {
            let shown: String = name.chars().take(SHOWN).collect();
            let reason = if name.contains('(') {
                format!("`{shown}` is not a name; calls cannot be nested, so write `a = {shown}` above and use `a` here")
            } else if name.parse::<f64>().is_ok() {
                format!("there is no value `{shown}`; numbers are named arguments, such as `dim={shown}`")
            } else if name.is_empty() {
                "the name of a value is missing".to_owned()
            } else {
                format!("there is no value `{shown}`")
            };
            Error::Parse { reason }
        })
    }

    /// Returns the values that a name refers to: for an input of layers, those of all layers.
    pub(crate) fn all(&self, graph: &Graph, name: &str) -> Result<Vec<ValueId>, Error> {
        match self.layers.get(name).filter(|list| list.iter().all(|v| self.inputs.contains(v))) {
            Some(list) => list.iter().map(|v| self.takes(graph, v)).collect(),
            None => Ok(vec![self.takes(graph, name)?]),
        }
    }
}
