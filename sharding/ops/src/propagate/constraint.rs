//! Constraints of outputs.

use reshard_sharding::Sharding;

/// The requirement on an output, in addition to the cost of its inputs.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum OutputConstraint {
    /// No constraint.
    #[default]
    Any,
    /// Partial values are charged the closed-form cost of reducing them to replicas; no plan is inserted.
    ///
    /// A search over one op only would treat partial outputs as free, however large the tensor is. A product
    /// that contracts over every axis may cost less now and a thousand times more at the next op.
    Reduced,
    /// This sharding is preferred; any other costs extra microseconds.
    Prefer {
        /// The preferred sharding.
        sharding: Sharding,
        /// The extra cost of any other sharding, at least 0.
        penalty_us: f64,
    },
    /// This sharding: the op's output is redistributed to it, and the plan is part of the choice.
    Exactly(Sharding),
}

impl OutputConstraint {
    pub(super) fn sharding(&self) -> Option<&Sharding> {
        match self {
            OutputConstraint::Any | OutputConstraint::Reduced => None,
            OutputConstraint::Prefer { sharding, .. } | OutputConstraint::Exactly(sharding) => Some(sharding),
        }
    }
}
