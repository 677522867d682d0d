//! Expressions of the algebra as text: `composition((6,2):(8,2), (4,3):(3,1))`.
//!
//! ```text
//! expression = operand { '(' expression { ',' expression } ')' }          A(i) applies a layout
//! operand    = function '(' [ expression { ',' expression } ] ')'
//!            | '<' expression { ',' expression } '>'                      a tiler; in it 4 stands for 4:1
//!            | layout | tuple
//! ```
//!
//! A layout is one of integers, `(4,2):(1,8)`; with steps along axes, `(4,2):(1@tp,8)`, where an axis is a
//! name or a number; or of pairs of these, `(3,4):((1,4),(3,1))`, two layouts of one domain. The grammar of
//! layouts is that of the notation:
//!
//! ```text
//! layout  = shape ':' strides               shape = tuple;  strides = tuple of strides, nested like the shape
//! stride  = step | '(' step ',' step ')'    all of them steps, or all pairs
//! step    = integer [ '@' axis ]
//! axis    = integer | ( letter | '_' ) { letter | digit | '_' | '-' | '.' | '/' }
//! ```
//!
//! Functions that need neither an order nor a sum take layouts of every kind: `coalesce`, `flatten`, `group`,
//! `reversed`, `mode`, `concat`, `split`, `zip` (not of pairs), `shape`, `stride`, `size`, `rank`, `depth`,
//! `same_function`, `is_compatible`, `is_congruent`, and application. A value without axes is one of
//! integers, so `mode((4,2):(1@tp,8), 1)` is `2:8`.
//!
//! A **composition** that is not a layout, `composed(Sw<3,4,3>, 0, (8,8):(8,1))`, may be used wherever a
//! layout may. Functions of indices (division, products, tiling, grouping, picking, slicing, composition) act
//! on its inner layout. Inverses, recasts and queries of values are those of the whole. Concatenated with or
//! after other layouts, and as a tile, the function by coordinates decides. Functions that need strides are
//! rejected with the reason. It may have no value at some indices; evaluating it there is an error.
//!
//! Where CuTe differs: `row_major((2,4))` is `(4,2):(1,4)`, the reversed list of dims, so that the index runs
//! over memory, and CuTe's is `reversed(row_major((2,4)))`, `(2,4):(4,1)`. `composition` and the divisions
//! are checked, and `composition_extended`, `logical_divide_extended` and its forms let the last leaf
//! continue without end as CuTe does. In `composition(A, <T>)` modes that the tiler does not name are
//! unchanged. A shape is a tiler: `(4,8)` is `<4:1,8:1>`; `_` in a tiler leaves its mode as it is. `():()` is
//! `1:0`.
//!
//! Reading is separate from evaluating; nesting and the number of calls are bounded, so any text is answered
//! in bounded time, stack and memory.

mod axes;
mod evaluate;
mod function;
mod lazy;
mod parse;
mod tuples;
mod value;

use std::fmt;
use std::str::FromStr;

pub use function::Function;
pub use value::Value;

use crate::Error;

/// The greatest number of calls in one expression.
const MAX_CALLS: usize = 256;

/// A parsed expression, with its text for messages with positions.
///
/// ```
/// use reshard_layout::expression::{Expression, Value};
///
/// let expression: Expression = "size( coalesce((4,2):(1,4)) )".parse()?;
/// assert_eq!(expression.to_string(), "size(coalesce((4,2):(1,4)))");
/// assert_eq!(expression.evaluate()?, Value::Integer(8));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    root: Node,
}

/// A part of an expression and the byte offset where it begins.
#[derive(Clone, Debug)]
struct Node {
    place: usize,
    term: Term,
}

#[derive(Clone, Debug)]
enum Term {
    Value(Box<Value>),
    Tiler(Vec<Node>),
    Call(Function, Vec<Node>),
    Apply(Box<Node>, Vec<Node>),
}

/// Reads and evaluates an expression.
///
/// ```
/// use reshard_layout::expression::evaluate;
///
/// let value = evaluate("composition((6,2):(8,2), (4,3):(3,1))")?;
/// assert_eq!(value.to_string(), "((2,2),3):((24,2),8)");
/// assert_eq!(evaluate("(6,2):(8,2)(7)")?.to_string(), "10");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// # Errors
///
/// `parse` with the position, or the errors of the operations.
pub fn evaluate(text: &str) -> Result<Value, Error> {
    text.parse::<Expression>()?.evaluate()
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { text: text.to_owned(), root: parse::read(text)? })
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Expression {}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, nodes: &[Self]| -> fmt::Result {
            nodes
                .iter()
                .enumerate()
                .try_for_each(|(at, node)| write!(f, "{}{node}", if at > 0 { "," } else { "" }))
        };
        match &self.term {
            Term::Value(value) => value.fmt(f),
            Term::Tiler(nodes) => {
                f.write_str("<")?;
                list(f, nodes)?;
                f.write_str(">")
            }
            Term::Call(function, nodes) => {
                write!(f, "{function}(")?;
                list(f, nodes)?;
                f.write_str(")")
            }
            Term::Apply(node, nodes) => {
                write!(f, "{node}(")?;
                list(f, nodes)?;
                f.write_str(")")
            }
        }
    }
}
