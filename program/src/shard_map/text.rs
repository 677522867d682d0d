//! Shard maps in the text of a graph.
//!
//! ```text
//! local tp                     the axes, in the order of placements below; the lines to "end" are per-device code
//!   in x: S(1)                 imports x with a placement; in a: S(1) = x names it a
//!   in w: R
//!   h = mm(x, w)               an op on the values of each coordinate
//!   s: I = all_reduce(h)       R by default; axis=tp if there are several axes
//!   g = all_gather(h, dim=0)   concatenated; zigzag=dim: as Z(0); stack=0: along a new dim
//!   r = reduce_scatter(h, dim=0)
//!   t = all_to_all(h, split=0, concat=1), with zigzag=split or zigzag=concat if that dim is Z
//!   t = all_to_all(h, counts=[1,3,2,0], dim=0, room=6), by the counts from each coordinate to each
//!   n = shift(h, by=1)         the value of the previous coordinate, cyclically
//!   c = coordinate()           the index of the coordinate
//!   p: P = h                   a conversion, one placement for each axis, or _: among R, I and P, to S(d), and V to P
//!   out y: R = s               exports a value, with its declared placement
//! end
//! ```
//!
//! Names are local to a shard map; `in` imports outer values and `out` exports results. Shard maps can be
//! nested, over other axes, and can be in layers. Like layers they exist in the text only: a graph prints the
//! statements that they expand to.

use std::collections::BTreeMap;

use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::Counts;

use crate::Error;
use crate::graph::Graph;
use crate::notation::assigned::{Assigned, From};
use crate::notation::{malformed, refused, wire, wire_of};
use crate::repeat::Scope;
use crate::shard_map::{DimSlices, ShardMap, ShardMapValue};

/// The open shard maps around a line of a text, the innermost last.
#[derive(Debug, Default)]
pub(crate) struct Regions(Vec<Open>);

/// A shard map whose `end` has not been read yet.
#[derive(Debug)]
struct Open {
    /// The text that opens it.
    text: String,
    /// All axes, and the number of leading axes that belong to enclosing shard maps.
    axes: Vec<usize>,
    around: usize,
    prefix: String,
    locals: BTreeMap<String, ShardMapValue>,
}

/// Returns the axes of a line that opens a shard map: `local tp`.
pub(crate) fn begins(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("local ")?.trim();
    // Otherwise it is a value named `local`.
    (!rest.starts_with([':', '='])).then_some(rest)
}

impl Regions {
    /// Returns the opening text of the innermost shard map.
    pub(crate) fn innermost(&self) -> Option<&str> {
        self.0.last().map(|open| open.text.as_str())
    }

    /// Parses a line that opens, closes or is in a shard map; returns `false` for any other line.
    pub(crate) fn line(&mut self, graph: &mut Graph, scope: &mut Scope, line: &str) -> Result<bool, Error> {
        if let Some(names) = begins(line) {
            self.begin(graph, names)?;
            return Ok(true);
        }
        if self.0.is_empty() {
            return Ok(false);
        }
        if line == "end" {
            self.0.pop();
            return Ok(true);
        }
        self.statement(graph, scope, line)?;
        Ok(true)
    }

    fn begin(&mut self, graph: &mut Graph, names: &str) -> Result<(), Error> {
        let around: Vec<usize> = self.0.last().map_or_else(Vec::new, |open| open.axes.clone());
        let list: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let region = ShardMap::begin(graph, &around, &list)?;
        let open = Open {
            text: format!("local {names}"),
            axes: region.axes.clone(),
            around: around.len(),
            prefix: region.prefix.clone(),
            locals: BTreeMap::new(),
        };
        self.0.push(open);
        Ok(())
    }

    fn statement(&mut self, graph: &mut Graph, scope: &mut Scope, line: &str) -> Result<(), Error> {
        if let Some(rest) = keyword(line, "in") {
            return self.takes(graph, scope, rest);
        }
        if let Some(rest) = keyword(line, "out") {
            return self.gives(graph, scope, rest);
        }
        let Some(open) = self.0.last_mut() else { return Ok(()) };
        let Some((made, call)) = crate::notation::equals(line) else {
            return malformed(format!(
                "{line:?} is not allowed in `{}`; write `in x: S(0)`, `out y: S(0) = x` or `h = op(x)`",
                open.text
            ));
        };
        open.assigned(graph, &Assigned::read(made.trim(), call.trim())?)
    }

