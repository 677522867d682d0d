//! The check of one call on a whole mesh: local results in some shardings represent the whole result.

use super::data::Random;
use super::local::{LocalView, Tensor};
use super::trial::{ROOTS, Shapes, is_of_norms, on_the_whole, same};
use super::{Verifier, reason};
use reshard_ops::Error;
use reshard_ops::rules::{Op, ShardRegion};
use reshard_sharding::{ReduceOp, Sharding};

impl Verifier<'_> {
    /// Checks that the op, run by every rank on shards of the inputs, makes outputs in these shardings.
    ///
    /// This is the property that [propagation](reshard_ops::propagate) asserts of its choices, on any number of
    /// axes.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_ops::rules::Op;
    /// use reshard_verify::{Tensor, Verifier};
    /// let double = Verifier::new("double", |local| {
    ///     let x = local.inputs[0];
    ///     Ok(vec![Tensor::new(&x.shape, x.data.iter().map(|v| 2.0 * v).collect())])
    /// });
    /// let op = Op::new("double", &"ij->ij".parse()?, &[&[6, 5]])?;
    /// let mesh: Mesh = "x=2,y=3".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[6, 5], text);
    /// double.holds(&op, &[of("S(1),P")?], &[of("S(1),P")?])?;
    /// let error = double.holds(&op, &[of("S(1),P")?], &[of("S(1),P(max)")?]).unwrap_err();
    /// assert!(error.to_string().contains("element [0,"));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails with the first element that differs, and where the shardings are not the operands'.
    pub fn holds(&self, op: &Op, inputs: &[Sharding], outputs: &[Sharding]) -> Result<(), Error> {
        let shapes = Shapes { inputs: op.inputs().to_vec(), outputs: op.outputs().to_vec() };
        let agree = |given: &[Sharding], shapes: &[Vec<usize>]| {
            given.len() == shapes.len() && given.iter().zip(shapes).all(|(s, n)| s.shape() == n.as_slice())
        };
        let first = inputs.iter().chain(outputs).next();
        let Some(mesh) = first.map(Sharding::mesh).filter(|m| {
            let here = |s: &Sharding| s.mesh() == *m;
            inputs.iter().chain(outputs).all(here)
        }) else {
            return Err(self.error(&shapes, "its operands are not on one mesh"));
        };
        if !agree(inputs, &shapes.inputs) || !agree(outputs, &shapes.outputs) {
            return Err(self.error(&shapes, "the shardings are not of its operands' shapes"));
        }
        let list = |all: &[Sharding]| all.iter().map(|s| format!("[{s}]")).collect::<Vec<_>>().join(",");
        let said = || format!("{} -> {} is wrong on {mesh}: ", list(inputs), list(outputs));
        let mut random = Random::new(self.seed ^ 0x3E57);
        let rounds = inputs.iter().any(is_of_norms);
        let tolerance = if rounds { self.tolerance.max(ROOTS) } else { self.tolerance };
        for _ in 0..self.sets {
            let mut wholes: Vec<Tensor> = (shapes.inputs.iter().enumerate())
                .map(|(i, s)| Tensor::new(s, self.data_of(i).whole(s, &mut random)))
                .collect();
            // Partial values of norms denote no negative number.
            for (whole, _) in wholes.iter_mut().zip(inputs).filter(|(_, s)| is_of_norms(s)) {
                whole.data.iter_mut().for_each(|x| *x = x.abs());
            }
            let truths = on_the_whole(self, &shapes, &wholes)?;
            let mut terms = Vec::with_capacity(inputs.len());
            for (i, (whole, s)) in wholes.iter().zip(inputs).enumerate() {
                terms.push(self.terms_of(i, whole, s, &mut random));
            }
            let mut locals = Vec::new();
            for rank in mesh.ranks() {
                let place = |s: &Sharding| -> Result<ShardRegion, Error> {
                    Ok(ShardRegion { region: s.region(rank)?, whole: s.shape().to_vec() })
                };
                let places = inputs.iter().map(place).collect::<Result<Vec<ShardRegion>, Error>>()?;
                let wanted = outputs.iter().map(place).collect::<Result<Vec<ShardRegion>, Error>>()?;
                let mut held = Vec::with_capacity(inputs.len());
                for ((s, terms), place) in inputs.iter().zip(&terms).zip(&places) {
                    let term = &terms[term_of(s, rank)];
                    let data = s.global_indices(rank)?.iter().map(|&e| term[e]).collect();
                    held.push(Tensor { shape: place.shape(), data });
                }
                let local = LocalView {
                    inputs: held.iter().collect(),
                    input_regions: places.iter().collect(),
                    output_regions: wanted.iter().collect(),
                };
                let out = self.run(&local);
                locals.push(out.map_err(|e| self.error(&shapes, format!("{}rank {rank} {e}", said())))?);
            }
            for (o, (sharding, truth)) in outputs.iter().zip(&truths).enumerate() {
                same((tolerance, self.replicas), o, sharding, truth, &locals)
                    .map_err(|e| self.error(&shapes, format!("{}{}", said(), reason(&e))))?;
            }
        }
        Ok(())
    }

    /// Returns the partial values of a tensor over the partial axes of a sharding; without any, the tensor.
    fn terms_of(&self, input: usize, whole: &Tensor, s: &Sharding, random: &mut Random) -> Vec<Vec<f64>> {
        let ops: Vec<ReduceOp> = s.partial().iter().map(|p| p.op).collect();
        let (Some(&op), Some((combining, divisor))) = (ops.first(), s.reduction()) else {
            return vec![whole.data.clone()];
        };
        let n = s.partial().iter().map(|p| p.sub.size).product();
        if ops.iter().all(|o| *o == op) {
            return self.data_of(input).terms(op, &whole.data, n, random);
        }
        // Sums and averages: the sum of all, divided once.
        let mut terms = self.data_of(input).terms(combining, &whole.data, n, random);
        terms.iter_mut().flatten().for_each(|x| *x *= divisor as f64);
        terms
    }
}

/// The index of the partial value that a rank holds.
fn term_of(s: &Sharding, rank: usize) -> usize {
    let coordinate = s.mesh().coordinate(rank).unwrap_or_default();
    s.partial().iter().fold(0, |term, p| {
        let n = s.mesh().axes()[p.sub.axis].size();
        term * p.sub.size + p.sub.known_digit(coordinate[p.sub.axis], n)
    })
}
