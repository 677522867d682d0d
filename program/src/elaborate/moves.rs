//! Interned types, and the cost to redistribute from one to another, forward and backward.
//!
//! ```text
//! price((v|g) -> (v'|g')) = price(v -> v') + price(g' -> g)
//! ```

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::internal::Prices;
use reshard_planner::{Plan, Planner, SearchBudget};
use reshard_sharding::{Placement, Sharding, ShardingType};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Error;
use crate::comm_dtype;
use crate::elaborate::at_hand::{AtHand, Sets};
use crate::elaborate::dual::LeastCosts;
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::local_type::{self, Along};

/// An interned type of tensors with one element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeId(u32);

impl TypeId {
    /// Returns the number.
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// A cost in picoseconds; `None` for an impossible or a disallowed redistribution.
pub(crate) type Cost = Option<u64>;

/// The budget for rank-by-rank pricing, and the same again for free redistributions, in search-budget units.
///
/// It is two fifths of a second. Above it prices come from the digits alone ([`Types::stand_in`]): a program
/// of eight products of 101 x 101 on 48 ranks would need 32,000 such prices.
const UNEVEN: u64 = 40_000_000;

/// The number of search-budget units that take as long as one cached price.
const KNOWN: u64 = 35;

/// All interned types, and the prices queried so far.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) sets: Sets,
    planner: Planner,
    /// The planner's prices.
    priced: Prices,
    /// The rank-by-rank results that decide which redistributions are free.
    looked: Prices,
    /// The budget of rank-by-rank pricing, for each of these.
    uneven: u64,
    list: Vec<(DType, Arc<ShardingType>)>,
    ids: FxHashMap<(DType, Arc<ShardingType>), TypeId>,
    /// The prices queried so far, by source and target.
    prices: Costs,
    /// The redistributions whose price may be above that of the cheapest plan.
    estimates: FxHashSet<(TypeId, TypeId)>,
    /// The least costs between the types of a list, over any of them; many values have the same list.
    least: FxHashMap<(Box<[TypeId]>, Estimates), Arc<LeastCosts>>,
    /// The prices of redistributions that send nothing.
    free: Costs,
    /// By pair of sets: the cost of making all of the second available from the first.
    brought: FxHashMap<(AtHand, AtHand, ImplicitRedistribution), Cost>,
    /// By set and type: the cost of making the type available too, and the set with it.
    taken: FxHashMap<(AtHand, TypeId, ImplicitRedistribution), Option<(u64, AtHand)>>,
    /// Each set without the types that are free to get from others in it.
    thinned: FxHashMap<AtHand, AtHand>,
    local: Vec<u64>,
    /// `true` for a type that leaves some ranks without data.
    idle: Vec<bool>,
    /// `true` for a type with a strided shard.
    strided: FxHashMap<TypeId, bool>,
    work: u64,
    /// The plans of explicit redistributions.
    plans: FxHashMap<(Sharding, Sharding, DType), Arc<Plan>>,
    /// The prices of redistributions in a communication dtype.
    wires: FxHashMap<(TypeId, TypeId, DType), Cost>,
}

/// The use of prices that may be above those of the cheapest plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Estimates {
    /// They are prices, for a search.
    Count,
    /// They are 0, for a bound.
    AreNothing,
}

/// Returns `true` if a rank's shard of a dim is strided.
pub(crate) fn is_strided(is: &ShardingType) -> bool {
    let of_one = |s: &Sharding| {
        let placements = s.placements();
        placements.is_ok_and(|all| all.iter().any(|p| matches!(p, Placement::StridedShard { .. })))
    };
    core::iter::once(&is.value).chain(&is.gradient).any(of_one)
}

/// A table of known costs between types, by their numbers.
#[derive(Debug, Default)]
struct Costs(Vec<Vec<u64>>);

impl Costs {
    const UNKNOWN: u64 = u64::MAX;
    /// No plan exists.
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

/// The work of one price from the planner, in lookups of a cached price.
const NEW_PRICE: u64 = 600;

/// The same for a test that only decides if a redistribution is free.
const NEW_FREE: u64 = 30;

impl Types {
    pub(crate) fn new(planner: &Planner) -> Types {
        Types::looking(planner, UNEVEN)
    }

