//! The typed strategies of an op, with the compute cost of each.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::propagate::{Propagator, TypedLists, TypedStrategy, TypedStrategyQuery};
use reshard_ops::rules::{Op, OpCall, OpTable};
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding, ShardingType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::backward_work::{BackwardWork, BackwardWorks, Local, shard};
use crate::elaborate::at_hand::{AtHand, Sets};
use crate::elaborate::held::{SavedOperand, SavedOperands};
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::solved::SolvedSegments;
use crate::local_type::{self, Partly};
use crate::{ComputeRates, Error};

/// A strategy of an op, with its cost.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) inputs: SmallVec<[TypeId; 4]>,
    pub(crate) outputs: SmallVec<[TypeId; 2]>,
    /// The compute cost, forward and backward, in picoseconds, with that of the bytes that it holds.
    pub(crate) picoseconds: u64,
    /// The compute cost of forward.
    pub(crate) forward: u64,
    /// The number of arithmetic operations.
    pub(crate) operations: f64,
    /// `true` if every rank's result is its operand.
    pub(crate) is_view: bool,
    pub(crate) strategy: Arc<TypedStrategy>,
}

/// A strategy query for an op, for any available types of its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    /// The required types of its outputs.
    pub(crate) also: Vec<TypeId>,
    pub(crate) input_gradients: Vec<bool>,
    pub(crate) output_gradients: Vec<bool>,
    /// For each input, `true` if it has no negative element.
    pub(crate) nonnegative: Vec<bool>,
    /// The number of the mesh on which it runs.
    pub(crate) on: usize,
    pub(crate) of_list: OfList,
}

/// The filter that selects strategies of a list, and the inputs of their cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfList {
    /// The value shardings of the only allowed strategy, inputs before outputs; empty if all are allowed.
    pub(crate) given: Vec<TypeId>,
    /// The placements required of each operand along axes, inputs before outputs; empty if there are none.
    pub(crate) along: Vec<Partly>,
    pub(crate) input_dtypes: Vec<DType>,
    pub(crate) output_dtypes: Vec<DType>,
    /// The call, if the cost has its backward.
    pub(crate) call: Option<OpCall>,
    /// `true` for each operand that is read from or written to memory.
    pub(crate) stored: Vec<bool>,
    /// The operands whose bytes count, if memory has a price.
    pub(crate) saved: SavedOperands,
}

/// The maximum number of strategies considered for one op.
const MOST: usize = 1 << 13;

/// The strategies of an op.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) list: Vec<Way>,
    /// The types of each input, and then of each output, over all strategies.
    pub(crate) could_be: SmallVec<[AtHand; 4]>,
}

impl Looked {
    pub(crate) fn of(sets: &mut Sets, list: Vec<Way>) -> Looked {
        let mut could_be: SmallVec<[SmallVec<[TypeId; 16]>; 4]> = SmallVec::new();
        for way in &list {
            for (i, is) in way.inputs.iter().chain(&way.outputs).enumerate() {
                if could_be.len() == i {
                    could_be.push(SmallVec::new());
                }
                could_be[i].push(*is);
            }
        }
        let could_be = could_be.into_iter().map(|mut types| {
            types.sort_unstable();
            types.dedup();
            sets.number(&types)
        });
        Looked { could_be: could_be.collect(), list }
    }
}

/// A cache of the strategies of ops.
#[derive(Debug)]
pub(crate) struct Ways {
    propagator: Propagator,
    table: Arc<OpTable>,
    rates: ComputeRates,
    pub(crate) backward: BackwardWorks,
    /// All queries, by number.
    asked: FxHashMap<Arc<Asked>, u32>,
    questions: Vec<Arc<Asked>>,
    /// The strategies by query and available types of the inputs.
    known: FxHashMap<(u32, SmallVec<[AtHand; 4]>), Arc<Looked>>,
    lists: TypedLists,
    /// The strategies by list: different available types often lead to one.
    looked: FxHashMap<(usize, OfList), Arc<Looked>>,
    /// The choices for the segments solved so far.
    pub(crate) solved: SolvedSegments,
    /// `true` if no op has strided shards, unless its strategy is given.
    pub(crate) in_one_piece: bool,
}

impl Ways {
    pub(crate) fn new(planner: &Planner, table: &Arc<OpTable>, rates: ComputeRates) -> Ways {
        let propagator = Propagator::new().with_planner(planner.clone());
        Ways {
            propagator,
            table: Arc::clone(table),
            rates,
            backward: BackwardWorks::default(),
            asked: FxHashMap::default(),
            questions: Vec::new(),
            known: FxHashMap::default(),
            lists: TypedLists::default(),
            looked: FxHashMap::default(),
            solved: SolvedSegments::default(),
            in_one_piece: false,
        }
    }

