//! The arguments of an op: a call, the tensors of one rank, and their regions.

use core::fmt;
use core::ops::Deref;

use reshard_kernels::DType;
use reshard_kernels::random::definition::element;
use reshard_kernels::random::{Draw, Key};
use reshard_ops::rules::{BoundCall, ShardRegion};

use crate::Error;
use crate::arrays::{A, Unfit, of};
use crate::real::Element;

/// The outputs of an op.
pub(crate) type Made = Result<Vec<A>, Error>;

/// A call on one rank. Its arguments, and the shapes of the [`Request`], are those of the whole tensors.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) request: BoundCall<'a>,
    pub(crate) inputs: Vec<A>,
    pub(crate) places: Vec<&'a ShardRegion>,
    pub(crate) wanted: Vec<&'a ShardRegion>,
    pub(crate) element: Element,
}

impl<'a> Deref for Ask<'a> {
    type Target = BoundCall<'a>;
    fn deref(&self) -> &BoundCall<'a> {
        &self.request
    }
}

impl Ask<'_> {
    /// The number of inputs.
    pub(crate) fn given_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// An input.
    pub(crate) fn x(&self, i: usize) -> Result<&A, Error> {
        self.inputs.get(i).ok_or_else(|| self.wrong(format!("has no input {i}")))
    }

    /// Returns an input, or `None` if it is not given.
    pub(crate) fn maybe(&self, i: usize) -> Option<&A> {
        self.inputs.get(i)
    }

    /// An error about this call.
    pub(crate) fn wrong(&self, reason: impl fmt::Display) -> Error {
        Error::Input { reason: format!("{}: {reason}", self.request.call) }
    }

    /// Turns an error of shapes into one about this call.
    pub(crate) fn fit<T>(&self, made: Result<T, Unfit>) -> Result<T, Error> {
        made.map_err(|reason| self.wrong(reason))
    }

    /// Returns an error about this call unless `holds`.
    pub(crate) fn ensure(&self, holds: bool, reason: &str) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.wrong(reason)) }
    }

    /// Checks that two tensors have one shape.
    pub(crate) fn alike(&self, a: &A, b: &A) -> Result<(), Error> {
        self.ensure(a.shape() == b.shape(), "two shapes differ, but must be equal")
    }

    /// Returns a number without a PyTorch default.
    pub(crate) fn given(&self, key: &str) -> Result<f64, Error> {
        self.maybe_real(key)?.ok_or_else(|| self.wrong(format!("needs the argument `{key}`")))
    }

    /// Returns a number, or `None` if it is absent.
    pub(crate) fn maybe_real(&self, key: &str) -> Result<Option<f64>, Error> {
        Ok(if self.has(key)? { Some(self.real(key)?) } else { None })
    }

    /// The indices of the whole along a dim of an input, in the order of the shard.
    pub(crate) fn held(&self, i: usize, dim: usize) -> Result<Vec<usize>, Error> {
        let place = self.places.get(i).ok_or_else(|| self.wrong(format!("has no input {i}")))?;
        Ok(place.indices(dim)?)
    }

    /// Returns the wanted region of an output.
    pub(crate) fn target(&self, o: usize) -> Result<&ShardRegion, Error> {
        self.wanted.get(o).copied().ok_or_else(|| self.wrong(format!("has no region for output {o}")))
    }

    /// The indices of the whole along a dim of an output.
    pub(crate) fn wanted(&self, o: usize, dim: usize) -> Result<Vec<usize>, Error> {
        Ok(self.target(o)?.indices(dim)?)
    }

    /// Maps the row-major index in the whole of every element of an input to a tensor.
    pub(crate) fn numbered(&self, i: usize, f: &dyn Fn(usize) -> f64) -> Result<A, Error> {
        let place = self.places.get(i).ok_or_else(|| self.wrong(format!("has no input {i}")))?;
        self.fit(of(self.x(i)?.shape(), place.elements().into_iter().map(f).collect()))
    }

    /// Maps the row-major indices in the whole of an output's elements to the output.
    pub(crate) fn counted(&self, f: &dyn Fn(usize) -> f64) -> Made {
        let place = self.target(0)?;
        Ok(vec![self.fit(of(&place.shape(), place.elements().into_iter().map(f).collect()))?])
    }

    /// Returns random numbers between 0 and 1 by the row-major index of an element.
    ///
    /// They are those of the call's key, which is folded into that of seed 0.
    pub(crate) fn noise(&self) -> Result<impl Fn(usize) -> f64, Error> {
        let numbers = if self.has("key")? { self.numbers("key")? } else { Vec::new() };
        let key = numbers.iter().fold(Key::new(0), |key, &n| key.fold_in(n.unsigned_abs()));
        let draw = Draw::Uniform { low: 0.0, high: 1.0 };
        // None of the 2^52 numbers is 0, because some ops take a logarithm.
        let number = |bytes: Vec<u8>| bytes.try_into().map_or(0.0, f64::from_ne_bytes) + f64::EPSILON / 4.0;
        Ok(move |e: usize| element(&key, draw, DType::F64, e as u64).map_or(f64::NAN, number))
    }

    /// Computes one output, element by element of the first input.
    pub(crate) fn map(&self, f: &dyn Fn(f64) -> f64) -> Made {
        Ok(vec![crate::arrays::map(self.x(0)?, f)])
    }

    /// Computes one output, element by element of the first two inputs, broadcast.
    pub(crate) fn zip(&self, f: &dyn Fn(f64, f64) -> f64) -> Made {
        Ok(vec![self.fit(crate::arrays::zip(self.x(0)?, self.x(1)?, f))?])
    }

    /// Computes one output, element by element of the first three inputs, broadcast.
    pub(crate) fn zip3(&self, f: &dyn Fn(f64, f64, f64) -> f64) -> Made {
        let inputs = [self.x(0)?, self.x(1)?, self.x(2)?];
        Ok(vec![self.fit(crate::arrays::together(inputs, &|[a, b, c]| f(a, b, c)))?])
    }
}