    /// Parses an input: `x: S(1)`, or `a: S(1) = x`.
    fn takes(&mut self, graph: &mut Graph, scope: &Scope, text: &str) -> Result<(), Error> {
        let (said, of) = match crate::notation::equals(text) {
            Some((said, of)) => (said.trim(), Some(of.trim())),
            None => (text, None),
        };
        let Some((name, is)) = said.split_once(':').map(|(name, is)| (name.trim(), is.trim())) else {
            return malformed(format!("`in {text}` has no placement; write one, as in `in {said}: S(0)`"));
        };
        let of = of.unwrap_or(name);
        let (open, outer) = match self.0.as_mut_slice() {
            [] => return Ok(()),
            [open] => (open, None),
            [.., outer, open] => (open, Some(&*outer)),
        };
        let known = if let Some(outer) = outer {
            outer.local(of)?
        } else {
            let value = scope.takes(graph, of)?;
            ShardMap::again(graph, &open.axes, &open.prefix).global(value)
        };
        let own = open.axes[open.around..].to_vec();
        let (is, wire) = wire_of(is)?;
        let mut region = ShardMap::again(graph, &open.axes, &open.prefix);
        region.wire = wire;
        let taken = region.enter_as(&known, &own, is, Some(name))?;
        open.keep(name, taken)
    }

    /// Parses an output: `y: S(0) = h`.
    fn gives(&mut self, graph: &mut Graph, scope: &mut Scope, text: &str) -> Result<(), Error> {
        let form =
            || format!("`out {text}` has no placement or no value; write both, as in `out y: S(0) = h`");
        let Some((said, of)) = crate::notation::equals(text) else { return malformed(form()) };
        let Some((name, is)) = said.split_once(':') else { return malformed(form()) };
        let (name, is, of) = (name.trim(), is.trim(), of.trim());
        let Some(open) = self.0.last() else { return Ok(()) };
        let local = open.local(of)?;
        let own = &open.axes[open.around..];
        let mut region = ShardMap::again(graph, &open.axes, &open.prefix);
        let (left, said) = region.leave_as(&local, own, is, name)?;
        match self.0.as_mut_slice() {
            [.., outer, _] => outer.keep(name, left),
            _ => graph.moved_along(left.value, &scope.makes(name, false), said, None).map(|_| ()),
        }
    }
}

/// Returns the text after a keyword at the start of a line, unless the word is the name of a value.
fn keyword<'t>(line: &'t str, word: &str) -> Option<&'t str> {
    let rest = line.strip_prefix(word)?;
    let text = rest.strip_prefix(char::is_whitespace)?.trim();
    (!text.starts_with([':', '='])).then_some(text)
}

impl Open {
    fn local(&self, name: &str) -> Result<ShardMapValue, Error> {
        self.locals.get(name).cloned().ok_or_else(|| Error::Parse {
            reason: format!(
                "there is no value `{name}` in `{}`; import a value from outside, as in `in {name}: R`",
                self.text
            ),
        })
    }

    fn keep(&mut self, name: &str, local: ShardMapValue) -> Result<(), Error> {
        if name == "_" {
            return Ok(());
        }
        if self.locals.contains_key(name) {
            return refused(format!("`{name}` is defined twice in `{}`; rename one of the two", self.text));
        }
        self.locals.insert(name.to_owned(), local);
        Ok(())
    }

