//! Redistributions: the same tensor in another type, whole or along some axes.
//!
//! They may have a communication dtype.

use reshard_kernels::DType;
use reshard_sharding::ShardingType;

use crate::Error;
use crate::comm_dtype;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::local_type::{self, Partly};

impl Graph {
    /// Adds a redistribution: the same tensor in another type.
    ///
    /// Returns an error for an invalid or used name, and for a type of another shape or on a mesh that is not
    /// in the graph.
    pub fn redistribute(&mut self, from: ValueId, name: &str, is: ShardingType) -> Result<ValueId, Error> {
        self.redistribute_as(from, name, is, None)
    }

    /// Adds a redistribution in a communication dtype.
    ///
    /// The sent data is cast to a narrower dtype and back, and partial values are added in the value's dtype.
    /// Backward does the same.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::{ShardingSolver, Graph, ComputeRates};
    /// use reshard_sharding::ShardingType;
    /// let mut graph: Graph = "mesh dp=4\nx: f32[4,1048576] S(0)\nt = sum(x, dims=[0])".parse()?;
    /// let (t, is) = (graph.value("t").unwrap(), ShardingType::parse(graph.mesh(), &[1 << 20], "R")?);
    /// graph.redistribute_as(t, "y", is, Some(DType::BF16))?;
    /// assert!(graph.to_string().ends_with("y: R via bf16 = t\n"));
    /// let program = ShardingSolver::new().solve(&graph)?;
    /// // Partial values of a quarter from three others, then three quarters of the sum, two bytes each.
    /// assert_eq!(program.report(&ComputeRates::uniform()).traffic.forward.received_bytes, 2 * 3 * (1 << 18) * 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Returns the errors of [`Graph::redistribute`], and an error for a type that is not narrower than the value's:
    /// f32, f16 or bf16 for f64, f16 or bf16 for f32.
    pub fn redistribute_as(
        &mut self,
        from: ValueId,
        name: &str,
        is: ShardingType,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        via.map_or(Ok(()), |via| comm_dtype::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.constrain(to, is)?;
        self.push(GraphStatement::Move { from, to, along: Partly::new(), via })?;
        Ok(to)
    }

    /// Returns the graph without [communication dtypes](Graph::redistribute_as), or `None` if it has none.
    ///
    /// ```
    /// use reshard_program::Graph;
    /// let graph: Graph = "mesh dp=2\nx: f32[8] S(0)\ny: R via bf16 = x".parse()?;
    /// let without = graph.without_comm_dtypes().unwrap();
    /// assert!(without.to_string().ends_with("y: R = x\n") && without.without_comm_dtypes().is_none());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    #[doc(hidden)]
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

    /// Returns `true` if a redistribution changes a part of the type of its value, or nothing.
    ///
    /// Otherwise the constraint of its result is the whole type.
    pub(crate) fn moves_partly(&self, along: &Partly, to: ValueId) -> bool {
        !along.is_empty() || self.constraint(to).is_none()
    }

    /// Adds a name of a value that no statement uses, so that the value is live at the end.
    ///
    /// Both have the same type, and the same memory. Returns an error for a name that is taken.
    ///
    /// ```
    /// use reshard_program::Graph;
    /// let mut graph: Graph = "mesh dp=2\nx: f32[8] S(0)\nh = exp(x)\ny = mul(h, h)".parse()?;
    /// let h = graph.value("h").unwrap();
    /// graph.keep(h, "kept")?;
    /// assert_eq!(graph.to_string().lines().last(), Some("kept: _ = h"));
    /// assert_eq!(graph.to_string().parse::<Graph>()?.to_string(), graph.to_string());
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn keep(&mut self, from: ValueId, name: &str) -> Result<ValueId, Error> {
        self.moved_along(from, name, Partly::new(), None)
    }

    /// Adds a redistribution to these placements along some axes, and the same along the others.
    pub(crate) fn moved_along(
        &mut self,
        from: ValueId,
        name: &str,
        along: Partly,
        via: Option<DType>,
    ) -> Result<ValueId, Error> {
        let (dtype, shape) = (self.dtype(from), self.shape(from).to_vec());
        if let Some(is) = local_type::whole(&along, self.mesh(), &shape) {
            let text = local_type::written(&along, self.mesh());
            let is = is.written(&text).map_err(|e| Error::of(name, e))?;
            return self.redistribute_as(from, name, is, via);
        }
        via.map_or(Ok(()), |via| comm_dtype::check(name, dtype, via))?;
        let to = self.named(name, dtype, &shape)?;
        self.push(GraphStatement::Move { from, to, along, via })?;
        Ok(to)
    }
}
