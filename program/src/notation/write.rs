//! Writing graphs: what is written is read as the same graph.

use core::fmt;

use reshard_kernels::DType;
use reshard_sharding::ShardingType;

use crate::along;
use crate::graph::{Given, Graph, GraphStatement, ValueId, gradient_name};

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

impl Graph {
    /// Whether an input has a gradient of its own: it is a real number, and its type says so.
    pub(crate) fn has_own_gradient(&self, value: ValueId) -> bool {
        !self.dtype(value).is_integral() && self.constraint(value).is_some_and(|t| t.gradient.is_some())
    }

    /// A line without its end; below `no_grad` a type is the value's sharding.
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
                known.pinned.as_ref().map_or(Ok(()), |is| write!(f, " {}", self.printed(is, marked)))
            }
            GraphStatement::Move { from, to, along, via } => {
                self.write_made(f, &[*to], &[self.dtype(*to)], marked)?;
                if !along.is_empty() {
                    write!(f, ": {}", along::written(along, self.mesh()))?;
                }
                if let Some(via) = via {
                    write!(f, " via {via}")?;
                }
                write!(f, " = {}", self.name(*from))
            }
            GraphStatement::Op { call, inputs, outputs, by, .. } => {
                self.write_made(f, outputs, &self.dtypes(call, inputs, outputs.len()), marked)?;
                let (callee, arguments) = call.parts();
                let operands = inputs.iter().map(|&v| self.name(v).to_owned());
                let inside: Vec<String> = operands.chain(arguments).collect();
                write!(f, " = {callee}({})", inside.join(", "))?;
                let Some(by) = by else { return Ok(()) };
                let texts: Vec<String> = by.iter().map(|given| self.given(given)).collect();
                let (takes, makes) = texts.split_at(inputs.len());
                write!(f, " by {} -> {}", takes.join("; "), makes.join("; "))
            }
        }
    }

    /// What an operand has to be, as text.
    pub(crate) fn given(&self, given: &Given) -> String {
        match given {
            Given::Whole(is) => self.meshes.written_value(is),
            Given::Along(partly) => along::written(partly, self.mesh()),
        }
    }

    /// Results with their types, and with the types of their elements where these are not those of the operands.
    fn write_made(
        &self,
        f: &mut fmt::Formatter<'_>,
        made: &[ValueId],
        dtypes: &[DType],
        marked: bool,
    ) -> fmt::Result {
        let other = |i: usize, v: ValueId| dtypes.get(i) != Some(&self.dtype(v));
        let typed = made.iter().enumerate().any(|(i, &v)| self.constraint(v).is_some() || other(i, v));
        for (i, &v) in made.iter().enumerate() {
            let between = if typed { "; " } else { ", " };
            write!(f, "{}{}", if i == 0 { "" } else { between }, self.name(v))?;
            if other(i, v) {
                let sizes: Vec<String> = self.shape(v).iter().map(ToString::to_string).collect();
                write!(f, ": {}[{}]", self.dtype(v), sizes.join(","))?;
            }
            if let Some(is) = self.constraint(v) {
                write!(f, "{} {}", if other(i, v) { "" } else { ":" }, self.printed(is, marked))?;
            }
        }
        Ok(())
    }

    /// A type, or only the value's sharding where no value has a gradient.
    fn printed(&self, is: &ShardingType, marked: bool) -> String {
        if marked { self.meshes.written_value(&is.value) } else { self.meshes.type_text(is) }
    }
}
