//! The notation of rules.
//!
//! ```text
//! rule       =  equation [ "{" item ("," | ";") .. "}" ]   |   strategy ";" strategy ..
//! equation   =  [operand "," ..] "->" operand "," ..
//! operand    =  dim ..  |  "()"  |  nothing                    a scalar
//! dim        =  letter | "(" letter letter .. ")" | "1" | "*" | "..."
//! item       =  letter ":" (op | "replicate" | "pass" | "even" | number) ..      a factor
//!            |  "linear" | "multilinear" | "affine" | "increasing" | "decreasing" | "selecting"  [ "(" input "," .. ")" ]
//!            |  "(" strategy ")"  |  "none"                    how terms pass; a strategy more, of R, P and S(letter)
//! ```
//!
//! Without a word on them: a factor that some output lacks is summed; an equation of sums only is `multilinear`, as
//! einsum is; one that reduces its only input by another op lets the terms of that op pass; any other lets none pass.
//! A text all of whose operands are placements or placeholders (`R`, `P`, `S(m0)`, `?0`) is a list of strategies.

use core::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::rules::factor::{Dim, Factor, Role, Slicing};
use crate::rules::passing::{Operands, Passing};
use crate::rules::rule::{Equation, Form, Rule};
use crate::rules::strategy::{Part, Strategy};
use reshard_sharding::ReduceOp;
use reshard_sharding::internal::Cursor;

pub(super) fn read(text: &str) -> Result<Rule, Error> {
    let mut r = Cursor::new("rule", text);
    let mut ahead = r.clone();
    if Strategy::read(&mut ahead).is_ok() && (ahead.is_done() || ahead.eat(";")) {
        return read_list(&mut r);
    }
    let mut draft = Draft::default();
    let inputs = if r.rest().starts_with("->") { Vec::new() } else { draft.operands(&mut r)? };
    r.expect("->")?;
    let outputs = draft.operands(&mut r)?;
    let mut equation = draft.equation(inputs, outputs);
    let mut passings = None;
    if r.eat("{") {
        while !r.eat("}") {
            read_item(&mut r, &mut equation, &mut passings)?;
            let more = r.eat(",") || r.eat(";");
            if !more && !r.rest().starts_with('}') {
                return Err(r.error("\",\", \";\" or \"}\"").into());
            }
        }
    }
    r.finish()?;
    equation.passings = passings.unwrap_or_else(|| by_default(&equation));
    check(text, &equation)?;
    Ok(Rule(Arc::new(Form::Equation(equation))))
}

fn read_list(r: &mut Cursor<'_>) -> Result<Rule, Error> {
    let mut rows = Vec::new();
    while !r.is_done() {
        rows.push(Strategy::read(r)?);
        if !r.eat(";") {
            break;
        }
    }
    r.clone().finish()?;
    Rule::from_strategies(rows)
}

/// The letters read so far.
#[derive(Default)]
struct Draft {
    names: Vec<char>,
}

impl Draft {
    fn operands(&mut self, r: &mut Cursor<'_>) -> Result<Vec<Vec<Dim>>, Error> {
        let mut out = vec![self.operand(r)?];
        while r.eat(",") {
            out.push(self.operand(r)?);
        }
        Ok(out)
    }

    fn operand(&mut self, r: &mut Cursor<'_>) -> Result<Vec<Dim>, Error> {
        let mut dims = Vec::new();
        loop {
            if r.eat("...") {
                if dims.contains(&Dim::Rest) {
                    return Err(r.error("one ellipsis in an operand").into());
                }
                dims.push(Dim::Rest);
            } else if r.eat("1") {
                dims.push(Dim::Factors(SmallVec::new()));
            } else if r.eat("*") {
                dims.push(Dim::Whole);
            } else if r.eat("(") {
                let letters = r.take_while(|c| c.is_ascii_alphabetic());
                if !r.eat(")") {
                    return Err(r.error("letters and \")\"").into());
                }
                // "()" is a scalar.
                if !letters.is_empty() {
                    dims.push(Dim::Factors(letters.chars().map(|c| self.factor(c)).collect()));
                }
            } else if let Some(c) = r.rest().chars().next().filter(char::is_ascii_alphabetic) {
                r.eat(&c.to_string());
                let factor = self.factor(c);
                dims.push(Dim::Factors(SmallVec::from_slice(&[factor])));
            } else {
                return Ok(dims);
            }
        }
    }

