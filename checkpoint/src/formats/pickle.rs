//! Pickles, parsed and never executed.
//!
//! A pickle is a program that makes a value. Here its instructions only build a tree: a call becomes a node
//! with the name of the function and its arguments. The known names are in a list ([`Global`]); a call of
//! any other makes an opaque object. So no pickle can make this program do anything but build a tree.
//!
//! ```text
//! bytes --machine--> a tree of nodes --typed queries, within a budget--> sizes, names, byte ranges
//! ```
//!
//! **Bounds.** Memory is taken from a budget, so the size of a tree is bounded for any pickle. Nodes may be
//! shared, so a small pickle can describe a large value. Every access to a node is counted too, and an error
//! is returned after a few times as many accesses as there are nodes. No function recurses over the tree
//! beyond a fixed depth.

mod globals;
mod machine;
mod sizes;
mod tree;
mod writer;

pub(crate) use globals::{Element, Global, torch_types};
pub(crate) use tree::{Id, Pickle};
pub(crate) use writer::Writer;

#[cfg(test)]
mod tests;
