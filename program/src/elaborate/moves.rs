//! Types by number, and what it costs to get from one to another, both ways.
//!
//! ```text
//! price((v|g) -> (v'|g')) = price(v -> v') + price(g' -> g)
//! ```

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::internal::Prices;
use reshard_planner::{Plan, Planner, SearchBudget};
use reshard_sharding::{Sharding, ShardingType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::along::{self, Along};
use crate::elaborate::at_hand::{AtHand, Sets};
use crate::wire;

/// A type of tensors of one element type, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeId(u32);

impl TypeId {
    /// The number.
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Costs in picoseconds; none for a move that cannot be, or may not.
pub(crate) type Cost = Option<u64>;

/// Which moves may be made that nobody wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ImplicitRedistribution {
    /// All.
    #[default]
    Allow,
    /// Those that communicate in neither direction.
    LocalOnly,
    /// None.
    Deny,
}

/// The budget of a plan of which only the price is asked: thousands are, and most lose. Where shards are even it is enough; where
/// they are not the price is of a plan that is no dearer than the direct one, and what is written may cost less.
const PRICED: u64 = 20_000;

/// After so much work prices are of direct plans: a search of each of some hundred uneven shardings would take seconds.
const LAVISH: u64 = 300_000;

/// What looking at ranks may take for prices, and as much again for those that are free, in the units of a budget: two fifths of a
/// second. Past it prices are from the digits alone ([`Types::stand_in`]): a program of eight products of 101 x 101 on 48 ranks would
/// ask for 32,000.
const UNEVEN: u64 = 40_000_000;

/// How much of a budget takes as long as a known price.
const KNOWN: u64 = 35;

/// All types and prices that were asked for.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) sets: Sets,
    planner: Planner,
    /// Its prices.
    priced: Prices,
    /// The same without a search.
    direct: Planner,
    priced_directly: Prices,
    /// What looked at ranks to say what is free.
    looked: Prices,
    /// How much looking at ranks may take for each of these.
    uneven: u64,
    list: Vec<(DType, Arc<ShardingType>)>,
    ids: FxHashMap<(DType, Arc<ShardingType>), TypeId>,
    /// Of each, to each other: what was asked.
    prices: Costs,
    /// About the same, from the digits alone: of few of them.
    rough: FxHashMap<(TypeId, TypeId), Cost>,
    /// The same of moves that send nothing.
    free: Costs,
    /// Of each set, to each other: what putting all of the second at hand costs where the first is, by moves of a kind.
    brought: FxHashMap<(AtHand, AtHand, ImplicitRedistribution), Cost>,
    /// Of each set and each type, what it takes to have that as well by moves of a kind, and the set with it.
    taken: FxHashMap<(AtHand, TypeId, ImplicitRedistribution), Option<(u64, AtHand)>>,
    /// Of each set, the same without those that are free from others of it.
    thinned: FxHashMap<AtHand, AtHand>,
    local: Vec<u64>,
    /// Of each, whether ranks that cut it hold nothing.
    idle: Vec<bool>,
    work: u64,
    /// The plans of moves that were written.
    plans: FxHashMap<(Sharding, Sharding, DType), Arc<Plan>>,
    /// The prices of moves through wires.
    wires: FxHashMap<(TypeId, TypeId, DType), Cost>,
}

/// Costs of getting from one of a few to another, by number, as far as they are known.
#[derive(Debug, Default)]
struct Costs(Vec<Vec<u64>>);

impl Costs {
    const UNKNOWN: u64 = u64::MAX;
    /// There is no way.
    const NONE: u64 = u64::MAX - 1;

    fn of(&self, from: u32, to: u32) -> Option<Cost> {
        match *self.0.get(from as usize)?.get(to as usize)? {
            Costs::UNKNOWN => None,
            Costs::NONE => Some(None),
            cost => Some(Some(cost)),
        }
    }

    fn put(&mut self, from: u32, to: u32, cost: Cost) {
        let (from, to) = (from as usize, to as usize);
        if self.0.len() <= from {
            self.0.resize_with(from + 1, Vec::new);
        }
        let row = &mut self.0[from];
        if row.len() <= to {
            row.resize(to + 1, Costs::UNKNOWN);
        }
        row[to] = cost.map_or(Costs::NONE, |cost| cost.min(Costs::NONE - 1));
    }
}

/// What it takes to ask the planner for a price, in prices that are known.
const NEW_PRICE: u64 = 600;

