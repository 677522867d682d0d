//! Values of forward that backward makes again, in place of keeping them.
//!
//! ```text
//! forward     as it is; what nobody takes any more is not kept
//! backward    before the first item that takes such a value, what makes it once more: x.again, of what is kept or is made again itself
//! ```
//!
//! A copy is the same op, or the same move, on the same values: nothing changes a bit. What is a view of something that is made again is
//! made again too, which costs nothing. A value is made again at most once, and the copy is there from its first use to its last. What only
//! backward takes is not made twice: it is made there.

use std::sync::Arc;

use crate::Error;
use crate::graph::ValueId;
use crate::program::{Program, Statement};
use crate::report::{ValueClass, classes};

/// The items of a program and what a pass over them needs to know.
pub(crate) struct Forward<'a> {
    pub(crate) program: &'a Program,
    /// How many items are of forward: those above `no_grad`.
    pub(crate) items: usize,
    /// The item that makes each value.
    maker: Vec<usize>,
    /// Whether anything takes it.
    is_taken: Vec<bool>,
}

/// The items that backward does, of those of forward.
#[derive(Clone, Debug, Default)]
pub(crate) struct Again {
    /// Which are done there.
    is_chosen: Vec<bool>,
    /// Which of these are done nowhere else, as only backward takes what they make.
    is_late: Vec<bool>,
}

/// An item, or its copy, where it is done.
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

    /// Whether an item can be done again: an op or a move of forward.
    pub(crate) fn may_be_again(&self, n: usize) -> bool {
        match &self.program.statements()[n] {
            Statement::Op { .. } | Statement::Redistribute { .. } => n < self.items,
            Statement::Input(_) | Statement::NoGrad => false,
        }
    }

    /// The items from which backward takes something, itself or through others of forward, but for views.
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

    /// The last item of forward that takes each value or a view of it.
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

    /// These items, and the views of what they make.
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

    /// All items in order, where those of backward are before what first takes them there.
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

    /// The items of forward that an item of backward takes and nobody before it took, in the order of forward.
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

    /// Whether what takes this value in a line takes its copy.
    pub(crate) fn takes_copy(&self, line: Line, v: ValueId, again: &Again) -> bool {
        let maker = self.maker[v.index()];
        let is_backward = line.is_copy || line.item >= self.items || again.is_late[line.item];
        is_backward && maker < self.items && again.is_chosen[maker] && !again.is_late[maker]
    }

    /// The program of these lines.
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
            // What is made below `no_grad` has no gradient.
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
    /// The same program, where backward makes some values again in place of keeping them: `x.again` of `x`, right before it is first taken.
    ///
    /// What is asked for and no op or move of forward makes, and what backward does not take, stays as it is.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Graph, Rates};
    /// let graph: Graph = "
    ///     mesh dp=4
    ///     x: f32[64,32] S(0)
    ///     w: f32[32,32] S(0)
    ///     h = mm(x, w)
    ///     loss = sum(h)
    ///     gradient loss wrt x, w
    /// ".parse()?;
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// // Of a fully sharded parameter the copy is gathered for forward, and again for backward.
    /// let again = program.again(&program.gathered())?;
    /// let traffic = |of: &reshard_program::Program| of.report(&Rates::uniform()).over("dp");
    /// assert_eq!((traffic(&program).forward.steps, traffic(&program).backward.steps), (1, 1));
    /// assert_eq!((traffic(&again).forward.steps, traffic(&again).backward.steps), (1, 2));
    /// assert!(again.to_string().contains("w.1.again: R = w"));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails for a value of another program.
    pub fn rematerialize(&self, values: &[ValueId]) -> Result<Program, Error> {
        let forward = Forward::of(self);
        let mut is_chosen = vec![false; self.statements().len()];
        for v in values {
            let Some(&maker) = forward.maker.get(v.index()) else {
                return Err(Error::Graph {
                    reason: format!(
                        "there is no value {} of {}: give values of this program",
                        v.index(),
                        self.values().len()
                    ),
                });
            };
            is_chosen[maker] = forward.may_be_again(maker);
        }
        Ok(forward.program(&forward.again(is_chosen)))
    }

    /// What moves make of parameters: the copies that ranks gather for the ops of forward.
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
