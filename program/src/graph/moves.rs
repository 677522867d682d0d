//! Moves: the same tensor in another type, whole or along some axes, through a wire or not.

use reshard_kernels::DType;
use reshard_sharding::ShardingType;

use crate::Error;
use crate::along::{self, Partly};
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::wire;

impl Graph {
    /// The same tensor in another type.
    ///
    /// Fails for a name that is taken or is none, and for a type of another shape or on a mesh that the graph has not.
    pub fn redistribute(&mut self, from: ValueId, name: &str, is: ShardingType) -> Result<ValueId, Error> {
        self.redistribute_as(from, name, is, None)
    }

    /// The same through a wire: what travels is cast to a narrower type and back, and terms are added in the value's own. Backward too.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::{Elaborator, Graph, Rates};
    /// use reshard_sharding::Type;
    /// let mut graph: Graph = "mesh dp=4\nx: f32[4,1048576] S(0)\nt = sum(x, dims=[0])".parse()?;
    /// let (t, is) = (graph.value("t").unwrap(), Type::parse(graph.mesh(), &[1 << 20], "R")?);
    /// graph.moved_via(t, "y", is, Some(DType::BF16))?;
    /// assert!(graph.to_string().ends_with("y: R via bf16 = t\n"));
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// // Terms of a quarter from three others, and then three quarters of the sum, two bytes each.
    /// assert_eq!(program.report(&Rates::uniform()).traffic.forward.received_bytes, 2 * 3 * (1 << 18) * 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails as [`Graph::moved`] does, and for a type that is not narrower than the value's: f32, f16 or bf16 for f64, f16 or bf16 for f32.
    pub fn redistribute_as(
        &mut self,
        from: ValueId,
        name: &str,
        is: ShardingType,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        via.map_or(Ok(()), |via| wire::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.constrain(to, is)?;
        self.push(GraphStatement::Move { from, to, along: Partly::new(), via })?;
        Ok(to)
    }

    /// The same with every move in the elements of what it moves; none where nothing goes [through a wire](Graph::moved_via).
    ///
    /// ```
    /// use reshard_program::Graph;
    /// let graph: Graph = "mesh dp=2\nx: f32[8] S(0)\ny: R via bf16 = x".parse()?;
    /// let without = graph.without_wires().unwrap();
    /// assert!(without.to_string().ends_with("y: R = x\n") && without.without_wires().is_none());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn without_comm_dtypes(&self) -> Option<Graph> {
        let mut without = self.clone();
        let mut has_wires = false;
        for statement in &mut without.statements {
            if let GraphStatement::Move { via, .. } = statement {
                has_wires |= via.take().is_some();
            }
        }
        has_wires.then_some(without)
    }

    /// The same tensor, so along these axes and as it is along the others.
    pub(crate) fn moved_along(
        &mut self,
        from: ValueId,
        name: &str,
        along: Partly,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        if let Some(is) = along::whole(&along, self.mesh(), &shape) {
            return self.redistribute_as(from, name, is, via);
        }
        via.map_or(Ok(()), |via| wire::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.push(GraphStatement::Move { from, to, along, via })?;
        Ok(to)
    }
}
