//! Writer of graph texts: parsing a written text gives the same graph.

use core::fmt;

use reshard_kernels::DType;
use reshard_ops::rules::OpCall;

use crate::graph::{Given, Graph, GraphStatement, ValueId, gradient_name};
use crate::local_type;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mesh {}", self.mesh())?;
        for (name, mesh) in self.meshes.named() {
            writeln!(f, "mesh {name}: {mesh}")?;
        }
        let mut marked = false;
        for statement in &self.statements {
            self.write(f, statement, marked)?;
            writeln!(f)?;
            marked |= *statement == GraphStatement::NoGrad;
        }
        Ok(())
    }
}

/// Formats a call with its operands: `softmax(x, dim=0)`.
pub(crate) fn call_text(call: &OpCall, operands: impl Iterator<Item = String>) -> String {
    let (callee, arguments) = call.parts();
    let inside: Vec<String> = operands.chain(arguments).collect();
    format!("{callee}({})", inside.join(", "))
}

impl Graph {
    /// Returns `true` if an input has a gradient by default: it is real, and its type has a gradient.
    pub(crate) fn has_own_gradient(&self, value: ValueId) -> bool {
        let known = &self.values[value.0];
        let is_open = known.open.is_some() && !self.is_below_mark(value);
        !known.dtype.is_integral()
            && (is_open || self.constraint(value).is_some_and(|t| t.gradient.is_some()))
    }

    /// Writes a line without its end; below `no_grad` a type is the value's sharding.
    fn write(&self, f: &mut fmt::Formatter<'_>, statement: &GraphStatement, marked: bool) -> fmt::Result {
        let names = |list: &[ValueId]| list.iter().map(|&v| self.name(v)).collect::<Vec<_>>().join(", ");
        match statement {
            GraphStatement::NoGrad => f.write_str("no_grad"),
            GraphStatement::Gradient { loss, wrt, gradients } => {
                write!(f, "gradient {} wrt {}", self.name(*loss), names(wrt))?;
                let plain = |(v, d): (&ValueId, &ValueId)| self.name(*d) == gradient_name(self.name(*v));
                if wrt.iter().zip(gradients).all(plain) {
                    return Ok(());
                }
                write!(f, " as {}", names(gradients))
            }
            GraphStatement::Input(v) => {
                let known = &self.values[v.0];
                let sizes: Vec<String> = known.shape.iter().map(ToString::to_string).collect();
                write!(f, "{}: {}[{}]", known.name, known.dtype, sizes.join(","))?;
                if let Some(given) = &known.open {
                    return write!(f, " {}", local_type::written_open(given, self.mesh()));
                }
                self.printed(*v, marked).map_or(Ok(()), |is| write!(f, " {is}"))
            }
            GraphStatement::Move { from, to, along, via } => {
                let made = std::slice::from_ref(to);
                f.write_str(&self.results_text(made, &[self.dtype(*to)], &self.results(made, marked)))?;
                if self.moves_partly(along, *to) {
                    write!(f, ": {}", local_type::written(along, self.mesh()))?;
                }
                if let Some(via) = via {
                    write!(f, " via {via}")?;
                }
                write!(f, " = {}", self.name(*from))
            }
            GraphStatement::Op { call, inputs, outputs, by, .. } => {
                let operands: Vec<String> = inputs.iter().map(|&v| self.name(v).to_owned()).collect();
                let results = self.results(outputs, marked);
                f.write_str(&self.op_text((call, by.as_deref()), (inputs, outputs), &operands, &results))
            }
        }
    }

    /// Formats a strategy of an op: ` by R; S(1) -> S(1)`, or nothing.
    fn by_text(&self, by: Option<&[Given]>, inputs: usize) -> String {
        let Some(by) = by else { return String::new() };
        let texts: Vec<String> = by.iter().map(|given| self.given(given)).collect();
        let (takes, makes) = texts.split_at(inputs);
        format!(" by {} -> {}", takes.join("; "), makes.join("; "))
    }

    /// Formats the statement of an op with these operands, and these results with their types.
    pub(crate) fn op_text(
        &self,
        (call, by): (&OpCall, Option<&[Given]>),
        (inputs, outputs): (&[ValueId], &[ValueId]),
        operands: &[String],
        results: &[(String, Option<String>)],
    ) -> String {
        let made = self.results_text(outputs, &self.dtypes(call, inputs, outputs.len()), results);
        let by = self.by_text(by, inputs.len());
        format!("{made} = {}{by}", call_text(call, operands.iter().cloned()))
    }

    /// Formats the required placement of an operand.
    pub(crate) fn given(&self, given: &Given) -> String {
        match given {
            Given::Whole { value, letters } => self.meshes.value_text_with(value, letters.as_deref()),
            Given::Along(partly) => local_type::written(partly, self.mesh()),
        }
    }

    /// Returns the names of results, each with its constraint as text.
    fn results(&self, made: &[ValueId], marked: bool) -> Vec<(String, Option<String>)> {
        let one = |&v: &ValueId| (self.name(v).to_owned(), self.printed(v, marked));
        made.iter().map(one).collect()
    }

    /// Formats results with their types, and with element types if they differ from the default.
    fn results_text(
        &self,
        made: &[ValueId],
        dtypes: &[DType],
        results: &[(String, Option<String>)],
    ) -> String {
        let mut typed = false;
        let mut texts = Vec::with_capacity(made.len());
        for ((&v, dtype), (name, is)) in made.iter().zip(dtypes).zip(results) {
            let sizes = || self.shape(v).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let elements = (*dtype != self.dtype(v)).then(|| format!("{}[{}]", self.dtype(v), sizes()));
            let inner = self.values[v.0].inner.then(|| "inner".to_owned());
            let words: Vec<String> = inner.into_iter().chain(elements).chain(is.clone()).collect();
            typed |= !words.is_empty();
            texts.push(if words.is_empty() { name.clone() } else { format!("{name}: {}", words.join(" ")) });
        }
        texts.join(if typed { "; " } else { ", " })
    }

    /// Formats the constraint of a value, below `no_grad` only the value's sharding.
    fn printed(&self, v: ValueId, marked: bool) -> Option<String> {
        if !marked {
            return self.constraint_text(v);
        }
        let known = &self.values[v.0];
        let letters = known.letters.as_deref().map(|letters| &letters.value);
        Some(self.meshes.value_text_with(&known.pinned.as_deref()?.value, letters))
    }
}
