//! Checks that the suggestion of an error works.
//!
//! ```text
//! .. has no end; write `end` below its lines              the fix of the case contains it
//! y = mm(x, w): ..; write `y.1: P = mm(x, w)` and `..`    these lines replace the statement
//! ..; redistribute input 1 to [R,S(1)] (6.7 us, ..)       the sharding replaces that of the input
//! ..: redistribute to S(0) first, ..                      the view has this sharding
//! ```

use super::files::{Run, sentence};
use crate::program::reshard_with;

/// The most errors of one program, each with a suggestion.
const MOST: usize = 8;

/// The words before a text in backticks that is an example.
const EXAMPLES: [&str; 3] = ["such as", "as in", "like"];

/// Checks that a suggested redistribution works, and that any other suggestion has a fix.
pub(super) fn applied(run: &Run, words: &[String], input: &str) -> Result<(), String> {
    let is_missing =
        matches!(run.kind.as_deref(), Some("needs_redistribute" | "needs_gradient_redistribute"));
    if !is_missing {
        return match after_write(&run.message) {
            None => Ok(()),
            Some(_) => Err("it suggests what to write, so its case needs a line `fix: ..`".to_owned()),
        };
    }
    if run.message.contains("no redistribution of the inputs helps") {
        return Ok(());
    }
    let (mut words, mut input, mut message) = (words.to_vec(), input.to_owned(), run.message.clone());
    for _ in 0..MOST {
        let Some(next) = redistributed(&words, &input, &message) else {
            return Err(format!("no redistribution can be read from `{message}`; add a line `fix: ..`"));
        };
        (words, input) = next;
        let outcome = reshard_with(&words, &input);
        if outcome.status == 0 {
            return Ok(());
        }
        sentence(&outcome.stderr).clone_into(&mut message);
    }
    Err(format!("{MOST} suggestions do not suffice: {message}"))
}

/// Checks that a fix consists of the text that an error suggests to write.
pub(super) fn follows(message: &str, before: &str, after: &str) -> Result<(), String> {
    let Some(rest) = after_write(message) else { return Ok(()) };
    let alternatives = alternatives(rest);
    if alternatives.is_empty() {
        return Ok(());
    }
    let contains = |parts: &&Vec<&str>| parts.iter().all(|part| after.contains(part));
    let Some(parts) = alternatives.iter().find(contains) else {
        return Err(format!("the fix contains none of {alternatives:?}"));
    };
    // A new line contains a part, or is an old one without a text that the error quotes.
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let is_shortened =
        |line: &str| before.lines().any(|old| quoted.iter().any(|text| old.replacen(text, "", 1) == line));
    let is_other = |line: &&str| {
        !before.lines().any(|old| old == *line)
            && !parts.iter().any(|part| line.contains(part))
            && !is_shortened(line)
    };
    after
        .lines()
        .find(is_other)
        .map_or(Ok(()), |line| Err(format!("the fix has a line that was not suggested: {line}")))
}

/// Returns the text after the word `write`, if it has a text in backticks.
fn after_write(message: &str) -> Option<&str> {
    let rest = message.split_once(" write ").map(|(_, rest)| rest)?;
    rest.contains('`').then_some(rest)
}

/// Returns the texts in backticks, by alternative; none if they are examples.
///
/// `a` and `b`, or `c` are two alternatives, and `a`, `b` or `c` three.
fn alternatives(rest: &str) -> Vec<Vec<&str>> {
    let mut alternatives: Vec<Vec<&str>> = Vec::new();
    let mut between = "";
    for (number, text) in rest.split('`').enumerate() {
        if number % 2 == 0 {
            between = text.trim();
            if number == 0 && EXAMPLES.iter().any(|example| between.ends_with(example)) {
                return Vec::new();
            }
            continue;
        }
        let is_next = between == "," || between.split_whitespace().next_back() == Some("or");
        match alternatives.last_mut().filter(|_| !is_next) {
            Some(parts) => parts.push(text),
            None => alternatives.push(vec![text]),
        }
    }
    alternatives
}

/// Returns the command and its input with the first redistribution that an error suggests.
fn redistributed(words: &[String], input: &str, message: &str) -> Option<(Vec<String>, String)> {
    let with = |flag: &str, value: String| {
        let at = words.iter().position(|word| word == flag)? + 1;
        let mut words = words.to_vec();
        *words.get_mut(at)? = value;
        Some((words, input.to_owned()))
    };
    match words.first()?.as_str() {
        "view" => {
            let (_, rest) = message.split_once("redistribute to ")?;
            with("--placements", rest.split_once(" first")?.0.to_owned())
        }
        "propagate" => {
            let (_, rest) = message.rsplit_once("; redistribute ")?;
            let at = words.iter().position(|word| word == "--in")? + 1;
            let mut inputs: Vec<&str> = words.get(at)?.split(';').collect();
            for one in rest.split(", or ").next()?.split(" and ") {
                let (number, sharding) = one.strip_prefix("input ")?.split_once(" to [")?;
                let sharding = &sharding[..sharding.rfind(']')?];
                *inputs.get_mut(number.parse::<usize>().ok()?)? = sharding;
            }
            with("--in", inputs.join(";"))
        }
        _ => Some((words.to_vec(), rewritten(input, message)?)),
    }
}

/// Returns a program in which the suggested lines replace the statement of an error.
fn rewritten(program: &str, message: &str) -> Option<String> {
    let is_meant = |line: &&str| {
        line.split_once(" = ").is_some_and(|(_, call)| message.contains(&format!(" = {call}: ")))
    };
    let statement = program.lines().find(is_meant)?;
    let lines = alternatives(after_write(message)?).into_iter().next()?;
    let mut text = String::new();
    for line in program.lines() {
        let replaced = if line == statement { lines.clone() } else { vec![line] };
        for line in replaced {
            text.push_str(line);
            text.push('\n');
        }
    }
    Some(text)
}