    fn factor(&mut self, name: char) -> usize {
        self.names.iter().position(|&n| n == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// Sorts the factors: those of outputs first, in their order; and gives them their roles.
    fn equation(self, mut inputs: Vec<Vec<Dim>>, mut outputs: Vec<Vec<Dim>>) -> Equation {
        let mut order: Vec<usize> = Vec::new();
        for dims in outputs.iter().chain(&inputs) {
            for dim in dims {
                if let Dim::Factors(list) = dim {
                    list.iter().for_each(|&x| {
                        if !order.contains(&x) {
                            order.push(x);
                        }
                    });
                }
            }
        }
        let place = |x: usize| order.iter().position(|&o| o == x).unwrap_or(0);
        for dims in inputs.iter_mut().chain(&mut outputs) {
            for dim in dims {
                if let Dim::Factors(list) = dim {
                    list.iter_mut().for_each(|x| *x = place(*x));
                }
            }
        }
        let factors = order
            .iter()
            .enumerate()
            .map(|(x, &old)| {
                let everywhere = outputs.iter().all(|dims| Equation::carries(dims, x));
                let role = if everywhere { Role::Pass } else { Role::Reduce(ReduceOp::Sum) };
                Factor { name: self.names[old], role, slicing: Slicing::Any, size: None }
            })
            .collect();
        Equation { factors, inputs, outputs, passings: Vec::new() }
    }
}

fn read_item(
    r: &mut Cursor<'_>,
    equation: &mut Equation,
    passings: &mut Option<Vec<Passing>>,
) -> Result<(), Error> {
    let at = r.here();
    if r.eat("(") {
        let row = Strategy::read(r)?;
        r.expect(")")?;
        passings.get_or_insert_with(Vec::new).push(Passing::Row(row));
        return Ok(());
    }
    let word = r.take_while(|c| c.is_ascii_alphabetic());
    if word.len() == 1 && r.eat(":") {
        let name = word.chars().next().unwrap_or_default();
        let Some(factor) = equation.factors.iter_mut().find(|f| f.name == name) else {
            return Err(r.error_at(at, "a letter of the equation").into());
        };
        return read_factor(r, factor);
    }
    let list = passings.get_or_insert_with(Vec::new);
    let make = match word {
        "none" => return Ok(()),
        "linear" => Passing::Linear,
        "multilinear" => Passing::Multilinear,
        "affine" => Passing::Affine,
        "increasing" => Passing::Increasing,
        "decreasing" => Passing::Decreasing,
        "selecting" => Passing::Selecting,
        _ => {
            return Err(r.error_at(
                at,
                "a factor like \"j: max\", linear, multilinear, affine, increasing, decreasing, selecting, none or a \
                 strategy in parentheses",
            ).into());
        }
    };
    let operands = if r.eat("(") {
        let mut listed = vec![r.number("the number of an input")?];
        while r.eat(",") {
            listed.push(r.number("the number of an input")?);
        }
        r.expect(")")?;
        Operands::Listed(listed)
    } else {
        Operands::All
    };
    list.push(make(operands));
    Ok(())
}

/// `max`, `replicate`, `even`, `4`, in any order.
fn read_factor(r: &mut Cursor<'_>, factor: &mut Factor) -> Result<(), Error> {
    let mut read = 0;
    loop {
        let at = r.here();
        if r.rest().starts_with(|c: char| c.is_ascii_digit()) {
            factor.size = Some(r.number("a size")?);
        } else {
            let word = r.take_while(|c| c.is_ascii_alphabetic());
            match word {
                "" if read > 0 => return Ok(()),
                "replicate" => factor.role = Role::Replicate,
                "pass" => factor.role = Role::Pass,
                "even" => factor.slicing = Slicing::Even,
                _ => match word.parse() {
                    Ok(op) => {
                        factor.role = Role::Reduce(op);
                        if op == ReduceOp::Avg {
                            factor.slicing = Slicing::Even;
                        }
                    }
                    Err(_) => {
                        return Err(r
                            .error_at(at, "sum, avg, prod, min, max, replicate, pass, even or a size")
                            .into());
                    }
                },
            }
        }
        read += 1;
    }
}

/// The role of a factor that nothing was said about.
fn role_by_default(equation: &Equation, factor: usize) -> Role {
    if equation.outputs.iter().all(|dims| Equation::carries(dims, factor)) {
        Role::Pass
    } else {
        Role::Reduce(ReduceOp::Sum)
    }
}

/// How terms pass if nothing was said.
fn by_default(equation: &Equation) -> Vec<Passing> {
    let replicates = equation.factors.iter().any(|f| f.role == Role::Replicate)
        || equation.inputs.iter().chain(&equation.outputs).flatten().any(|d| *d == Dim::Whole);
    let mut ops: Vec<ReduceOp> = Vec::new();
    for f in &equation.factors {
        if let Role::Reduce(op) = f.role {
            ops.push(op.combining());
        }
    }
    ops.dedup();
    if replicates || equation.inputs.is_empty() {
        return Vec::new();
    }
    match ops.as_slice() {
        [] | [ReduceOp::Sum] => vec![Passing::Multilinear(Operands::All)],
        [op] if equation.inputs.len() == 1 => {
            let row = Strategy {
                inputs: vec![Part::Partial(*op)],
                outputs: vec![Part::Partial(*op); equation.outputs.len()],
            };
            vec![Passing::Row(row)]
        }
        _ => Vec::new(),
    }
}

/// Refuses what no op can mean.
fn check(text: &str, e: &Equation) -> Result<(), Error> {
    let bad = |reason: String| Err(Error::Rule { reason: format!("{text:?}: {reason}") });
    for (x, f) in e.factors.iter().enumerate() {
        let lacking = e.outputs.iter().any(|dims| !Equation::carries(dims, x));
        match f.role {
            Role::Pass if lacking => {
                return bad(format!(
                    "an output lacks {0}, so that {0} cannot pass: say how it is reduced, like {{{0}: sum}}",
                    f.name
                ));
            }
            Role::Reduce(op) if !lacking => {
                return bad(format!("{0} cannot be reduced by {op}: every output carries it", f.name));
            }
            Role::Reduce(ReduceOp::Avg) if f.slicing == Slicing::Any => {
                return bad(format!("an average over {} needs equal parts: say even", f.name));
            }
            Role::Pass | Role::Reduce(_) | Role::Replicate => {}
        }
    }
    let inputs = e.inputs.len();
    for p in &e.passings {
        if let Some(i) = p.listed().iter().find(|&&i| i >= inputs) {
            return bad(format!("{p} names input {i}, but there are {inputs}, counted from 0"));
        }
        if let Passing::Row(row) = p {
            if (row.inputs.len(), row.outputs.len()) != (inputs, e.outputs.len()) {
                return bad(format!("({row}) has not as many operands as the equation"));
            }
            let operands = e.inputs.iter().chain(&e.outputs);
            for (part, dims) in row.inputs.iter().chain(&row.outputs).zip(operands) {
                match part {
                    Part::Replicate | Part::Partial(_) => {}
                    Part::Factor(name) => {
                        let x = e.factors.iter().position(|f| f.name == *name);
                        if !x.is_some_and(|x| Equation::carries(dims, x) && !e.is_diagonal(x)) {
                            return bad(format!("{part} in ({row}): the operand has no {name} to shard"));
                        }
                    }
                    Part::Dim { .. } | Part::Fixed(_) => {
                        return bad(format!(
                            "{part} in ({row}): a strategy in braces has only R, P and S(letter)"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) fn write(rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &*rule.0 {
        Form::List(rows) => {
            for (i, row) in rows.iter().enumerate() {
                write!(f, "{}{row}", if i == 0 { "" } else { "; " })?;
            }
            Ok(())
        }
        Form::Equation(e) => write_equation(e, f),
    }
}

fn write_equation(e: &Equation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let operand = |f: &mut fmt::Formatter<'_>, dims: &[Dim], alone: bool| {
        if dims.is_empty() && !alone {
            return f.write_str("()");
        }
        dims.iter().try_for_each(|d| d.write(f, &e.factors))
    };
    for (i, dims) in e.inputs.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { "," })?;
        operand(f, dims, false)?;
    }
    f.write_str("->")?;
    for (i, dims) in e.outputs.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { "," })?;
        operand(f, dims, e.outputs.len() == 1)?;
    }
    let mut items: Vec<String> = Vec::new();
    for (x, factor) in e.factors.iter().enumerate() {
        let mut said = Vec::new();
        if factor.role != role_by_default(e, x) {
            said.push(match factor.role {
                Role::Pass => "pass".to_owned(),
                Role::Replicate => "replicate".to_owned(),
                Role::Reduce(op) => op.to_string(),
            });
        }
        // An average is even without a word.
        if factor.slicing == Slicing::Even && factor.role != Role::Reduce(ReduceOp::Avg) {
            said.push("even".to_owned());
        }
        said.extend(factor.size.map(|n| n.to_string()));
        if !said.is_empty() {
            items.push(format!("{}: {}", factor.name, said.join(" ")));
        }
    }
    if e.passings != by_default(e) {
        items.extend(e.passings.iter().map(ToString::to_string));
        if e.passings.is_empty() {
            items.push("none".to_owned());
        }
    }
    if items.is_empty() {
        return Ok(());
    }
    f.write_str(" {")?;
    f.write_str(&items.join(", "))?;
    f.write_str("}")
}
