//! Training: a rank's schedule again and again in one arena.
//!
//! ```text
//! step k    batch k is put where the program's inputs are; the schedule runs; what is watched is read
//! ```
//!
//! What is called `w'` is in the place of `w`, or [carried](Schedule::carried) there, so that the next step finds it. This is all that a
//! framework does in a step.

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
pub struct Training<'a, T> {
    /// A step, whose numbers are all of the type `T`.
    pub program: &'a Program,
    /// How it is compiled.
    pub options: &'a CompileOptions,
    /// What its inputs are before the first step, whole.
    pub inputs: &'a Values<T>,
    /// In each step other values for some of the inputs, whole.
    pub batches: &'a [Values<T>],
    /// The value that is looked at after each step.
    pub watched: &'a str,
}

impl<T: Number> Training<'_, T> {
    /// What a rank holds of the watched value after each step; nothing where it is not on its mesh. All ranks run it together, each with a communicator of its own.
    ///
    /// ```
    /// use ndarray::{ArrayD, arr0};
    /// use reshard_collectives::threads::World;
    /// use reshard_program::{Program, schedule::Options};
    /// use reshard_reference::{Training, Values};
    /// let program: Program = "mesh x=2\nw: f64[] R\na: f64[] R\nd = mul(w, a)\nw' = sub(w, d)\nl = square(w')".parse()?;
    /// let value = |name: &str, x: f64| (name.to_owned(), arr0(x).into_dyn());
    /// let (inputs, batches) = ([value("w", 8.0), value("a", 0.0)].into(), [[value("a", 0.5)].into(), [value("a", 0.25)].into()]);
    /// let training =
    ///     Training { program: &program, options: &Options::default(), inputs: &inputs, batches: &batches, watched: "l" };
    /// for losses in World::new(2)?.run(|comm| training.run(comm)) {
    ///     assert_eq!(losses?, [arr0(16.0).into_dyn(), arr0(9.0).into_dyn()] as [ArrayD<f64>; 2]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails as kernels and exchanges do, for inputs that are not given or have another shape, and for a value that there is not, or not any more at the
    /// end of a step.
    pub fn run<C: Communicator<Buffer = [u8]>>(&self, comm: &mut C) -> Result<Vec<ArrayD<T>>, Error> {
        let rank = comm.rank();
        let schedule = self.program.compile(rank, self.options)?;
        let watched = schedule.local(self.watched);
        if watched.is_none() && self.program.value(self.watched).is_none() {
            return Err(Error::Input { reason: format!("there is no value {}", self.watched) });
        }
        if watched.is_some_and(|watched| !watched.is_live_out) {
            return Err(Error::Input {
                reason: format!("{} is not there any more at the end of a step", self.watched),
            });
        }
        self.check()?;
        let mut arena = schedule.arena()?;
        put(self.program, &schedule, self.inputs, &mut arena)?;
        let mut kernels = Host::<T>::new(self.program.table());
        let mut engine = CommunicatorExchanges::new(comm);
        let prepared = schedule.prepare::<_, _, Error>(&mut kernels, &mut engine)?;
        let mut seen = Vec::with_capacity(self.batches.len());
        for (step, batch) in self.batches.iter().enumerate() {
            for (from, to) in schedule.loop_carried_copies().iter().filter(|_| step > 0) {
                arena.copy_within(from.range(), to.offset);
            }
            put(self.program, &schedule, batch, &mut arena)?;
            prepared.run::<_, _, Error>(&mut kernels, &mut engine, &mut arena)?;
            if let Some(watched) = watched {
                seen.push(tensor(&arena[watched.slice.range()], &watched.tensor)?);
            }
        }
        Ok(seen)
    }

    /// Every input is given, only inputs are, and what is to be one in the next step lies as it.
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
                    "{name}' is {to} and {name} is {is}: the next step begins with it, so they have to be alike"
                );
                return Err(Error::Input { reason });
            }
        }
        let given = self.batches.iter().chain([self.inputs]).flat_map(BTreeMap::keys);
        match given.into_iter().find(|name| !names.contains(name.as_str())) {
            Some(name) => {
                Err(Error::Input { reason: format!("{name} is given, and is no input of the program") })
            }
            None => Ok(()),
        }
    }
}
