//! Rules: the strategies of an op along one mesh axis.
//!
//! An op is a nest of loops over *factors*, and its rule ties factors to the dims of its operands, as einsum
//! does:
//!
//! ```text
//! mm        mk,kn->mn                      m and n pass, k is reduced by sum
//! softmax   ij->ij {j: replicate}          along j everything depends on everything
//! amax      ij->i {j: max}
//! add       ...,...->... {linear, increasing}
//! ```
//!
//! Splitting the loop of one factor over the ranks of one mesh axis is a **strategy** of that axis: operands
//! that carry the factor are sharded along it, inputs that do not are replicated, outputs that do not hold
//! partial values. The partial values that pass the op ([`PartialRule`]) give the strategies whose inputs are
//! already partial. Several axes take one strategy each, independently: the strategies of a mesh are the
//! product, and propagation finds the cheapest one without forming it.
//!
//! Why this is right: run the op on the parts of a factor's range and combine the outputs. A factor that
//! passes gives the parts of the output; one that is reduced gives partial values, because reductions are
//! associative and commutative. The next axis splits the remaining loops, which form an op of the same rule
//! on smaller sizes. All operands that carry a factor must be split into the *same* parts, or a rank would
//! multiply row 3 with column 5: one strategy has one placeholder, filled with one kind for all of them.
mod aliasing;
mod bind;
mod bound_call;
mod builder;
mod call;
mod composite;
mod derive;
mod dtypes;
mod factor;
mod families;
mod local_noop;
mod made;
mod notation;
mod op;
mod parameter;
mod partial_rule;
mod row;
mod rule;
mod shard_region;
mod sizes;
mod standard;
mod strategy;
mod table;
mod terms;
mod ties;
mod transpose;
mod vmapped;
mod work;

pub use aliasing::OutputAliasing;
pub use bound_call::BoundCall;
pub use builder::RuleBuilder;
pub use call::{Argument, OpCall};
pub use composite::Composite;
pub(crate) use composite::Statement;
pub use dtypes::{OpDtypes, OperandDtype, ResultDtype};
pub use factor::{Dim, Factor, FactorKind, Slicing};
pub(crate) use families::is_cast_to_integral;
pub(crate) use op::Brackets;
pub use op::Op;
pub use parameter::{DefaultValue, DimOf, Parameter, ParameterKind, Parameters};
pub use partial_rule::{Operands, PartialRule};
pub(crate) use row::{Bound, Entry, Row};
pub use rule::{Equation, Rule};
pub use shard_region::ShardRegion;
pub use strategy::{OperandPlacement, Strategy};
pub use table::OpTable;
pub(crate) use table::{DEEPEST, MOST_CALLS};
pub use vmapped::Vmapped;
pub(crate) use vmapped::{Has, count};

/// Internals for the other crates of this project; they may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use super::op::{Brackets, bound_of};
    pub use super::row::{Bound, Entry, Row};
    pub use super::ties::gcd;
}
