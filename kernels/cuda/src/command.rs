//! Launches by absolute addresses: what a plan's step is, once every buffer has its place.

use reshard_kernels::{CombineOp, DType, LoopNest};

use crate::select::{Alignment, ElementKernel, ElementOp, Launch, copies, elementwise};
use crate::{Batch, Error};

/// One launch; offsets are addresses of the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Copies, none of which writes what another one reads or writes.
    Copies(Batch),
    /// An elementwise kernel.
    Element {
        /// The kernel, its job and its blocks.
        launch: Box<Launch<ElementKernel>>,
        /// Where the terms of a reduction begin.
        bases: Vec<i64>,
        /// What a reduction or a division divides by.
        divisor: usize,
    },
}

impl Command {
    /// Copies along nests that are counted in bytes from address 0; nothing if there is nothing to copy.
    ///
    /// Requires that no two of them write the same place, and that none reads what one writes. Errors: those of
    /// [`copies`] and [`Batch::new`].
    pub fn copies(nests: &[LoopNest]) -> Result<Option<Command>, Error> {
        let mut launches = Vec::new();
        for nest in nests {
            launches.extend(copies(nest, 1, Alignment::FULL)?);
        }
        let batch = Batch::new(launches)?;
        Ok((!batch.jobs().is_empty()).then_some(Command::Copies(batch)))
    }

    /// `target = target op source` along a nest of elements that begin at these addresses.
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

    /// `target = (term_0 op term_1 ..) / divisor` along a nest whose source is each of the terms, at these addresses.
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

    /// `target = target / divisor` along the target side of a nest of elements that begin at this address.
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
        // What all addresses have in common; those of terms count as the source's.
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
