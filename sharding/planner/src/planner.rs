//! The planner: its options, and the requests that it answers.

use std::sync::Arc;

use reshard_kernels::DType;

use crate::Error;
use crate::arithmetic::Arithmetic;
use crate::budget::{Effort, SearchBudget};
use crate::candidates::regions::no_group;
use crate::choose;
use crate::choose::alike::Prices;
use crate::choose::price::{self, Ask, Price};
use crate::choose::refusal;
use crate::model::{CostModel, Model, Topology};
use crate::objective::Objective;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::problem::Question;
use crate::stop;
use reshard_sharding::{GroupPattern, Sharding};

/// Makes plans for one network and one objective.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::{Objective, Planner};
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[8], "P,P")?;
/// let to = Sharding::parse(&mesh, &[8], "R,R")?;
/// let plan = Planner::new().objective(Objective::Bytes).plan(&from, &to, DType::F32)?;
/// assert_eq!(plan.communicating_steps(), 1);
/// assert_eq!(plan.groups()[0].to_string(), "4:1");
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planner {
    options: PlanOptions,
}

impl From<PlanOptions> for Planner {
    fn from(options: PlanOptions) -> Planner {
        Planner { options }
    }
}

impl Planner {
    /// Returns a planner for the `uniform` network and objective `time`.
    pub fn new() -> Planner {
        Planner::default()
    }

    /// Sets the network.
    #[must_use]
    pub fn topology(self, topology: Topology) -> Planner {
        self.with(|options| options.model = Model::Topology(topology))
    }

    /// Sets the cost model to any implementation.
    ///
    /// Fails if the model's levels are invalid; [`check_cost_model`](crate::check_cost_model) tests the
    /// properties of [`CostModel`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use reshard_planner::{Planner, Topology};
    /// let planner = Planner::new().cost_model(Arc::new(Topology::h100()))?;
    /// assert_eq!(planner.options().cost_model(), "h100");
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    pub fn cost_model(self, model: Arc<dyn CostModel>) -> Result<Planner, Error> {
        let model = Model::of(model)?;
        Ok(self.with(|options| options.model = model))
    }

    /// Sets the objective.
    #[must_use]
    pub fn objective(self, objective: Objective) -> Planner {
        self.with(|options| options.objective = objective)
    }

    /// Limits the bytes of every rank: source, target and staging of any step.
    #[must_use]
    pub fn max_peak_bytes(self, bytes: u64) -> Planner {
        self.with(|options| options.max_peak_bytes = Some(bytes))
    }

    /// Restricts groups to those with the members of a given one.
    #[must_use]
    pub fn with_groups(self, groups: impl IntoIterator<Item = GroupPattern>) -> Planner {
        self.with(|options| options.groups = Some(groups.into_iter().collect()))
    }

    /// Makes every reduction an exchange of all partial values and a local combine in rank order.
    ///
    /// Then each element is one left fold over the coordinates of the partial axes that go away, outermost
    /// axis first. It is divided once at the end where some axes are averages. That is the result of
    /// [`Sharding::assemble`](reshard_sharding::Sharding::assemble), bit for bit, for any plan, target, network and
    /// engine. Partial values that stay partial are not changed.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::{Planner, StepOp};
    /// let mesh: Mesh = "x=4".parse()?;
    /// let from = Sharding::parse(&mesh, &[8], "P")?;
    /// let to = Sharding::parse(&mesh, &[8], "S(0)")?;
    /// let plan = Planner::new().deterministic(true).plan(&from, &to, DType::F32)?;
    /// assert_eq!(plan.steps()[0].op(), StepOp::Exchange);
    /// let phases = plan.steps()[0].phases(1)?;
    /// let order: Vec<usize> = phases[0].receives.iter().map(|m| m.peer).collect();
    /// assert_eq!(order, [0, 1, 2, 3]);
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    #[must_use]
    pub fn deterministic(self, deterministic: bool) -> Planner {
        self.with(|options| options.deterministic = deterministic)
    }

    /// Sets the arithmetic that reduces partial values, which may support types that our kernels do not.
    #[must_use]
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Planner {
        self.with(|options| options.arithmetic = arithmetic)
    }

    /// Sets the work limit of a search; when it is exhausted, the best plan so far is returned.
    #[must_use]
    pub fn budget(self, budget: SearchBudget) -> Planner {
        self.with(|options| options.budget = budget)
    }

