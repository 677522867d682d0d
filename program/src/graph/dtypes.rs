//! The element types of what a call makes.

use reshard_kernels::DType;
use reshard_ops::rules::{Call, Value as Argument};

use crate::graph::{Graph, ValueId};

impl Graph {
    /// Whether a text may say this element type of what a call makes: that of an operand, or any where no real operand decides.
    pub(crate) fn may_be(&self, made: DType, said: DType, operands: &[ValueId]) -> bool {
        let of = |v: &ValueId| self.values[v.0].dtype;
        made == said
            || made.is_integral()
            || operands.iter().map(of).any(|known| known == said)
            || operands.iter().map(of).all(DType::is_integral)
    }

    /// The element types of what a call makes, where nobody says them.
    pub(crate) fn dtypes(&self, call: &Call, inputs: &[ValueId], outputs: usize) -> Vec<DType> {
        let of = |v: &ValueId| self.values[v.0].dtype;
        let like =
            inputs.iter().map(of).find(|d| !d.is_integral()).or(inputs.first().map(of)).unwrap_or(DType::F32);
        let made = |o: usize| match call.name() {
            Some("cast") => match call.argument("dtype") {
                Some(Argument::Word(word)) => word.parse().unwrap_or(like),
                Some(_) | None => like,
            },
            Some(name) => match (name, o) {
                (
                    "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "eq_scalar" | "ne_scalar" | "lt_scalar"
                    | "le_scalar" | "gt_scalar" | "ge_scalar" | "isnan" | "isinf" | "isfinite" | "isneginf"
                    | "isposinf" | "isclose" | "signbit" | "logical_and" | "logical_or" | "logical_not"
                    | "logical_xor" | "any" | "all",
                    _,
                ) => DType::Bool,
                (
                    "argmax" | "argmin" | "argsort" | "bucketize" | "searchsorted" | "count_nonzero"
                    | "bincount" | "one_hot",
                    _,
                )
                | ("max" | "min" | "sort" | "topk" | "kthvalue" | "mode" | "median", 1) => DType::I64,
                (pool, 1) if pool.ends_with("_with_indices") => DType::I64,
                // Truths are counted.
                ("sum" | "nansum" | "cumsum" | "prod" | "cumprod", _) if like == DType::Bool => DType::I64,
                // A number that is not whole is a word; with one that is, truths are counted.
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
