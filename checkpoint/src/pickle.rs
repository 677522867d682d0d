//! Pickles, read and never run.
//!
//! A pickle is a program that makes a value. Here its instructions build a tree of what they say and do nothing else: a call stays
//! a node with the name of what would be called and its arguments. Names come from a list ([`Global`]); any other is refused, by
//! name. So no pickle can make this program do anything but make a tree.
//!
//! ```text
//! bytes --machine--> a tree of nodes --typed questions, paid for--> sizes, names, places of bytes
//! ```
//!
//! **Bounds.** Memory is paid for out of a budget, so a tree takes at most so much whatever the pickle says. Nodes may be shared, so a
//! small pickle can say a large thing; every question about a node is paid for too, and who asks more than a few times as
//! often as there are nodes is told so. Nothing recurses over the tree but to a depth that is given.

mod globals;
mod machine;
mod tree;
mod writer;

pub(crate) use globals::{Element, Global, torch_types};
pub(crate) use tree::{Id, Pickle};
pub(crate) use writer::Writer;

#[cfg(test)]
mod tests;
