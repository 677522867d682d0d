//! Gradients of ops that other ops of the table define: the definition as a body, read backwards.
//!
//! A definition expresses the op in the steps that PyTorch takes. So the result at corners (a distance of
//! zero, a margin that holds exactly) follows from the gradients of the steps.

/// A definition that does not depend on arguments.
macro_rules! always {
    ($text:literal) => {
        |_| Ok($text.to_owned())
    };
}

mod distances;
mod margins;
mod products;
mod spectra;
mod statistics;

use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use super::through::{body, gradient};
use crate::Error;

type Text = fn(&GradientBuilder<'_>) -> Result<String, Error>;

/// Names of ops, and the text of their definition.
type Defined = (&'static [&'static str], Text);

pub(super) fn formulas() -> Vec<Alike> {
    let all = [
        distances::norms(),
        distances::distances(),
        statistics::statistics(),
        margins::margins(),
        products::products(),
        products::cells(),
        spectra::spectra(),
    ];
    all.concat().into_iter().map(|(names, text)| -> Alike { (names, body(text)) }).collect()
}

/// The lower median along a dim: the gradient goes to its position.
pub(super) fn median(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let sorted = if b.name() == "nanmedian" { statistics::sorted_numbers } else { statistics::sorted };
    let body = sorted(b, 0.5, true)?.parse()?;
    gradient(b, &body)
}

/// Returns the dims of the first input except one, as a list.
fn others(b: &GradientBuilder<'_>, dim: usize) -> String {
    let rank = b.forward().inputs()[0].len();
    list((0..rank).filter(|&d| d != dim))
}

/// Numbers as an argument.
fn list(numbers: impl Iterator<Item = usize>) -> String {
    let texts: Vec<String> = numbers.map(|n| n.to_string()).collect();
    format!("[{}]", texts.join(","))
}

fn real(b: &GradientBuilder<'_>, key: &str) -> Result<f64, Error> {
    b.real(key)
}

fn word(b: &GradientBuilder<'_>, key: &str) -> Result<String, Error> {
    b.argument(|r| r.word(key))
}

fn flag(b: &GradientBuilder<'_>, key: &str) -> Result<bool, Error> {
    b.argument(|r| r.flag(key))
}

fn dim(b: &GradientBuilder<'_>) -> Result<usize, Error> {
    b.argument(|r| r.dim("dim"))
}

/// Returns the dims of a reduction and its `keepdim`, as arguments.
fn reduction(b: &GradientBuilder<'_>, key: &str) -> Result<String, Error> {
    let dims = b.argument(|r| r.dims(key))?;
    Ok(format!("dims={},keepdim={}", list(dims.into_iter()), flag(b, "keepdim")?))
}
