//! Gradients requested by name, and the mark that ends differentiation.

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId, gradient_name};

impl Graph {
    /// Adds the gradients of the sum of a value's elements with respect to others, named `d` and their name.
    ///
    /// Returns an error for used names.
    pub fn gradient(&mut self, loss: ValueId, wrt: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let names: Vec<String> = wrt.iter().map(|v| gradient_name(self.name(*v))).collect();
        self.gradient_as(loss, wrt, &names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Adds the same gradients with given names, as a second gradient of a value needs one.
    ///
    /// ```
    /// let text = "mesh x=2\nw: f32[8] R\na = square(w)\nb = exp(w)\ngradient a\ngradient b wrt w as g\ns = add(dw, g)";
    /// let graph: reshard_program::Graph = text.parse()?;
    /// assert!(graph.value("g").is_some() && graph.to_string().contains("gradient b wrt w as g"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error for used names, and if the numbers of names and values differ.
    #[doc(hidden)]
    pub fn gradient_as(
        &mut self,
        loss: ValueId,
        wrt: &[ValueId],
        names: &[&str],
    ) -> Result<Vec<ValueId>, Error> {
        if names.len() != wrt.len() {
            return Err(Error::Graph {
                reason: format!(
                    "the gradient of `{}` has {} values after `wrt` but {} names after `as`",
                    self.name(loss),
                    wrt.len(),
                    names.len()
                ),
            });
        }
        if let Some((v, name)) = wrt.iter().zip(names).find(|(_, name)| self.names.contains_key(**name)) {
            return Err(Error::Graph {
                reason: format!(
                    "`{name}` is defined twice; name this gradient, as in `gradient {} wrt {} as {}`",
                    self.name(loss),
                    self.name(*v),
                    self.fresh(name)
                ),
            });
        }
        let gradients: Result<Vec<ValueId>, Error> = (wrt.iter().zip(names))
            .map(|(v, name)| {
                let (dtype, shape) = (self.dtype(*v), self.shape(*v).to_vec());
                self.named(name, dtype, &shape)
            })
            .collect();
        let gradients = gradients?;
        self.push(GraphStatement::Gradient { loss, wrt: wrt.to_vec(), gradients: gradients.clone() })?;
        Ok(gradients)
    }

    /// Marks the end of differentiation: values added from here on have no gradient.
    pub fn no_grad(&mut self) {
        self.marked.get_or_insert(ValueId(self.values.len()));
        self.statements.push(GraphStatement::NoGrad);
    }

    /// Returns `true` if values added now have no gradient.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// Returns the requested gradients: the loss, with pairs of a value and its gradient.
    ///
    /// ```
    /// let graph: reshard_program::Graph = "mesh x=2\na: f32[8] S(0)\nb = sum(a)\ngradient b".parse()?;
    /// let (loss, gradients) = graph.gradients().next().unwrap_or_else(|| unreachable!());
    /// assert_eq!((graph.name(loss), gradients.len()), ("b", 1));
    /// assert_eq!((graph.name(gradients[0].0), graph.name(gradients[0].1)), ("a", "da"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn gradients(&self) -> impl Iterator<Item = (ValueId, Vec<(ValueId, ValueId)>)> {
        self.statements.iter().filter_map(|s| match s {
            GraphStatement::Gradient { loss, wrt, gradients } => {
                Some((*loss, wrt.iter().copied().zip(gradients.iter().copied()).collect()))
            }
            GraphStatement::Input(_)
            | GraphStatement::Op { .. }
            | GraphStatement::Move { .. }
            | GraphStatement::NoGrad => None,
        })
    }
}
