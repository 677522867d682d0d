//! Indexing: what is looked up may be sharded, because a rank can tell by its region what it does not hold.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// Terms of what is looked up: every result is one element, or nothing where the rank does not hold it.
const LOOKED_UP: &str = "multilinear(0), (P(prod),R -> P(prod)), (P(min),R -> P(min)), (P(max),R -> P(max))";

/// Terms of what is overwritten.
pub(super) const COPY: &str = "selecting(0,2), affine(0,2), increasing(0,2)";
/// Terms of what is added to.
pub(super) const ADD: &str = "(P,S(k),S(k) -> P), linear(0,2), affine(0,2), increasing(0)";
/// Terms of what is raised.
pub(super) const MAX: &str = "(P(max),S(k),S(k) -> P(max)), (P(max),R,P(max) -> P(max)), (P(max),R,R -> P(max)), \
     (R,R,P(max) -> P(max)), (P(min),R,R -> P(min))";

/// The letters of a tensor and of an index into one of its dims, which is `k` in the second; `*` where the sizes of
/// another dim differ, so that only a leading part of it is used.
fn beside(r: &Request<'_>, dim: usize, index: &[usize]) -> Result<(String, String), Error> {
    let x = r.input(0)?;
    if index.len() != x.len() {
        return Err(r.error(format!("the index has {} dims, and the input {}", index.len(), x.len())));
    }
    let letters: Vec<char> = r.letters(x.len() + 1)?.into_iter().filter(|&c| c != 'k').collect();
    let (mut a, mut b) = (String::new(), String::new());
    for d in 0..x.len() {
        let same = x[d] == index[d];
        if index[d] > x[d] && d != dim {
            return Err(r.error(format!("the index has {} along dim {d}, and the input {}", index[d], x[d])));
        }
        a.push(if same || d == dim { letters[d] } else { '*' });
        b.push(if d == dim {
            'k'
        } else if same {
            letters[d]
        } else {
            '*'
        });
    }
    Ok((a, b))
}

/// `ij,ik->ik`: along `j` the sum of what each rank finds.
pub(super) fn gather(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let dim = r.dim("dim", r.inputs[0].len(), -1)?;
    let (a, b) = beside(r, dim, r.inputs[1])?;
    r.op_to(&format!("{a},{b}->{b} {{{LOOKED_UP}}}"), &[r.inputs[1]])
}

/// `ij,k->ik`.
pub(super) fn select(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim", rank, 0)?;
    let letters: Vec<char> = r.letters(rank + 1)?.into_iter().filter(|&c| c != 'k').take(rank).collect();
    let input: String = letters.iter().collect();
    let output: String = (0..rank).map(|d| if d == dim { 'k' } else { letters[d] }).collect();
    r.op(&format!("{input},k->{output} {{{LOOKED_UP}}}"))
}

/// `ij,ik,ik->ij`, or `ij,k,ik->ij` with one index for all: each rank writes where it holds.
pub(super) fn scatter(r: &Request<'_>, one_index: bool, terms: &str) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let dim = r.dim("dim", r.inputs[0].len(), 0)?;
    let (a, b) = beside(r, dim, r.inputs[2])?;
    let index = if one_index { "k" } else { b.as_str() };
    if !one_index && r.inputs[1] != r.inputs[2] {
        return Err(r.error("the index and what is written have different shapes"));
    }
    r.op_to(&format!("{a},{index},{b}->{a} {{k: replicate, {terms}}}"), &[r.inputs[0]])
}

/// `x[index] = value`, or `+=`, along the first dim.
pub(super) fn put(r: &Request<'_>) -> Result<Op, Error> {
    let terms = if r.flag("accumulate", false)? { ADD } else { COPY };
    scatter(r, true, terms)
}

/// A rule with a dim `c` of so many classes.
pub(super) fn classes(r: &Request<'_>, rule: &str, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let n = r.required("classes", 1)?;
    r.op(&format!("{rule} {{c: {n}, {terms}}}"))
}

/// `vd,bl->bd`: rows of a table, summed or averaged over a bag.
pub(super) fn bag(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let l = r.word("mode", &["sum", "mean"])?.replace("mean", "avg");
    r.op(&format!("vd,bl->bd {{l: {l}, multilinear(0)}}"))
}

/// `where(mask, value, x)`.
pub(super) fn masked_fill(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    // What is filled in has to be its own terms.
    let terms = match r.call.argument("value").map(ToString::to_string).as_deref() {
        Some("0") => "selecting(0), affine(0), increasing(0)",
        Some("1") => "(P(prod),R -> P(prod)), affine(0), increasing(0)",
        _ => "affine(0), increasing(0)",
    };
    r.op(&format!("...,...->... {{{terms}}}"))
}
