//! The text format of graphs, one statement a line: a file format.
//!
//! ```text
//! mesh dp=2,tp=2                         the mesh, first
//! mesh experts: ep=4                     another mesh over ranks of the first, by name
//! x: f32[4,8,16] S(1),R                  an input: its element type, shape and type
//! w: f32[8,64] ?                         an input of an open type, for the parallelizer; `S(0),?` is open along one axis
//! h = mk,kn->mn(x, w)                    a call of the table or of a rule, with operands, then arguments
//! y: S(0),I = sum(h, dims=[1])           a call with a sharding constraint on its result
//! c: i64[4] R = arange(size=4)           a call with another dtype than its operands; f32 without operands
//! a, b = split(h, dim=0)                 several results; with types they are separated by ";"
//! z: S(0),R = y                          a redistribution
//! r: R via bf16 = y                      a redistribution that sends bf16, and adds in the dtype of y
//! e: S(0) on experts = y                 a redistribution to another mesh; without "on", types are on the first
//! t: inner S(0),R = mul(s, c)            a value inside one kernel of a framework, never in memory
//! gradient loss wrt w, b                 defines dw and db; without "wrt", for all inputs that have a gradient
//! gradient other wrt w, b as e, f        defines e and f
//! v = mm(x, w) by S(0),R; R -> S(0),R     a given strategy: the shardings of inputs and outputs
//! u: R,_ = y                             a redistribution along dp; along tp like y
//! v = mm(x, w) by _,R; _,S(1) -> _,S(1)   a given strategy along tp
//! no_grad                                values below have no gradient
//! local tp                               the lines to "end" are per-device code (see `shard_map/text.rs`)
//! repeat 24                              the lines to "end" 24 times, each with its own values (see `repeat.rs`)
//! # ..                                   a comment, to the end of the line
//! ```

pub(crate) mod assigned;
mod write;

pub(crate) use write::call_text;

use std::str::FromStr;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::rules::OpTable;
use reshard_sharding::{Mesh, ShardingType};

use crate::Error;
use crate::graph::{Graph, ValueId, gradient_name};
use crate::local_type;
use crate::notation::assigned::{Assigned, From};
use crate::one_rank::WideText;
use crate::repeat::{Block, Scope};
use crate::shard_map::Regions;

/// The maximum length of a program text, in bytes.
const LONGEST: usize = 1 << 26;

impl Graph {
    /// Parses a graph with the ops of a table.
    ///
    /// Returns an error with the line and the reason.
    pub fn parse(table: Arc<OpTable>, text: &str) -> Result<Graph, Error> {
        Graph::parse_with_axes(table, text, &[])
    }

    /// Parses a graph with other sizes of some axes of its first mesh.
    ///
    /// Use it to check at scale: a program valid for `dp=1` may be invalid for `dp=64`.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// use reshard_program::Graph;
    /// let text = "mesh dp=1,tp=2\nx: f32[64] S(0),R";
    /// let graph = Graph::parse_with_axes(OpTable::standard().into(), text, &[("dp", 64)])?;
    /// assert_eq!(graph.mesh().to_string(), "dp=64,tp=2");
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error for an axis that is not in the mesh, for a mesh whose ranks are not in order, and if
    /// the text has further meshes for another number of ranks.
    pub fn parse_with_axes(table: Arc<OpTable>, text: &str, sizes: &[(&str, usize)]) -> Result<Graph, Error> {
        let mut graph = Graph::read(Arc::clone(&table), text, sizes)?;
        graph.wide = WideText::of(&graph, |sizes| Graph::read(table, text, sizes).ok(), sizes);
        Ok(graph)
    }

    /// Parses a graph on another mesh than the first one of its text.
    ///
    /// Types that are open along all axes (`?`) fit any mesh.
    ///
    /// Returns an error as [`parse`](Graph::parse) does.
    pub fn parse_on(table: Arc<OpTable>, text: &str, mesh: &Mesh) -> Result<Graph, Error> {
        let Some((first, _)) = statements_of(text).next() else { return Graph::parse(table, text) };
        let other = |(n, line): (usize, &str)| {
            if n + 1 == first { format!("mesh {mesh}") } else { line.to_owned() }
        };
        let lines: Vec<String> = text.lines().enumerate().map(other).collect();
        Graph::parse(table, &lines.join("\n"))
    }

