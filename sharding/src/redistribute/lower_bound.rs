//! The time of a plan that is not made: bounds, and what it would cost.
//!
//! ```text
//! 0                                              if a plan without communication exists
//! launch + latency of the outermost level        else, with need_l what the worst rank cannot do without from beyond
//!   that must be crossed                         level l (see `bounds`)
//!   + max over l of need_l / sum_{k>=l} rate_k
//! ```
//!
//! Between states of one digit system nothing moves exactly if every digit stays, or was replicated, or becomes partial:
//! a replicated digit takes its position by a slice, and one that becomes partial is zero-filled.

use smallvec::SmallVec;

use crate::redistribute::bounds::{self, Codes, Weight};
use crate::redistribute::digit_step::code;
use crate::redistribute::network::inside_one_unit;
use crate::redistribute::overlap::Overlap;
use crate::redistribute::planner::{Objective, Planner, Work};
use crate::redistribute::refine::{Moving, Refined};
use crate::redistribute::system::Place;
use crate::{Error, ReduceOp, Sharding};

impl Planner {
    /// Microseconds that no plan of this planner for the same question can beat, without making one.
    ///
    /// Ensures `lower_bound_us(a, b, n) <= plan(a, b, n).cost_us()`, and 0 exactly where there is a plan that only slices and
    /// fills (which objective `peak` may still not take). Where the digits of both shardings nest this looks at digits
    /// alone; otherwise it may look at every rank, and into partial targets make the plan. It is at least what
    /// [`Plan::lower_bound_us`](crate::redistribute::Plan::lower_bound_us) says where digits nest, and also says something
    /// of partial targets.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, redistribute::Planner};
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[1024, 1024], text);
    /// let planner = Planner::new();
    /// assert_eq!(planner.lower_bound_us(&of("R,S(0)")?, &of("S(1),S(0)")?, 4)?, 0.0); // a slice
    /// let (from, to) = (of("S(0),P")?, of("S(1),R")?);
    /// let bound = planner.lower_bound_us(&from, &to, 4)?;
    /// assert!(bound > 6.6 && bound <= planner.plan(&from, &to, 4)?.cost_us());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails if the shapes differ or a shard would have to become a term of an average, as [`Planner::plan`] does. Limits
    /// on memory and groups are not looked at.
    pub fn lower_bound_us(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<f64, Error> {
        Planner::check(from, to, item_bytes)?;
        if from == to || from.numel() == 0 {
            return Ok(0.0);
        }
        let work = Work::new(self, from, to, item_bytes as u64);
        match work.bound_of_digits() {
            Some(bound) => Ok(bound),
            None => work.bound_of_regions(),
        }
    }

    /// Microseconds that the plan takes under the model: `plan(from, to, item_bytes)?.cost_us()`, to the bit.
    ///
    /// Where the plan only slices or fills, and where it needs no search (one level, no terms, no limits), this costs a
    /// part of making it, since it makes no steps; elsewhere as much.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, redistribute::Planner};
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[1024, 1024], text);
    /// let (planner, from, to) = (Planner::new(), of("S(0),S(1)")?, of("S(1),R")?);
    /// assert_eq!(planner.cost_us(&from, &to, 4)?, planner.plan(&from, &to, 4)?.cost_us());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails where [`Planner::plan`] does, with the same error.
    pub fn cost_us(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<f64, Error> {
        Planner::check(from, to, item_bytes)?;
        let work = Work::new(self, from, to, item_bytes as u64);
        match work.cost_without_steps()? {
            Some(cost) => Ok(cost),
            None => Ok(self.plan(from, to, item_bytes)?.cost_us()),
        }
    }
}

/// Whether a slice or a zero-fill is all that a digit needs.
fn is_local([from, to]: [Place; 2]) -> bool {
    from == to
        || match (from, to) {
            (Place::Replicated, _) => true,
            (Place::At(_), Place::Partial(op)) => op != ReduceOp::Avg,
            (Place::At(_), Place::At(_) | Place::Replicated) | (Place::Partial(_), _) => false,
        }
}