/// The same where only whether it is free is asked.
const NEW_FREE: u64 = 30;

/// The same where about what it costs is asked.
const NEW_ROUGH: u64 = 60;

/// Of how many moves about what they cost is looked at: on a mesh of many axes a value has a thousand types.
const ROUGH: usize = 50_000;

impl Types {
    pub(crate) fn new(planner: &Planner) -> Types {
        Types::looking(planner, UNEVEN)
    }

    /// None yet, for which ranks are looked at as far as that much of a budget goes.
    pub(crate) fn looking(planner: &Planner, uneven: u64) -> Types {
        Types {
            uneven,
            sets: Sets::new(),
            planner: planner.clone().budget(SearchBudget::new(PRICED)),
            priced: Prices::within(SearchBudget::new(uneven)),
            direct: planner.clone().budget(SearchBudget::new(0)),
            priced_directly: Prices::within(SearchBudget::new(uneven)),
            looked: Prices::default(),
            list: Vec::new(),
            ids: FxHashMap::default(),
            prices: Costs::default(),
            rough: FxHashMap::default(),
            free: Costs::default(),
            brought: FxHashMap::default(),
            taken: FxHashMap::default(),
            thinned: FxHashMap::default(),
            local: Vec::new(),
            idle: Vec::new(),
            work: 0,
            plans: FxHashMap::default(),
            wires: FxHashMap::default(),
        }
    }

    /// The number of a type.
    pub(crate) fn id(&mut self, dtype: DType, is: Arc<ShardingType>) -> TypeId {
        let Types { list, ids, local, idle, .. } = self;
        let key = (dtype, is);
        if let Some(&known) = ids.get(&key) {
            return known;
        }
        let id = TypeId(list.len() as u32);
        let bits = (key.1.value.max_local_numel() as u64).saturating_mul(dtype.bits() as u64);
        local.push(bits.div_ceil(8));
        let last = key.1.value.mesh().size().saturating_sub(1);
        idle.push(key.1.value.local_numel(last) == 0 && key.1.value.max_local_numel() > 0);
        list.push(key.clone());
        ids.insert(key, id);
        id
    }

    /// A type made so along some axes, and what it costs to get there.
    pub(crate) fn put(
        &mut self,
        from: TypeId,
        partly: &[(usize, Along)],
        via: Option<DType>,
    ) -> Option<(TypeId, u64)> {
        let (dtype, is) = &self.list[from.0 as usize];
        let (dtype, is) = (*dtype, Arc::new(along::put(partly, is)?));
        let to = self.id(dtype, is);
        Some((to, self.price_via(from, to, via)?))
    }

    pub(crate) fn get(&self, id: TypeId) -> &Arc<ShardingType> {
        &self.list[id.0 as usize].1
    }

    /// How much was looked at: a price that is known is 1.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Something else was looked at that takes as long as a known price.
    pub(crate) fn looks(&mut self) {
        self.work += 1;
    }

    /// The bytes of the largest shard of the value.
    pub(crate) fn local_bytes(&self, id: TypeId) -> u64 {
        self.local[id.0 as usize]
    }

    /// Whether the last rank holds nothing of the value and others do, as where a dim of one index is cut.
    pub(crate) fn is_idle(&self, id: TypeId) -> bool {
        self.idle[id.0 as usize]
    }

    /// What it costs to get from one to the other, both ways.
    pub(crate) fn price(&mut self, from: TypeId, to: TypeId) -> Cost {
        if from == to {
            return Some(0);
        }
        self.work += 1;
        if let Some(known) = self.prices.of(from.0, to.0) {
            return known;
        }
        self.work += NEW_PRICE;
        let (planner, known) = if self.work < LAVISH {
            (&self.planner, &mut self.priced)
        } else {
            (&self.direct, &mut self.priced_directly)
        };
        let looked = known.looked();
        let one_way = |a: &Sharding, b: &Sharding, dtype| planner.price_once(a, b, dtype, known).ok();
        let cost = both_ways(&self.list, from, to, one_way);
        self.work += (known.looked() - looked) / KNOWN;
        self.prices.put(from.0, to.0, cost);
        cost
    }

    /// Whether what some moves cost was not looked for.
    pub(crate) fn stand_in(&self) -> bool {
        self.priced.stands_in() || self.priced_directly.stands_in()
    }

