//! Backward rules: the forward rows, transposed.
//!
//! A row states: if the inputs are placed along an axis as it states and each rank runs the op on its shards,
//! the outputs are placed as it states. Then each rank may run its **own** vector-Jacobian product, the
//! derivative of its forward computation. The results have the cotangent shardings of the forward inputs:
//!
//! ```text
//! vjp    a.., b.., b*.. -> a*..        R* = P    P* = R    S* = S
//! ```
//!
//! for `f` of the ranks' buffers jointly. For every row, `<f^T y, x> = <y, f x>` rank by rank. Replicas are a
//! subspace of these buffers and partial values a quotient, and `f` maps one to the other because the row is
//! true. So its transpose maps the cotangent of the one to the cotangent of the other (see
//! `reshard_sharding::theory`). The values that an op saves for its derivative have their forward
//! shardings.
//!
//! ```text
//! mk,kn->mn    S(m),R -> S(m)     backward   S(m) -> S(m),P      the gradient of a replicated input is partial
//!              R,S(n) -> S(n)                S(n) -> P,S(n)
//!              S(k),S(k) -> P                R -> S(k),S(k)
//!              R,R -> R                      P -> P,P     and, where all are replicas that compute the same,   R -> R,R
//! ```
//!
//! Partial averages, products, minima and maxima have no cotangent sharding, so rows that name them have no
//! backward row. No other code in the crate defines how an op is differentiated on shards.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::row::{Bound, Entry, Row};
use crate::rules::strategy::{OperandPlacement, Strategy};
use reshard_sharding::{Placement, ReduceOp};

impl Strategy {
    /// Returns the strategy of the gradients of the operands of this strategy: `b*.. -> a*..`.
    ///
    /// ```
    /// use reshard_ops::rules::Strategy;
    /// let transposed = |text: &str| Ok::<_, reshard_ops::Error>(text.parse::<Strategy>()?.transposed().map(|s| s.to_string()));
    /// assert_eq!(transposed("S(m),R -> S(m)")?.as_deref(), Some("S(m) -> S(m),P"));
    /// assert_eq!(transposed("S(k),S(k) -> P")?.as_deref(), Some("R -> S(k),S(k)"));
    /// assert_eq!(transposed("S(j) -> P(max)")?, None);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// `None` if it names partial values of anything but sums.
    #[doc(hidden)]
    pub fn transposed(&self) -> Option<Strategy> {
        let duals = |parts: &[OperandPlacement]| {
            parts.iter().map(OperandPlacement::dual).collect::<Option<Vec<OperandPlacement>>>()
        };
        Some(Strategy { inputs: duals(&self.outputs)?, outputs: duals(&self.inputs)? })
    }

    /// Returns all backward strategies of this one: its transpose, and replicas if all operands are replicas.
    ///
    /// ```
    /// use reshard_ops::rules::Strategy;
    /// let replicas: Strategy = "R,R -> R".parse()?;
    /// let texts: Vec<String> = replicas.transposes().iter().map(ToString::to_string).collect();
    /// assert_eq!(texts, ["P -> P,P", "R -> R,R"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn transposes(&self) -> Vec<Strategy> {
        let alike = self.inputs.iter().chain(&self.outputs).all(|part| *part == OperandPlacement::Replicate);
        let same = alike.then(|| Strategy { inputs: self.outputs.clone(), outputs: self.inputs.clone() });
        self.transposed().into_iter().chain(same).collect()
    }
}

impl OperandPlacement {
    /// Returns the cotangent of an operand's part.
    fn dual(&self) -> Option<OperandPlacement> {
        match self {
            OperandPlacement::Replicate => Some(OperandPlacement::Partial(ReduceOp::Sum)),
            OperandPlacement::Partial(ReduceOp::Sum) => Some(OperandPlacement::Replicate),
            OperandPlacement::Partial(_) => None,
            OperandPlacement::Fixed(placement) => dual(placement).map(OperandPlacement::Fixed),
            OperandPlacement::Factor(_) | OperandPlacement::Rest | OperandPlacement::Dim { .. } => {
                Some(self.clone())
            }
        }
    }
}

/// Returns the cotangent of a placement that a row names.
fn dual(placement: &Placement) -> Option<Placement> {
    match placement {
        Placement::Replicate => Some(Placement::Partial(ReduceOp::Sum)),
        Placement::Partial(ReduceOp::Sum) => Some(Placement::Replicate),
        Placement::Partial(_) => None,
        Placement::Shard(_)
        | Placement::StridedShard { .. }
        | Placement::Ragged { .. }
        | Placement::Custom { .. } => Some(placement.clone()),
    }
}

