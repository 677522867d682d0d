//! Launches by absolute addresses: a step of a plan, once every buffer has its address.

use reshard_kernels::{CombineOp, DType, LoopNest};

use crate::select::{Alignment, ElementKernel, ElementOp, Launch, copies, elementwise};
use crate::{Batch, Error};

/// One launch; offsets are addresses of the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Copies, none of which writes an element that another one reads or writes.
    Copies(Batch),
    /// An elementwise kernel.
    Element {
        /// The kernel, its job and its blocks.
        launch: Box<Launch<ElementKernel>>,
        /// The addresses of the partial values of a reduction.
        bases: Vec<i64>,
        /// The divisor of a reduction or a division.
        divisor: usize,
    },
}

impl Command {
    /// Returns copies along nests that are counted in bytes from address 0.
    ///
    /// `None` if there is nothing to copy.
    ///
    /// Requires that no two of them write the same element, and that none reads an element that another
    /// writes. Errors: those of [`copies`] and [`Batch::new`].
    pub fn copies(nests: &[LoopNest]) -> Result<Option<Command>, Error> {
        let mut launches = Vec::new();
        for nest in nests {
            launches.extend(copies(nest, 1, Alignment::FULL)?);
        }
        let batch = Batch::new(launches)?;
        Ok((!batch.jobs().is_empty()).then_some(Command::Copies(batch)))
    }

    /// Returns `target = target op source` along a nest of elements that begin at these addresses.
    ///
    /// Errors: those of [`elementwise`].
    pub fn combine(
        nest: &LoopNest,
        dtype: DType,
        op: CombineOp,
        source: i64,
        target: i64,
    ) -> Result<Vec<Command>, Error> {
        Command::elements(nest, dtype, ElementOp::Combine(op), (source, target), &[], 1)
    }

    /// Returns `target = (term_0 op term_1 ..) / divisor` along a nest.
    ///
    /// The nest's source is each of the partial values, at these addresses.
    ///
    /// Errors: those of [`elementwise`].
    pub fn reduce(
        nest: &LoopNest,
        dtype: DType,
        op: CombineOp,
        terms: &[i64],
        target: i64,
        divisor: usize,
    ) -> Result<Vec<Command>, Error> {
        if divisor != 1 {
            dtype.check_average()?;
        }
        Command::elements(nest, dtype, ElementOp::Reduce(op), (0, target), terms, divisor)
    }

    /// Returns `target = target / divisor` along the target side of a nest.
    ///
    /// The elements begin at this address.
    ///
    /// Errors: those of [`elementwise`].
    pub fn divide(nest: &LoopNest, dtype: DType, target: i64, divisor: usize) -> Result<Vec<Command>, Error> {
        Command::elements(nest, dtype, ElementOp::Divide, (target, target), &[], divisor)
    }

    fn elements(
        nest: &LoopNest,
        dtype: DType,
        op: ElementOp,
        (source, target): (i64, i64),
        bases: &[i64],
        divisor: usize,
    ) -> Result<Vec<Command>, Error> {
        // The common alignment of all addresses; those of partial values count as the source's.
        let all = bases.iter().fold(source, |all, base| all | base);
        let launches = elementwise(nest, dtype, op, Alignment::of(all as u64, target as u64))?;
        let at = |mut launch: Launch<ElementKernel>| {
            launch.job.source += source;
            launch.job.target += target;
            Command::Element { launch: Box::new(launch), bases: bases.to_vec(), divisor }
        };
        Ok(launches.into_iter().map(at).collect())
    }
}
