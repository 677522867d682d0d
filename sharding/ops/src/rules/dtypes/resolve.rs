//! The element types of one call, by the statements of the table.

use reshard_kernels::DType;

use super::promotion::promoted;
use super::{OpDtypes, OperandDtype, ResultDtype};
use crate::Error;
use crate::rules::call::{Argument, OpCall};

impl OperandDtype {
    /// Returns `true` if an operand may have this type, where the operands of the call have those types.
    pub fn accepts(self, dtype: DType, operands: &[DType]) -> bool {
        match self {
            OperandDtype::Any => true,
            OperandDtype::Bool => dtype == DType::Bool,
            OperandDtype::Integer => dtype.is_integral() && dtype != DType::Bool,
            OperandDtype::Integral => dtype.is_integral(),
            OperandDtype::Float => !dtype.is_integral(),
            OperandDtype::Like(n) => {
                operands.get(n).is_none_or(|other| other.is_integral() == dtype.is_integral())
            }
        }
    }

    /// Returns the requirement in words, and a type that fits.
    fn required(self, operands: &[DType]) -> (String, DType) {
        match self {
            OperandDtype::Any => ("any element type".to_owned(), DType::F32),
            OperandDtype::Bool => ("truth values (bool)".to_owned(), DType::Bool),
            OperandDtype::Integer => ("integers".to_owned(), DType::I64),
            OperandDtype::Integral => ("integers or truth values".to_owned(), DType::I64),
            OperandDtype::Float => ("floating-point numbers".to_owned(), DType::F32),
            OperandDtype::Like(n) => {
                let like = operands.get(n).copied().unwrap_or(DType::F32);
                let (kind, fits) = match like.is_integral() {
                    true => ("integers or truth values", DType::I64),
                    // There are no casts to complex and 8-bit types.
                    false if like.check_average().is_ok() => ("floating-point numbers", like),
                    false => ("floating-point numbers", DType::F32),
                };
                (format!("{kind}, like operand {n} ({like}),"), fits)
            }
        }
    }
}

/// Returns the type of counts of truth values, and any other type unchanged.
fn counted(dtype: DType) -> DType {
    if dtype == DType::Bool { DType::I64 } else { dtype }
}

impl ResultDtype {
    /// Returns the type of the result of a call on operands of these types.
    fn of(&self, call: &OpCall, operands: &[DType]) -> DType {
        let operand = |n: usize| operands.get(n).copied().unwrap_or(DType::F32);
        let widest = |of: &[usize]| {
            let all = operands.iter().enumerate();
            let listed = all.filter(|(i, _)| of.is_empty() || of.contains(i)).map(|(_, &dtype)| dtype);
            listed.reduce(promoted).unwrap_or(DType::F32)
        };
        match self {
            ResultDtype::SameAs(n) => operand(*n),
            ResultDtype::First => {
                operands.iter().find(|d| !d.is_integral()).copied().unwrap_or_else(|| operand(0))
            }
            ResultDtype::Promoted(of) => widest(of),
            ResultDtype::Floating(of) => match widest(of) {
                dtype if dtype.is_integral() => DType::F32,
                dtype => dtype,
            },
            ResultDtype::Counted(n) => counted(operand(*n)),
            ResultDtype::With(keys) => {
                // A number that is not an integer is stored as text.
                let is_real = |key: &String| matches!(call.argument(key), Some(Argument::Word(_)));
                let dtype = operand(0);
                let is_floating = dtype.is_integral() && keys.iter().any(is_real);
                if is_floating { DType::F32 } else { counted(dtype) }
            }
            ResultDtype::Argument(key) => match call.argument(key) {
                Some(Argument::Word(word)) => word.parse().unwrap_or_else(|_| operand(0)),
                Some(_) | None => operand(0),
            },
            ResultDtype::Default(dtype) | ResultDtype::Fixed(dtype) => *dtype,
        }
    }
}

impl OpDtypes {
    /// Returns the types of the results of a call.
    pub(in crate::rules) fn results(&self, call: &OpCall, operands: &[DType], outputs: usize) -> Vec<DType> {
        (0..outputs).map(|o| self.result(o).of(call, operands)).collect()
    }

    /// Checks the types of operands with these names.
    pub(in crate::rules) fn check(
        &self,
        call: &OpCall,
        operands: &[DType],
        name: &dyn Fn(usize) -> String,
    ) -> Result<(), Error> {
        let unfit = |&(i, &dtype): &(usize, &DType)| !self.operand(i).accepts(dtype, operands);
        let Some((i, dtype)) = operands.iter().enumerate().find(unfit) else { return Ok(()) };
        let (takes, fits) = self.operand(i).required(operands);
        let name = name(i);
        Err(Error::Rule {
            reason: format!(
                "{call} takes {takes} as operand {i}, but `{name}` is {dtype}; cast it, as in cast({name}, dtype={fits})"
            ),
        })
    }
}
