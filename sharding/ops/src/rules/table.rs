//! The table of ops: a name, a rule.
//!
//! [`OpTable::standard`] holds the built-in ops; a framework adds or replaces ops with one call of
//! [`OpTable::add`]. Ops whose rule depends on arguments or on the number of dims are families: functions from
//! a [`BoundCall`] to an [`Op`].

use core::cell::Cell;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Error;
use crate::gradients::{Formula, Gradient, formulas};
use crate::rules::bound_call::BoundCall;
use crate::rules::call::OpCall;
use crate::rules::composite::Composite;
use crate::rules::derive::derive;
use crate::rules::dtypes::{OpDtypes, STANDARD_DTYPES};
use crate::rules::families;
use crate::rules::made::Made;
use crate::rules::op::Op;
use crate::rules::parameter::Parameters;
use crate::rules::rule::Rule;
use crate::rules::standard;

/// The maximum nesting depth of composites.
pub(crate) const DEEPEST: usize = 32;

/// The maximum number of calls in a composite, including nested ones, and in a formula of a gradient.
pub(crate) const MOST_CALLS: usize = 1 << 12;

/// The maximum number of outputs of an op that writes them into existing tensors.
const MOST_WRITTEN: usize = 64;

/// A function from a request to an op.
type Family = dyn Fn(&BoundCall<'_>) -> Result<Op, Error> + Send + Sync;

#[derive(Clone)]
pub(super) enum Entry {
    Rule {
        parameters: Parameters,
        dtypes: Option<OpDtypes>,
        rule: Rule,
    },
    Family {
        parameters: Parameters,
        dtypes: Option<OpDtypes>,
        make: Arc<Family>,
    },
    /// Its element types follow from its body.
    Composite(Composite),
}

impl Entry {
    fn parameters(&self) -> &Parameters {
        match self {
            Entry::Composite(_) => Parameters::NONE,
            Entry::Rule { parameters, .. } | Entry::Family { parameters, .. } => parameters,
        }
    }
}

/// The variant of an entry that a name calls: the entry itself, or one that writes into an existing tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Itself,
    /// `add_`.
    InPlace,
    /// `add.out`.
    Out,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Rule { rule, .. } => write!(f, "{rule}"),
            Entry::Family { parameters, .. } => write!(f, "family({parameters})"),
            Entry::Composite(body) => write!(f, "{body}"),
        }
    }
}

/// Ops by name.
///
/// ```
/// use reshard_ops::rules::{OpCall, OpTable};
/// let mut table = OpTable::standard();
/// let op = table.op(&"sum(dims=[1],keepdim=true)".parse()?, &[&[8, 6]])?;
/// assert_eq!(op.outputs()[0].as_slice(), [8, 1]);
/// assert_eq!(op.strategies()[1].to_string(), "S(b1) -> P");
///
/// table.add("gated", "bsh,bsh->bsh {multilinear}".parse()?);
/// assert_eq!(table.op(&OpCall::new("gated"), &[&[2, 3, 4], &[2, 3, 4]])?.strategies()[0].to_string(),
///     "S(b0),S(b0) -> S(b0)");
///
/// // An op may write into its first input, or into one extra input per output.
/// let (x, bias): (&[usize], &[usize]) = (&[8, 6], &[6]);
/// assert_eq!(table.op(&OpCall::new("add_"), &[x, bias])?.strategies()[0].to_string(), "?0,R -> ?0");
/// assert_eq!(table.op(&OpCall::new("add.out"), &[x, bias, x])?.strategies()[0].to_string(), "?0,R,?0 -> ?0");
///
/// let unknown = table.op(&OpCall::new("sofmax"), &[&[8, 6]]).unwrap_err();
/// assert_eq!(unknown.to_string(), "unknown op sofmax; did you mean softmax?");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone)]
pub struct OpTable {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(crate) gradients: BTreeMap<String, Formula>,
    /// Cache of the requested ops.
    made: Made<Op>,
    pub(crate) differentiated: Made<Gradient>,
}

impl fmt::Debug for OpTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of {} ops", self.entries.len())
    }
}

impl Default for OpTable {
    fn default() -> OpTable {
        OpTable::standard()
    }
}

impl OpTable {
    /// A table without ops.
    pub fn empty() -> OpTable {
        OpTable {
            entries: BTreeMap::new(),
            gradients: BTreeMap::new(),
            made: Made::default(),
            differentiated: Made::default(),
        }
    }

