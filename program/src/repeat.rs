//! Equal layers of a text: statements that are read many times, each time with values of their own.
//!
//! ```text
//! x: f32[64,32] S(0)
//! repeat 24                        the lines to "end", 24 times
//!   w: f32[32,32] R                w_0, w_1, .. w_23
//!   h = mm(x, w)                   of the first layer the x from above, of any other what the layer before made of it
//!   x = relu(h)                    x_0, .. x_23
//! end
//! loss = sum(x)                    x_23
//! gradient loss wrt w              dw_0, .. dw_23
//! repeat 24
//!   w' = sgd(w, dw)                of each layer its own
//! end
//! ```
//!
//! A name in a layer is what that layer made, or another block's layer of this number; else what the layer before made of it; else what
//! it is above. Below, it is what the last layer made. `repeat 12 dec` calls values `w_dec0`, where another block has the plain
//! numbers. So a graph has no layers, only statements, and equal ones cost what looking them up costs.

use reshard_sharding::ShardingType;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::graph::{Graph, ValueId};

/// The most statements that all blocks of a text make.
const MOST: usize = 1 << 16;

/// A block that is to be read so many times.
#[derive(Clone, Debug)]
pub(crate) struct Block<'t> {
    times: usize,
    label: &'t str,
    /// The line where it begins.
    pub(crate) line: usize,
    /// Its statements and the lines where they stand.
    pub(crate) body: Vec<(usize, &'t str)>,
    /// In how many regions the next line stands.
    regions: usize,
}

impl<'t> Block<'t> {
    /// The block that a line begins, if it does: `repeat 24`, `repeat 12 dec`.
    pub(crate) fn begun(line: usize, text: &'t str) -> Option<Result<Block<'t>, Error>> {
        let rest = text.strip_prefix("repeat ")?.trim();
        if rest.starts_with([':', '=']) {
            // A value of that name.
            return None;
        }
        let (times, label) = rest.split_once(' ').map_or((rest, ""), |(times, label)| (times, label.trim()));
        let letters = label.chars().all(|c| c.is_ascii_alphabetic());
        Some(match times.parse() {
            Ok(times) if times > 0 && letters => {
                Ok(Block { times, label, line, body: Vec::new(), regions: 0 })
            }
            Ok(_) | Err(_) => {
                let reason =
                    format!("{text:?}: write repeat 24 or, with letters for the names, repeat 24 dec");
                Err(Error::Parse { line, reason })
            }
        })
    }

    /// Whether the next line stands in a region, whose end is not the block's.
    pub(crate) fn is_in_region(&self) -> bool {
        self.regions > 0
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, number: usize, line: &'t str) {
        if crate::region::begins(line).is_some() {
            self.regions += 1;
        } else if line == "end" {
            self.regions -= 1;
        }
        self.body.push((number, line));
    }

    /// How often it is read.
    pub(crate) fn times(&self) -> usize {
        self.times
    }
}

/// What the names of a text are in the graph.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The values of each name, layer by layer, of the block that made it last.
    layers: FxHashMap<String, Vec<String>>,
    /// All names that layers made.
    made: FxHashSet<String>,
    /// Which of them are inputs.
    inputs: FxHashSet<String>,
    /// The layer that is read now: its label, its number, and what it made so far.
    layer: Option<(String, usize)>,
    /// How many statements blocks made.
    statements: usize,
    /// The types that texts were, of each shape: layers say the same again and again.
    types: FxHashMap<String, FxHashMap<Vec<usize>, ShardingType>>,
}

/// `w` in the third layer of `repeat 12 dec`: `w_dec2`, and of `w'` it is `w_dec2'`.
fn in_layer(name: &str, label: &str, number: usize) -> String {
    let base = name.trim_end_matches('\'');
    format!("{base}_{label}{number}{}", &name[base.len()..])
}

/// How much of a name is shown that is none.
const SHOWN: usize = 80;

impl Scope {
    /// Counts the statements of a block.
    ///
    /// Fails for a block without any, and where all blocks make too many.
    pub(crate) fn counts(&mut self, block: &Block<'_>) -> Result<(), Error> {
        let (times, each) = (block.times, block.body.len());
        self.statements = self.statements.saturating_add(times.saturating_mul(each));
        if each == 0 || self.statements > MOST {
            return Err(Error::Graph {
                reason: format!(
                    "repeat {times} of {each} statements: a program repeats 1 to {MOST} statements in all, and these are {}",
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

    /// The type that a text is of a shape, read if it was not before.
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

    /// Whether a layer is read.
    pub(crate) fn is_in_layer(&self) -> bool {
        self.layer.is_some()
    }

    /// What a value of this name is called that a statement makes.
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

    /// The gradient of a layer's value is that of the layer.
    pub(crate) fn gradient_of(&mut self, name: &str, gradient: &str) {
        if self.made.contains(name) {
            self.made.insert(gradient.to_owned());
        }
    }

    /// The value that a statement calls so.
    pub(crate) fn takes(&self, graph: &Graph, name: &str) -> Result<ValueId, Error> {
        let own = self.layer.as_ref().map(|(label, number)| in_layer(name, label, *number));
        let last = self.layers.get(name).and_then(|list| list.last());
        let known = own.as_ref().filter(|own| self.made.contains(*own)).or(last);
        let name = known.map_or(name, String::as_str);
        graph.value(name).ok_or_else(|| {
            let shown: String = name.chars().take(SHOWN).collect();
            let reason = if name.contains('(') {
                format!("{shown} is no name: calls do not stand in others, so give it one on a line before, like a = {shown}")
            } else if name.parse::<f64>().is_ok() {
                format!("there is no value {shown}: numbers are arguments and have names, like dim={shown}")
            } else if name.is_empty() {
                "a name of a value is missing".to_owned()
            } else {
                format!("there is no value {shown}")
            };
            Error::Graph { reason }
        })
    }

    /// The values of a list of names: of inputs of layers, those of all layers.
    pub(crate) fn all(&self, graph: &Graph, name: &str) -> Result<Vec<ValueId>, Error> {
        match self.layers.get(name).filter(|list| list.iter().all(|v| self.inputs.contains(v))) {
            Some(list) => list.iter().map(|v| self.takes(graph, v)).collect(),
            None => Ok(vec![self.takes(graph, name)?]),
        }
    }
}
