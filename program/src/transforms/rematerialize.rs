//! Rematerialization: backward recomputes values of forward instead of saving them.
//!
//! ```text
//! forward     unchanged; a value without further uses is freed
//! backward    before the first use of such a value, it is recomputed: x.again, from saved or recomputed values
//! ```
//!
//! A copy is the same op or redistribution on the same values, so no bit changes. A view of a rematerialized
//! value is rematerialized too, which costs nothing. Each value has at most one copy, which is live from its
//! first use to its last. A value that only backward takes is not computed twice: its producer runs in
//! backward only.

use std::sync::Arc;

use crate::Error;
use crate::graph::ValueId;
use crate::program::{Program, Statement};
use crate::report::{ValueClass, classes};

/// The statements of a program, with the facts that a transform over them needs.
pub(crate) struct Forward<'a> {
    pub(crate) program: &'a Program,
    /// The number of statements of forward: those above `no_grad`.
    pub(crate) items: usize,
    /// The index of the statement that produces each value.
    maker: Vec<usize>,
    /// `true` for each value that some statement takes.
    is_taken: Vec<bool>,
}

/// The statements of forward that backward runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Again {
    /// `true` for the statements that backward runs.
    is_chosen: Vec<bool>,
    /// `true` for those that only backward runs, because only backward takes their outputs.
    is_late: Vec<bool>,
}

/// A statement or its copy, at its position in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) item: usize,
    pub(crate) is_copy: bool,
}

impl<'a> Forward<'a> {
    pub(crate) fn of(program: &'a Program) -> Forward<'a> {
        let (items, maker) = (program.forward().len(), program.makers());
        let mut is_taken = vec![false; maker.len()];
        program.statements().iter().flat_map(Statement::inputs).for_each(|v| is_taken[v.index()] = true);
        Forward { program, items, maker, is_taken }
    }

    /// Returns `true` if a statement can be rematerialized: an op or a redistribution of forward.
    pub(crate) fn may_be_again(&self, n: usize) -> bool {
        match &self.program.statements()[n] {
            // A kernel is computed as a whole.
            item @ (Statement::Op { .. } | Statement::Redistribute { .. }) => {
                let mut operands = item.inputs().iter().chain(item.outputs());
                n < self.items && !operands.any(|v| self.program.get(*v).inner)
            }
            Statement::Input(_) | Statement::NoGrad => false,
        }
    }

    /// Returns the statements that backward depends on, directly or through other statements, without views.
    pub(crate) fn candidates(&self) -> Vec<usize> {
        let (forward, backward) = self.program.statements().split_at(self.items);
        let mut is_needed = vec![false; self.maker.len()];
        backward.iter().flat_map(Statement::inputs).for_each(|v| is_needed[v.index()] = true);
        let mut candidates = Vec::new();
        for (n, item) in forward.iter().enumerate().rev() {
            if item.outputs().iter().any(|v| is_needed[v.index()]) && self.may_be_again(n) {
                item.inputs().iter().for_each(|v| is_needed[v.index()] = true);
                if item.viewed().is_none() {
                    candidates.push(n);
                }
            }
        }
        candidates.reverse();
        candidates
    }

    /// Returns the last statement of forward that takes each value or a view of it.
    pub(crate) fn last_takers(&self) -> Vec<Option<usize>> {
        let mut last: Vec<Option<usize>> = vec![None; self.maker.len()];
        for (n, item) in self.program.forward().iter().enumerate().rev() {
            let of_views = item.outputs().iter().filter_map(|v| last[v.index()]).max();
            let is_view = item.viewed().is_some();
            for v in item.inputs() {
                let n = if is_view { of_views.unwrap_or(n) } else { n };
                last[v.index()] = last[v.index()].max(Some(n));
            }
        }
        last
    }

    /// Returns the rematerialization of these statements and of the views of their outputs.
    pub(crate) fn again(&self, mut is_chosen: Vec<bool>) -> Again {
        let items = self.program.forward();
        for (n, item) in items.iter().enumerate() {
            is_chosen[n] |= item.viewed().is_some_and(|(from, _)| is_chosen[self.maker[from.index()]]);
        }
        let mut is_late = vec![false; is_chosen.len()];
        let mut is_taken = vec![false; self.maker.len()];
        for (n, item) in items.iter().enumerate().rev() {
            let is_made = |is: &[bool]| item.outputs().iter().any(|v| is[v.index()]);
            is_late[n] = is_chosen[n] && !is_made(&is_taken) && is_made(&self.is_taken);
            if !is_late[n] {
                item.inputs().iter().for_each(|v| is_taken[v.index()] = true);
            }
        }
        Again { is_chosen, is_late }
    }

    /// Returns all statements in order; rematerialized ones are right before their first use in backward.
    pub(crate) fn lines(&self, again: &Again) -> Vec<Line> {
        let items = self.program.statements();
        let mut done = vec![false; self.items];
        let mut lines = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            if n >= self.items {
                self.taken_again(item, again, &mut done, &mut lines);
            }
            if !again.is_late[n] {
                lines.push(Line { item: n, is_copy: false });
            }
        }
        lines
    }

