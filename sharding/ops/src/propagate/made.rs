//! The outputs of a whole path, and the cost of their constraints.

use std::sync::Arc;

use crate::Error;
use crate::propagate::bound::picoseconds_below;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::problem::{Path, Problem};
use reshard_planner::Plan;
use reshard_planner::internal::{Ask, Effort, Price};
use reshard_sharding::Sharding;

/// The outputs after their constraints, and the plan of each one that is redistributed.
pub(super) type Finished = (Vec<Sharding>, Vec<Option<Arc<Plan>>>);

/// The outputs of a path before their constraints, and the cost of these.
#[derive(Clone, Debug)]
pub(super) struct Made {
    outputs: Vec<Sharding>,
    /// Lower bound of the cost, in picoseconds.
    pub(super) least: u64,
    /// Upper bound of the cost, once it was requested; equal to `least` if the cost is exact.
    pub(super) most: Option<u64>,
}

impl Made {
    /// Returns the outputs with bounds that are cheap to compute.
    pub(super) fn new(p: &Problem<'_>, path: &Path, first: Option<&Sharding>) -> Result<Made, Error> {
        let mut made = Made { outputs: p.outputs(path, first)?, least: 0, most: None };
        let mut exact = true;
        let bounds = made.constraints_cost(p, |out, sharding| {
            let bound = p.planner.lower_bound_us(out, sharding, p.output_dtype)?;
            exact &= bound == 0.0 && p.trusts_free;
            Ok(Some(picoseconds_below(bound)))
        })?;
        made.least = bounds.unwrap_or(0);
        made.most = exact.then_some(made.least);
        Ok(made)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.most == Some(self.least)
    }

    /// Bounds the cost of the constraints from above, by closed forms.
    pub(super) fn bound_from_above(&mut self, p: &Problem<'_>, effort: &mut Effort) {
        if self.most.is_none() {
            self.most = self.priced(p, Ask::Quick, effort).ok().flatten();
        }
    }

    /// Requests the exact cost if it is at most `limit` picoseconds; else records that it is more.
    pub(super) fn price(&mut self, p: &Problem<'_>, limit: u64, effort: &mut Effort) -> Result<(), Error> {
        if !self.is_exact() {
            match self.priced(p, Ask::Within(limit), effort)? {
                Some(cost) => (self.least, self.most) = (cost, Some(cost)),
                None => self.least = self.least.max(limit.saturating_add(1)),
            }
        }
        Ok(())
    }

    /// Returns the total cost of the constraints, if this kind of request determines it.
    fn priced(&self, p: &Problem<'_>, ask: Ask, effort: &mut Effort) -> Result<Option<u64>, Error> {
        self.constraints_cost(p, |out, sharding| {
            let (price, took) = p.planner.price(out, sharding, p.output_dtype, ask)?;
            *effort = effort.and(took);
            match price {
                Price::Exactly(cost) | Price::AtMost(cost) => Ok(Some(cost)),
                Price::MoreThan(_) => Ok(None),
            }
        })
    }

    /// Returns the total cost of the constraints; `moved` prices the redistribution of one output.
    fn constraints_cost(
        &self,
        p: &Problem<'_>,
        mut moved: impl FnMut(&Sharding, &Sharding) -> Result<Option<u64>, Error>,
    ) -> Result<Option<u64>, Error> {
        let mut sum = 0u64;
        for (out, constraint) in self.outputs.iter().zip(p.constraints) {
            let cost = match constraint {
                OutputConstraint::Exactly(sharding) if out != sharding => match moved(out, sharding)? {
                    Some(cost) => cost,
                    None => return Ok(None),
                },
                OutputConstraint::Reduced if out.is_partial() => {
                    match p.planner.price(out, &out.reduced(), p.output_dtype, Ask::Quick)?.0 {
                        Price::Exactly(cost) | Price::AtMost(cost) | Price::MoreThan(cost) => cost,
                    }
                }
                OutputConstraint::Prefer { sharding, penalty_us } if out != sharding => {
                    (penalty_us.max(0.0) * 1e6).round() as u64
                }
                OutputConstraint::Any
                | OutputConstraint::Reduced
                | OutputConstraint::Prefer { .. }
                | OutputConstraint::Exactly(_) => 0,
            };
            sum = sum.saturating_add(cost);
        }
        Ok(Some(sum))
    }

    /// The outputs after their constraints, and the plans that take them there.
    pub(super) fn finish(&self, p: &Problem<'_>) -> Result<Finished, Error> {
        let mut outputs = self.outputs.clone();
        let mut plans = vec![None; outputs.len()];
        for ((out, constraint), plan) in outputs.iter_mut().zip(p.constraints).zip(&mut plans) {
            if let OutputConstraint::Exactly(sharding) = constraint
                && out != sharding
            {
                let limit = self.most.unwrap_or(u64::MAX);
                *plan = Some(Arc::new(p.planner.plan_within(out, sharding, p.output_dtype, limit)?));
                *out = sharding.clone();
            }
        }
        Ok((outputs, plans))
    }
}