    /// Interns a query.
    pub(crate) fn number(&mut self, asked: Asked) -> u32 {
        if let Some(&known) = self.asked.get(&asked) {
            return known;
        }
        let (number, asked) = (self.questions.len() as u32, Arc::new(asked));
        self.questions.push(Arc::clone(&asked));
        self.asked.insert(asked, number);
        number
    }

    /// Returns the strategies of an op for available input types, in the order of the propagator.
    pub(crate) fn of(
        &mut self,
        types: &mut Types,
        mesh: &Mesh,
        (question, at_hand): (u32, SmallVec<[AtHand; 4]>),
    ) -> Result<Arc<Looked>, Error> {
        let key = (question, at_hand);
        if let Some(known) = self.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        let asked = Arc::clone(&self.questions[question as usize]);
        let shardings = |list: &[TypeId]| -> Vec<Sharding> {
            let mut out: Vec<Sharding> = Vec::with_capacity(list.len());
            for &id in list {
                let value = &types.get(id).value;
                if !out.contains(value) {
                    out.push(value.clone());
                }
            }
            out
        };
        let mut inputs: Vec<Vec<Sharding>> = key.1.iter().map(|set| shardings(types.sets.of(*set))).collect();
        // An input that is only on another mesh is treated as replicated on this one.
        for (at_hand, shape) in inputs.iter_mut().zip(asked.op.inputs()) {
            at_hand.retain(|s| s.mesh() == mesh);
            if at_hand.is_empty() {
                at_hand.push(Sharding::replicated(mesh, shape).map_err(reshard_ops::Error::from)?);
            }
        }
        let also = shardings(&asked.also);
        let question = TypedStrategyQuery {
            inputs: &inputs,
            also: &also,
            input_gradients: &asked.input_gradients,
            output_gradients: &asked.output_gradients,
            nonnegative: &asked.nonnegative,
        };
        let number = self.propagator.typed_once(&asked.op, mesh, &question, MOST, &mut self.lists)?;
        let found = Arc::clone(self.lists.get(number));
        let OfList { given, along, input_dtypes, output_dtypes, call, stored, saved } = &asked.of_list;
        let of_list = (number, asked.of_list.clone());
        // The cost of saved operands depends on the available types too.
        let is_shared = saved.is_empty();
        if let Some(known) = self.looked.get(&of_list).filter(|_| is_shared) {
            self.known.insert(key, Arc::clone(known));
            return Ok(Arc::clone(known));
        }
        let operations = asked.op.operations();
        let dtypes = [&input_dtypes[..], output_dtypes].concat();
        let backward = call.as_ref().and_then(|call| {
            let of = (call, &asked.op);
            self.backward.of(&self.table, of, dtypes.as_slice().into(), &asked.input_gradients)
        });
        let mut back = Backward::new(backward);
        let mut out = Vec::with_capacity(found.len());
        let given = shardings_of(types, given);
        for strategy in &*found {
            let operands = || strategy.inputs.iter().chain(&strategy.outputs);
            if !given.is_empty() && !operands().map(|is| &is.value).eq(&given) {
                continue;
            }
            if !operands().zip(along).all(|(is, partly)| local_type::holds(partly, is)) {
                continue;
            }
            let mut ids = |list: &[Arc<ShardingType>], dtypes: &[DType]| -> SmallVec<[TypeId; 4]> {
                list.iter().zip(dtypes).map(|(is, &dtype)| types.id(dtype, Arc::clone(is))).collect()
            };
            let inputs = ids(&strategy.inputs, input_dtypes);
            let outputs = ids(&strategy.outputs, output_dtypes);
            let mut operands = inputs.iter().chain(&outputs);
            if self.in_one_piece && given.is_empty() && operands.any(|id| types.is_strided(*id)) {
                continue;
            }
            let is_view = leaves_all(&asked.op, strategy, &dtypes);
            let bytes: u64 = if is_view {
                0
            } else {
                let operands = inputs.iter().chain(&outputs).zip(stored);
                let stored = operands.filter(|(_, stored)| **stored);
                stored.fold(0, |bytes: u64, (&id, _)| bytes.saturating_add(types.local_bytes(id)))
            };
            let operations = if is_view { 0.0 } else { operations * strategy.work_fraction };
            let one = self.rates.time_us(computed(&dtypes), operations, bytes);
            let picoseconds = ((one + back.us(types, (&inputs, &outputs), &self.rates)) * 1e6).round() as u64;
            let forward = (one * 1e6) as u64;
            let held = held_by(types, saved, (&inputs, &outputs), &key.1, forward);
            let picoseconds = picoseconds.saturating_add(held);
            out.push(Way {
                inputs,
                outputs: outputs.into_iter().collect(),
                picoseconds,
                forward,
                operations,
                is_view,
                strategy: Arc::clone(strategy),
            });
        }
        let out = Arc::new(Looked::of(&mut types.sets, out));
        if is_shared {
            self.looked.insert(of_list, Arc::clone(&out));
        }
        self.known.insert(key, Arc::clone(&out));
        Ok(out)
    }
}

