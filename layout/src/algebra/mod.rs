//! The algebra of layouts, one operation a file.

mod coalesce;
mod complement;
mod compose;
mod exact;
mod inverse;

pub use exact::ENUMERATION_BUDGET;
