//! The destination of outputs: new tensors, or existing tensors.
//!
//! An op that writes into a tensor cannot redistribute it: the written values must have its sharding. So the
//! strategies of an op that works in place, `add_`, are those of `add` that give the output the written
//! input's placement. Those of an op with an `out` tensor, `add.out`, are those of `add` with the output's
//! placement for that tensor, which is not read.
//!
//! ```text
//! in place:   { s in strategies(op) :  s.inputs[i] = s.outputs[o] }       for every output o that is written into input i
//! out:        { s.inputs ++ s.outputs -> s.outputs :  s in strategies(op) }
//! ```
//!
//! Propagation leaves the written tensors as they are, and redistributes the others.

use core::fmt;

use crate::Error;
use crate::rules::builder;
use crate::rules::factor::Dim;
use crate::rules::rule::{Equation, Rule};
use crate::rules::strategy::{Strategy, write_list};

/// The destination of the outputs of an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum OutputAliasing {
    /// Into new tensors.
    #[default]
    New,
    /// The first outputs into these inputs, one each, which are read before; the others into new tensors.
    InPlace(Vec<usize>),
    /// Into the last inputs, one for each output, which are not read.
    Out,
}

impl OutputAliasing {
    /// Returns the pairs of written input and written output, of an op with these numbers of operands.
    pub(super) fn pairs(&self, inputs: usize, outputs: usize) -> Vec<(u16, u16)> {
        match self {
            OutputAliasing::New => Vec::new(),
            OutputAliasing::InPlace(list) => {
                list.iter().enumerate().map(|(o, &i)| (i as u16, o as u16)).collect()
            }
            OutputAliasing::Out => (0..outputs).map(|o| ((inputs - outputs + o) as u16, o as u16)).collect(),
        }
    }
}

impl fmt::Display for OutputAliasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputAliasing::New => Ok(()),
            OutputAliasing::Out => f.write_str("out"),
            OutputAliasing::InPlace(list) => {
                f.write_str("writes(")?;
                write_list(f, list)?;
                f.write_str(")")
            }
        }
    }
}

impl Rule {
    /// Returns the rule of the same op in place: its first output is written into its first input.
    ///
    /// ```
    /// use reshard_ops::rules::Rule;
    /// let add: Rule = "...,...->... {linear, affine}".parse()?;
    /// let add_ = add.in_place()?;
    /// assert_eq!(add_.to_string(), "...,...->... {linear, affine, writes(0)}");
    /// // Not R,P(avg) -> P(avg), because replicas cannot become partial values in place.
    /// let texts: Vec<String> = add_.strategies().iter().map(ToString::to_string).collect();
    /// assert_eq!(texts, ["S(...),S(...) -> S(...)", "R,R -> R", "P,P -> P", "P(avg),P(avg) -> P(avg)", "P(avg),R -> P(avg)"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails where the first output does not have the dims of the first input, and for lists of strategies.
    pub fn in_place(&self) -> Result<Rule, Error> {
        self.writing(|e| e.aliasing = OutputAliasing::InPlace(vec![0]))
    }

    /// The rule of the same op with one input more for each output, into which that is written.
    ///
    /// ```
    /// use reshard_ops::rules::Rule;
    /// let out = "mk,kn->mn".parse::<Rule>()?.out()?;
    /// assert_eq!(out.to_string(), "mk,kn,mn->mn {out}");
    /// assert_eq!(out.strategies()[2].to_string(), "S(k),S(k),P -> P");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for lists of strategies.
    pub fn out(&self) -> Result<Rule, Error> {
        self.writing(|e| {
            e.inputs.extend_from_slice(&e.outputs);
            e.aliasing = OutputAliasing::Out;
        })
    }

    fn writing(&self, change: impl FnOnce(&mut Equation)) -> Result<Rule, Error> {
        let bad = |reason: &str| Err(Error::Rule { reason: format!("{self}: {reason}") });
        match self.equation() {
            None => bad(
                "a list of strategies has no dims to be written; write an equation, or the strategies themselves",
            ),
            Some(e) if e.aliasing != OutputAliasing::New => {
                bad("its outputs are already written into inputs")
            }
            Some(e) => {
                let mut e = e.clone();
                change(&mut e);
                builder::checked(e)
            }
        }
    }
}

impl Equation {
    /// The number of inputs that are read.
    pub(super) fn reads(&self) -> usize {
        match self.aliasing {
            OutputAliasing::New | OutputAliasing::InPlace(_) => self.inputs.len(),
            OutputAliasing::Out => self.inputs.len().saturating_sub(self.outputs.len()),
        }
    }

    /// The same op whose outputs are new tensors.
    pub(super) fn of_new(&self) -> Equation {
        let mut e = self.clone();
        e.inputs.truncate(self.reads());
        e.aliasing = OutputAliasing::New;
        e
    }

    /// Selects, of the strategies of the op that makes new tensors, those of this one.
    pub(super) fn written_rows(&self, mut rows: Vec<Strategy>) -> Vec<Strategy> {
        match &self.aliasing {
            OutputAliasing::New => {}
            OutputAliasing::InPlace(list) => {
                rows.retain(|row| list.iter().zip(&row.outputs).all(|(&i, output)| row.inputs[i] == *output));
            }
            OutputAliasing::Out => rows.iter_mut().for_each(|row| row.inputs.extend_from_slice(&row.outputs)),
        }
        rows
    }

    /// Returns the reason why outputs cannot be written there.
    pub(super) fn refuses_written(&self) -> Option<String> {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let dims = |dims: &[Dim]| dims.iter().map(ToString::to_string).collect::<String>();
        let pairs: Vec<(usize, usize)> = match &self.aliasing {
            OutputAliasing::New => return None,
            OutputAliasing::Out if inputs < outputs => {
                return Some(format!("out needs an input for each of the {outputs} outputs"));
            }
            OutputAliasing::Out => (0..outputs).map(|o| (inputs - outputs + o, o)).collect(),
            OutputAliasing::InPlace(list) if list.is_empty() || list.len() > outputs => {
                return Some(format!(
                    "{} names {} inputs, but there are {outputs} outputs",
                    self.aliasing,
                    list.len()
                ));
            }
            OutputAliasing::InPlace(list) => list.iter().copied().enumerate().map(|(o, i)| (i, o)).collect(),
        };
        for (k, &(i, o)) in pairs.iter().enumerate() {
            if i >= inputs {
                return Some(format!(
                    "{} names input {i}, but there are {inputs}, counted from 0",
                    self.aliasing
                ));
            }
            if pairs[..k].iter().any(|&(other, _)| other == i) {
                return Some(format!("{} writes input {i} twice", self.aliasing));
            }
            if self.inputs[i] != self.outputs[o] {
                return Some(format!(
                    "output {o} cannot be written into input {i}, whose dims are ({}) and not ({})",
                    dims(&self.inputs[i]),
                    dims(&self.outputs[o])
                ));
            }
        }
        None
    }
}