    /// Returns the options of this planner.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    fn with(mut self, change: impl FnOnce(&mut PlanOptions)) -> Planner {
        change(&mut self.options);
        self
    }

    /// Returns the plan from one sharding to another of the same tensor, whose elements are of type `dtype`.
    ///
    /// Fails if the shapes differ, or if elements of that type share bytes. Fails if they cannot be reduced
    /// as the shardings require (unless that is left to the [framework](Planner::arithmetic)). Fails if a
    /// shard would have to become a partial value of an average, or if no plan keeps to the requested limits
    /// of memory and groups.
    pub fn plan(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<Plan, Error> {
        self.plan_within(from, to, dtype, u64::MAX)
    }

    /// Returns the same plan, found sooner if it is known to cost at most `limit` picoseconds.
    #[doc(hidden)]
    pub fn plan_within(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
        limit: u64,
    ) -> Result<Plan, Error> {
        let plan = choose::plan(&Question::checked(&self.options, from, to, dtype)?, limit, None)?;
        // A search that was stopped may have found a plan all the same.
        stop::go_on()?;
        Ok(plan)
    }

    /// Returns the plan that a greedy planner makes axis by axis, costed on the same network.
    ///
    /// It is `None` between two meshes, which have no common axes, and where the ranks of one of its steps do
    /// not form a group. It ignores the limits of memory and groups.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let from = Sharding::parse(&mesh, &[64, 64], "S(0),S(1)")?;
    /// let to = Sharding::parse(&mesh, &[64, 64], "S(1),S(0)")?;
    /// let greedy = Planner::new().axis_by_axis(&from, &to, DType::F32)?.unwrap();
    /// let ours = Planner::new().plan(&from, &to, DType::F32)?;
    /// assert_eq!(greedy.communicating_steps(), 2);
    /// assert!(ours.received_bytes() < greedy.received_bytes());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    pub fn axis_by_axis(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<Option<Plan>, Error> {
        let q = Question::checked(&self.options, from, to, dtype)?;
        if q.on_one_mesh() { choose::greedy::plan(&q).map(Some).or_else(no_group) } else { Ok(None) }
    }

    /// Returns the cost of the plan in microseconds: `plan(from, to, dtype)?.cost_us()`, to the bit.
    ///
    /// It makes no steps where the plan only slices or fills, and where it needs no search (one level, no
    /// partial values, no limits). There it takes a fraction of the time of making the plan, and elsewhere as
    /// much.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[1024, 1024], text);
    /// let (planner, from, to) = (Planner::new(), of("S(0),S(1)")?, of("S(1),R")?);
    /// assert_eq!(planner.cost_us(&from, &to, DType::F32)?, planner.plan(&from, &to, DType::F32)?.cost_us());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    ///
    /// Fails where [`Planner::plan`] does, with the same error.
    pub fn cost_us(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<f64, Error> {
        let q = Question::checked(&self.options, from, to, dtype)?;
        match price::cost_without_steps(&q)? {
            Some(cost) => Ok(cost),
            None => Ok(choose::plan(&q, u64::MAX, None)?.cost_us()),
        }
    }

    /// Returns the groups that the unrestricted plan would add, and the microseconds that each would save.
    pub fn group_savings(&self, plan: &Plan) -> Result<Vec<(GroupPattern, f64)>, Error> {
        let Some(known) = self.options.groups() else { return Ok(Vec::new()) };
        let free = self.clone().with(|options| options.groups = None);
        let unrestricted = free.plan(&plan.from, &plan.to, plan.dtype)?;
        let mut out = Vec::new();
        for group in refusal::missing(&self.options, &unrestricted) {
            let more = known.iter().chain([group]).cloned();
            let with = self.clone().with_groups(more).plan(&plan.from, &plan.to, plan.dtype)?;
            // With one more group this plan is still possible.
            out.push((group.clone(), (plan.cost_us() - with.cost_us()).max(0.0)));
        }
        Ok(out)
    }

    /// Returns `true` if a redistribution sends nothing; fails if there is no plan.
    ///
    /// Once `known` admits no more examinations of ranks, an estimate replaces them.
    #[doc(hidden)]
    pub fn is_free(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
        known: &mut Prices,
    ) -> Result<bool, Error> {
        Question::checked(&self.options, from, to, dtype)?.is_free(known)
    }

    /// Returns a cost estimate in microseconds, in time independent of the number of ranks.
    ///
    /// Fails for an invalid request.
    #[doc(hidden)]
    pub fn roughly_us(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<f64, Error> {
        Ok(Question::checked(&self.options, from, to, dtype)?.roughly_us())
    }

    /// Returns the price of a plan with the requested precision, and the effort; fails if there is no plan.
    #[doc(hidden)]
    pub fn price(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
        ask: Ask,
    ) -> Result<(Price, Effort), Error> {
        price::price(&Question::checked(&self.options, from, to, dtype)?, ask)
    }

    /// Returns the price of a plan in picoseconds, from the cache if possible; fails if there is no plan.
    ///
    /// It is exact unless the cache reports estimates. Requires that all cached prices are those of this
    /// planner.
    #[doc(hidden)]
    pub fn price_once(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
        known: &mut Prices,
    ) -> Result<u64, Error> {
        let q = Question::checked(&self.options, from, to, dtype)?;
        price::price_once(&q, known, || q.stand_in_price())
    }
}
