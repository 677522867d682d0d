//! The profiles that the planner ships are those of the published tables.