    /// About what it costs to get from one to the other, both ways, from the digits alone, whatever else was asked; none where that cannot be, or of too many.
    pub(crate) fn roughly(&mut self, from: TypeId, to: TypeId) -> Cost {
        if from == to {
            return Some(0);
        }
        if let Some(&known) = self.rough.get(&(from, to)) {
            return known;
        }
        if self.is_rough_enough() {
            return None;
        }
        self.work += NEW_ROUGH;
        let planner = self.planner_now();
        let cost = both_ways(&self.list, from, to, |a, b, dtype| {
            Some((planner.roughly_us(a, b, dtype).ok()? * 1e6) as u64)
        });
        self.rough.insert((from, to), cost);
        cost
    }

    /// Whether about what moves cost is no longer looked at.
    pub(crate) fn is_rough_enough(&self) -> bool {
        self.rough.len() >= ROUGH
    }

    /// What it costs to get from one to the other where nothing may be sent, on the way or back.
    fn free(&mut self, from: TypeId, to: TypeId) -> Cost {
        if from == to {
            return Some(0);
        }
        self.work += 1;
        if let Some(known) = self.free.of(from.0, to.0) {
            return known;
        }
        self.work += NEW_FREE;
        let planner = if self.work < LAVISH { &self.planner } else { &self.direct };
        let looked = self.looked.looked();
        let known = &mut self.looked;
        let one_way =
            |a: &Sharding, b: &Sharding, dtype| planner.is_free(a, b, dtype, known).ok()?.then_some(0);
        let cost = both_ways(&self.list, from, to, one_way);
        self.work += (self.looked.looked() - looked) / KNOWN;
        self.free.put(from.0, to.0, cost);
        cost
    }

    /// Whether nothing has to be sent on the way or back, as far as ranks are still looked at.
    fn is_surely_free(&mut self, from: TypeId, to: TypeId) -> bool {
        if self.looked.looked() >= self.uneven && self.free.of(from.0, to.0).is_none() {
            return self.price(from, to) == Some(0);
        }
        self.free(from, to).is_some()
    }

    /// Who is asked now.
    fn planner_now(&self) -> &Planner {
        if self.work < LAVISH { &self.planner } else { &self.direct }
    }

    /// The cheapest of these to start from, and what it costs.
    pub(crate) fn cheapest(
        &mut self,
        at_hand: AtHand,
        to: TypeId,
        moves: ImplicitRedistribution,
    ) -> Option<(TypeId, u64)> {
        self.least(at_hand, |types, from| types.allowed(from, to, moves))
    }

    /// About what it costs to have a type at hand where this set is.
    pub(crate) fn roughly_from(&mut self, at_hand: AtHand, to: TypeId) -> Cost {
        Some(self.least(at_hand, |types, from| types.roughly(from, to))?.1)
    }

    /// What it takes to have a type at hand as well where this set is, by the cheapest move, and what is at hand then.
    pub(crate) fn taken(
        &mut self,
        at_hand: AtHand,
        wanted: TypeId,
        moves: ImplicitRedistribution,
    ) -> Option<(u64, AtHand)> {
        self.work += 1;
        if let Some(&known) = self.taken.get(&(at_hand, wanted, moves)) {
            return known;
        }
        let taken = if self.sets.of(at_hand).contains(&wanted) {
            Some((0, at_hand))
        } else {
            let cost = self.cheapest(at_hand, wanted, moves);
            cost.map(|(_, cost)| (cost, self.sets.with(at_hand, &[wanted])))
        };
        self.taken.insert((at_hand, wanted, moves), taken);
        taken
    }

    /// What it costs to get from one to the other, both ways, through a wire where there is one.
    fn price_via(&mut self, from: TypeId, to: TypeId, via: Option<DType>) -> Cost {
        let Some(via) = via else { return self.price(from, to) };
        if let Some(&known) = self.wires.get(&(from, to, via)) {
            return known;
        }
        let cost = wire::priced(&self.planner, self.get(from), self.get(to), via);
        self.wires.insert((from, to, via), cost);
        cost
    }

    /// The cheapest of these to start a written move from, and what it costs.
    pub(crate) fn cheapest_via(
        &mut self,
        at_hand: &[TypeId],
        to: TypeId,
        via: Option<DType>,
    ) -> Option<(TypeId, u64)> {
        let costs = at_hand.iter().filter_map(|&from| Some((from, self.price_via(from, to, via)?)));
        // Of equal ones the first.
        costs.min_by_key(|(_, cost)| *cost)
    }