impl Op {
    /// Returns the vector-Jacobian product of this op, `a.., b.., b*.. -> a*..`.
    ///
    /// Its operands are the inputs, the outputs and the gradients of some outputs; its results are the
    /// gradients of some inputs. Both are given by index. Its rows are those of this op, transposed, and one
    /// more along axes where all operands are replicas: there the gradients may be replicas, too. A view
    /// saves nothing, and its product is the view back, `b* -> a*`.
    ///
    /// ```
    /// use reshard_ops::rules::{Op, Rule};
    /// let linear: Rule = "bi,oi->bo".parse()?;
    /// let vjp = Op::new("linear", &linear, &[&[8, 4], &[6, 4]])?.vjp(&[0, 1], &[0])?;
    /// assert_eq!(vjp.name(), "vjp(linear)");
    /// assert_eq!(vjp.outputs(), [[8, 4], [6, 4]]);
    /// // The batch is sharded, so the weight's gradient is partial.
    /// assert_eq!(vjp.strategies()[0].to_string(), "S(b0),R,S(b0),S(b0) -> S(b0),P");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for an index that is out of range.
    pub fn vjp(&self, inputs: &[usize], outputs: &[usize]) -> Result<Op, Error> {
        for (what, numbers, of) in
            [("input", inputs, self.inputs().len()), ("output", outputs, self.outputs().len())]
        {
            if let Some(&number) = numbers.iter().find(|&&number| number >= of) {
                return Err(Error::Rule {
                    reason: format!(
                        "{} has {of} {what}s, and no {what} {number}; they count from 0",
                        self.name()
                    ),
                });
            }
        }
        let name = format!("vjp({})", self.name());
        let Some(bound) = self.bound() else {
            return Op::view(&self.outputs()[0], &self.inputs()[0]).map(|op| op.named(&name));
        };
        // The operands whose gradients are given, then those whose gradients are made.
        let saved = [self.inputs(), self.outputs()].concat();
        let given: Vec<usize> = outputs.iter().map(|o| self.inputs().len() + o).collect();
        let shapes = |of: &[usize]| of.iter().map(|&o| saved[o].clone()).collect::<Vec<_>>();
        let rows = transposed(bound, &[&given, inputs].concat());
        Ok(Op::of_rows(&name, [&saved[..], &shapes(&given)].concat(), shapes(inputs), rows))
    }
}

/// Returns the rows of a vector-Jacobian product: of all operands, and of the gradients of these.
fn transposed(bound: &Bound, gradients: &[usize]) -> Bound {
    let mut fixed = bound.fixed.clone();
    let mut rows: Vec<Row> = Vec::with_capacity(bound.rows.len() + 1);
    for row in &bound.rows {
        let mut dual_of = |entry: Entry| match entry {
            Entry::Replicate => Some(Entry::Partial(ReduceOp::Sum)),
            Entry::Partial(ReduceOp::Sum) => Some(Entry::Replicate),
            Entry::Partial(_) => None,
            Entry::Shard { .. } => Some(entry),
            Entry::Fixed(number) => {
                let dual = dual(&bound.fixed[usize::from(number)])?;
                let at = fixed.iter().position(|known| *known == dual).unwrap_or_else(|| {
                    fixed.push(dual);
                    fixed.len() - 1
                });
                u16::try_from(at).ok().map(Entry::Fixed)
            }
        };
        // This includes operands without a required gradient: their values are saved, and no derivative of
        // them is known.
        let linear = row.entries.iter().all(|e| !matches!(e, Entry::Partial(op) if *op != ReduceOp::Sum));
        let duals: Option<Vec<Entry>> = gradients.iter().map(|&o| dual_of(row.entries[o])).collect();
        let Some(duals) = duals.filter(|_| linear) else { continue };
        let replicated = row.entries.iter().all(|e| *e == Entry::Replicate);
        rows.push(Row { entries: [&row.entries[..], &duals].concat(), region: row.region });
        if replicated {
            let same = vec![Entry::Replicate; row.entries.len() + gradients.len()];
            rows.push(Row { entries: same, region: row.region });
        }
    }
    let mut dims = bound.dims.clone();
    if !dims.is_empty() {
        dims.extend(gradients.iter().map(|&o| bound.dims[o].clone()));
    }
    Bound { factors: bound.factors.clone(), dims, rows, fixed, written: Vec::new() }
}
