//! Compiles a program for a rank: selects its turns, assigns buffer slots, and lays out the arena.

use std::collections::HashMap;

use reshard_collectives::{Batch, CompiledPlan};
use reshard_ops::rules::OpCall;

use crate::Error;
use crate::graph::ValueId;
use crate::program::{Program, Statement};
use crate::report::{END, Lives};
use crate::schedule::arena::{Slot, lay_out};
use crate::schedule::call::called;
use crate::schedule::order::{Turn, order};
use crate::schedule::transfer::TransferStep;
use crate::schedule::{
    ArenaSlice, CompileOptions, Instruction, LocalBuffer, LocalCall, LocalTensor, Schedule, Transfer,
    TransferMember,
};

/// Returns an error about an invalid schedule.
pub(super) fn refused(reason: String) -> Error {
    Error::Schedule { reason }
}

/// Compiles the schedule of a rank.
pub(super) fn compile(program: &Program, rank: usize, options: &CompileOptions) -> Result<Schedule, Error> {
    if !program.mesh().contains(rank) {
        let mesh = program.mesh();
        return Err(refused(format!(
            "rank {rank} is outside the mesh `{mesh}`, which has {} ranks",
            mesh.size()
        )));
    }
    let mut build = Build::new(program, rank)?;
    let order = order(program, options);
    for turn in order.list {
        build.take(turn, &order.exchanges)?;
    }
    build.finish(options)
}

/// A schedule under construction, with slots instead of offsets.
struct Build<'a> {
    program: &'a Program,
    rank: usize,
    lives: Lives,
    /// The rank's shard of each value; `None` for a value that the rank does not hold.
    tensors: Vec<Option<LocalTensor>>,
    /// The slot of each value that has a separate buffer.
    slots_of: Vec<Option<usize>>,
    slots: Vec<Slot>,
    instrs: Vec<Instruction>,
    /// The value number of each arg.
    args: Vec<usize>,
    calls: Vec<LocalCall>,
    known: HashMap<(OpCall, bool, Vec<LocalTensor>, Vec<bool>), u32>,
    stored: Vec<Vec<bool>>,
    exchanges: Vec<Posted>,
    /// The exchange number on this rank for each exchange of all ranks.
    exchange_of: HashMap<usize, u32>,
    /// The slots inside a bucket's slot.
    parts: Vec<Part>,
}

/// A transfer, with slots instead of offsets.
struct Posted {
    moves: Vec<(ValueId, ValueId)>,
    compiled: CompiledPlan,
    steps: Vec<TransferStep>,
    scratch: [usize; 2],
    /// The slots of all sources and of all targets, for a bucket.
    whole: Option<[usize; 2]>,
}

/// A slot inside another one, which is live as long as any of its parts.
struct Part {
    slot: usize,
    whole: usize,
    start: usize,
    bytes: usize,
}

