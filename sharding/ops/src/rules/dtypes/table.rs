//! The element types of the ops of a table, and of a call.

use reshard_kernels::DType;

use super::OpDtypes;
use crate::Error;
use crate::rules::call::OpCall;
use crate::rules::composite::Composite;
use crate::rules::table::{DEEPEST, Entry, OpTable, Variant};

/// A check of operands: their names, for errors. Without one, every type is accepted.
type Check<'a> = Option<&'a dyn Fn(usize) -> String>;

/// Returns `true` if elements may be written into a tensor of another type, up to rounding in the same kind of numbers.
fn fits(made: DType, into: DType) -> bool {
    // 0 for truth values, 1 for integers, 2 for real numbers, 3 for complex ones.
    let kind = |dtype: DType| {
        u8::from(dtype != DType::Bool) + u8::from(!dtype.is_integral()) + u8::from(dtype == DType::C64)
    };
    kind(made) <= kind(into)
}

impl OpTable {
    /// Returns the stated element types of an op, or of its writing variant.
    ///
    /// Returns `None` for an op that states none, which has those of [`OpDtypes::default`], and for a composite, which has
    /// those of its body.
    pub fn dtypes(&self, name: &str) -> Option<&OpDtypes> {
        match self.entry(name)?.0 {
            Entry::Rule { dtypes, .. } | Entry::Family { dtypes, .. } => dtypes.as_ref(),
            Entry::Composite(_) => None,
        }
    }

    /// States the element types of an op of the table.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let mut table = OpTable::empty();
    /// table.add("above", "...,...->... {none}".parse()?);
    /// table.set_dtypes("above", "float, like(0) -> bool".parse()?)?;
    /// assert_eq!(table.dtypes("above").map(ToString::to_string).as_deref(), Some("float, like(0) -> bool"));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for a name that the table does not have, and for a composite.
    pub fn set_dtypes(&mut self, name: &str, stated: OpDtypes) -> Result<(), Error> {
        match self.entries.get_mut(name) {
            Some(Entry::Rule { dtypes, .. } | Entry::Family { dtypes, .. }) => *dtypes = Some(stated),
            Some(Entry::Composite(_)) => {
                return Err(Error::Rule {
                    reason: format!(
                        "{name} is a composite, whose element types are those of its body; state those of its ops"
                    ),
                });
            }
            None => return Err(self.unknown(name)),
        }
        Ok(())
    }

    /// Returns the element types of the `outputs` results of a call, without a check of the operands.
    #[doc(hidden)]
    pub fn result_dtypes(&self, call: &OpCall, operands: &[DType], outputs: usize) -> Vec<DType> {
        // Only a check returns errors.
        self.call_dtypes(call, operands, outputs, None, DEEPEST).unwrap_or_default()
    }

    /// Returns the element types of the `outputs` results of a call on operands with these names.
    ///
    /// ```
    /// use reshard_kernels::DType::{BF16, Bool, F32, I64};
    /// use reshard_ops::rules::OpTable;
    /// let table = OpTable::standard();
    /// let names = |i: usize| ["table", "ids"][i].to_owned();
    /// assert_eq!(table.checked_dtypes(&"embedding".parse()?, &[BF16, I64], 1, &names)?, [BF16]);
    /// assert_eq!(table.checked_dtypes(&"eq".parse()?, &[BF16, F32], 1, &names)?, [Bool]);
    /// assert_eq!(
    ///     table.checked_dtypes(&"embedding".parse()?, &[BF16, F32], 1, &names).unwrap_err().to_string(),
    ///     "embedding takes integers as operand 1, but `ids` is f32; cast it, as in cast(ids, dtype=i64)"
    /// );
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for an operand with elements that the op does not take.
    #[doc(hidden)]
    pub fn checked_dtypes(
        &self,
        call: &OpCall,
        operands: &[DType],
        outputs: usize,
        names: &dyn Fn(usize) -> String,
    ) -> Result<Vec<DType>, Error> {
        self.call_dtypes(call, operands, outputs, Some(names), DEEPEST)
    }

    fn call_dtypes(
        &self,
        call: &OpCall,
        operands: &[DType],
        outputs: usize,
        check: Check<'_>,
        deep: usize,
    ) -> Result<Vec<DType>, Error> {
        let unstated = OpDtypes::default();
        let entry = match call {
            OpCall::Rule(_) => None,
            OpCall::Each(each) => return self.call_dtypes(each.call(), operands, outputs, check, deep),
            OpCall::Named { name, .. } => self.entry(name),
        };
        let (entry, variant) =
            entry.map_or((None, Variant::Itself), |(entry, variant)| (Some(entry), variant));
        // The tensors into which outputs are written follow the operands that are read.
        let (read, written) = match variant {
            Variant::Itself => (operands, None),
            Variant::InPlace => (operands, operands.get(..1)),
            Variant::Out => operands
                .split_at_checked(operands.len().saturating_sub(outputs))
                .map_or((operands, None), |(read, written)| (read, Some(written))),
        };
        let made = match entry {
            Some(Entry::Composite(body)) if deep > 0 => self.body_dtypes(body, read, check, deep - 1)?,
            Some(Entry::Composite(_)) | None => unstated.results(call, read, outputs),
            Some(Entry::Rule { dtypes, .. } | Entry::Family { dtypes, .. }) => {
                let stated = dtypes.as_ref().unwrap_or(&unstated);
                if let Some(names) = check {
                    stated.check(call, read, names)?;
                }
                stated.results(call, read, outputs)
            }
        };
        let Some(written) = written else { return Ok(made) };
        let unfit = made.iter().zip(written).position(|(&made, &into)| !fits(made, into));
        if let (Some(o), Some(names)) = (unfit, check) {
            let at = if variant == Variant::InPlace { 0 } else { read.len() + o };
            return Err(Error::Rule {
                reason: format!(
                    "{call} computes {} and writes it into `{}`, which is {}; give a tensor of {}, or use the op that \
                     returns a new one",
                    made[o],
                    names(at),
                    written[o],
                    made[o]
                ),
            });
        }
        Ok(written.to_vec())
    }

    /// Returns the element types of the outputs of a composite.
    fn body_dtypes(
        &self,
        body: &Composite,
        operands: &[DType],
        check: Check<'_>,
        deep: usize,
    ) -> Result<Vec<DType>, Error> {
        let mut values = operands.to_vec();
        for (call, takes, makes) in body.calls() {
            let taken: Vec<DType> = takes.iter().filter_map(|&v| values.get(v)).copied().collect();
            let name = |i: usize| takes.get(i).map_or_else(String::new, |&v| body.name(v).to_owned());
            let check: Check<'_> = if check.is_some() { Some(&name) } else { None };
            values.extend(self.call_dtypes(call, &taken, makes.len(), check, deep)?);
        }
        Ok(body.output_values().iter().map(|&v| values.get(v).copied().unwrap_or(DType::F32)).collect())
    }
}