    /// Returns the number of devices of a text that begins with `mesh devices=N`, a mesh that is to be chosen.
    pub fn open_devices(text: &str) -> Option<usize> {
        let (_, first) = statements_of(text).next()?;
        first.strip_prefix("mesh ")?.trim().strip_prefix("devices=")?.parse().ok()
    }

    fn read(table: Arc<OpTable>, text: &str, sizes: &[(&str, usize)]) -> Result<Graph, Error> {
        if text.len() > LONGEST {
            let reason = format!("a program has at most {LONGEST} bytes, but this one has {}", text.len());
            return Err(Error::Parse { reason }.on(1));
        }
        let mut lines = statements_of(text);
        let wrong = |line: usize, reason: String| Error::Parse { reason }.on(line);
        let Some((number, first)) = lines.next() else {
            return Err(wrong(
                1,
                "the program is empty; begin it with a mesh, such as `mesh dp=2,tp=4`".to_owned(),
            ));
        };
        let mesh = first.strip_prefix("mesh ").ok_or_else(|| {
            wrong(
                number,
                format!("{first:?} is not a mesh; begin the program with one, such as `mesh dp=2,tp=4`"),
            )
        })?;
        let mesh: Mesh = mesh.trim().parse().map_err(|e: reshard_sharding::Error| {
            let named = mesh.split_once(':').filter(|(name, _)| !name.contains('='));
            wrong(
                number,
                match named {
                    Some((name, rest)) => format!(
                        "the first mesh has all ranks and no name; write `mesh {}` above `mesh {}:{rest}`",
                        rest.trim(),
                        name.trim()
                    ),
                    None => e.to_string(),
                },
            )
        })?;
        let ranks = mesh.size();
        let mesh = resized(mesh, sizes).map_err(|reason| wrong(number, reason))?;
        let mut graph = Graph::with_table(&mesh, table);
        let mut scope = Scope::default();
        let mut block: Option<Block<'_>> = None;
        let mut regions = Regions::default();
        let mut begun_at = 0;
        for (number, line) in lines {
            if let Some(open) = &mut block {
                if Block::begun(number, line).is_some() || line.starts_with("mesh ") || line == "no_grad" {
                    return Err(wrong(number, format!("{line:?} is not allowed between `repeat` and `end`")));
                }
                if line != "end" || open.is_in_region() {
                    open.add(number, line);
                    continue;
                }
                scope.counts(open).map_err(|e| e.on(open.line))?;
                for layer in 0..open.times() {
                    scope.enter(open, layer);
                    for &(number, line) in &open.body {
                        let mut read = || -> Result<(), Error> {
                            if regions.line(&mut graph, &mut scope, line)? {
                                return Ok(());
                            }
                            statement(&mut graph, &mut scope, line)
                        };
                        read().map_err(|e| e.on(number))?;
                    }
                }
                scope.leave();
                block = None;
                continue;
            }
            if regions.innermost().is_none() {
                begun_at = number;
            }
            if regions.line(&mut graph, &mut scope, line).map_err(|e| e.on(number))? {
                continue;
            }
            if let Some(begun) = Block::begun(number, line) {
                block = Some(begun?);
                continue;
            }
            match line.strip_prefix("mesh ").map(str::trim).filter(|rest| rest.starts_with(begins_a_mesh)) {
                Some(rest) if mesh.size() == ranks => {
                    further_mesh(&mut graph, rest).map_err(|e| e.on(number))?;
                }
                Some(rest) => {
                    let reason = format!(
                        "with these sizes the first mesh {mesh} has {} ranks, but `mesh {rest}` is for {ranks}; write the sizes of \
                         all meshes in the program",
                        mesh.size()
                    );
                    return Err(wrong(number, reason));
                }
                None => statement(&mut graph, &mut scope, line).map_err(|e| e.on(number))?,
            }
        }
        if let Some(region) = regions.innermost() {
            return Err(wrong(begun_at, format!("`{region}` has no end; write `end` below its lines")));
        }
        match block {
            None => Ok(graph),
            Some(open) => {
                Err(wrong(open.line, "`repeat` has no end; write `end` below the repeated lines".to_owned()))
            }
        }
    }
}

impl FromStr for Graph {
    type Err = Error;
    fn from_str(text: &str) -> Result<Graph, Error> {
        Graph::parse(Arc::new(OpTable::standard()), text)
    }
}

