//! Plans captured once and replayed, without a launch of each exchange by the host.

use reshard_collectives::{CompiledPlan, Error, Scratch};

use crate::comm::{InFlight, Mode};
use crate::{Buffer, Comm, Nccl};

/// A plan on its buffers, captured by [`Comm::capture`](crate::Comm::capture); holds all that it uses.
#[derive(Debug)]
pub struct Graph<N: Nccl> {
    pub(crate) inner: N::Graph,
    pub(crate) kept: Vec<InFlight<N>>,
    pub(crate) comm: u64,
}

impl<N: Nccl> Graph<N> {
    /// Returns the number of exchanges.
    #[doc(hidden)]
    pub fn exchanges(&self) -> usize {
        self.kept.len()
    }

    /// Returns the location of a possible failure, for errors.
    pub(crate) fn places(&self) -> String {
        match self.kept.as_slice() {
            [] => "a replay of nothing".to_owned(),
            [one] => format!("{}, replayed", one.place),
            [first, .., last] => format!("{} to {}, replayed", first.place, last.place),
        }
    }
}

impl<N: Nccl> Comm<N> {
    /// Captures a plan for these buffers, to be replayed without a launch of each exchange by the host.
    ///
    /// Runs the plan once, so that everything it needs exists, and a second time to capture it. Requires that
    /// all ranks of the plan call it. Errors: as [`finish`](Comm::finish), and work that cannot be captured.
    pub fn capture(
        &mut self,
        compiled: &CompiledPlan,
        source: &Buffer<N>,
        target: &mut Buffer<N>,
        scratch: &mut Scratch<Buffer<N>>,
    ) -> Result<Graph<N>, Error> {
        self.finish()?;
        compiled.run(self, source, target, scratch)?;
        let place = "the capture of a plan";
        self.nccl.begin_capture().map_err(|e| self.fail(&e.to_string(), place))?;
        let captured = self.run_as(Mode::Captured, compiled, source, target, scratch);
        let ended = self.nccl.end_capture();
        let kept = std::mem::take(&mut self.in_flight);
        captured?;
        let inner = ended.map_err(|e| self.fail(&e.to_string(), place))?;
        Ok(Graph { inner, kept, comm: self.id })
    }

    /// Runs a captured plan on the current contents of its source, and waits for it.
    ///
    /// Requires that all ranks that captured it call it. Errors: as [`finish`](Comm::finish).
    pub fn replay(&mut self, graph: &Graph<N>) -> Result<(), Error> {
        if graph.comm != self.id {
            return Err(self.engine("the graph was captured on another communicator".to_string()));
        }
        self.finish()?;
        if let Some(error) = &self.failed {
            return Err(error.again(self.rank, graph.kept.first().map(|one| one.place.clone())));
        }
        let place = graph.places();
        self.nccl.replay(&graph.inner).map_err(|e| self.fail(&e.to_string(), &place))?;
        self.until(N::idle).map_err(|what| self.fail(&what, &place))
    }
}