impl Work<'_> {
    /// The cost of the plan where it is known without its steps.
    fn cost_without_steps(&self) -> Result<Option<f64>, Error> {
        let planner = self.planner;
        let limited = planner.max_peak_bytes.is_some() || planner.objective == Objective::Peak;
        if limited || self.from.mesh() != self.to.mesh() {
            return Ok(None);
        }
        if self.from == self.to || self.from.numel() == 0 {
            return Ok(Some(0.0));
        }
        let mut refined = Refined::new();
        let nests = refined.fill(self.from, self.to, &self.network.cuts());
        if nests && refined.digits.iter().all(|d| is_local(d.places)) {
            return Ok(Some(0.0));
        }
        let terms = self.from.is_partial() || self.to.is_partial();
        if !nests || terms || planner.groups.is_some() || self.network.levels() > 1 {
            return Ok(None);
        }
        let ends = self.ends_of(refined.system(self.from));
        let best = self.best_of_two(&ends)?;
        // As a plan adds its steps up.
        Ok(best.map(|(_, measured)| measured.iter().fold(0.0, |total, x| total + x.cost_us)))
    }

    /// The bound where the digits nest.
    fn bound_of_digits(&self) -> Option<f64> {
        if self.from.mesh() != self.to.mesh() {
            return None;
        }
        let mut refined = Refined::new();
        if refined.fill(self.from, self.to, &self.network.cuts()) {
            return Some(self.bound_of_moving(&refined.digits));
        }
        let (system, from, to) = self.states()?;
        let mut digits: SmallVec<[Moving; 8]> = SmallVec::new();
        for (d, &mode) in system.digits.iter().enumerate() {
            digits.push(Moving { mode, places: [from[d], to[d]] });
        }
        Some(self.bound_of_moving(&digits))
    }

    fn bound_of_moving(&self, digits: &[Moving]) -> f64 {
        if digits.iter().all(|d| is_local(d.places)) {
            return 0.0;
        }
        let (mut s, mut t) = (Codes::new(), Codes::new());
        for d in digits {
            let [from, to] = d.places;
            s.push(code(from, from));
            t.push(code(to, from));
        }
        let (mut bounding, nest) = self.weigh(digits.iter().map(|d| d.mode));
        if !nest {
            bounding = inside_one_unit(&bounding);
        }
        let mut needs = self.needs(&bounding, &s, &t);
        needs.iter_mut().for_each(|n| *n *= self.item as f64);
        self.time_needed(&needs)
    }

    /// The least time of a plan that communicates, of which the worst rank receives so many bytes from beyond each level.
    fn time_needed(&self, needs: &[f64]) -> f64 {
        let bound = self.network.topology.bound_us(needs);
        if bound > 0.0 { bound } else { self.network.topology.bound_us(&[f64::MIN_POSITIVE]) }
    }

    /// The bound where regions overlap: what the largest shard of the target has more than the largest of the source, or
    /// all of it where terms are reduced.
    fn bound_of_regions(&self) -> Result<f64, Error> {
        let (from, to) = (self.from, self.to);
        self.few_ranks()?;
        if to.is_partial() {
            let plan = self.free().objective(Objective::Time).plan(from, to, self.item as usize)?;
            let communicates = plan.communicating_steps() > 0;
            return Ok(if communicates { self.time_needed(&[0.0]) } else { 0.0 });
        }
        let held = if from.is_partial() { 0 } else { from.max_local_numel() };
        let more = to.max_local_numel().saturating_sub(held) as u64 * self.item;
        if more > 0 || !self.each_holds_its_target()? {
            return Ok(self.time_needed(&[more as f64]));
        }
        Ok(0.0)
    }

    /// Whether every rank holds all that it wants, of a source without terms.
    fn each_holds_its_target(&self) -> Result<bool, Error> {
        let overlap = Overlap::new(self.from, self.to);
        for rank in self.to.mesh().ranks() {
            let (wanted, held) = overlap.wanted_and_held(rank)?;
            if wanted != held {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Elements that the worst rank cannot do without from beyond each level.
    pub(super) fn needs(&self, bounding: &[Weight], from: &Codes, to: &Codes) -> SmallVec<[f64; 3]> {
        let numel = self.from.numel() as u64;
        let mut needs = SmallVec::new();
        for level in 0..self.network.levels() {
            needs.push(bounds::need(bounding, from, to, numel, level));
        }
        needs
    }
}