    /// Returns the table of the built-in ops.
    pub fn standard() -> OpTable {
        let mut table = OpTable::empty();
        for (names, rule) in standard::rules() {
            match rule.build() {
                Ok(rule) => names.iter().for_each(|name| table.add(name, rule.clone())),
                // A test builds every rule.
                Err(error) => debug_assert!(false, "{names:?}: {error}"),
            }
        }
        for (names, parameters) in standard::PARAMETERS {
            for name in *names {
                match (table.entries.get_mut(*name), parameters.parse()) {
                    (Some(Entry::Rule { parameters, .. }), Ok(declared)) => *parameters = declared,
                    (other, declared) => debug_assert!(false, "{name}: {other:?} takes {declared:?}"),
                }
            }
        }
        for family in families::all() {
            match family.parameters.parse() {
                Ok(parameters) => table.add_family(family.name, parameters, family.make),
                Err(error) => debug_assert!(false, "{}: {error}", family.name),
            }
        }
        for (names, text) in STANDARD_DTYPES {
            let stated = text.parse::<OpDtypes>();
            let stated = stated
                .and_then(|dtypes| names.iter().try_for_each(|name| table.set_dtypes(name, dtypes.clone())));
            debug_assert!(stated.is_ok(), "{names:?}: {text}: {stated:?}");
        }
        for (names, formula) in formulas() {
            for name in names {
                table.gradients.insert((*name).to_owned(), formula.clone());
            }
        }
        table
    }

    /// Adds an op, or replaces the one of this name.
    pub fn add(&mut self, name: &str, rule: Rule) {
        self.add_with(name, Parameters::default(), rule);
    }

    /// Adds an op with one rule, and with arguments on which neither the rule nor a shape depends.
    ///
    /// These are the numbers of its formula, declared with their defaults.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let mut table = OpTable::empty();
    /// table.add_with("squash", "width: real >= 0 = 1.5".parse()?, "...->... {increasing}".parse()?);
    /// assert!(table.op(&"squash(width=0.25)".parse()?, &[&[4, 6]]).is_ok());
    /// let refused = table.op(&"squash(width=-1)".parse()?, &[&[4, 6]]).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "squash(width=-1): width is -1, and should be a number of at least 0, whole or not"
    /// );
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn add_with(&mut self, name: &str, parameters: Parameters, rule: Rule) {
        self.changed();
        self.entries.insert(name.to_owned(), Entry::Rule { parameters, dtypes: None, rule });
    }

    /// Adds ops whose rule depends on the shapes, or on arguments, which are declared with their types and defaults.
    ///
    /// ```
    /// use reshard_ops::rules::{Dim, RuleBuilder, OpTable};
    /// let mut table = OpTable::empty();
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
        make: impl Fn(&BoundCall<'_>) -> Result<Op, Error> + Send + Sync + 'static,
    ) {
        self.changed();
        let make = Arc::new(make);
        self.entries.insert(name.to_owned(), Entry::Family { parameters, dtypes: None, make });
    }

    /// Adds or replaces an op that is composed of others: its rule is derived from theirs on every call.
    ///
    /// A row of the composite joins rows of its ops, one each, that agree on every value between them, so
    /// that nothing is redistributed inside.
    ///
    /// ```
    /// use reshard_ops::rules::{OpCall, OpTable};
    /// let mut table = OpTable::standard();
    /// table.add_composite("mlp", "x, up, down -> y: h = mm(x, up); a = gelu(h); y = mm(a, down)".parse()?)?;
    /// let op = table.op(&OpCall::new("mlp"), &[&[8, 6], &[6, 16], &[16, 6]])?;
    /// let rows: Vec<String> = op.strategies().iter().map(ToString::to_string).collect();
    /// assert_eq!(rows[0], "S(a0),R,R -> S(a0)");
    /// assert_eq!(rows[2], "R,S(d1),S(d0) -> P");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails where the body calls an op that the table does not have, or itself.
    pub fn add_composite(&mut self, name: &str, body: Composite) -> Result<(), Error> {
        for (call, _, _) in body.calls() {
            if let OpCall::Named { name: called, .. } = call {
                if called == name {
                    return Err(Error::Rule {
                        reason: format!("{name} cannot be defined by itself: {body}"),
                    });
                }
                if self.entry(called).is_none() {
                    return Err(self.unknown(called));
                }
            }
        }
        self.changed();
        self.entries.insert(name.to_owned(), Entry::Composite(body));
        Ok(())
    }