    fn assigned(&mut self, graph: &mut Graph, assigned: &Assigned<'_>) -> Result<(), Error> {
        if let Some(by) = assigned.by {
            return malformed(format!(
                "`by {by}`: in `{}` an op has no strategy, because its operands determine it; remove `by {by}`",
                self.text
            ));
        }
        let mut region = ShardMap::again(graph, &self.axes, &self.prefix);
        let (call, operands) = match (&assigned.from, assigned.made.as_slice()) {
            (From::Value(of), [(name, Some(is))]) => {
                let (is, wire) = wire_of(is)?;
                region.wire = wire;
                let made = region.moved_as(&self.local(of)?, &self.axes[self.around..], is, name)?;
                return self.keep(name, made);
            }
            (From::Value(of), _) => {
                return malformed(format!(
                    "a conversion of `{of}` has one result with a placement, as in `a: R = {of}`"
                ));
            }
            (From::Call(call, operands), _) => (call, operands),
        };
        let operands: Vec<ShardMapValue> =
            operands.iter().map(|of| self.local(of)).collect::<Result<_, _>>()?;
        let between = match (call, assigned.made.as_slice()) {
            (OpCall::Named { name, .. }, [(made, is)]) => {
                Between::of(name).map(|between| (between, *made, *is))
            }
            _ => None,
        };
        if let Some((between, name, is)) = between {
            let axis = self.axis(&region, call)?;
            let made = between.run(&mut region, call, &operands, &axis, is, name)?;
            return self.keep(name, made);
        }
        if let Some((name, Some(is))) = assigned.made.iter().find(|(_, is)| is.is_some()) {
            return malformed(format!(
                "`{name}: {is}`: in `{}` the output of {call} has no declared placement; remove `: {is}`, and write `{name}.1: {is} = {name}` below",
                self.text
            ));
        }
        let names: Vec<&str> = assigned.made.iter().map(|(name, _)| *name).collect();
        let made = region.call(call, &operands.iter().collect::<Vec<_>>(), &names)?;
        names.iter().zip(made).try_for_each(|(name, local)| self.keep(name, local))
    }

    /// Returns the axis that a call names, or the only one.
    fn axis(&self, region: &ShardMap<'_>, call: &OpCall) -> Result<String, Error> {
        match (call.argument("axis"), &self.axes[..]) {
            (Some(Argument::Word(name)), _) => Ok(name.clone()),
            (None, [one]) => Ok(region.axis_name(*one).to_owned()),
            (Some(_) | None, axes) => {
                let names: Vec<&str> = axes.iter().map(|&axis| region.axis_name(axis)).collect();
                malformed(format!(
                    "{call} needs an axis, such as `axis={}`; expected one of: {}",
                    names[0],
                    names.join(", ")
                ))
            }
        }
    }
}

/// The collectives between coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Shift,
    Coordinate,
}

