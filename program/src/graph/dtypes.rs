//! Element types of the outputs of calls.

use reshard_kernels::DType;
use reshard_ops::rules::OpCall;

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};

impl Graph {
    /// Sets the element type of an output of the last call, if the call leaves it open.
    ///
    /// It does so for factories such as `ones`, for integers, and for real results of integers or truth values.
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
    /// Without operands it may be any. Integers may have any integer type, and real numbers that of an operand, or any
    /// real type if all operands are integers or truth values.
    pub(crate) fn may_be(&self, made: DType, said: DType, operands: &[ValueId]) -> bool {
        let is_integer = |dtype: DType| dtype.is_integral() && dtype != DType::Bool;
        if made == said || operands.is_empty() {
            return true;
        }
        if made.is_integral() || said.is_integral() {
            return is_integer(made) && is_integer(said);
        }
        let known = self.dtypes_of(operands);
        known.contains(&said) || known.iter().all(|dtype| dtype.is_integral())
    }

    /// Returns the element types of the outputs of a call, as the table states them.
    pub(crate) fn dtypes(&self, call: &OpCall, inputs: &[ValueId], outputs: usize) -> Vec<DType> {
        self.table.result_dtypes(call, &self.dtypes_of(inputs), outputs)
    }

    /// Returns the same, or an error for an operand with elements that the op does not take.
    pub(crate) fn checked_dtypes(
        &self,
        call: &OpCall,
        inputs: &[ValueId],
        outputs: usize,
    ) -> Result<Vec<DType>, Error> {
        let names = |i: usize| inputs.get(i).map_or_else(String::new, |&v| self.name(v).to_owned());
        Ok(self.table.checked_dtypes(call, &self.dtypes_of(inputs), outputs, &names)?)
    }

    fn dtypes_of(&self, values: &[ValueId]) -> Vec<DType> {
        values.iter().map(|&v| self.dtype(v)).collect()
    }
}
