//! The ops by name, a file for each class of them.
#![expect(clippy::unnecessary_wraps, reason = "all ops have one signature")]

mod along;
mod distances;
mod elementwise;
mod factories;
mod images;
mod indexing;
mod losses;
mod normalisations;
mod optimizers;
mod pointwise;
mod products;
mod random;
mod reductions;
mod shapes;
mod shards;
mod special;
mod spectra;
mod windows;

use crate::ask::{Ask, Made};

/// The implementation of an op.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// A function of each element of one input.
    One(fn(f64) -> f64),
    /// A function of each pair of elements of two inputs, broadcast.
    Two(fn(f64, f64) -> f64),
    /// A function of the whole request.
    By(fn(&Ask<'_>) -> Made),
}

impl Body {
    pub(crate) fn run(self, ask: &Ask<'_>) -> Made {
        match self {
            Body::One(f) => ask.map(&f),
            Body::Two(f) => ask.zip(&f),
            Body::By(f) => f(ask),
        }
    }
}

/// Names, and their implementations.
type Ops = &'static [(&'static str, Body)];

fn all() -> impl Iterator<Item = &'static (&'static str, Body)> {
    [
        along::OPS,
        distances::OPS,
        elementwise::OPS,
        factories::OPS,
        images::OPS,
        indexing::OPS,
        losses::OPS,
        normalisations::OPS,
        optimizers::OPS,
        pointwise::OPS,
        products::OPS,
        random::OPS,
        reductions::OPS,
        shapes::OPS,
        shards::OPS,
        special::OPS,
        spectra::OPS,
        windows::OPS,
    ]
    .into_iter()
    .flatten()
}

/// The names of all ops that run.
#[doc(hidden)]
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| *name)
}

/// Returns `true` if an op runs, by its name or as a variant that writes into an existing tensor.
///
/// ```
/// assert!(reshard_reference::runs("add") && reshard_reference::runs("add_") && reshard_reference::runs("add.out"));
/// assert!(!reshard_reference::runs("addd"));
/// ```
#[doc(hidden)]
pub fn runs(name: &str) -> bool {
    variant(name).is_some()
}

/// Returns the op that a name calls, and `true` if it writes into inputs that come last.
pub(crate) fn variant(name: &str) -> Option<(Body, bool)> {
    let of = |name: &str| all().find(|(known, _)| *known == name).map(|(_, body)| *body);
    of(name)
        .or_else(|| of(name.strip_suffix('_')?))
        .map(|body| (body, false))
        .or_else(|| Some((of(name.strip_suffix(".out")?)?, true)))
}
