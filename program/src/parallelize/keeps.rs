//! The storage of a parameter with its optimizer state between steps.
//!
//! Ops take a parameter as type `c`, a value and a gradient sharding. It is stored as `(V|G)`, with the states as `G`:
//!
//! ```text
//!                V      copy as c            time of a step                                              names of others
//! reduced        c      is the parameter     reduce(c* -> G) + update with gather(G -> V)                DDP, ZeRO-1, 2
//! held           G      from forward on      gather(G -> c) + reduce(c* -> G) + update
//! gathered       G      freed in between     2 gather(G -> c) + reduce(c* -> G) + update                 ZeRO-3, FSDP
//! ```
//!
//! Bytes at the turn from forward to backward: the value as `V`, the states as `G`, and a held copy; at the end of
//! backward the gradient as `G` instead of the copy. No method is
//! built in: all shardings `c` and `G` are tried, and each method is one of them.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::propagate::TypedStrategy;
use reshard_sharding::{Sharding, ShardingType};
use smallvec::SmallVec;

use crate::elaborate::held::MemoryPrice;
use crate::elaborate::lane::Tables;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::ways::{Looked, Way};

/// The number of copies of a stored parameter in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// Ops take the stored parameter itself.
    Never,
    /// A copy is held from forward to backward.
    Once,
    /// A copy is freed after forward, and re-gathered.
    Twice,
}

/// The storage of an input between steps, for a type in which ops take it.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    /// The type in which ops take it.
    pub(super) taken: TypeId,
    /// The type of the input.
    pub(super) stored: TypeId,
    /// The time that it takes in a step, in picoseconds.
    pub(super) time: u64,
    /// The bytes at each moment.
    pub(super) held: Held,
}

/// Bytes at the moments whose memory has a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// At the turn from forward to backward.
    pub(super) turn: u64,
    /// At the end of backward.
    pub(super) end: u64,
}

/// The prices of memory at these moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prices {
    pub(super) turn: MemoryPrice,
    pub(super) end: MemoryPrice,
}

impl Prices {
    /// Returns the cost of bytes in picoseconds.
    fn of(self, held: Held) -> u64 {
        self.turn.of(held.turn).saturating_add(self.end.of(held.end))
    }

    /// Returns the sum of both.
    pub(super) fn sum(self) -> u64 {
        self.turn.0.saturating_add(self.end.0)
    }
}

/// A parameter, or another input whose type is open.
pub(super) struct Asked<'a> {
    pub(super) dtype: DType,
    /// The types that it may be taken in, with a gradient if it has one.
    pub(super) taken: &'a [Arc<ShardingType>],
    /// The types that it may be stored in.
    pub(super) may_be: &'a dyn Fn(&ShardingType) -> bool,
    /// The bits of the states of each element.
    pub(super) state_bits: u64,
}

/// The time of an update in picoseconds, for the shardings of the value and of the gradient with the states.
pub(super) type UpdateTime<'a> = dyn FnMut(&mut Tables, &Sharding, &Sharding) -> Option<u64> + 'a;

impl Asked<'_> {
    /// Returns every storage that no other beats in time and bytes, for each type in which it is taken.
    pub(super) fn keeps(&self, tables: &mut Tables, update: &mut UpdateTime<'_>) -> Vec<Keep> {
        let mut all = Vec::new();
        for taken in self.taken {
            let mut own = Vec::new();
            let c = tables.types.id(self.dtype, Arc::clone(taken));
            if taken.gradient.is_none() {
                if (self.may_be)(taken) {
                    let bytes = tables.types.local_bytes(c);
                    own.push(Keep { taken: c, stored: c, time: 0, held: Held { turn: bytes, end: bytes } });
                }
            } else {
                self.of_parameter(tables, taken, update, &mut own);
            }
            all.extend(least(own));
        }
        all
    }

    fn of_parameter(
        &self,
        tables: &mut Tables,
        taken: &Arc<ShardingType>,
        update: &mut UpdateTime<'_>,
        out: &mut Vec<Keep>,
    ) {
        let c = tables.types.id(self.dtype, Arc::clone(taken));
        let is_whole = |is: &&Arc<ShardingType>| is.gradient.as_ref() == Some(&is.value);
        for at in self.taken.iter().filter(is_whole) {
            let states = u128::from(self.state_bits) * at.value.max_local_numel() as u128 / 8;
            let states = u64::try_from(states).unwrap_or(u64::MAX);
            for gathered in [Gathered::Never, Gathered::Once, Gathered::Twice] {
                let same = at.value == taken.value;
                if same && gathered != Gathered::Never {
                    continue;
                }
                let value = if gathered == Gathered::Never { &taken.value } else { &at.value };
                let stored = ShardingType::new(value.clone(), Some(at.value.clone()));
                if !(self.may_be)(&stored) {
                    continue;
                }
                let Some(updating) = update(tables, value, &at.value) else { continue };
                let types = &mut tables.types;
                let stored = types.id(self.dtype, Arc::new(stored));
                let Some(moved) = types.price_at_least(stored, c) else { continue };
                let again =
                    if gathered == Gathered::Twice { types.forward_at_least(stored, c) } else { Some(0) };
                let Some(again) = again else { continue };
                let time = moved.saturating_add(again).saturating_add(updating);
                let copied = if gathered == Gathered::Once { types.local_bytes(c) } else { 0 };
                let kept = types.local_bytes(stored).saturating_add(states);
                let gradient = types.id(self.dtype, Arc::clone(at));
                let gradient = types.local_bytes(gradient);
                let held = Held { turn: kept.saturating_add(copied), end: kept.saturating_add(gradient) };
                out.push(Keep { taken: c, stored, time, held });
            }
        }
    }
}

/// Returns those that no other beats in time and bytes, the fastest first.
fn least(mut all: Vec<Keep>) -> Vec<Keep> {
    all.sort_by_key(|keep| (keep.time, keep.held.turn, keep.held.end));
    let mut out: Vec<Keep> = Vec::new();
    for keep in all {
        let beats = |last: &Keep| last.held.turn <= keep.held.turn && last.held.end <= keep.held.end;
        if !out.iter().any(beats) {
            out.push(keep);
        }
    }
    out
}

/// Returns the cheapest storage of an input at these prices for each type in which it is taken, and its cost.
pub(super) fn cheapest(keeps: &[Keep], prices: Prices) -> Vec<(usize, u64)> {
    let mut out: Vec<(usize, u64)> = Vec::new();
    for (n, keep) in keeps.iter().enumerate() {
        let cost = keep.time.saturating_add(prices.of(keep.held));
        match out.iter_mut().find(|(known, _)| keeps[*known].taken == keep.taken) {
            Some(known) if known.1 > cost => *known = (n, cost),
            Some(_) => {}
            None => out.push((n, cost)),
        }
    }
    out
}

/// Returns the same as strategies of an op without inputs.
pub(super) fn choices(types: &mut Types, keeps: &[Keep], cheapest: &[(usize, u64)]) -> Looked {
    let way = |&(n, cost): &(usize, u64)| {
        let taken = keeps[n].taken;
        let strategy = TypedStrategy {
            inputs: Vec::new(),
            outputs: vec![Arc::clone(types.get(taken))],
            rows: Arc::default(),
            work_fraction: 1.0,
            region: false,
        };
        Way {
            inputs: SmallVec::new(),
            outputs: SmallVec::from_elem(taken, 1),
            picoseconds: cost,
            forward: 0,
            operations: 0.0,
            is_view: true,
            strategy: Arc::new(strategy),
        }
    };
    let list = cheapest.iter().map(way).collect();
    Looked::of(&mut types.sets, list)
}
