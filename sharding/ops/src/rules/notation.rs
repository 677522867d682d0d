//! The notation of rules.
//!
//! ```text
//! rule       =  equation [ "{" item ("," | ";") .. "}" ]   |   strategy ["region"] ";" strategy ["region"] ..
//! equation   =  [operand "," ..] "->" operand "," ..
//! operand    =  dim ..  |  "()"  |  nothing                    a scalar
//! dim        =  letter | "(" letter letter .. ")" | "1" | "*" | "..."
//! item       =  letter ":" (op | "replicate" | "pass" | "even" | "region" | number) ..      a factor
//!            |  "..." ":" "region"                             the dims of the ellipsis
//!            |  "linear" | "multilinear" | "affine" | "increasing" | "decreasing" | "selecting"  [ "(" input "," .. ")" ]
//!            |  "writes" "(" input "," .. ")"  |  "out"        where outputs go
//!            |  "(" strategy ")"  |  "none"                    partial rules; another strategy, of R, P and S(letter)
//! ```
//!
//! A text is read into a [`RuleBuilder`], which has the defaults. A text all of whose operands are placements
//! or placeholders (`R`, `P`, `S(m0)`, `?0`) is a list of strategies.

use core::fmt;

use crate::Error;
use crate::rules::aliasing::OutputAliasing;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind, Slicing};
use crate::rules::partial_rule::{Operands, PartialRule};
use crate::rules::rule::{Equation, Form, Listed, Rule};
use crate::rules::strategy::Strategy;
use reshard_sharding::ReduceOp;
use reshard_sharding::internal::Cursor;

/// The keyword for dims that need their region.
const REGION: &str = "region";

pub(super) fn read(text: &str) -> Result<Rule, Error> {
    let mut r = Cursor::new("rule", text);
    let mut ahead = r.clone();
    if Strategy::read(&mut ahead).is_ok() && (ahead.is_done() || ahead.eat(";") || ahead.eat(REGION)) {
        return read_list(&mut r);
    }
    let mut rule = RuleBuilder::new();
    if !r.rest().starts_with("->") {
        rule = rule.input(read_operand(&mut r)?);
        while r.eat(",") {
            rule = rule.input(read_operand(&mut r)?);
        }
    }
    r.expect("->")?;
    rule = rule.output(read_operand(&mut r)?);
    while r.eat(",") {
        rule = rule.output(read_operand(&mut r)?);
    }
    if r.eat("{") {
        while !r.eat("}") {
            rule = read_item(&mut r, rule)?;
            let more = r.eat(",") || r.eat(";");
            if !more && !r.rest().starts_with('}') {
                return Err(r.error("\",\", \";\" or \"}\"").into());
            }
        }
    }
    r.finish()?;
    rule.build_from(text)
}

fn read_list(r: &mut Cursor<'_>) -> Result<Rule, Error> {
    let mut rows = Vec::new();
    while !r.is_done() {
        rows.push(Listed { strategy: Strategy::read(r)?, region: r.eat(REGION) });
        if !r.eat(";") {
            break;
        }
    }
    r.clone().finish()?;
    Rule::listed(rows)
}

fn read_operand(r: &mut Cursor<'_>) -> Result<Vec<Dim>, Error> {
    let mut dims = Vec::new();
    loop {
        if r.eat("...") {
            if dims.contains(&Dim::Rest) {
                return Err(r.error("one ellipsis in an operand").into());
            }
            dims.push(Dim::Rest);
        } else if r.eat("1") {
            dims.push(Dim::ONE);
        } else if r.eat("*") {
            dims.push(Dim::Whole);
        } else if r.eat("(") {
            let letters = r.take_while(|c| c.is_ascii_alphabetic());
            if !r.eat(")") {
                return Err(r.error("letters and \")\"").into());
            }
            // "()" is a scalar.
            if !letters.is_empty() {
                dims.push(Dim::compound(letters.chars()));
            }
        } else if let Some(c) = r.rest().chars().next().filter(char::is_ascii_alphabetic) {
            r.eat(&c.to_string());
            dims.push(Dim::from(c));
        } else {
            return Ok(dims);
        }
    }
}

