//! Element types of the outputs of calls.

use reshard_kernels::DType;
use reshard_ops::rules::{Argument, OpCall};

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};

/// Ops that return the widest element type of several operands, and the index of the first of these operands.
const PROMOTING: [(&str, usize); 14] = [
    ("add", 0),
    ("sub", 0),
    ("mul", 0),
    ("pow", 0),
    ("fmod", 0),
    ("remainder", 0),
    ("floor_divide", 0),
    ("maximum", 0),
    ("minimum", 0),
    ("lerp", 0),
    ("addcmul", 0),
    ("clamp_tensor", 0),
    ("cat", 0),
    // The first operand of `where` is the condition.
    ("where", 1),
];

/// Returns the wider of two integral types; booleans count as 0 and 1.
fn wider(one: DType, two: DType) -> DType {
    if one == DType::Bool || (two != DType::Bool && two.bits() > one.bits()) { two } else { one }
}

impl Graph {
    /// Sets the element type of an output of the last call, if the call leaves it open.
    ///
    /// It does so for factories such as `ones`, and for results of integers or booleans.
    ///
    /// Returns an error for a value that is not an output of the last statement, and for a type that the op
    /// cannot produce.
    #[doc(hidden)]
    pub fn set_dtype(&mut self, value: ValueId, dtype: DType) -> Result<(), Error> {
        let name = self.name(value).to_owned();
        let Some(GraphStatement::Op { call, inputs, outputs, .. }) = self.statements.last() else {
            return Err(Error::Graph {
                reason: format!(
                    "`{name}` is not an output of the last statement; set its dtype right after its op"
                ),
            });
        };
        if !outputs.contains(&value) {
            return Err(Error::Graph {
                reason: format!(
                    "`{name}` is not an output of the last op, {call}; set its dtype right after its op"
                ),
            });
        }
        let made = self.values[value.0].dtype;
        if !self.may_be(made, dtype, inputs) {
            return Err(Error::Graph {
                reason: format!("{call} computes `{name}` in {made}, not in {dtype}"),
            });
        }
        self.values[value.0].dtype = dtype;
        Ok(())
    }

    /// Returns `true` if a text may declare this element type for an output.
    ///
    /// It may be that of an operand, or any type if no real operand decides.
    pub(crate) fn may_be(&self, made: DType, said: DType, operands: &[ValueId]) -> bool {
        let of = |v: &ValueId| self.values[v.0].dtype;
        made == said
            || made.is_integral()
            || operands.iter().map(of).any(|known| known == said)
            || operands.iter().map(of).all(DType::is_integral)
    }

    /// Returns the default element types of the outputs of a call.
    pub(crate) fn dtypes(&self, call: &OpCall, inputs: &[ValueId], outputs: usize) -> Vec<DType> {
        let of = |v: &ValueId| self.values[v.0].dtype;
        let promoting = PROMOTING.iter().find(|(name, _)| call.name() == Some(name));
        let deciding = promoting.map_or(inputs, |&(_, first)| inputs.get(first..).unwrap_or_default());
        let integral = match promoting {
            Some(_) => deciding.iter().map(of).reduce(wider),
            None => deciding.first().map(of),
        };
        let like = deciding.iter().map(of).find(|d| !d.is_integral()).or(integral).unwrap_or(DType::F32);
        let made = |o: usize| match call.name() {
            Some("cast") => match call.argument("dtype") {
                Some(Argument::Word(word)) => word.parse().unwrap_or(like),
                Some(_) | None => like,
            },
            Some(name) => match (name, o) {
                (
                    "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "eq_scalar" | "ne_scalar" | "lt_scalar"
                    | "le_scalar" | "gt_scalar" | "ge_scalar" | "isnan" | "isinf" | "isfinite" | "isneginf"
                    | "isposinf" | "isclose" | "isin" | "signbit" | "logical_and" | "logical_or"
                    | "logical_not" | "logical_xor" | "any" | "all",
                    _,
                ) => DType::Bool,
                (
                    "argmax" | "argmin" | "argsort" | "bucketize" | "searchsorted" | "count_nonzero"
                    | "bincount" | "one_hot",
                    _,
                )
                | ("max" | "min" | "sort" | "topk" | "kthvalue" | "mode" | "median", 1) => DType::I64,
                (pool, 1) if pool.ends_with("_with_indices") => DType::I64,
                // Sums of booleans are counts.
                ("sum" | "nansum" | "cumsum" | "prod" | "cumprod", _) if like == DType::Bool => DType::I64,
                // A non-integer number is stored as text, and gives f32; with an integer, booleans are
                // counted.
                (scalar, _) if scalar.ends_with("_scalar") && like.is_integral() => {
                    let by = ["value", "exponent"].into_iter().find_map(|key| call.argument(key));
                    match by {
                        Some(Argument::Word(_)) => DType::F32,
                        _ if like == DType::Bool => DType::I64,
                        _ => like,
                    }
                }
                _ => like,
            },
            None => like,
        };
        (0..outputs).map(made).collect()
    }
}