/// Returns the lines of a text with their numbers, without comments and empty lines.
fn statements_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines =
        text.lines().enumerate().map(|(n, line)| (n + 1, line.split('#').next().unwrap_or("").trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// Returns a mesh with other sizes of some axes, or the reason why there is none.
fn resized(mesh: Mesh, sizes: &[(&str, usize)]) -> Result<Mesh, String> {
    if sizes.is_empty() {
        return Ok(mesh);
    }
    let axes = mesh.axes().iter().map(|axis| (axis.name().as_str(), axis.size()));
    let mut axes: Vec<(&str, usize)> = axes.collect();
    if Mesh::new(axes.iter().copied()).ok().as_ref() != Some(&mesh) {
        return Err(format!(
            "mesh {mesh} lists its ranks, so its axes cannot be resized; write the sizes in the program"
        ));
    }
    for &(name, size) in sizes {
        let axis = mesh.axis(name).map_err(|e| e.to_string())?;
        axes[axis].1 = size;
    }
    Mesh::new(axes).map_err(|e| e.to_string())
}

/// Returns `true` if the character can start a mesh, which excludes a statement on a value named `mesh`.
fn begins_a_mesh(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '<'
}

/// Parses a further mesh: `experts: ep=4`.
fn further_mesh(graph: &mut Graph, text: &str) -> Result<(), Error> {
    let form =
        || format!("`mesh {text}` has no name; meshes after the first need one, as in `mesh experts: ep=4`");
    let Some((name, mesh)) = text.split_once(':').filter(|(name, _)| !name.contains('=')) else {
        return malformed(form());
    };
    let mesh: Mesh = mesh.trim().parse().map_err(|e| Error::of(&format!("mesh {}", name.trim()), e))?;
    graph.add_mesh(name.trim(), &mesh)
}

pub(crate) fn refused<T>(reason: String) -> Result<T, Error> {
    Err(Error::Graph { reason })
}

/// Returns the error of a text that is not a statement. A statement that a graph rejects has the graph's error.
pub(crate) fn malformed<T>(reason: String) -> Result<T, Error> {
    Err(Error::Parse { reason })
}

fn statement(graph: &mut Graph, scope: &mut Scope, line: &str) -> Result<(), Error> {
    if line == "no_grad" {
        graph.no_grad();
        return Ok(());
    }
    if let Some(rest) = line.strip_prefix("gradient ") {
        return gradient(graph, scope, rest);
    }
    match equals(line) {
        Some((made, call)) => assignment(graph, scope, made.trim(), call.trim()),
        None => input(graph, scope, line),
    }
}

/// Splits an assignment at its `=`.
///
/// It is the first outside brackets after a space, because types may contain others; without a type it is the
/// first.
pub(crate) fn equals(line: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    let mut first = None;
    for (at, c) in line.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '=' if depth == 0 => {
                first = first.or_else(|| (!line[..at].contains(':')).then_some(at));
                if line[..at].ends_with(' ') {
                    return Some((&line[..at], &line[at + 1..]));
                }
            }
            _ => {}
        }
    }
    first.map(|at| (&line[..at], &line[at + 1..]))
}

/// Parses an input: `x: f32[4,8] S(0),R`.
fn input(graph: &mut Graph, scope: &mut Scope, line: &str) -> Result<(), Error> {
    let form = || {
        format!(
            "{line:?} is not a statement; write `x: f32[4,8] S(0),R` or `y = op(x)`, with a space before `=`"
        )
    };
    let Some((name, rest)) = line.split_once(':') else { return malformed(form()) };
    if let Some((dtype, _)) = rest.split_once('[')
        && let Err(e) = dtype.trim().parse::<DType>()
    {
        return malformed(format!("{}: {e}", name.trim()));
    }
    let (Some((dtype, shape)), text) = elements(name.trim(), rest)? else { return malformed(form()) };
    if text.is_empty() {
        return malformed(format!(
            "input `{}` has no type; write its sharding, such as `S(0),R`",
            name.trim()
        ));
    }
    if local_type::read_open(text, graph.mesh())?.is_some() {
        return graph.input(&scope.makes(name.trim(), true), dtype, &shape, text).map(|_| ());
    }
    let is = read(graph, scope, name.trim(), &shape, text)?;
    graph.input_with_type(&scope.makes(name.trim(), true), dtype, is).map(|_| ())
}

/// An element type and a shape: `f32[4,8]`.
type Elements = (DType, Vec<usize>);

