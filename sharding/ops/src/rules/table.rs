//! The table of ops: a name, a rule.
//!
//! [`Table::standard`] holds ours; a framework adds its own, or replaces ours, with one call of [`Table::add`]. Ops whose
//! rule depends on arguments or on the number of dims are families: functions from a [`Request`] to an [`Op`].

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Error;
use crate::rules::call::Call;
use crate::rules::families;
use crate::rules::op::Op;
use crate::rules::parameter::Parameters;
use crate::rules::request::Request;
use crate::rules::rule::Rule;
use crate::rules::standard;

/// A function from a request to an op.
type Family = dyn Fn(&Request<'_>) -> Result<Op, Error> + Send + Sync;

#[derive(Clone)]
enum Entry {
    Rule(Rule),
    Family { parameters: Parameters, make: Arc<Family> },
}

impl Entry {
    fn parameters(&self) -> &Parameters {
        match self {
            Entry::Rule(_) => Parameters::NONE,
            Entry::Family { parameters, .. } => parameters,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Rule(rule) => write!(f, "{rule}"),
            Entry::Family { parameters, .. } => write!(f, "family({parameters})"),
        }
    }
}

/// Ops by name.
///
/// ```
/// use reshard_ops::rules::{Call, Table};
/// let mut table = Table::standard();
/// let op = table.op(&"sum(dims=[1],keepdim=true)".parse()?, &[&[8, 6]])?;
/// assert_eq!(op.outputs()[0].as_slice(), [8, 1]);
/// assert_eq!(op.strategies()[1].to_string(), "S(b1) -> P");
///
/// table.add("gated", "bsh,bsh->bsh {multilinear}".parse()?);
/// assert_eq!(table.op(&Call::new("gated"), &[&[2, 3, 4], &[2, 3, 4]])?.strategies()[0].to_string(),
///     "S(b0),S(b0) -> S(b0)");
///
/// let unknown = table.op(&Call::new("sofmax"), &[&[8, 6]]).unwrap_err();
/// assert_eq!(unknown.to_string(), "no op sofmax: did you mean softmax?");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    entries: BTreeMap<String, Entry>,
}

impl Default for Table {
    fn default() -> Table {
        Table::standard()
    }
}

impl Table {
    /// A table without ops.
    pub fn empty() -> Table {
        Table { entries: BTreeMap::new() }
    }

    /// The ops that everybody has.
    pub fn standard() -> Table {
        let mut table = Table::empty();
        for (names, rule) in standard::rules() {
            match rule.build() {
                Ok(rule) => names.iter().for_each(|name| table.add(name, rule.clone())),
                // A test makes every one.
                Err(error) => debug_assert!(false, "{names:?}: {error}"),
            }
        }
        for family in families::all() {
            match family.parameters.parse() {
                Ok(parameters) => table.add_family(family.name, parameters, family.make),
                Err(error) => debug_assert!(false, "{}: {error}", family.name),
            }
        }
        table
    }

    /// Adds an op, or replaces the one of this name.
    pub fn add(&mut self, name: &str, rule: Rule) {
        self.entries.insert(name.to_owned(), Entry::Rule(rule));
    }