/// Returns the least cost of keeping open inputs, and of having saved operands in backward, in picoseconds.
fn held_by(
    types: &mut Types,
    of: &SavedOperands,
    (inputs, outputs): (&[TypeId], &[TypeId]),
    at_hand: &[AtHand],
    forward: u64,
) -> u64 {
    let mut sum = 0u64;
    for SavedOperand { operand, again, own } in &of.saved {
        let Some(&taken) = inputs.iter().chain(outputs).nth(*operand) else { continue };
        let mut least = of.price.of(types.local_bytes(taken));
        if let Some((more, is_first)) = own {
            least = least.min(if *is_first { forward.saturating_add(*more) } else { 0 });
        }
        let others = at_hand.get(*operand).map(|set| types.sets.of(*set).to_vec()).unwrap_or_default();
        let held = others.into_iter().map(|is| (is, None)).collect::<Vec<_>>();
        for (from, time) in held.into_iter().chain(again.iter().map(|&(is, time)| (is, Some(time)))) {
            let had = time.unwrap_or_else(|| of.price.of(types.local_bytes(from)));
            if had < least
                && let Some(moved) = types.forward_at_least(from, taken)
            {
                least = least.min(had.saturating_add(moved));
            }
        }
        sum = sum.saturating_add(least);
    }
    for (operand, costs) in &of.kept {
        let taken = inputs.get(*operand);
        let own = costs.iter().find(|(is, _)| Some(is) == taken).map(|(_, cost)| *cost);
        // Any other type is reached from one of these.
        let least = own.or_else(|| costs.iter().map(|(_, cost)| *cost).min());
        sum = sum.saturating_add(least.unwrap_or(0));
    }
    sum
}

/// Returns `true` if a strategy leaves every rank's data unchanged.
fn leaves_all(op: &Op, strategy: &TypedStrategy, dtypes: &[DType]) -> bool {
    if op.is_view() {
        return true;
    }
    let ([from], [to]) = (strategy.inputs.as_slice(), strategy.outputs.as_slice()) else { return false };
    let shapes = from.value.common_local_shape().zip(to.value.common_local_shape());
    dtypes.iter().all(|dtype| *dtype == dtypes[0])
        && shapes.is_some_and(|(from, to)| op.is_local_noop(&from, &to))
}

/// Returns the value shardings of types.
fn shardings_of(types: &Types, ids: &[TypeId]) -> Vec<Sharding> {
    ids.iter().map(|&id| types.get(id).value.clone()).collect()
}

/// Returns the element type that an op computes in.
pub(crate) fn computed(dtypes: &[DType]) -> DType {
    dtypes.iter().copied().find(|d| !d.is_integral()).unwrap_or(DType::F32)
}

/// The compute time of the backward of one op, for all its strategies.
struct Backward {
    work: Option<Arc<BackwardWork>>,
    /// The times by the shards of all operands.
    known: FxHashMap<[Vec<Local>; 2], f64>,
    shards: FxHashMap<TypeId, Local>,
}

impl Backward {
    fn new(work: Option<Arc<BackwardWork>>) -> Backward {
        Backward { work, known: FxHashMap::default(), shards: FxHashMap::default() }
    }

    fn us(&mut self, types: &Types, (inputs, outputs): (&[TypeId], &[TypeId]), rates: &ComputeRates) -> f64 {
        let Some(work) = &self.work else { return 0.0 };
        let mut shard_of =
            |is: &TypeId| self.shards.entry(*is).or_insert_with(|| shard(&types.get(*is).value)).clone();
        let operands = [inputs, outputs].map(|ids| ids.iter().map(&mut shard_of).collect::<Vec<Local>>());
        if let Some(&known) = self.known.get(&operands) {
            return known;
        }
        let us = work.local(&operands[0], &operands[1], rates).us;
        self.known.insert(operands, us);
        us
    }
}
