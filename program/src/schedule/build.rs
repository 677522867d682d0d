//! From a program to the schedule of a rank: turns that the rank has a part in, slots for what it holds, offsets for slots.

use std::collections::HashMap;

use reshard_collectives::Compiled;
use reshard_ops::rules::Call;
use reshard_planner::Plan;

use crate::Error;
use crate::graph::ValueId;
use crate::program::{Item, Program};
use crate::report::{END, Lives};
use crate::schedule::arena::{Slot, lay_out};
use crate::schedule::order::{Turn, order};
use crate::schedule::transfer::TransferStep;
use crate::schedule::{Arg, Instr, Local, LocalCall, LocalTensor, Options, Schedule, Transfer};

/// A schedule that cannot be.
pub(super) fn refused(reason: String) -> Error {
    Error::Schedule { reason }
}

/// The schedule of a rank.
pub(super) fn compile(program: &Program, rank: usize, options: &Options) -> Result<Schedule, Error> {
    if !program.mesh().contains(rank) {
        let mesh = program.mesh();
        return Err(refused(format!("there is no rank {rank} in mesh {mesh}")));
    }
    let mut build = Build::new(program, rank)?;
    for turn in order(program, options.hoist_bytes) {
        build.take(turn)?;
    }
    build.finish(options)
}

/// A schedule that is being made, of slots instead of offsets.
struct Build<'a> {
    program: &'a Program,
    rank: usize,
    lives: Lives,
    /// What the rank holds of each value.
    tensors: Vec<Option<LocalTensor>>,
    /// The slot of each value that has a buffer of its own.
    slots_of: Vec<Option<usize>>,
    slots: Vec<Slot>,
    instrs: Vec<Instr>,
    /// What each arg is: the number of a value.
    args: Vec<usize>,
    calls: Vec<LocalCall>,
    known: HashMap<(Call, bool, Vec<LocalTensor>), u32>,
    exchanges: Vec<Moved>,
    /// The exchange of each item.
    exchange_of: HashMap<usize, u32>,
    /// How many instructions there are when an item is through.
    through: Vec<usize>,
}

/// A transfer, of slots instead of offsets.
struct Moved {
    from: ValueId,
    to: ValueId,
    compiled: Compiled,
    steps: Vec<TransferStep>,
    scratch: [usize; 2],
}