impl Between {
    fn of(name: &str) -> Option<Between> {
        Some(match name {
            "all_reduce" => Between::AllReduce,
            "all_gather" => Between::AllGather,
            "reduce_scatter" => Between::ReduceScatter,
            "all_to_all" => Between::AllToAll,
            "shift" => Between::Shift,
            "coordinate" => Between::Coordinate,
            _ => return None,
        })
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Between::Coordinate => &["axis"],
            Between::AllReduce => &["axis", "via"],
            Between::AllGather => &["axis", "dim", "stack", "zigzag", "via"],
            Between::ReduceScatter => &["axis", "dim", "zigzag", "via"],
            Between::AllToAll => &["axis", "split", "concat", "zigzag", "dim", "counts", "room", "via"],
            Between::Shift => &["axis", "by", "via"],
        }
    }

    fn run(
        self,
        region: &mut ShardMap<'_>,
        call: &OpCall,
        operands: &[ShardMapValue],
        axis: &str,
        is: Option<&str>,
        name: &str,
    ) -> Result<ShardMapValue, Error> {
        if let OpCall::Named { arguments, .. } = call
            && let Some((key, _)) =
                arguments.iter().find(|(key, _)| !self.arguments().contains(&key.as_str()))
        {
            return malformed(format!(
                "{call}: unknown argument `{key}`; expected one of: {}",
                self.arguments().join(", ")
            ));
        }
        let number = |key: &str| match call.argument(key) {
            Some(Argument::Number(n)) => Ok(*n),
            Some(_) | None => malformed(format!("{call}: `{key}` must be an integer, such as `{key}=0`")),
        };
        let dim = |key: &str| {
            let n = number(key)?;
            usize::try_from(n).map_err(|_| Error::Parse {
                reason: format!("{call}: `{key}` is {n}, but must not be negative"),
            })
        };
        let zigzag = match call.argument("zigzag") {
            None => None,
            Some(Argument::Word(key))
                if ["dim", "split", "concat"].contains(&key.as_str())
                    && self.arguments().contains(&key.as_str()) =>
            {
                Some(key.as_str())
            }
            Some(_) => {
                return malformed(format!(
                    "{call}: `zigzag` must name the dim that is Z instead of S, such as `zigzag={}`",
                    if self == Between::AllToAll { "concat" } else { "dim" }
                ));
            }
        };
        let parts = |key: &str| {
            dim(key).map(|d| if zigzag == Some(key) { DimSlices::zigzag(d) } else { DimSlices::from(d) })
        };
        let wants = usize::from(self != Between::Coordinate);
        if operands.len() != wants {
            return malformed(format!("{call}: expected {wants} operands, but {} are given", operands.len()));
        }
        if let Some(is) = is.filter(|_| !matches!(self, Between::AllReduce | Between::AllGather)) {
            return refused(format!(
                "`{name}: {is} = {call}`: the result varies over {axis}; remove `: {is}`"
            ));
        }
        region.wire = match call.argument("via") {
            None => None,
            Some(Argument::Word(word)) => Some(wire(word)?),
            Some(other) => {
                return malformed(format!("{call}: unknown dtype `{other}`; write one such as `via=bf16`"));
            }
        };
        let to = is.unwrap_or("R");
        let name = Some(name);
        match (self, operands.first()) {
            (Between::Coordinate, _) | (_, None) => region.counted(axis, name),
            (Between::AllReduce, Some(v)) => region.all_reduced(v, axis, to, name),
            (Between::AllGather, Some(v)) if call.argument("stack").is_some() => {
                if ["dim", "zigzag"].iter().any(|key| call.argument(key).is_some()) {
                    return malformed(format!(
                        "{call}: `stack` is for a new dim and excludes `dim` and `zigzag`; remove it or these"
                    ));
                }
                region.stacked(v, axis, dim("stack")?, to, name)
            }
            (Between::AllGather, Some(v)) => region.all_gathered(v, axis, parts("dim")?, to, name),
            (Between::ReduceScatter, Some(v)) => region.reduce_scattered(v, axis, parts("dim")?, name),
            (Between::AllToAll, Some(v)) if call.argument("counts").is_some() => {
                if ["split", "concat", "zigzag"].iter().any(|key| call.argument(key).is_some()) {
                    return malformed(format!(
                        "{call}: `counts` excludes `split`, `concat` and `zigzag`; write `counts` and `dim`, or `split` and `concat`"
                    ));
                }
                let given = match call.argument("counts") {
                    Some(Argument::Numbers(list)) => list.iter().map(|&n| usize::try_from(n).ok()).collect(),
                    Some(_) | None => None,
                };
                let (axis_at, given): (usize, Option<Vec<usize>>) = (region.axis(axis)?, given);
                let ranks = region.size(axis_at);
                let Some(given) = given.filter(|list| Some(list.len()) == ranks.checked_mul(ranks)) else {
                    return refused(format!(
                        "{call}: `counts` must have {ranks} numbers for each of the {ranks} coordinates of {axis}: the indices that it sends to each"
                    ));
                };
                let counts = Counts::new(&given.chunks(ranks).map(<[usize]>::to_vec).collect::<Vec<_>>())?;
                let room = call.argument("room").map(|_| dim("room")).transpose()?;
                let along = if call.argument("dim").is_some() { dim("dim")? } else { 0 };
                region.sent(v, (axis_at, along), &counts, room, name)
            }
            (Between::AllToAll, Some(_))
                if ["dim", "room"].iter().any(|key| call.argument(key).is_some()) =>
            {
                malformed(format!(
                    "{call}: `dim` and `room` need `counts`; without it, write `split` and `concat`"
                ))
            }
            (Between::AllToAll, Some(v)) => {
                region.exchanged(v, axis, parts("split")?, parts("concat")?, name)
            }
            (Between::Shift, Some(v)) => region.shifted(v, axis, number("by")?, name),
        }
    }
}
