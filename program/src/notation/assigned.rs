//! Parser of assignments: results with optional types, and a call or the source of a redistribution.

use reshard_ops::rules::OpCall;

use reshard_sharding::internal::outside_brackets;

use crate::Error;
use crate::notation::malformed;

/// A parsed assignment, with values by name.
#[derive(Debug)]
pub(crate) struct Assigned<'t> {
    /// The results, with their declared types.
    pub(crate) made: Vec<(&'t str, Option<&'t str>)>,
    /// The right-hand side.
    pub(crate) from: From<'t>,
    /// The given strategy.
    pub(crate) by: Option<&'t str>,
}

/// The right-hand side of an assignment.
#[derive(Debug)]
pub(crate) enum From<'t> {
    /// The source of a redistribution: `y: S(0),R = x`.
    Value(&'t str),
    /// A call, with its operands.
    Call(OpCall, Vec<&'t str>),
}

impl<'t> Assigned<'t> {
    /// Parses `a: S(0),I; b = op(x, key=value)`, or `y: S(0),R = x`.
    pub(crate) fn read(made: &'t str, call: &'t str) -> Result<Assigned<'t>, Error> {
        let typed = made.contains(':');
        let (call, by) = call.split_once(" by ").map_or((call, None), |(call, by)| (call.trim(), Some(by)));
        let parts = made.split(if typed { ';' } else { ',' }).map(|part| match part.split_once(':') {
            None => (part.trim(), None),
            Some((name, text)) => (name.trim(), Some(text.trim())),
        });
        let parts: Vec<(&str, Option<&str>)> = parts.collect();
        let Some((callee, inside)) = called(call) else {
            if call.contains('(') {
                let shown: String = call.chars().take(80).collect();
                return malformed(format!(
                    "`{shown}`: a call has matching parentheses and ends with `)`, as in `mm(x, w)`"
                ));
            }
            let [(name, Some(_))] = parts.as_slice() else {
                return malformed(format!(
                    "`{made} = {call}`: a redistribution has one result with a type, as in `y: S(0),R = x`"
                ));
            };
            if let Some(by) = by {
                return malformed(format!(
                    "`{name} = {call} by {by}`: a redistribution has no strategy; remove `by {by}`"
                ));
            }
            return Ok(Assigned { made: parts, from: From::Value(call), by });
        };
        let (mut operands, mut arguments) = (Vec::new(), Vec::new());
        for item in outside_brackets(inside, ',') {
            match item {
                "" => {}
                item if item.contains('=') => arguments.push(item),
                item if !arguments.is_empty() => {
                    return malformed(format!(
                        "`{item}` comes after the arguments in `{call}`; write operands first"
                    ));
                }
                item => operands.push(item),
            }
        }
        let text = match arguments.as_slice() {
            [] => callee.trim().to_owned(),
            list => format!("{}({})", callee.trim(), list.join(",")),
        };
        Ok(Assigned { made: parts, from: From::Call(text.parse()?, operands), by })
    }
}

/// Splits a call into the callee and the text between the last pair of parentheses.
fn called(text: &str) -> Option<(&str, &str)> {
    let body = text.strip_suffix(')')?;
    let mut depth = 0usize;
    for (at, c) in body.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 => return Some((&body[..at], &body[at + 1..])),
            '(' => depth -= 1,
            _ => {}
        }
    }
    None
}
