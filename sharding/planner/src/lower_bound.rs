//! The time of a plan that is not made: lower bounds, and estimates of the cost.
//!
//! ```text
//! 0                                 if a plan without communication exists
//! lower_bound_us of the cost model  else, of the minimum that the worst rank receives from beyond each level (see `bounds`),
//!                                   and of at least one communicating step
//! ```
//!
//! So a redistribution is free exactly where its bound is 0. Between states of one digit system, no data is
//! transferred exactly if every digit keeps its position, was replicated, or becomes partial. A replicated
//! digit takes its position by a slice, and one that becomes partial is zero-filled.

use smallvec::SmallVec;

use crate::Error;
use crate::budget::Effort;
use crate::choose;
use crate::choose::alike::Prices;
use crate::model::MinTraffic;
use crate::model::codes::{Codes, inside_one_domain};
use crate::model::totals::picoseconds;
use crate::objective::Objective;
use crate::planner::Planner;
use crate::problem::Question;
use crate::regions::need::needs;
use crate::states::refine::{Moving, Refined};
use crate::states::system::{code, is_local};
use reshard_kernels::DType;
use reshard_sharding::Sharding;
use reshard_sharding::internal::shared_len;

impl Planner {
    /// Returns a lower bound, in microseconds, of any plan of this planner, without making one.
    ///
    /// Ensures `lower_bound_us(a, b, n) <= plan(a, b, n).cost_us()`, and 0 exactly where there is a plan that
    /// only slices and fills (which objective `peak` may still not take). Where the digits of both shardings
    /// nest, this examines digits alone. Otherwise it may examine every rank, and it makes the plan for
    /// partial targets. Where digits nest, it is at least
    /// [`Plan::lower_bound_us`](crate::Plan::lower_bound_us), and it also bounds partial targets.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[1024, 1024], text);
    /// let planner = Planner::new();
    /// assert_eq!(planner.lower_bound_us(&of("R,S(0)")?, &of("S(1),S(0)")?, DType::F32)?, 0.0); // a slice
    /// let (from, to) = (of("S(0),P")?, of("S(1),R")?);
    /// let bound = planner.lower_bound_us(&from, &to, DType::F32)?;
    /// assert!(bound > 6.6 && bound <= planner.plan(&from, &to, DType::F32)?.cost_us());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    ///
    /// Fails if the shapes differ or a shard would have to become a partial value of an average, as
    /// [`Planner::plan`] does. Limits on memory and groups are ignored.
    pub fn lower_bound_us(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<f64, Error> {
        Ok(self.lower_bound_and_ranks(from, to, dtype)?.0)
    }

    /// Returns the same, and the number of ranks that were examined.
    ///
    /// It is 0 if digits suffice. Ranks that hold the same shard count once.
    #[doc(hidden)]
    pub fn lower_bound_and_ranks(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
    ) -> Result<(f64, usize), Error> {
        let q = Question::checked(self.options(), from, to, dtype)?;
        if q.is_trivial() {
            return Ok((0.0, 0));
        }
        match q.bound_of_digits() {
            Some(bound) => Ok((bound, 0)),
            None => Ok((q.bound_of_regions()?, q.ranks_apart())),
        }
    }
}

impl Question<'_> {
    /// Returns a cost estimate in microseconds, from the digits alone.
    ///
    /// It is the lower bound where digits nest. Otherwise it is 0 if shards are only split further, and the
    /// time to receive the largest shard if not.
    pub(crate) fn roughly_us(&self) -> f64 {
        if self.is_trivial() {
            return 0.0;
        }
        self.bound_of_digits().unwrap_or_else(|| {
            if self.only_cuts_further() {
                return 0.0;
            }
            let bytes = self.to.max_local_numel() as f64 * self.item as f64;
            self.time_needed(&[MinTraffic::bytes(bytes)])
        })
    }

    /// Returns `true` if the target of every rank is a part of its source, by the splits alone.
    fn only_cuts_further(&self) -> bool {
        let cut = |d| self.to.dim_cuts(d).starts_with(&self.from.dim_cuts(d));
        self.on_one_mesh()
            && self.from.partial() == self.to.partial()
            && (0..self.from.shape().len()).all(cut)
    }

    /// Returns an estimated price in picoseconds, where none is computed; fails if there is no plan.
    pub(crate) fn stand_in_price(&self) -> Result<u64, Error> {
        let options = self.options;
        if options.max_peak_bytes.is_some() || options.groups.is_some() {
            // Only a search can determine if a plan within limits exists.
            return Ok(choose::picoseconds(self)?.0);
        }
        if self.moving().is_none() {
            self.few_ranks()?;
        }
        Ok(picoseconds(self.roughly_us()))
    }