    /// Returns an empty table whose rank-by-rank pricing is limited to `uneven`.
    pub(crate) fn looking(planner: &Planner, uneven: u64) -> Types {
        Types {
            uneven,
            sets: Sets::new(),
            planner: planner.clone(),
            priced: Prices::within(SearchBudget::new(uneven)),
            looked: Prices::default(),
            list: Vec::new(),
            ids: FxHashMap::default(),
            prices: Costs::default(),
            estimates: FxHashSet::default(),
            least: FxHashMap::default(),
            free: Costs::default(),
            brought: FxHashMap::default(),
            taken: FxHashMap::default(),
            thinned: FxHashMap::default(),
            local: Vec::new(),
            idle: Vec::new(),
            strided: FxHashMap::default(),
            work: 0,
            plans: FxHashMap::default(),
            wires: FxHashMap::default(),
        }
    }

    /// Interns a type.
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

    /// Returns the type after a change along some axes, and the cost to get there.
    pub(crate) fn put(
        &mut self,
        from: TypeId,
        partly: &[(usize, Along)],
        via: Option<DType>,
    ) -> Option<(TypeId, u64)> {
        let (dtype, is) = &self.list[from.0 as usize];
        let (dtype, is) = (*dtype, Arc::new(local_type::put(partly, is)?));
        let to = self.id(dtype, is);
        Some((to, self.price_via(from, to, via)?))
    }

    pub(crate) fn get(&self, id: TypeId) -> &Arc<ShardingType> {
        &self.list[id.0 as usize].1
    }

    /// Returns the work so far, in lookups of a cached price.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Counts other work that takes as long as a cached price.
    pub(crate) fn looks(&mut self) {
        self.work += 1;
    }

    /// Returns the bytes of the largest shard of the value.
    pub(crate) fn local_bytes(&self, id: TypeId) -> u64 {
        self.local[id.0 as usize]
    }

    /// Returns `true` if the last rank holds nothing and others do, as after sharding a dim of size 1.
    pub(crate) fn is_idle(&self, id: TypeId) -> bool {
        self.idle[id.0 as usize]
    }

    /// Returns `true` if a rank's shard of a dim is strided.
    pub(crate) fn is_strided(&mut self, id: TypeId) -> bool {
        let Types { list, strided, .. } = self;
        *strided.entry(id).or_insert_with(|| is_strided(&list[id.0 as usize].1))
    }

    /// Returns the cost to redistribute from one type to the other, forward and backward.
    pub(crate) fn price(&mut self, from: TypeId, to: TypeId) -> Cost {
        if from == to {
            return Some(0);
        }
        self.work += 1;
        if let Some(known) = self.prices.of(from.0, to.0) {
            return known;
        }
        self.work += NEW_PRICE;
        let (planner, known) = (&self.planner, &mut self.priced);
        let looked = known.looked();
        let mut is_estimate = false;
        let one_way = |a: &Sharding, b: &Sharding, dtype| {
            let price = planner.price_once(a, b, dtype, known).ok();
            is_estimate |= known.is_estimate();
            price
        };
        let cost = both_ways(&self.list, from, to, one_way);
        if is_estimate {
            self.estimates.insert((from, to));
        }
        self.work += (known.looked() - looked) / KNOWN;
        self.prices.put(from.0, to.0, cost);
        cost
    }

    /// Returns the type without a gradient.
    fn plain(&mut self, id: TypeId) -> TypeId {
        let (dtype, is) = &self.list[id.0 as usize];
        let (dtype, is) = (*dtype, Arc::new(ShardingType::new(is.value.clone(), None)));
        self.id(dtype, is)
    }

    /// Returns a lower bound on the cost to redistribute the value alone.
    pub(crate) fn forward_at_least(&mut self, from: TypeId, to: TypeId) -> Cost {
        let (from, to) = (self.plain(from), self.plain(to));
        self.price_at_least(from, to)
    }

    /// Returns the cost to redistribute, with this use of estimates.
    pub(crate) fn price_with(&mut self, from: TypeId, to: TypeId, estimates: Estimates) -> Cost {
        let price = self.price(from, to)?;
        match estimates {
            Estimates::Count => Some(price),
            Estimates::AreNothing => Some(if self.estimates.contains(&(from, to)) { 0 } else { price }),
        }
    }

    /// Returns the least costs between the types of a list, by redistributions over any of them.
    pub(crate) fn least_costs(&mut self, list: &[TypeId], estimates: Estimates) -> Arc<LeastCosts> {
        let key = (Box::from(list), estimates);
        if let Some(known) = self.least.get(&key) {
            return Arc::clone(known);
        }
        let costs = Arc::new(LeastCosts::between(self, list, estimates));
        self.least.insert(key, Arc::clone(&costs));
        costs
    }

