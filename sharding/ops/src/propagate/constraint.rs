//! What is wanted of an output.

use reshard_sharding::Sharding;

/// What is wanted of an output, beyond the cost of its inputs.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum OutputConstraint {
    /// Nothing.
    #[default]
    Any,
    /// Terms are counted at what reducing them to replicas would cost in closed form, although nothing is inserted.
    ///
    /// Whoever looks at one op only finds terms free, however large the tensor is that holds them: a product that contracts
    /// over every axis may cost less now and a thousand times more at the next op.
    Reduced,
    /// This sharding, or as many microseconds more.
    Prefer {
        /// The preferred sharding.
        sharding: Sharding,
        /// What any other one costs extra, at least 0.
        penalty_us: f64,
    },
    /// This sharding: what the op makes is redistributed to it, and the plan is part of the choice.
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