    /// Returns the lower bound where the digits nest.
    fn bound_of_digits(&self) -> Option<f64> {
        let digits = self.moving()?;
        if digits.iter().all(|d| is_local(d.places)) {
            return Some(0.0);
        }
        let (mut s, mut t) = (Codes::new(), Codes::new());
        for d in &digits {
            let [from, to] = d.places;
            s.push(code(from, from));
            t.push(code(to, from));
        }
        let (mut bounding, nest) = self.weigh(digits.iter().map(|d| d.mode));
        if !nest {
            bounding = inside_one_domain(&bounding);
        }
        let needs = self.needs_between(&bounding, [&s, &t]);
        Some(self.time_needed(&needs))
    }

    /// Returns the digits with their positions before and after; `None` unless they nest on one mesh.
    fn moving(&self) -> Option<SmallVec<[Moving; 8]>> {
        if !self.on_one_mesh() {
            return None;
        }
        let mut refined = Refined::new();
        if refined.fill(self.from, self.to, &self.network.cuts()) {
            return Some(refined.digits);
        }
        let (system, from, to) = self.states()?;
        let places = from.iter().zip(&to).map(|(from, to)| [*from, *to]);
        Some(system.digits.iter().zip(places).map(|(&mode, places)| Moving { mode, places }).collect())
    }

    /// Returns the number of ranks that hold different shards, before or after.
    fn ranks_apart(&self) -> usize {
        let (from, to) = (self.from, self.to);
        if !self.on_one_mesh() || to.is_partial() {
            return from.mesh().size().max(to.mesh().size());
        }
        let mut axes: SmallVec<[usize; 8]> = from.cutting().chain(to.cutting()).map(|sub| sub.axis).collect();
        axes.sort_unstable();
        axes.dedup();
        axes.into_iter().map(|axis| from.mesh().axes()[axis].size()).product()
    }

    /// Returns `true` if nothing has to be sent.
    ///
    /// Once `known` admits no more examinations of ranks, an estimate replaces them.
    pub(crate) fn is_free(&self, known: &mut Prices) -> Result<bool, Error> {
        if self.is_trivial() {
            return Ok(true);
        }
        if let Some(digits) = self.moving() {
            return Ok(digits.iter().all(|d| is_local(d.places)));
        }
        let look = || Ok((self.is_free_by_regions()?, Effort::default()));
        known.look(self, look, || Ok(self.stand_in_price()? == 0))
    }

    /// Returns the same by regions.
    ///
    /// A rank that lacks data is usually found before all ranks are examined.
    fn is_free_by_regions(&self) -> Result<bool, Error> {
        let (from, to) = (self.from, self.to);
        // Axes that become partial are filled with zeros, which may need a step all the same.
        if !self.on_one_mesh() || from.partial() != to.partial() {
            return Ok(self.bound_of_regions()? == 0.0);
        }
        self.few_ranks()?;
        if self.only_cuts_further() {
            return Ok(true);
        }
        let mesh = from.mesh();
        for rank in mesh.ranks() {
            let (Some(c), Ok(wanted)) = (mesh.coordinate(rank), to.region(rank)) else { continue };
            if wanted.numel() == 0 {
                continue;
            }
            for (dim, wanted) in wanted.dims.iter().enumerate() {
                let len = wanted.iter().map(|x| x.len).sum::<usize>();
                if shared_len(&from.intervals(dim, &c)?, wanted) < len {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns the lower bound where regions overlap.
    ///
    /// An axis that becomes partial may need a step although no byte is sure to be received. Then the best
    /// plan decides, unless its search ran out of budget.
    fn bound_of_regions(&self) -> Result<f64, Error> {
        self.few_ranks()?;
        let needs = needs(&self.network, self.from, self.to, self.item)?;
        let bound = self.bound_of_needs(&needs);
        if bound > 0.0 || !self.to.is_partial() {
            return Ok(bound);
        }
        let mut free = self.options.free();
        free.objective = Objective::Time;
        let plan = choose::plan(&self.part(&free, self.from, self.to), u64::MAX, None)?;
        let talks = plan.communicating_steps() > 0 && !plan.is_budget_exhausted();
        Ok(if talks { self.time_needed(&[]) } else { 0.0 })
    }
}
