//! What a plan is asked to be, besides from where to where.

use core::hash::Hasher;
use std::borrow::Cow;
use std::sync::Arc;

use crate::arithmetic::Arithmetic;
use crate::budget::SearchBudget;
use crate::model::{MinTraffic, Model};
use crate::objective::Objective;
use reshard_sharding::GroupPattern;

/// How a [`Planner`](crate::Planner) was asked to plan; every [`Plan`](crate::Plan) says how it
/// was.
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
    /// [`CostModel::least_us`](crate::CostModel::least_us) of the cost model.
    #[doc(hidden)]
    #[inline]
    pub fn least_us(&self, need: &[MinTraffic]) -> f64 {
        self.model.least_us(need)
    }

    /// The cost model as text: `uniform`, or another [`CostModel::text`](crate::CostModel::text).
    pub fn cost_model(&self) -> String {
        self.model.text()
    }

    /// What the plan is least in.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// Bytes that no rank may exceed, if any.
    pub fn max_peak_bytes(&self) -> Option<u64> {
        self.max_peak_bytes
    }

    /// The only groups that may be used, if not all.
    pub fn groups(&self) -> Option<&[GroupPattern]> {
        self.groups.as_deref()
    }

    /// Whether every reduction is combined in the order of its terms.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// Whose arithmetic reduces terms.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// How much is looked at before the best found so far is the answer.
    pub fn budget(&self) -> SearchBudget {
        self.budget
    }

    /// The same without limits: what parts of a plan are planned with, the limits being kept to by the whole.
    pub(crate) fn free(&self) -> PlanOptions {
        PlanOptions { groups: None, max_peak_bytes: None, ..self.clone() }
    }

    /// These, if they are without limits, else the same without.
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

    /// Feeds a hasher: equal options alike.
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
