//! reshard for C and C++, as `include/reshard.h` declares it.
//!
//! ```text
//! error     statuses, the sentence of the last error, and the macro that every function's body stands in
//! handles   numbers in the dress of pointers, and what they stand for
//! held      what structs of C point into
//! memory    what the caller lends for a call: texts, lists, places for answers
//! values    layouts, meshes, shardings, types
//! plan      planners, plans, a rank's messages
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
mod memory;
mod plan;
mod values;

pub use calls::*;
pub use error::*;
pub use files::*;
pub use handles::*;
pub use plan::*;
pub use values::*;
