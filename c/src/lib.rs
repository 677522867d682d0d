//! reshard for C and C++, as `include/reshard.h` declares it.
//!
//! ```text
//! error     statuses, the sentence of the last error, and the macro that every function's body stands in
//! handles   numbers in the dress of pointers, and what they stand for
//! held      what structs of C point into
//! memory    what the caller lends for a call: texts, lists, places for answers
//! layout    layouts, and expressions of their algebra
//! mesh, sharding, types      who holds what
//! planner, plan, messages    how it gets there: the question, the steps, what one rank sends and receives
//! calls     a rank's calls of a framework, and the copies around them
//! files     propagation as JSON, regions of checkpoints
//! ```
//!
//! No function panics, and none follows a handle: what is freed, of another kind or never was one is answered with
//! [`Status::NotAHandle`]. What else the caller lends (texts, lists, places for answers) is memory that only the caller knows, and
//! must be what the header says.

mod calls;
mod error;
mod files;
mod handles;
mod held;
mod layout;
mod memory;
mod mesh;
mod messages;
mod plan;
mod planner;
mod sharding;
mod types;

pub use calls::*;
pub use error::*;
pub use files::*;
pub use handles::*;
pub use layout::*;
pub use mesh::*;
pub use messages::*;
pub use plan::*;
pub use planner::*;
pub use sharding::*;
pub use types::*;
