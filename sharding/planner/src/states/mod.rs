//! States of digit systems: two shardings on one mesh whose layouts nest are maps from mesh digits to positions of their zip.
//!
//! `refine` finds the system, `closed_form` reads routes off it, `search` looks for better ones. Nothing here knows a step
//! or a rank: a route is a list of states, and what to do between them.

pub(crate) mod closed_form;
#[cfg(test)]
mod dijkstra;
pub(crate) mod ends;
#[cfg(test)]
mod fixed_point;
pub(crate) mod refine;
pub(crate) mod search;
pub(crate) mod system;
