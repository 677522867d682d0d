//! Training: a rank's schedule, run repeatedly in one arena.
//!
//! ```text
//! step k    batch k is copied to the program's inputs; the schedule runs; the watched value is read
//! ```
//!
//! The value `w'` shares the memory of `w`, or is [copied](Schedule::loop_carried_copies) there, so that the next step
//! finds it. A framework does no more than this in a step.

use std::collections::{BTreeMap, BTreeSet};

use reshard_collectives::Communicator;
use reshard_program::schedule::{CommunicatorExchanges, CompileOptions};
use reshard_program::{Program, Statement};

use ndarray::ArrayD;

use crate::program::input;
use crate::schedule::{Host, put, tensor};
use crate::{Error, Number, Values};

/// The steps of a training.
#[derive(Debug)]
#[doc(hidden)]
pub struct Training<'a, T> {
    /// A step, whose numbers are all of the type `T`.
    pub program: &'a Program,
    /// The compile options.
    pub options: &'a CompileOptions,
    /// The inputs before the first step, whole.
    pub inputs: &'a Values<T>,
    /// For each step the new values of some of the inputs, whole.
    pub batches: &'a [Values<T>],
    /// The name of the value that is returned after each step.
    pub watched: &'a str,
}

impl<T: Number> Training<'_, T> {
    /// Runs all steps, and returns a rank's shard of the watched value after each.
    ///
    /// The result is empty if the rank is not on the value's mesh. All ranks call it, each with its own
    /// communicator.
    ///
    /// ```
    /// use ndarray::{ArrayD, arr0};
    /// use reshard_collectives::threads::World;
    /// use reshard_program::{Program, schedule::CompileOptions};
    /// use reshard_reference::{Training, Values};
    /// let program: Program = "mesh x=2\nw: f64[] R\na: f64[] R\nd = mul(w, a)\nw' = sub(w, d)\nl = square(w')".parse()?;
    /// let value = |name: &str, x: f64| (name.to_owned(), arr0(x).into_dyn());
    /// let (inputs, batches) = ([value("w", 8.0), value("a", 0.0)].into(), [[value("a", 0.5)].into(), [value("a", 0.25)].into()]);
    /// let training =
    ///     Training { program: &program, options: &CompileOptions::default(), inputs: &inputs, batches: &batches, watched: "l" };
    /// for losses in World::new(2)?.run(|comm| training.run(comm)) {
    ///     assert_eq!(losses?, [arr0(16.0).into_dyn(), arr0(9.0).into_dyn()] as [ArrayD<f64>; 2]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails as kernels and exchanges do, for inputs that are not given or have another shape, and for a
    /// value that does not exist, or no longer exists at the end of a step.
    pub fn run<C: Communicator<Buffer = [u8]>>(&self, comm: &mut C) -> Result<Vec<ArrayD<T>>, Error> {
        let rank = comm.rank();
        let schedule = self.program.compile(rank, self.options)?;
        let watched = schedule.local(self.watched);
        if watched.is_none() && self.program.value(self.watched).is_none() {
            return Err(Error::Input { reason: format!("there is no value `{}`", self.watched) });
        }
        if watched.is_some_and(|watched| !watched.is_live_out) {
            return Err(Error::Input {
                reason: format!(
                    "`{}` is not live at the end of a step; watch a value that no op uses",
                    self.watched
                ),
            });
        }
        self.check()?;
        let mut arena = schedule.arena()?;
        put(self.program, &schedule, self.inputs, &mut arena)?;
        let mut kernels = Host::<T>::new(self.program.table());
        let mut engine = CommunicatorExchanges::new(comm);
        let prepared = schedule.prepare(&mut kernels, &mut engine)?;
        let mut seen = Vec::with_capacity(self.batches.len());
        for (step, batch) in self.batches.iter().enumerate() {
            for (from, to) in schedule.loop_carried_copies().iter().filter(|_| step > 0) {
                arena.copy_within(from.range(), to.offset);
            }
            put(self.program, &schedule, batch, &mut arena)?;
            prepared.run(&mut kernels, &mut engine, &mut arena)?;
            if let Some(watched) = watched {
                seen.push(tensor(&arena[watched.slice.range()], &watched.tensor)?);
            }
        }
        Ok(seen)
    }

    /// Checks the inputs.
    ///
    /// All inputs and nothing else are given, and the next step's inputs have the shardings of the current
    /// ones.
    fn check(&self) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for item in self.program.statements() {
            let Statement::Input(v) = item else { continue };
            let value = self.program.get(*v);
            input(self.program, *v, self.inputs)?;
            names.insert(value.name.as_str());
            let next = self.program.value(&format!("{}'", value.name)).map(|v| self.program.get(v));
            if let Some(next) = next.filter(|next| next.ty.value != value.ty.value) {
                let (name, is, to) = (&value.name, &value.ty.value, &next.ty.value);
                let reason = format!(
                    "`{name}'` is {to}, but `{name}` is {is}; they must be equal, because the next step begins with `{name}'`"
                );
                return Err(Error::Input { reason });
            }
        }
        let given = self.batches.iter().chain([self.inputs]).flat_map(BTreeMap::keys);
        match given.into_iter().find(|name| !names.contains(name.as_str())) {
            Some(name) => {
                Err(Error::Input { reason: format!("`{name}` is given, but is not an input of the program") })
            }
            None => Ok(()),
        }
    }
}
