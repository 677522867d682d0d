//! Given strategies of ops, whole or along some axes.

use crate::Error;
use crate::graph::{Given, Graph, GraphStatement, ValueId};
use crate::local_type::{self, Partly};

impl Graph {
    /// Sets the strategy of the op that computes a value: the shardings of its inputs and outputs.
    ///
    /// Gradients follow.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Graph};
    /// let mut graph: Graph = "mesh tp=4\nx: f32[8,16] R\nw: f32[16,32] R\ny = mm(x, w)".parse()?;
    /// let y = graph.value("y").unwrap_or_else(|| unreachable!());
    /// graph.strategy(y, &["S(1)", "S(0)"], &["P"])?;
    /// assert!(graph.to_string().ends_with("y = mm(x, w) by S(1); S(0) -> P(sum)\n"));
    /// let program = ShardingSolver::new().solve(&graph)?;
    /// assert_eq!(program.value("y").map(|y| program.get(y).ty.value.to_string()).as_deref(), Some("P(sum)"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error for a value that is not an output of an op, and for texts that are not valid
    /// shardings of the op's inputs and outputs. The solver checks that the op has such a strategy.
    pub fn strategy(&mut self, value: ValueId, inputs: &[&str], outputs: &[&str]) -> Result<(), Error> {
        let at = self.statements.iter().rposition(|s| s.makes().contains(&value));
        let Some(GraphStatement::Op { call, inputs: takes, outputs: makes, .. }) =
            at.map(|at| &self.statements[at])
        else {
            return Err(Error::Graph {
                reason: format!(
                    "`{}` is not the output of an op; only ops have strategies",
                    self.name(value)
                ),
            });
        };
        if (takes.len(), makes.len()) != (inputs.len(), outputs.len()) {
            return Err(Error::Graph {
                reason: format!(
                    "{call} has {} inputs and {} outputs, but its strategy is for {} and {}; write a sharding for each, as in `by A; B -> C`",
                    takes.len(),
                    makes.len(),
                    inputs.len(),
                    outputs.len()
                ),
            });
        }
        let operands = takes.iter().chain(makes).zip(inputs.iter().chain(outputs));
        let mesh = self.mesh();
        let given: Result<Vec<Given>, Error> = operands
            .map(|(&v, text)| {
                if let Some(partly) = local_type::read(text, mesh)? {
                    return Ok(Given::Along(partly));
                }
                let name = format!("the strategy of {call}, {}", self.name(v));
                let is = self.sharding_of(&name, self.shape(v), text)?;
                let letters = self.meshes.one_rank().and(is.letters());
                let letters = letters.map(|letters| Box::new(letters.value.clone()));
                Ok(Given::Whole { value: Box::new(is.value), letters })
            })
            .collect();
        let given = given?;
        if let Some(GraphStatement::Op { by, .. }) = at.map(|at| &mut self.statements[at]) {
            *by = Some(given);
        }
        Ok(())
    }

    /// Sets the strategy of the op that computes a value along some axes.
    pub(crate) fn strategy_along(&mut self, value: ValueId, operands: Vec<Partly>) {
        let made = |s: &GraphStatement| s.makes().contains(&value);
        let whole =
            |(v, partly): (&ValueId, Partly)| match local_type::whole(&partly, self.mesh(), self.shape(*v)) {
                Some(is) => Given::Whole { value: Box::new(is.value), letters: None },
                None => Given::Along(partly),
            };
        let Some(at) = self.statements.iter().rposition(made) else { return };
        let GraphStatement::Op { inputs, outputs, .. } = &self.statements[at] else { return };
        let given = inputs.iter().chain(outputs).zip(operands).map(whole).collect();
        if let GraphStatement::Op { by, .. } = &mut self.statements[at] {
            *by = Some(given);
        }
    }
}