fn read_item(r: &mut Cursor<'_>, rule: RuleBuilder) -> Result<RuleBuilder, Error> {
    let at = r.here();
    if r.eat("(") {
        let row = Strategy::read(r)?;
        r.expect(")")?;
        return Ok(rule.passing(PartialRule::Row(row)));
    }
    if r.eat("...") {
        r.expect(":")?;
        r.expect(REGION)?;
        return Ok(rule.regions([Dim::Rest]));
    }
    let word = r.take_while(|c| c.is_ascii_alphabetic());
    if word.len() == 1 && r.eat(":") {
        return match word.chars().next().filter(|&name| rule.names(name)) {
            Some(name) => read_factor(r, rule, name),
            None => Err(r.error_at(at, "a letter of the equation").into()),
        };
    }
    let make = match word {
        "none" => return Ok(rule.passings([])),
        "out" => return Ok(rule.aliasing(OutputAliasing::Out)),
        "writes" => {
            r.expect("(")?;
            return Ok(rule.aliasing(OutputAliasing::InPlace(read_inputs(r)?)));
        }
        "linear" => PartialRule::Linear,
        "multilinear" => PartialRule::Multilinear,
        "affine" => PartialRule::Affine,
        "increasing" => PartialRule::Increasing,
        "decreasing" => PartialRule::Decreasing,
        "selecting" => PartialRule::Selecting,
        _ => {
            return Err(r.error_at(
                at,
                "a factor like \"j: max\", \"...: region\", linear, multilinear, affine, increasing, decreasing, selecting, none, \
                 writes(0), out or a strategy in parentheses",
            ).into());
        }
    };
    let operands = if r.eat("(") { Operands::Listed(read_inputs(r)?) } else { Operands::All };
    Ok(rule.passing(make(operands)))
}

/// `0,2)`.
fn read_inputs(r: &mut Cursor<'_>) -> Result<Vec<usize>, Error> {
    let mut listed = vec![r.number("the number of an input")?];
    while r.eat(",") {
        listed.push(r.number("the number of an input")?);
    }
    r.expect(")")?;
    Ok(listed)
}

/// `max`, `replicate`, `even`, `region`, `4`, in any order.
fn read_factor(r: &mut Cursor<'_>, mut rule: RuleBuilder, name: char) -> Result<RuleBuilder, Error> {
    let mut read = 0;
    loop {
        let at = r.here();
        if r.rest().starts_with(|c: char| c.is_ascii_digit()) {
            rule = rule.size(name, r.number("a size")?);
        } else {
            let word = r.take_while(|c| c.is_ascii_alphabetic());
            // A norm has its exponent in its name.
            let exponent = if word == "norm" { r.take_while(|c| c.is_ascii_digit() || c == '.') } else { "" };
            rule = match word {
                "" if read > 0 => return Ok(rule),
                "replicate" => rule.role(name, FactorKind::NeedReplication),
                "pass" => rule.role(name, FactorKind::PassThrough),
                "even" => rule.even(name),
                REGION => rule.regions([name]),
                _ => match format!("{word}{exponent}").parse() {
                    Ok(op) => rule.role(name, FactorKind::Reduction(op)),
                    Err(_) => {
                        return Err(r
                            .error_at(at, "sum, avg, prod, min, max, a norm like norm2, replicate, pass, even, region or a size")
                            .into());
                    }
                },
            };
        }
        read += 1;
    }
}

pub(super) fn write(rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &*rule.0 {
        Form::List(rows) => {
            for (i, row) in rows.iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { "; " }, row.strategy)?;
                if row.region {
                    write!(f, " {REGION}")?;
                }
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
        dims.iter().try_for_each(|d| write!(f, "{d}"))
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
    for factor in &e.factors {
        let mut said = Vec::new();
        if factor.role != e.default_role(factor.name) {
            said.push(match factor.role {
                FactorKind::PassThrough => "pass".to_owned(),
                FactorKind::NeedReplication => "replicate".to_owned(),
                FactorKind::Reduction(op) => op.to_string(),
            });
        }
        // An average is even by default.
        if factor.slicing == Slicing::Even && factor.role != FactorKind::Reduction(ReduceOp::Avg) {
            said.push("even".to_owned());
        }
        if factor.region {
            said.push(REGION.to_owned());
        }
        said.extend(factor.size.map(|n| n.to_string()));
        if !said.is_empty() {
            items.push(format!("{}: {}", factor.name, said.join(" ")));
        }
    }
    if e.rest_region {
        items.push(format!("...: {REGION}"));
    }
    if e.partial_rules != e.default_passings() {
        items.extend(e.partial_rules.iter().map(ToString::to_string));
        if e.partial_rules.is_empty() {
            items.push("none".to_owned());
        }
    }
    if e.aliasing != OutputAliasing::New {
        items.push(e.aliasing.to_string());
    }
    if items.is_empty() {
        return Ok(());
    }
    f.write_str(" {")?;
    f.write_str(&items.join(", "))?;
    f.write_str("}")
}