    /// Returns a lower bound on the cost to redistribute.
    pub(crate) fn price_at_least(&mut self, from: TypeId, to: TypeId) -> Cost {
        self.price_with(from, to, Estimates::AreNothing)
    }

    /// Returns `true` if some prices were replaced by estimates.
    pub(crate) fn stand_in(&self) -> bool {
        self.priced.stands_in()
    }

    /// Returns the cost to redistribute if neither direction may send anything.
    fn free(&mut self, from: TypeId, to: TypeId) -> Cost {
        if from == to {
            return Some(0);
        }
        self.work += 1;
        if let Some(known) = self.free.of(from.0, to.0) {
            return known;
        }
        self.work += NEW_FREE;
        let looked = self.looked.looked();
        let (planner, known) = (&self.planner, &mut self.looked);
        let one_way =
            |a: &Sharding, b: &Sharding, dtype| planner.is_free(a, b, dtype, known).ok()?.then_some(0);
        let cost = both_ways(&self.list, from, to, one_way);
        self.work += (self.looked.looked() - looked) / KNOWN;
        self.free.put(from.0, to.0, cost);
        cost
    }

    /// Returns `true` if neither direction has to send, as far as the rank-by-rank budget allows.
    fn is_surely_free(&mut self, from: TypeId, to: TypeId) -> bool {
        if self.looked.looked() >= self.uneven && self.free.of(from.0, to.0).is_none() {
            return self.price(from, to) == Some(0);
        }
        self.free(from, to).is_some()
    }

    /// Returns the cheapest available type to start from, and the cost.
    pub(crate) fn cheapest(
        &mut self,
        at_hand: AtHand,
        to: TypeId,
        moves: ImplicitRedistribution,
    ) -> Option<(TypeId, u64)> {
        self.least(at_hand, |types, from| types.allowed(from, to, moves))
    }

    /// Returns the cost of making a type available too, by the cheapest redistribution, and the set after it.
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

    /// Returns the cost to redistribute, forward and backward, in a communication dtype if one is given.
    fn price_via(&mut self, from: TypeId, to: TypeId, via: Option<DType>) -> Cost {
        let Some(via) = via else { return self.price(from, to) };
        if let Some(&known) = self.wires.get(&(from, to, via)) {
            return known;
        }
        let cost = comm_dtype::priced(&self.planner, self.get(from), self.get(to), via);
        self.wires.insert((from, to, via), cost);
        cost
    }

    /// Returns the cheapest available type to start an explicit redistribution from, and the cost.
    pub(crate) fn cheapest_via(
        &mut self,
        at_hand: &[TypeId],
        to: TypeId,
        via: Option<DType>,
    ) -> Option<(TypeId, u64)> {
        let costs = at_hand.iter().filter_map(|&from| Some((from, self.price_via(from, to, via)?)));
        // Ties go to the first: `min_by_key` returns it.
        costs.min_by_key(|(_, cost)| *cost)
    }

    /// Returns the plan of a redistribution by this planner; equal redistributions share one.
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

    /// Returns the cost to make all of a set available from another set.
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

    /// Returns the first type of a set with the least cost, and that cost.
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

    /// Returns a set without the types that are free to get from others in it.
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

    /// Returns the cost of an implicit redistribution, or `None` if it is disallowed.
    pub(crate) fn allowed(&mut self, from: TypeId, to: TypeId, moves: ImplicitRedistribution) -> Cost {
        match moves {
            ImplicitRedistribution::Allow => self.price(from, to),
            ImplicitRedistribution::LocalOnly => self.free(from, to),
            ImplicitRedistribution::Deny => (from == to || self.is_without_gradient(from, to)).then_some(0),
        }
    }

    /// Returns `true` if `to` is `from` without a gradient: the same tensor, so nothing is redistributed.
    fn is_without_gradient(&self, from: TypeId, to: TypeId) -> bool {
        let (a, b) = (self.get(from), self.get(to));
        b.gradient.is_none() && a.value == b.value
    }
}

/// Adds the cost of values in forward and of gradients in backward, given the cost of one direction.
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
        // The copy has no gradient.
        (_, None) => Some(forward),
        // A source without a gradient cannot provide one.
        (None, Some(_)) => None,
    }
}

/// Converts a planner error about a redistribution.
pub(crate) fn plan_error(name: &str, e: reshard_planner::Error) -> Error {
    Error::of(name, e)
}