/// Parses the optional element type and shape before a type: `f32[4,8] S(0),R`.
fn elements<'t>(name: &str, text: &'t str) -> Result<(Option<Elements>, &'t str), Error> {
    let none = (None, text.trim());
    let Some((dtype, rest)) = text.split_once('[') else { return Ok(none) };
    let Ok(dtype) = dtype.trim().parse::<DType>() else { return Ok(none) };
    let Some((sizes, rest)) = rest.split_once(']') else {
        return malformed(format!("`{name}`: the shape after {dtype} has no closing `]`"));
    };
    let shape: Option<Vec<usize>> = match sizes.trim() {
        "" => Some(Vec::new()),
        sizes => sizes.split(',').map(|n| n.trim().parse().ok()).collect(),
    };
    match shape {
        Some(shape) => Ok((Some((dtype, shape)), rest.trim())),
        None => malformed(format!("`{name}`: invalid shape `[{sizes}]`; write sizes such as `[4,8]`")),
    }
}

/// Parses a type; below `no_grad` it may have no cotangent, such as partial values of an average.
fn read(
    graph: &Graph,
    scope: &mut Scope,
    name: &str,
    shape: &[usize],
    text: &str,
) -> Result<ShardingType, Error> {
    scope.read(shape, text, || match graph.type_of(name, shape, text) {
        Err(_) if graph.is_marked() => graph.sharding_of(name, shape, text),
        other => other,
    })
}

/// Returns the error of an `inner` value that is redistributed.
fn sent_from_kernel(name: &str) -> String {
    format!("`{name}` is redistributed, so it is in memory; remove `inner`")
}

/// Splits `inner` from the type after it; returns `true` if it is there.
fn inner_of(text: &str) -> (bool, &str) {
    match text.strip_prefix("inner") {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => (true, rest.trim_start()),
        Some(_) | None => (false, text),
    }
}

/// Splits a type from its communication dtype, if there is one: `S(0),R via bf16`.
pub(crate) fn wire_of(text: &str) -> Result<(&str, Option<DType>), Error> {
    match text.split_once(" via ") {
        None => Ok((text, None)),
        Some((is, via)) => Ok((is.trim(), Some(wire(via.trim())?))),
    }
}

/// Parses a communication dtype.
pub(crate) fn wire(via: &str) -> Result<DType, Error> {
    via.parse().map_err(|_| Error::Parse {
        reason: format!("unknown dtype `{via}` after `via`; write one such as `via bf16`"),
    })
}