impl<'a> Build<'a> {
    fn new(program: &'a Program, rank: usize) -> Result<Build<'a>, Error> {
        let lives = program.lives(rank);
        let mut tensors = Vec::with_capacity(program.values().len());
        for value in program.values() {
            let here = value.is.value.mesh().contains(rank);
            tensors.push(if here { Some(LocalTensor::of(value, rank)?) } else { None });
        }
        let mut build = Build {
            program,
            rank,
            lives,
            slots_of: vec![None; tensors.len()],
            tensors,
            slots: Vec::new(),
            instrs: Vec::new(),
            args: Vec::new(),
            calls: Vec::new(),
            known: HashMap::new(),
            exchanges: Vec::new(),
            exchange_of: HashMap::new(),
            through: vec![0; program.items().len()],
        };
        for v in 0..build.tensors.len() {
            if let Some(tensor) = &build.tensors[v]
                && build.lives.root[v] == v
            {
                let bytes = tensor.bytes()?;
                build.slots_of[v] = Some(build.slot(bytes));
            }
        }
        Ok(build)
    }

    /// A new slot, which nothing has used yet.
    fn slot(&mut self, bytes: usize) -> usize {
        self.slots.push(Slot { bytes, first: usize::MAX, last: 0 });
        self.slots.len() - 1
    }

    fn holds(&self, v: ValueId) -> bool {
        self.tensors[v.0].is_some()
    }

    /// Uses the slot of a value in the instruction that comes next.
    fn used(&mut self, v: ValueId) {
        if let Some(slot) = self.slots_of[self.lives.root[v.0]] {
            self.touch(slot);
        }
    }

    fn touch(&mut self, slot: usize) {
        let (now, slot) = (self.instrs.len(), &mut self.slots[slot]);
        slot.first = slot.first.min(now);
        slot.last = slot.last.max(now);
    }

    /// Adds what the rank does in a turn, if it has a part in it.
    fn take(&mut self, turn: Turn) -> Result<(), Error> {
        let program = self.program;
        match turn {
            Turn::Call(n) => {
                if let Item::Op { call, op, inputs, outputs, strategy, operations } = &program.items()[n] {
                    self.call(call, op.is_elementwise(), [inputs, outputs], strategy.region, *operations)?;
                }
                self.through[n] = self.instrs.len();
            }
            Turn::Post(n) => {
                if let Item::Move { from, to, forward, .. } = &program.items()[n] {
                    self.post(n, *from, *to, forward)?;
                }
            }
            Turn::Wait(n) => {
                if let Some(&exchange) = self.exchange_of.get(&n) {
                    let Moved { from, to, scratch, .. } = self.exchanges[exchange as usize];
                    self.touch_all(from, to, scratch);
                    self.instrs.push(Instr::Wait { exchange });
                }
                self.through[n] = self.instrs.len();
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &Call,
        is_elementwise: bool,
        [inputs, outputs]: [&[ValueId]; 2],
        needs_region: bool,
        operations: f64,
    ) -> Result<(), Error> {
        // All operands and results are on one mesh.
        let all: Vec<ValueId> = inputs.iter().chain(outputs).copied().collect();
        let tensors: Option<Vec<LocalTensor>> = all.iter().map(|v| self.tensors[v.0].clone()).collect();
        let Some(tensors) = tensors else { return Ok(()) };
        let key = (call.clone(), needs_region, tensors);
        let kernel = if let Some(&kernel) = self.known.get(&key) {
            kernel
        } else {
            let kernel = number(self.calls.len())?;
            let (takes, makes) = key.2.split_at(inputs.len());
            let (takes, makes) = (takes.to_vec(), makes.to_vec());
            let call = call.clone();
            self.calls.push(LocalCall { call, takes, makes, needs_region, operations, is_elementwise });
            self.known.insert(key, kernel);
            kernel
        };
        let start = number(self.args.len())?;
        for v in all {
            self.used(v);
            self.args.push(v.0);
        }
        self.instrs.push(Instr::Call { kernel, args: start..number(self.args.len())? });
        Ok(())
    }

    fn post(&mut self, n: usize, from: ValueId, to: ValueId, plan: &Plan) -> Result<(), Error> {
        if !self.holds(from) && !self.holds(to) {
            return Ok(());
        }
        let name = &self.program.get(to).name;
        let compiled =
            Compiled::new(plan, self.rank).map_err(|e| refused(format!("the move to {name}: {e}")))?;
        if compiled.exchanges().len() == 0 {
            return Ok(());
        }
        let (first, second) = compiled.scratch_bytes();
        let scratch = [self.slot(first), self.slot(second)];
        let steps = TransferStep::of(self.program.meshes(), plan, &compiled);
        let exchange = number(self.exchanges.len())?;
        self.exchanges.push(Moved { from, to, compiled, steps, scratch });
        self.exchange_of.insert(n, exchange);
        self.touch_all(from, to, scratch);
        self.instrs.push(Instr::Post { exchange });
        Ok(())
    }

    /// What is in flight is in use.
    fn touch_all(&mut self, from: ValueId, to: ValueId, scratch: [usize; 2]) {
        self.used(from);
        self.used(to);
        for slot in scratch {
            self.touch(slot);
        }
    }

    fn finish(mut self, options: &Options) -> Result<Schedule, Error> {
        let end = self.instrs.len();
        let items = self.program.items();
        // What has no instruction is through when what comes before it is.
        let mut most = 0;
        for through in &mut self.through {
            most = most.max(*through);
            *through = most;
        }
        let mut is_input = vec![false; self.tensors.len()];
        for item in items {
            if let Item::Input(v) = item {
                is_input[v.0] = true;
                if let Some(slot) = self.slots_of[v.0] {
                    self.slots[slot].first = 0;
                }
            }
        }
        let touched: Vec<Slot> = self.slots.clone();
        for (v, slot) in self.slots_of.iter().enumerate() {
            let Some(slot) = slot.map(|slot| &mut self.slots[slot]) else { continue };
            slot.last = match self.lives.until[v] {
                END => end,
                until => slot.last.max(self.through[until].saturating_sub(1)),
            };
            slot.first = slot.first.min(slot.last);
        }
        let [in_place, copied] = self.updates(&touched, options.liveness);
        let (mut args, arena_bytes) = lay_out(&self.slots, options.liveness)?;
        for (from, to) in in_place {
            args[from] = args[to];
        }
        let at = |v: usize| self.slots_of[self.lives.root[v]].map_or(Arg::default(), |slot| args[slot]);
        let name = |v: ValueId| self.program.get(v).name.clone();
        let mut locals = Vec::new();
        for (v, tensor) in self.tensors.iter().enumerate() {
            let Some(tensor) = tensor.clone() else { continue };
            locals.push(Local {
                name: name(ValueId(v)),
                tensor,
                at: at(v),
                is_input: is_input[v],
                lasts: !options.liveness || self.lives.until[self.lives.root[v]] == END,
            });
        }
        let held = |v: ValueId| if self.tensors[v.0].is_some() { at(v.0) } else { Arg::default() };
        let exchanges = self.exchanges.iter().map(|moved| Transfer {
            compiled: moved.compiled.clone(),
            values: (name(moved.from), name(moved.to)),
            source: held(moved.from),
            target: held(moved.to),
            scratch: moved.scratch.map(|slot| args[slot]),
            steps: moved.steps.clone(),
        });
        Ok(Schedule {
            rank: self.rank,
            exchanges: exchanges.collect(),
            args: self.args.iter().map(|&v| at(v)).collect(),
            names: self.args.iter().map(|&v| name(ValueId(v))).collect(),
            instrs: self.instrs,
            calls: self.calls,
            locals,
            arena_bytes,
            carried: copied.into_iter().map(|(from, to)| (args[from], args[to])).collect(),
        })
    }

    /// Of each value that is another in the next step the slots of both, that one's first: those that are made in its place, and those
    /// that have to be copied there afterwards.
    ///
    /// What is made after the last use of what it replaces takes its place, or in that use itself by an op that works element by element.
    fn updates(&mut self, touched: &[Slot], share: bool) -> [Vec<(usize, usize)>; 2] {
        let end = self.instrs.len();
        let (mut in_place, mut copied) = (Vec::new(), Vec::new());
        for (w, next) in self.lives.next.iter().enumerate() {
            let slot = |v: usize| self.slots_of[self.lives.root[v]];
            let Some((from, to)) = next.and_then(slot).zip(slot(w)).filter(|(from, to)| from != to) else {
                continue;
            };
            let (new, old) = (touched[from], touched[to]);
            let is_elementwise = || match &self.instrs[new.first] {
                Instr::Call { kernel, .. } => self.calls[*kernel as usize].is_elementwise,
                Instr::Post { .. } | Instr::Wait { .. } => false,
            };
            let used = old.first != usize::MAX;
            let after = !used || old.last < new.first || (old.last == new.first && is_elementwise());
            let is_new = new.first < end && !in_place.iter().any(|(known, _)| *known == from);
            if share && is_new && after && new.bytes == old.bytes {
                self.slots[from].bytes = 0;
                in_place.push((from, to));
            } else {
                copied.push((from, to));
            }
            // Nobody else is there in between.
            (self.slots[to].first, self.slots[to].last) = (0, end);
        }
        [in_place, copied]
    }
}

/// The number of what comes after so many.
fn number(len: usize) -> Result<u32, Error> {
    u32::try_from(len).map_err(|_| refused(format!("a schedule has at most {} of anything", u32::MAX)))
}
