//! Element types: what the operands of an op must be, and what its results are.
//!
//! ```text
//! dtypes   =  [operand "," ..] "->" result "," ..       the last operand and the last result repeat
//! operand  =  "any"  |  "bool"  |  "integer"  |  "integer or bool"  |  "float"  |  "like(" n ")"
//! result   =  "same(" n ")"  |  "first"  |  "promoted" [list]  |  "floating" [list]  |  "counted(" n ")"
//!          |  "with(" argument "," .. ")"  |  "argument(" argument ")"  |  "default(" dtype ")"  |  dtype
//! list     =  "(" n "," .. ")"                            operands, counted from 0; all of them without a list
//! ```
//!
//! Every op of the standard table states its own in [`standard`], next to its rule. An op without a statement has
//! those of [`OpDtypes::default`].

mod notation;
mod promotion;
mod resolve;
mod standard;
mod table;

use reshard_kernels::DType;

pub(super) use standard::STANDARD_DTYPES;

/// The element types that an operand may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandDtype {
    /// `any`: every type.
    Any,
    /// `bool`: truth values.
    Bool,
    /// `integer`: integers, such as indices, but not truth values.
    Integer,
    /// `integer or bool`: bits, that is integers and truth values.
    Integral,
    /// `float`: real and complex numbers.
    Float,
    /// `like(0)`: integers or truth values if that operand has them, else real or complex numbers.
    Like(usize),
}

/// The element type of a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResultDtype {
    /// `same(0)`: that of an operand.
    SameAs(usize),
    /// `first`: that of the first real or complex operand, or else of the first operand; f32 without operands.
    First,
    /// `promoted`: the narrowest type for the elements of these operands; of all of them if the list is empty.
    Promoted(Vec<usize>),
    /// `floating`: the same, and f32 in place of integers and truth values.
    Floating(Vec<usize>),
    /// `counted(0)`: that of an operand, and i64 in place of truth values.
    Counted(usize),
    /// `with(value)`: that of operand 0 and of these arguments; numbers that are not integers make integers f32.
    With(Vec<String>),
    /// `argument(dtype)`: the type that an argument names, or that of operand 0 without the argument.
    Argument(String),
    /// `default(f32)`: this type, unless a program declares another.
    Default(DType),
    /// `bool`, `i64`: always this type.
    Fixed(DType),
}

/// The element types of the operands and of the results of an op.
///
/// ```
/// use reshard_ops::rules::OpTable;
/// let table = OpTable::standard();
/// let of = |name| table.dtypes(name).map(|dtypes| dtypes.to_string());
/// assert_eq!(of("embedding").as_deref(), Some("any, integer -> same(0)"));
/// assert_eq!(of("topk").as_deref(), Some("any -> same(0), i64"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpDtypes {
    operands: Vec<OperandDtype>,
    results: Vec<ResultDtype>,
}

/// `any -> first`: an op that states nothing.
impl Default for OpDtypes {
    fn default() -> OpDtypes {
        OpDtypes { operands: vec![OperandDtype::Any], results: vec![ResultDtype::First] }
    }
}

impl OpDtypes {
    /// Returns the statement for operand `i`; the last one repeats.
    pub fn operand(&self, i: usize) -> OperandDtype {
        self.operands.get(i).or(self.operands.last()).copied().unwrap_or(OperandDtype::Any)
    }

    /// Returns the statement for result `o`; the last one repeats.
    pub fn result(&self, o: usize) -> &ResultDtype {
        self.results.get(o).or(self.results.last()).unwrap_or(&ResultDtype::First)
    }
}
