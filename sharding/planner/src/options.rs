//! The requirements for a plan in addition to its source and target.

use core::hash::Hasher;
use std::borrow::Cow;
use std::sync::Arc;

use crate::arithmetic::Arithmetic;
use crate::budget::SearchBudget;
use crate::model::{MinTraffic, Model, Topology};
use crate::objective::Objective;
use reshard_sharding::GroupPattern;

/// The settings of a [`Planner`](crate::Planner); every [`Plan`](crate::Plan) has those it was made with.
///
/// ```
/// use reshard_planner::{Objective, Planner};
/// let planner = Planner::new().objective(Objective::Peak).max_peak_bytes(1 << 30);
/// assert_eq!(planner.options().objective(), Objective::Peak);
/// assert_eq!(planner.options().cost_model(), "uniform");
/// assert_eq!(Planner::from(planner.options().clone()), planner);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanOptions {
    pub(crate) model: Model,
    pub(crate) objective: Objective,
    pub(crate) max_peak_bytes: Option<u64>,
    pub(crate) groups: Option<Arc<[GroupPattern]>>,
    pub(crate) deterministic: bool,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) budget: SearchBudget,
}

impl PlanOptions {
    /// Returns [`CostModel::lower_bound_us`](crate::CostModel::lower_bound_us) of the cost model.
    #[doc(hidden)]
    #[inline]
    pub fn least_us(&self, need: &[MinTraffic]) -> f64 {
        self.model.least_us(need)
    }

    /// Returns the cost model as text.
    ///
    /// It is `uniform`, or another [`CostModel::cache_key`](crate::CostModel::cache_key).
    pub fn cost_model(&self) -> String {
        self.model.text()
    }

    /// Returns the network with its curves; `None` for another [`CostModel`](crate::CostModel).
    pub fn topology(&self) -> Option<&Topology> {
        match &self.model {
            Model::Topology(topology) => Some(topology),
            Model::Other { .. } => None,
        }
    }

    /// Returns the quantity that the plan minimizes.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// Returns the maximum number of bytes of a rank, if limited.
    pub fn max_peak_bytes(&self) -> Option<u64> {
        self.max_peak_bytes
    }

    /// Returns the only groups that may be used; `None` if all may be.
    pub fn groups(&self) -> Option<&[GroupPattern]> {
        self.groups.as_deref()
    }

    /// Returns `true` if every reduction combines its partial values in rank order.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// Returns the arithmetic that reduces partial values.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Returns the work limit of a search.
    pub fn budget(&self) -> SearchBudget {
        self.budget
    }

    /// Returns the same options without limits, to plan parts: the limits apply to the whole plan.
    pub(crate) fn free(&self) -> PlanOptions {
        PlanOptions { groups: None, max_peak_bytes: None, ..self.clone() }
    }

    /// Returns these options if they have no limits, else the same without them.
    pub(crate) fn without_limits(&self) -> Cow<'_, PlanOptions> {
        if self.is_limited() { Cow::Owned(self.free()) } else { Cow::Borrowed(self) }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.max_peak_bytes.is_some() || self.groups.is_some()
    }

    pub(crate) fn admits_peak(&self, peak: u64) -> bool {
        self.max_peak_bytes.is_none_or(|m| peak <= m)
    }

    pub(crate) fn admits_group(&self, group: &GroupPattern) -> bool {
        self.groups.as_ref().is_none_or(|known| known.iter().any(|one| group.is_covered_by(one)))
    }

    /// Feeds a hasher; equal options feed it equally.
    pub(crate) fn hash_word(&self, hasher: &mut impl Hasher) {
        hasher.write_u64(
            self.objective as u64 | u64::from(self.deterministic) << 8 | (self.arithmetic as u64) << 9,
        );
        hasher.write_u64(self.max_peak_bytes.map_or(0, |b| b.wrapping_add(1)));
        hasher.write_u64(self.groups.as_ref().map_or(0, |g| g.len() as u64 + 1));
        hasher.write_u64(self.budget.work());
        self.model.hash_word(hasher);
    }
}
