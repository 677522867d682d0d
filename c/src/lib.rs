//! reshard for C and C++, as `include/reshard.h` declares it.
//!
//! ```text
//! error     statuses, the message of the last error, and the macro around the body of every function
//! handles   numbers that look like pointers, and their values
//! held      memory that structs of C point into
//! memory    memory that the caller lends for a call: texts, lists, output buffers
//! layout    layouts, and expressions of their algebra
//! mesh, sharding, types      which ranks hold which elements
//! planner, plan, messages    redistribution: the planner, the steps, the messages of one rank
//! calls     a rank's calls of a framework, and the copies around them
//! propagate the cheapest shardings around one op
//! files     regions of checkpoints
//! ```
//!
//! No function panics, and none dereferences a handle: one that was freed, is of another kind or was never
//! given returns [`Status::NotAHandle`]. Texts, lists and output buffers are the caller's memory, which the
//! library cannot check: they must follow the rules of the header.

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
mod propagate;
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
pub use propagate::*;
pub use sharding::*;
pub use types::*;