impl<'a> Build<'a> {
    fn new(program: &'a Program, rank: usize) -> Result<Build<'a>, Error> {
        let lives = program.lives(rank);
        let mut tensors = Vec::with_capacity(program.values().len());
        for value in program.values() {
            let here = value.ty.value.mesh().contains(rank);
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
            stored: program.stored_operands(),
            exchanges: Vec::new(),
            exchange_of: HashMap::new(),
            parts: Vec::new(),
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

    /// Adds an unused slot.
    fn slot(&mut self, bytes: usize) -> usize {
        self.slots.push(Slot { bytes, first: usize::MAX, last: 0 });
        self.slots.len() - 1
    }

    fn holds(&self, v: ValueId) -> bool {
        self.tensors[v.0].is_some()
    }

    /// Extends the lifetime of a value's slot to the next instruction.
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

    /// Adds the instructions of this rank for a turn, if it participates.
    fn take(&mut self, turn: Turn, exchanges: &[Vec<usize>]) -> Result<(), Error> {
        let program = self.program;
        match turn {
            Turn::Call(n) => {
                if let Statement::Op { call, op, inputs, outputs, strategy, operations, .. } =
                    &program.statements()[n]
                {
                    let stored = self.stored[n].clone();
                    let of = (call, stored);
                    self.call(of, op.is_elementwise(), [inputs, outputs], strategy.region, *operations)?;
                }
            }
            Turn::Post(n) => self.post(n, &exchanges[n])?,
            Turn::Wait(n) => {
                if let Some(&exchange) = self.exchange_of.get(&n) {
                    self.touch_all(exchange as usize);
                    self.instrs.push(Instruction::Wait { exchange });
                }
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        (call, stored): (&OpCall, Vec<bool>),
        is_elementwise: bool,
        [inputs, outputs]: [&[ValueId]; 2],
        needs_region: bool,
        operations: f64,
    ) -> Result<(), Error> {
        // All operands and results are on one mesh, so the rank holds either all of them or none.
        let all: Vec<ValueId> = inputs.iter().chain(outputs).copied().collect();
        let tensors: Option<Vec<LocalTensor>> = all.iter().map(|v| self.tensors[v.0].clone()).collect();
        let Some(tensors) = tensors else { return Ok(()) };
        let (call, tensors) = called(call, tensors, inputs.len());
        let key = (call, needs_region, tensors, stored);
        let kernel = if let Some(&kernel) = self.known.get(&key) {
            kernel
        } else {
            let kernel = number(self.calls.len())?;
            let (takes, makes) = key.2.split_at(inputs.len());
            let (takes, makes) = (takes.to_vec(), makes.to_vec());
            let call = key.0.clone();
            self.calls.push(LocalCall {
                call,
                inputs: takes,
                outputs: makes,
                stored: key.3.clone(),
                needs_region,
                operations,
                is_elementwise,
            });
            self.known.insert(key, kernel);
            kernel
        };
        let start = number(self.args.len())?;
        for v in all {
            self.used(v);
            self.args.push(v.0);
        }
        self.instrs.push(Instruction::Call { kernel, args: start..number(self.args.len())? });
        Ok(())
    }

    /// Posts exchange `n` of these redistributions, if the rank participates.
    fn post(&mut self, n: usize, items: &[usize]) -> Result<(), Error> {
        let program = self.program;
        let (mut moves, mut compiled) = (Vec::new(), Vec::new());
        for &item in items {
            let Statement::Redistribute { from, to, forward, .. } = &program.statements()[item] else {
                continue;
            };
            if !self.holds(*from) && !self.holds(*to) {
                continue;
            }
            let name = &program.get(*to).name;
            let alone = CompiledPlan::new(forward, self.rank)
                .map_err(|e| refused(format!("the redistribution to `{name}`: {e}")))?;
            moves.push((*from, *to));
            compiled.push((&**forward, alone));
        }
        if compiled.iter().all(|(_, alone)| alone.exchanges().len() == 0) {
            return Ok(());
        }
        let steps = TransferStep::of(program.meshes(), &compiled, self.rank)?;
        let mut whole = None;
        let compiled = if let [(_, alone)] = &compiled[..] {
            alone.clone()
        } else {
            let names = || moves.iter().map(|(_, to)| program.get(*to).name.as_str()).collect::<Vec<_>>();
            let of = |e| refused(format!("the redistributions to {}: {e}", names().join(", ")));
            let mut batch = Batch::new();
            for (plan, _) in &compiled {
                batch.add(*plan).map_err(of)?;
            }
            whole = Some(self.bucket(&batch, &moves).map_err(of)?);
            batch.compile(self.rank).map_err(of)?
        };
        let (first, second) = compiled.scratch_bytes();
        let scratch = [self.slot(first), self.slot(second)];
        let exchange = number(self.exchanges.len())?;
        self.exchanges.push(Posted { moves, compiled, steps, scratch, whole });
        self.exchange_of.insert(n, exchange);
        self.touch_all(exchange as usize);
        self.instrs.push(Instruction::Post { exchange });
        Ok(())
    }

    /// Adds the slots of a bucket, with its sources and targets at the batch's offsets on every rank.
    fn bucket(
        &mut self,
        batch: &Batch<'_>,
        moves: &[(ValueId, ValueId)],
    ) -> Result<[usize; 2], reshard_collectives::Error> {
        let whole = [self.slot(batch.source_bytes()), self.slot(batch.target_bytes())];
        for (n, (from, to)) in moves.iter().enumerate() {
            let starts = [batch.source_start(n)?, batch.target_start(n)?];
            for ((v, start), whole) in [from, to].into_iter().zip(starts).zip(whole) {
                if let Some(slot) = self.slots_of[self.lives.root[v.0]] {
                    self.parts.push(Part { slot, whole, start, bytes: self.slots[slot].bytes });
                }
            }
        }
        Ok(whole)
    }

    /// Extends the lifetimes of all buffers of an exchange, because it is in flight.
    fn touch_all(&mut self, exchange: usize) {
        let Posted { moves, scratch, .. } = &self.exchanges[exchange];
        let (moves, scratch) = (moves.clone(), *scratch);
        for (from, to) in moves {
            self.used(from);
            self.used(to);
        }
        for slot in scratch {
            self.touch(slot);
        }
    }

    fn finish(mut self, options: &CompileOptions) -> Result<Schedule, Error> {
        let end = self.instrs.len();
        let items = self.program.statements();
        let mut is_input = vec![false; self.tensors.len()];
        for item in items {
            if let Statement::Input(v) = item {
                is_input[v.0] = true;
                if let Some(slot) = self.slots_of[v.0] {
                    self.slots[slot].first = 0;
                }
            }
        }
        let touched: Vec<Slot> = self.slots.clone();
        for (v, slot) in self.slots_of.iter().enumerate() {
            let Some(slot) = slot.map(|slot| &mut self.slots[slot]) else { continue };
            if self.lives.until[v] == END {
                slot.last = end;
            }
            slot.first = slot.first.min(slot.last);
        }
        let [in_place, copied] = self.updates(&touched, &is_input, options.liveness)?;
        self.join_parts();
        let (mut args, arena_bytes) = lay_out(&self.slots, options.liveness)?;
        for Part { slot, whole, start, bytes } in &self.parts {
            args[*slot] = ArenaSlice { offset: args[*whole].offset + start, bytes: *bytes };
        }
        for (from, to) in in_place {
            args[from] = args[to];
        }
        let at =
            |v: usize| self.slots_of[self.lives.root[v]].map_or(ArenaSlice::default(), |slot| args[slot]);
        let name = |v: ValueId| self.program.get(v).name.clone();
        let mut locals = Vec::new();
        for (v, tensor) in self.tensors.iter().enumerate() {
            let Some(tensor) = tensor.clone() else { continue };
            locals.push(LocalBuffer {
                name: name(ValueId(v)),
                tensor,
                slice: at(v),
                is_input: is_input[v],
                is_live_out: !options.liveness || self.lives.until[self.lives.root[v]] == END,
            });
        }
        let held = |v: ValueId| if self.tensors[v.0].is_some() { at(v.0) } else { ArenaSlice::default() };
        let exchanges = self.exchanges.iter().map(|posted| {
            let moves = posted.moves.iter().map(|(from, to)| TransferMember {
                values: (name(*from), name(*to)),
                source: held(*from),
                target: held(*to),
            });
            let moves: Vec<TransferMember> = moves.collect();
            let alone =
                || moves.first().map_or([ArenaSlice::default(); 2], |moved| [moved.source, moved.target]);
            let [source, target] = posted.whole.map_or_else(alone, |whole| whole.map(|slot| args[slot]));
            Transfer {
                compiled: posted.compiled.clone(),
                source,
                target,
                moves,
                scratch: posted.scratch.map(|slot| args[slot]),
                steps: posted.steps.clone(),
            }
        });
        Ok(Schedule {
            rank: self.rank,
            exchanges: exchanges.collect(),
            args: self.args.iter().map(|&v| at(v)).collect(),
            names: self.args.iter().map(|&v| name(ValueId(v))).collect(),
            instructions: self.instrs,
            calls: self.calls,
            buffers: locals,
            arena_bytes,
            loop_carried_copies: copied.into_iter().map(|(from, to)| (args[from], args[to])).collect(),
        })
    }

    /// Extends a bucket's slot over the lifetimes of its parts; the parts then take no bytes.
    fn join_parts(&mut self) {
        for Part { slot, whole, .. } in &self.parts {
            let Slot { first, last, .. } = self.slots[*slot];
            let of = &mut self.slots[*whole];
            (of.first, of.last) = (of.first.min(first), of.last.max(last));
            self.slots[*slot].bytes = 0;
        }
    }

    /// Returns the slot pairs of values that become another value in the next step.
    ///
    /// Each pair is the slot of the new value and that of the old one. The first list has the values computed
    /// in place, the second those to be copied afterwards.
    ///
    /// A value is computed in place if it is first written after the last use of the value that it replaces,
    /// or in that use by an elementwise op. Other inputs, and values in a persistent buffer, are copied.
    fn updates(
        &mut self,
        touched: &[Slot],
        is_input: &[bool],
        share: bool,
    ) -> Result<[Vec<(usize, usize)>; 2], Error> {
        let end = self.instrs.len();
        let (mut in_place, mut copied) = (Vec::new(), Vec::new());
        let mut given = vec![false; self.slots.len()];
        for (v, slot) in self.slots_of.iter().enumerate() {
            if let Some(slot) = slot.filter(|_| is_input[v]) {
                given[slot] = true;
            }
        }
        for (w, next) in self.lives.next.iter().enumerate() {
            let slot = |v: usize| self.slots_of[self.lives.root[v]];
            let Some((from, to)) = next.and_then(slot).zip(slot(w)).filter(|(from, to)| from != to) else {
                continue;
            };
            let (new, old) = (touched[from], touched[to]);
            let is_elementwise = || match self.instrs.get(new.first) {
                Some(Instruction::Call { kernel, .. }) => self.calls[*kernel as usize].is_elementwise,
                Some(Instruction::Post { .. } | Instruction::Wait { .. }) | None => false,
            };
            let lasts = self.lives.until[self.lives.root[w]] == END;
            let after = !lasts && (old.last < new.first || (old.last == new.first && is_elementwise()));
            let is_new = new.first < end
                && !given[from]
                && !in_place.iter().any(|(known, _)| *known == from)
                && !self.parts.iter().any(|part| part.slot == from);
            if share && is_new && after && new.bytes == old.bytes {
                self.slots[from].bytes = 0;
                in_place.push((from, to));
            } else {
                copied.push((from, to));
            }
            // Reserve the slot for the whole step.
            (self.slots[to].first, self.slots[to].last) = (0, end);
        }
        Ok([in_place, self.in_order(copied)?])
    }

    /// Orders copies such that each slot is read before another copy overwrites it.
    fn in_order(&self, mut copies: Vec<(usize, usize)>) -> Result<Vec<(usize, usize)>, Error> {
        let mut ordered = Vec::with_capacity(copies.len());
        while !copies.is_empty() {
            let is_read = |slot: usize| copies.iter().any(|(from, _)| *from == slot);
            let Some(at) = copies.iter().position(|(_, to)| !is_read(*to)) else {
                let name = |slot: usize| {
                    let v = self.slots_of.iter().position(|known| *known == Some(slot));
                    v.map_or(String::new(), |v| self.program.values()[v].name.clone())
                };
                let names: Vec<String> = copies.iter().map(|(_, to)| name(*to)).collect();
                return Err(refused(format!(
                    "{} are swapped in the next step; compute one of them by an op, as in `{}' = clone(..)`",
                    names.join(", "),
                    names[0]
                )));
            };
            ordered.push(copies.remove(at));
        }
        Ok(ordered)
    }
}

/// Converts a count to the number of the next element.
fn number(len: usize) -> Result<u32, Error> {
    u32::try_from(len).map_err(|_| refused(format!("a schedule has at most {} entries of a kind", u32::MAX)))
}
