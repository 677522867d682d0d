//! A second parser of the grammar, for rules that are valid.

/// A side of a rule: a call of an operation, with expressions and words as arguments.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) call: String,
    pub(crate) shares: usize,
    pub(crate) given: bool,
    pub(crate) inner: Vec<Node>,
    pub(crate) words: Vec<String>,
    pub(crate) dim: Option<usize>,
    pub(crate) blocks: Option<usize>,
}

pub(crate) fn node(call: &str, inner: Vec<Node>, words: Vec<String>) -> Node {
    Node { call: call.to_owned(), shares: 1, given: false, inner, words, dim: None, blocks: None }
}

/// Splits a text at commas and the like that are outside of all brackets and quotes.
pub(crate) fn split_at<'a>(text: &'a str, signs: &[char]) -> Vec<&'a str> {
    let (mut parts, mut depth, mut quoted, mut start) = (Vec::new(), 0, false, 0);
    for (at, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth -= 1,
            c if depth == 0 && !quoted && signs.contains(&c) => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// Parses a side within a call.
fn side(text: &str) -> Node {
    let (mut whole, dim, blocks) = side_of_rule(text);
    whole.dim = dim.or(whole.dim);
    whole.blocks = blocks.or(whole.blocks);
    whole
}

/// Parses a side; a single part has no `on` and `by`, so they are returned separately.
pub(crate) fn side_of_rule(mut text: &str) -> (Node, Option<usize>, Option<usize>) {
    let (mut dim, mut blocks) = (None, None);
    loop {
        let outer = split_at(text, &[' ']);
        match outer[..] {
            [.., key, number] if outer.len() > 2 && (key == "on" || key == "by") => {
                let n = number.parse().unwrap();
                *(if key == "on" { &mut dim } else { &mut blocks }) = Some(n);
                text = text[..text.len() - number.len()].trim_end();
                text = text[..text.len() - 2].trim_end();
            }
            _ => break,
        }
    }
    let parts: Vec<Node> = split_at(text, &['+', '|']).into_iter().map(share).collect();
    if parts.len() == 1 && !parts[0].given {
        (parts[0].clone(), dim, blocks)
    } else {
        (Node { dim, blocks, ..node("cat", parts, Vec::new()) }, None, None)
    }
}

fn share(text: &str) -> Node {
    match text.split_once(' ') {
        Some((shares, rest)) if shares.parse::<usize>().is_ok() => {
            Node { shares: shares.parse().unwrap(), given: true, ..piece(rest) }
        }
        _ => piece(text),
    }
}

fn piece(text: &str) -> Node {
    let text = text.trim();
    if let Some(inside) = text.strip_suffix(']') {
        let open = inside.rfind('[').unwrap();
        let words = inside[open + 1..].split(',').map(|word| word.trim().to_owned()).collect();
        return node("slice", vec![piece(&inside[..open])], words);
    }
    let Some((call, inside)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
        return node("name", Vec::new(), vec![text.to_owned()]);
    };
    if call == "cat" {
        return side(inside);
    }
    let arguments = split_at(inside, &[',']);
    let (mut words, mut dim) = (Vec::new(), None);
    for word in &arguments[1..] {
        match word.rsplit_once(" on ") {
            Some((word, number)) => {
                words.push(word.to_owned());
                dim = number.parse().ok();
            }
            None => words.push((*word).to_owned()),
        }
    }
    let (inner, outer, _) = side_of_rule(arguments[0]);
    dim = dim.or(outer);
    Node { dim, ..node(call, vec![inner], words) }
}