/// Parses `a: S(0),I; b = op(x, key=value)`, or `y: S(0),R = x`.
fn assignment(graph: &mut Graph, scope: &mut Scope, made: &str, call: &str) -> Result<(), Error> {
    let Assigned { made: parts, from, by } = Assigned::read(made, call)?;
    let (call, operands) = match (from, parts.as_slice()) {
        (From::Call(call, operands), _) => (call, operands),
        (From::Value(from), [(name, Some(text))]) => {
            let from = scope.takes(graph, from)?;
            let (inner, text) = inner_of(text);
            let (text, via) = wire_of(text)?;
            let along = local_type::read(text, graph.mesh())?;
            if inner && (via.is_some() || along.is_some()) {
                return malformed(sent_from_kernel(name));
            }
            if let Some(along) = along {
                return graph.moved_along(from, &scope.makes(name, false), along, via).map(|_| ());
            }
            let is = read(graph, scope, name, graph.shape(from), text)?;
            if inner && !graph.values[from.0].inner {
                let source = graph.name(from);
                return malformed(format!("`{source}` is in memory, and so is `{name}`; remove `inner`"));
            }
            let made = graph.redistribute_as(from, &scope.makes(name, false), is, via)?;
            graph.values[made.0].inner = inner;
            return Ok(());
        }
        (From::Value(from), _) => {
            return malformed(format!(
                "a redistribution of `{from}` has one result with a type, as in `y: S(0),R = {from}`"
            ));
        }
    };
    let operands: Vec<ValueId> =
        operands.into_iter().map(|name| scope.takes(graph, name)).collect::<Result<_, _>>()?;
    let names: Vec<String> = parts.iter().map(|(name, _)| scope.makes(name, false)).collect();
    let said = parts.iter().map(|(_, text)| text.map_or(Ok(("", None)), wire_of));
    let said: Vec<(&str, Option<DType>)> = said.collect::<Result<_, _>>()?;
    // The value before a redistribution in a communication dtype gets a generated name.
    let made: Vec<String> = (names.iter().zip(&said))
        .map(|(name, (_, via))| if via.is_some() { graph.fresh(name) } else { name.clone() })
        .collect();
    let made: Vec<&str> = made.iter().map(String::as_str).collect();
    let outputs = graph.apply(&call, &operands, &made)?;
    for (((name, _), full), (&output, &(text, via))) in
        parts.iter().zip(&names).zip(outputs.iter().zip(&said))
    {
        let (inner, text) = inner_of(text);
        if inner && via.is_some() {
            return malformed(sent_from_kernel(name));
        }
        graph.values[output.0].inner = inner;
        let (elements, text) = elements(name, text)?;
        if let Some((dtype, shape)) = elements {
            let made = graph.dtype(output);
            if shape != graph.shape(output) || !graph.may_be(made, dtype, &operands) {
                return refused(format!(
                    "`{name}` is declared {dtype}{shape:?}, but {call} gives {made}{:?}",
                    graph.shape(output)
                ));
            }
            graph.values[output.0].dtype = dtype;
        }
        if via.is_some() {
            let is = read(graph, scope, name, graph.shape(output), text)?;
            graph.redistribute_as(output, full, is, via)?;
        } else if !text.is_empty() {
            let is = read(graph, scope, name, graph.shape(output), text)?;
            graph.constrain(output, is)?;
        }
    }
    let (Some(by), Some(&output)) = (by, outputs.first()) else { return Ok(()) };
    let Some((takes, makes)) = by.split_once("->") else {
        return malformed(format!(
            "`by {by}` has no `->`; write the shardings of inputs and outputs, as in `by R; S(1) -> S(1)`"
        ));
    };
    let takes: Vec<&str> = Some(takes.trim())
        .filter(|takes| !takes.is_empty())
        .into_iter()
        .flat_map(|takes| takes.split(';'))
        .map(str::trim)
        .collect();
    let makes: Vec<&str> = makes.split(';').map(str::trim).collect();
    graph.strategy(output, &takes, &makes)
}

/// Parses `loss wrt w, b`, or `loss wrt w, b as e, f`.
fn gradient(graph: &mut Graph, scope: &mut Scope, text: &str) -> Result<(), Error> {
    if scope.is_in_layer() {
        return malformed(format!(
            "`gradient {text}` is not allowed between `repeat` and `end`; write it below `end`"
        ));
    }
    let (text, names) = text.split_once(" as ").map_or((text, None), |(text, names)| (text, Some(names)));
    let (loss, wrt) = match text.split_once(" wrt ") {
        None => (text.trim(), None),
        Some((loss, wrt)) => (loss.trim(), Some(wrt)),
    };
    if text.trim_end().ends_with(" wrt") {
        return malformed(format!(
            "`gradient {text}` has no values after `wrt`; write them, as in `gradient loss wrt w`"
        ));
    }
    let loss = scope.takes(graph, loss)?;
    let list = |text: &str| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let Some(wrt) = wrt else {
        if names.is_some() {
            return malformed(
                "names after `as` need values after `wrt`; write both, as in `gradient loss wrt w as g`"
                    .to_owned(),
            );
        }
        let all: Vec<ValueId> = graph.inputs().filter(|&v| graph.has_own_gradient(v)).collect();
        for &v in &all {
            scope.gradient_of(graph.name(v), &gradient_name(graph.name(v)));
        }
        return graph.gradient(loss, &all).map(|_| ());
    };
    let wrt = list(wrt);
    let names = names.map_or_else(|| wrt.iter().map(|name| gradient_name(name)).collect(), list);
    if names.len() != wrt.len() {
        return malformed(format!(
            "there are {} values after `wrt` but {} names after `as`; write one name for each",
            wrt.len(),
            names.len()
        ));
    }
    let (mut values, mut called) = (Vec::new(), Vec::new());
    for (name, d) in wrt.iter().zip(&names) {
        for v in scope.all(graph, name)? {
            // The gradient of a layer's value belongs to that layer.
            let full = graph.name(v);
            let of = format!("{d}{}", full.strip_prefix(name.as_str()).unwrap_or_default());
            scope.gradient_of(full, &of);
            values.push(v);
            called.push(of);
        }
    }
    let called: Vec<&str> = called.iter().map(String::as_str).collect();
    graph.gradient_as(loss, &values, &called).map(|_| ())
}