    /// Clears the caches, because the table has changed.
    pub(crate) fn changed(&mut self) {
        self.made.forget();
        self.differentiated.forget();
    }

    /// The body of a composite; none of other ops.
    #[doc(hidden)]
    pub fn composite(&self, name: &str) -> Option<&Composite> {
        match self.entries.get(name)? {
            Entry::Composite(body) => Some(body),
            Entry::Rule { .. } | Entry::Family { .. } => None,
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The arguments that an op takes, or none if there is no such op.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let of = |name| table.parameters(name).map(ToString::to_string);
    /// assert_eq!(of("sum").as_deref(), Some("dims: dims = all, keepdim: flag = false"));
    /// assert_eq!(of("mm").as_deref(), Some(""));
    /// assert_eq!(of("no_op"), None);
    /// ```
    pub fn parameters(&self, name: &str) -> Option<&Parameters> {
        self.entry(name).map(|(entry, _)| entry.parameters())
    }

    /// Returns the rule of an op that has one for all shapes and arguments, or of its writing variant.
    pub fn rule(&self, name: &str) -> Option<Rule> {
        match self.entry(name)? {
            (Entry::Rule { rule, .. }, Variant::Itself) => Some(rule.clone()),
            (Entry::Rule { rule, .. }, Variant::InPlace) => rule.in_place().ok(),
            (Entry::Rule { rule, .. }, Variant::Out) => rule.out().ok(),
            (Entry::Family { .. } | Entry::Composite(_), _) => None,
        }
    }

    /// Returns the entry of a name: one of that name, or else the one before `_` or `.out`.
    pub(super) fn entry(&self, name: &str) -> Option<(&Entry, Variant)> {
        let of = |name: &str, variant| Some((self.entries.get(name)?, variant));
        of(name, Variant::Itself)
            .or_else(|| of(name.strip_suffix(".out")?, Variant::Out))
            .or_else(|| of(name.strip_suffix('_')?, Variant::InPlace))
    }

    /// The op of a call on inputs of these shapes.
    ///
    /// Fails for names and arguments that it does not know, and for shapes that do not fit.
    pub fn op(&self, call: &OpCall, inputs: &[&[usize]]) -> Result<Op, Error> {
        self.made.of(call, inputs, || self.op_within(call, inputs, DEEPEST, &Cell::new(MOST_CALLS)))
    }

    /// Returns the arguments of a call as its op reads them, given or by default, on inputs of these shapes.
    ///
    /// Fails for names and arguments that the table does not know.
    pub fn request<'a>(
        &'a self,
        call: &'a OpCall,
        inputs: &'a [&'a [usize]],
    ) -> Result<BoundCall<'a>, Error> {
        let parameters = match call {
            OpCall::Rule(_) => Parameters::NONE,
            OpCall::Named { name, .. } => self.parameters(name).ok_or_else(|| self.unknown(name))?,
            OpCall::Each(each) => return self.request(each.call(), inputs),
        };
        parameters.check(call)?;
        Ok(BoundCall { call, inputs, parameters })
    }

    /// Returns the op of a call, with `deep` more levels of composites and a shared count of remaining calls.
    fn op_within(
        &self,
        call: &OpCall,
        inputs: &[&[usize]],
        deep: usize,
        calls: &Cell<usize>,
    ) -> Result<Op, Error> {
        let name = match call {
            OpCall::Rule(rule) => return Op::new(&rule.to_string(), rule, inputs),
            OpCall::Each(each) => {
                let slices = each.slices(inputs)?;
                let slices: Vec<&[usize]> = slices.iter().map(Vec::as_slice).collect();
                return each.op(&self.op_within(each.call(), &slices, deep, calls)?, inputs);
            }
            OpCall::Named { name, .. } => name,
        };
        let Some((entry, variant)) = self.entry(name) else { return Err(self.unknown(name)) };
        entry.parameters().check(call)?;
        for shape in inputs {
            reshard_sharding::internal::numel(shape)?;
        }
        let made = |inputs: &[&[usize]]| match entry {
            Entry::Rule { rule, .. } => Op::new(name, rule, inputs),
            Entry::Family { parameters, make, .. } => make(&BoundCall { call, inputs, parameters }),
            Entry::Composite(_) if deep == 0 => Err(Error::Rule {
                reason: format!("{name} is a composite within {DEEPEST} others: one of them contains itself"),
            }),
            Entry::Composite(body) => {
                let request = BoundCall { call, inputs, parameters: entry.parameters() };
                calls.set(calls.get().checked_sub(body.calls().count()).ok_or_else(|| {
                    request.error(format!("its bodies have more than {MOST_CALLS} calls in all"))
                })?);
                derive(body, &request, |call, inputs| self.op_within(call, inputs, deep - 1, calls))
            }
        };
        match variant {
            Variant::Itself => made(inputs),
            Variant::InPlace => {
                let op = made(inputs)?;
                let written = inputs.first().is_some_and(|first| op.outputs() == [first.to_vec()]);
                let reason = match op.rule() {
                    Some(rule) if written => {
                        return Op::with_outputs(&call.to_string(), &rule.in_place()?, inputs, &[inputs[0]]);
                    }
                    Some(_) => {
                        "its output has another shape than its first input, into which it would be written"
                    }
                    None => "a view writes nothing",
                };
                let request = BoundCall { call, inputs, parameters: entry.parameters() };
                let new = name.strip_suffix('_').unwrap_or(name);
                Err(request.error(format!("{reason}: use {new}")))
            }
            Variant::Out => {
                // One more input for each output; the op itself determines how many there are.
                let fits = |&outputs: &usize| {
                    made(&inputs[..inputs.len() - outputs]).is_ok_and(|op| op.outputs().len() == outputs)
                };
                let outputs = (1..=inputs.len().min(MOST_WRITTEN)).find(fits).unwrap_or(1);
                let request = BoundCall { call, inputs, parameters: entry.parameters() };
                let Some(read) = inputs.len().checked_sub(outputs) else {
                    return Err(
                        request.error("takes an input more for each output, into which that is written")
                    );
                };
                let op = made(&inputs[..read])?;
                match op.rule() {
                    Some(rule) => {
                        let outputs: Vec<&[usize]> = op.outputs().iter().map(Vec::as_slice).collect();
                        Op::with_outputs(&call.to_string(), &rule.out()?, inputs, &outputs)
                    }
                    None => Err(request.error("a view writes nothing")),
                }
            }
        }
    }

    /// Returns the op of a call on inputs of these shapes with outputs of these shapes.
    ///
    /// It serves rules that are lists of strategies, which do not determine shapes.
    ///
    /// ```
    /// use reshard_ops::rules::{OpCall, OpTable};
    /// let mut table = OpTable::empty();
    /// table.add("ported", "?0,R -> ?0; R,?1 -> ?1".parse()?);
    /// let op = table.op_to(&OpCall::new("ported"), &[&[4, 6], &[6, 8]], &[&[4, 8]])?;
    /// assert_eq!(op.strategies().len(), 3);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails as [`OpTable::op`] does, and for outputs that are not the op's.
    #[doc(hidden)]
    pub fn op_to(&self, call: &OpCall, inputs: &[&[usize]], outputs: &[&[usize]]) -> Result<Op, Error> {
        let rule = match call {
            OpCall::Rule(rule) => Some(rule.clone()),
            OpCall::Each(_) => None,
            OpCall::Named { name, .. } => {
                if let Some((entry, _)) = self.entry(name) {
                    entry.parameters().check(call)?;
                }
                self.rule(name)
            }
        };
        if let Some(rule) = rule {
            return Op::with_outputs(&call.to_string(), &rule, inputs, outputs);
        }
        let op = self.op(call, inputs)?;
        let own: Vec<&[usize]> = op.outputs().iter().map(Vec::as_slice).collect();
        if own == outputs {
            return Ok(op);
        }
        let request = BoundCall { call, inputs, parameters: Parameters::NONE };
        Err(request.error(format!("gives outputs {own:?}, not {outputs:?}")))
    }

    pub(super) fn unknown(&self, name: &str) -> Error {
        let (most, length) = (1 + name.len() / 3, name.chars().count());
        let near = |known: &&String| strsim::damerau_levenshtein(known, name);
        // The difference of lengths is a lower bound of the edit distance, and comparing long names is slow.
        let may_be = |known: &&String| known.chars().count().abs_diff(length) <= most;
        let best = self.entries.keys().filter(may_be).min_by_key(near).filter(|k| near(k) <= most);
        Error::Rule {
            reason: match best {
                Some(best) => format!("unknown op {name}; did you mean {best}?"),
                None => format!(
                    "unknown op {name}: it is not one of the {} ops of the table, nor a rule such as mk,kn->mn",
                    self.entries.len()
                ),
            },
        }
    }
}