    /// The plan of a move by this planner; equal moves have one.
    pub(crate) fn plan(
        &mut self,
        planner: &Planner,
        (from, to, dtype): (&Sharding, &Sharding, DType),
    ) -> Result<Arc<Plan>, reshard_planner::Error> {
        let key = (from.clone(), to.clone(), dtype);
        if let Some(known) = self.plans.get(&key) {
            return Ok(Arc::clone(known));
        }
        let plan = Arc::new(planner.plan(from, to, dtype)?);
        self.plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// What it costs to put all of a set at hand where another is.
    pub(crate) fn brought(&mut self, mine: AtHand, wanted: AtHand, moves: ImplicitRedistribution) -> Cost {
        if mine == wanted {
            return Some(0);
        }
        self.work += 1;
        if let Some(&known) = self.brought.get(&(mine, wanted, moves)) {
            return known;
        }
        let mut cost: Cost = Some(0);
        for i in 0..self.sets.of(wanted).len() {
            let is = self.sets.of(wanted)[i];
            if self.sets.of(mine).contains(&is) {
                continue;
            }
            let more = self.cheapest(mine, is, moves);
            cost = cost.zip(more).map(|(sum, (_, more))| sum.saturating_add(more));
            if cost.is_none() {
                break;
            }
        }
        self.brought.insert((mine, wanted, moves), cost);
        cost
    }

    /// The first of a set from which something costs the least, and what that is.
    fn least(
        &mut self,
        at_hand: AtHand,
        mut price: impl FnMut(&mut Types, TypeId) -> Cost,
    ) -> Option<(TypeId, u64)> {
        let mut best: Option<(TypeId, u64)> = None;
        for i in 0..self.sets.of(at_hand).len() {
            let from = self.sets.of(at_hand)[i];
            let Some(cost) = price(self, from) else { continue };
            if best.is_none_or(|(_, least)| cost < least) {
                best = Some((from, cost));
            }
            if cost == 0 {
                break;
            }
        }
        best
    }

    /// The same set, without those that are free from others of it.
    pub(crate) fn without_free(&mut self, at_hand: AtHand) -> AtHand {
        if self.sets.of(at_hand).len() < 2 {
            return at_hand;
        }
        if let Some(&known) = self.thinned.get(&at_hand) {
            return known;
        }
        let mut left: SmallVec<[TypeId; 4]> = self.sets.of(at_hand).into();
        let mut i = 0;
        while left.len() > 1 && i < left.len() {
            let to = left[i];
            let free = (0..left.len()).any(|j| j != i && self.is_surely_free(left[j], to));
            if free {
                left.remove(i);
            } else {
                i += 1;
            }
        }
        let thinned = self.sets.number(&left);
        self.thinned.insert(at_hand, thinned);
        thinned
    }

    /// What a move costs that nobody wrote, if it may be made.
    pub(crate) fn allowed(&mut self, from: TypeId, to: TypeId, moves: ImplicitRedistribution) -> Cost {
        match moves {
            ImplicitRedistribution::Allow => self.price(from, to),
            ImplicitRedistribution::LocalOnly => self.free(from, to),
            ImplicitRedistribution::Deny => (from == to || self.is_without_gradient(from, to)).then_some(0),
        }
    }

    /// Whether the second is the first where no gradient is wanted: the same tensor, so no move.
    fn is_without_gradient(&self, from: TypeId, to: TypeId) -> bool {
        let (a, b) = (self.get(from), self.get(to));
        b.gradient.is_none() && a.value == b.value
    }
}

/// What values cost on the way there, and gradients on the way back, by what one direction costs.
fn both_ways(
    list: &[(DType, Arc<ShardingType>)],
    from: TypeId,
    to: TypeId,
    mut one_way: impl FnMut(&Sharding, &Sharding, DType) -> Cost,
) -> Cost {
    let (dtype, a) = &list[from.0 as usize];
    let b = &list[to.0 as usize].1;
    let mut of = |from: &Sharding, to: &Sharding| {
        if from == to { Some(0) } else { one_way(from, to, *dtype) }
    };
    let forward = of(&a.value, &b.value)?;
    match (&a.gradient, &b.gradient) {
        (Some(to), Some(from)) => Some(forward.saturating_add(of(from, to)?)),
        // A copy without a gradient.
        (_, None) => Some(forward),
        // What has no gradient gives none.
        (None, Some(_)) => None,
    }
}

/// As an error: what is wrong with a move.
pub(crate) fn plan_error(name: &str, e: reshard_planner::Error) -> Error {
    Error::of(name, e)
}