    /// Adds ops whose rule depends on the shapes, or on arguments, which are declared with their types and defaults.
    ///
    /// ```
    /// use reshard_ops::rules::{Dim, RuleBuilder, Table};
    /// let mut table = Table::empty();
    /// table.add_family("blur", "radius: number >= 1 = 1, dim: dim = -1".parse()?, |request| {
    ///     let rank = request.input(0)?.len();
    ///     let dims = request.dims_whole(rank, &[request.dim("dim")?])?;       // `a*`: no rank may hold a part
    ///     request.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).build()?, request.inputs)
    /// });
    /// assert_eq!(table.op(&"blur".parse()?, &[&[4, 6]])?.strategies()[0].to_string(), "S(a0) -> S(a0)");
    /// let refused = table.op(&"blur(radius=0)".parse()?, &[&[4, 6]]).unwrap_err();
    /// assert_eq!(refused.to_string(), "blur(radius=0): radius is 0, and should be a whole number of at least 1");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn add_family(
        &mut self,
        name: &str,
        parameters: Parameters,
        make: impl Fn(&Request<'_>) -> Result<Op, Error> + Send + Sync + 'static,
    ) {
        self.entries.insert(name.to_owned(), Entry::Family { parameters, make: Arc::new(make) });
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The arguments that an op takes, or none if there is no such op.
    ///
    /// ```
    /// use reshard_ops::rules::Table;
    /// let table = Table::standard();
    /// let of = |name| table.parameters(name).map(ToString::to_string);
    /// assert_eq!(of("sum").as_deref(), Some("dims: dims = all, keepdim: flag = false"));
    /// assert_eq!(of("mm").as_deref(), Some(""));
    /// assert_eq!(of("no_op"), None);
    /// ```
    pub fn parameters(&self, name: &str) -> Option<&Parameters> {
        self.entries.get(name).map(Entry::parameters)
    }

    /// The rule of an op that needs no arguments, as it was added.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        match self.entries.get(name)? {
            Entry::Rule(rule) => Some(rule),
            Entry::Family { .. } => None,
        }
    }

    /// The op of a call on inputs of these shapes.
    ///
    /// Fails for names and arguments that it does not know, and for shapes that do not fit.
    pub fn op(&self, call: &Call, inputs: &[&[usize]]) -> Result<Op, Error> {
        let name = match call {
            Call::Rule(rule) => return Op::new(&rule.to_string(), rule, inputs),
            Call::Named { name, .. } => name,
        };
        let Some(entry) = self.entries.get(name) else { return Err(self.unknown(name)) };
        entry.parameters().check(call)?;
        match entry {
            Entry::Rule(rule) => Op::new(name, rule, inputs),
            Entry::Family { parameters, make } => make(&Request { call, inputs, parameters }),
        }
    }

    /// The op of a call on inputs of these shapes that gives outputs of these: for rules that are lists of strategies,
    /// which say nothing of shapes.
    ///
    /// ```
    /// use reshard_ops::rules::{Call, Table};
    /// let mut table = Table::empty();
    /// table.add("ported", "?0,R -> ?0; R,?1 -> ?1".parse()?);
    /// let op = table.op_to(&Call::new("ported"), &[&[4, 6], &[6, 8]], &[&[4, 8]])?;
    /// assert_eq!(op.strategies().len(), 3);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails as [`Table::op`] does, and for outputs that are not the op's.
    pub fn op_to(&self, call: &Call, inputs: &[&[usize]], outputs: &[&[usize]]) -> Result<Op, Error> {
        let rule = match call {
            Call::Rule(rule) => Some(rule),
            Call::Named { name, .. } => self.rule(name),
        };
        if let Some(rule) = rule {
            return Op::with_outputs(&call.to_string(), rule, inputs, outputs);
        }
        let op = self.op(call, inputs)?;
        let own: Vec<&[usize]> = op.outputs().iter().map(Vec::as_slice).collect();
        if own == outputs {
            return Ok(op);
        }
        let request = Request { call, inputs, parameters: Parameters::NONE };
        Err(request.error(format!("gives outputs {own:?}, not {outputs:?}")))
    }

    fn unknown(&self, name: &str) -> Error {
        let near = |known: &&String| strsim::damerau_levenshtein(known, name);
        let best = self.entries.keys().min_by_key(near).filter(|k| near(k) <= 1 + name.len() / 3);
        Error::Rule {
            reason: match best {
                Some(best) => format!("no op {name}: did you mean {best}?"),
                None => format!(
                    "no op {name}; Table::names lists the {} there are, and a rule is an op too: mk,kn->mn",
                    self.entries.len()
                ),
            },
        }
    }
}