    /// Adds the statements of forward that a backward statement needs first, in the order of forward.
    fn taken_again(&self, item: &Statement, again: &Again, done: &mut [bool], lines: &mut Vec<Line>) {
        let mut found = Vec::new();
        let mut list: Vec<&Statement> = vec![item];
        while let Some(item) = list.pop() {
            for v in item.inputs() {
                let maker = self.maker[v.index()];
                if maker < self.items && again.is_chosen[maker] && !done[maker] {
                    done[maker] = true;
                    found.push(maker);
                    list.push(&self.program.statements()[maker]);
                }
            }
        }
        found.sort_unstable();
        lines.extend(found.into_iter().map(|item| Line { item, is_copy: !again.is_late[item] }));
    }

    /// Returns `true` if the statement at `line` takes the copy of a value.
    pub(crate) fn takes_copy(&self, line: Line, v: ValueId, again: &Again) -> bool {
        let maker = self.maker[v.index()];
        let is_backward = line.is_copy || line.item >= self.items || again.is_late[line.item];
        is_backward && maker < self.items && again.is_chosen[maker] && !again.is_late[maker]
    }

    /// Builds the program of these lines.
    pub(crate) fn program(&self, again: &Again) -> Program {
        let of = self.program;
        let mut made = of.clone();
        let mut copies: Vec<Option<ValueId>> = vec![None; of.values().len()];
        made.statements = Vec::with_capacity(of.statements().len());
        for line @ Line { item, is_copy } in self.lines(again) {
            let mut done = of.statements()[item].clone();
            for v in done.takes_mut() {
                if self.takes_copy(line, *v, again) {
                    *v = copies[v.index()].unwrap_or(*v);
                }
            }
            if is_copy {
                for v in done.makes_mut() {
                    let copy = made.copy(*v);
                    copies[v.index()] = Some(copy);
                    *v = copy;
                }
            }
            // Values below `no_grad` have no gradient.
            if is_copy || again.is_late[item] {
                for v in done.outputs() {
                    Arc::make_mut(&mut made.values[v.index()].ty).gradient = None;
                }
                if let Statement::Redistribute { backward, .. } = &mut done {
                    *backward = None;
                }
            }
            made.statements.push(done);
        }
        made
    }
}

impl Program {
    /// Returns the program in which backward rematerializes the given values.
    ///
    /// The copy of `x` is `x.again`, right before its first use.
    /// Values that no op or redistribution of forward produces, and values that backward does not take, are
    /// unchanged.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Graph, ComputeRates};
    /// let graph: Graph = "
    ///     mesh dp=4
    ///     x: f32[64,32] S(0)
    ///     w: f32[32,32] S(0)
    ///     h = mm(x, w)
    ///     loss = sum(h)
    ///     gradient loss wrt x, w
    /// ".parse()?;
    /// let program = ShardingSolver::new().solve(&graph)?;
    /// // A fully sharded parameter is gathered for forward, and re-gathered for backward.
    /// let regathered = program.rematerialize(&program.gathered_parameters())?;
    /// let traffic = |of: &reshard_program::Program| of.report(&ComputeRates::uniform()).over("dp");
    /// assert_eq!((traffic(&program).forward.steps, traffic(&program).backward.steps), (1, 1));
    /// assert_eq!((traffic(&regathered).forward.steps, traffic(&regathered).backward.steps), (1, 2));
    /// assert!(regathered.to_string().contains("w.1.again: R = w"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error for a value of another program.
    pub fn rematerialize(&self, values: &[ValueId]) -> Result<Program, Error> {
        let forward = Forward::of(self);
        let mut is_chosen = vec![false; self.statements().len()];
        for v in values {
            let Some(&maker) = forward.maker.get(v.index()) else {
                return Err(Error::Graph {
                    reason: format!(
                        "there is no value {} among {}; pass values of this program",
                        v.index(),
                        self.values().len()
                    ),
                });
            };
            is_chosen[maker] = forward.may_be_again(maker);
        }
        Ok(forward.program(&forward.again(is_chosen)))
    }

    /// Returns the redistributed copies of parameters: those that ranks gather for the ops of forward.
    #[doc(hidden)]
    pub fn gathered_parameters(&self) -> Vec<ValueId> {
        let classes = classes(self);
        let mut of_parameters: Vec<bool> =
            classes.iter().map(|class| *class == ValueClass::Parameter).collect();
        let mut gathered = Vec::new();
        for item in self.forward() {
            if let Statement::Redistribute { from, to, .. } = item
                && of_parameters[from.index()]
            {
                of_parameters[to.index()] = true;
                gathered.push(*to);
            }
        }
        gathered
    }
}
