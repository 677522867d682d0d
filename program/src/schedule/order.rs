//! The order of all calls, posts and waits: one for all ranks, found of the items and of the bytes of the largest shards.
//!
//! # Hoisting
//!
//! Calls stay in order. A move that communicates begins as soon as what it moves is there, and ends before the first item that takes what
//! it makes, as long as no more bytes are in flight than are allowed:
//!
//! ```text
//! before every item    begin moves whose source is there, those that are written first before others, until the next does not fit
//! a call               end the moves whose results it takes
//! a move               if it has not begun: end others, the first before the later ones, until it fits; begin it
//! the end              end what is in flight
//! ```
//!
//! A move that alone is more than is allowed ends where it begins, and so does one in which nobody talks to others. Within a group moves end in the order in which they began, so that ending
//! one may end others before it: two moves may have a group in common where the patterns of their steps are equal, and where nothing can
//! be told of the patterns.

use std::collections::{BTreeSet, VecDeque};

use reshard_planner::Plan;
use reshard_sharding::GroupPattern;

use crate::program::{Item, Program};
use crate::report::local_bytes;

/// One thing that ranks do, by the number of its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// An op runs.
    Call(usize),
    /// A move begins.
    Post(usize),
    /// A move ends.
    Wait(usize),
}

/// That of a program, with at most so many bytes in flight. What leaves all bytes where they are has no turn.
pub(super) fn order(program: &Program, hoist_bytes: u64) -> Vec<Turn> {
    let mut hoist = Hoist::new(program, hoist_bytes);
    for (n, item) in program.items().iter().enumerate() {
        hoist.begin_early();
        match item {
            Item::Input(_) | Item::NoGrad => {}
            Item::Op { op, inputs, outputs, .. } => {
                if !op.is_view() {
                    for v in inputs {
                        hoist.land_value(v.index());
                    }
                    hoist.turns.push(Turn::Call(n));
                }
                for v in outputs {
                    hoist.is_there(v.index());
                }
            }
            Item::Move { from, to, forward, .. } => {
                if forward.steps().is_empty() {
                    hoist.is_there(to.index());
                } else if !hoist.begun[n] {
                    hoist.land_value(from.index());
                    hoist.begin_now(n);
                }
            }
        }
    }
    hoist.land_all();
    hoist.turns
}

/// A move in flight.
#[derive(Clone, Debug)]
struct Flight {
    item: usize,
    bytes: u64,
    /// The patterns of its groups; none where nothing can be told.
    groups: Option<Vec<GroupPattern>>,
}

impl Flight {
    fn may_meet(&self, other: &Flight) -> bool {
        match (&self.groups, &other.groups) {
            (Some(mine), Some(theirs)) => mine.iter().any(|group| theirs.contains(group)),
            (None, _) | (_, None) => true,
        }
    }
}

struct Hoist<'a> {
    program: &'a Program,
    limit: u64,
    turns: Vec<Turn>,
    /// Of each value, the one whose buffer it has.
    root: Vec<usize>,
    /// Whether a value that has a buffer is there.
    there: Vec<bool>,
    /// The move that makes each value, if one does.
    maker: Vec<Option<usize>>,
    /// The moves that take each value that has a buffer and talk to other ranks.
    movers: Vec<Vec<usize>>,
    begun: Vec<bool>,
    /// Moves that could begin.
    ready: BTreeSet<usize>,
    flying: VecDeque<Flight>,
    flying_bytes: u64,
}

impl<'a> Hoist<'a> {
    fn new(program: &'a Program, limit: u64) -> Hoist<'a> {
        let (items, values) = (program.items(), program.values().len());
        let mut root: Vec<usize> = (0..values).collect();
        let (mut maker, mut movers) = (vec![None; values], vec![Vec::new(); values]);
        for (n, item) in items.iter().enumerate() {
            match item {
                Item::Op { op, inputs, outputs, .. } if op.is_view() => {
                    if let (Some(from), Some(to)) = (inputs.first(), outputs.first()) {
                        root[to.index()] = root[from.index()];
                    }
                }
                Item::Move { from, to, forward, .. } if forward.steps().is_empty() => {
                    root[to.index()] = root[from.index()];
                }
                Item::Move { from, to, forward, .. } => {
                    maker[to.index()] = Some(n);
                    if forward.communicating_steps() > 0 {
                        movers[root[from.index()]].push(n);
                    }
                }
                Item::Input(_) | Item::Op { .. } | Item::NoGrad => {}
            }
        }
        let (there, begun) = (vec![false; values], vec![false; items.len()]);
        let (turns, ready, flying) = (Vec::new(), BTreeSet::new(), VecDeque::new());
        let mut hoist = Hoist {
            program,
            limit,
            turns,
            root,
            there,
            maker,
            movers,
            begun,
            ready,
            flying,
            flying_bytes: 0,
        };
        for item in items {
            if let Item::Input(v) = item {
                hoist.is_there(v.index());
            }
        }
        hoist
    }

    /// A value is there, unless what it is of is in flight.
    fn is_there(&mut self, v: usize) {
        if self.root[v] != v || self.there[v] {
            return;
        }
        self.there[v] = true;
        self.ready.extend(self.movers[v].iter().filter(|n| !self.begun[**n]));
    }

    /// Ends the move that makes a value, if it is in flight.
    fn land_value(&mut self, v: usize) {
        let root = self.root[v];
        if !self.there[root]
            && let Some(n) = self.maker[root]
            && let Some(at) = self.flying.iter().position(|flight| flight.item == n)
        {
            self.land(at);
        }
    }

    /// Ends a move in flight, and before it those that began before it and may meet it.
    fn land(&mut self, at: usize) {
        let mut ends = vec![at];
        for earlier in (0..at).rev() {
            if ends.iter().any(|&end| self.flying[earlier].may_meet(&self.flying[end])) {
                ends.push(earlier);
            }
        }
        // The first before the later ones; each leaves a place less.
        for (gone, end) in ends.into_iter().rev().enumerate() {
            if let Some(flight) = self.flying.remove(end - gone) {
                self.flying_bytes -= flight.bytes;
                self.turns.push(Turn::Wait(flight.item));
                if let Item::Move { to, .. } = &self.program.items()[flight.item] {
                    self.is_there(to.index());
                }
            }
        }
    }

    fn land_all(&mut self) {
        while !self.flying.is_empty() {
            self.land(0);
        }
    }

    /// Begins moves whose source is there, as long as they fit.
    fn begin_early(&mut self) {
        while let Some(&n) = self.ready.first() {
            let Some(flight) = self.flight(n) else { return };
            if self.flying_bytes.saturating_add(flight.bytes) > self.limit {
                return;
            }
            self.begin(flight);
        }
    }

    /// Begins a move whose turn it is.
    fn begin_now(&mut self, n: usize) {
        let Some(flight) = self.flight(n) else { return };
        let communicates = flight.groups.as_ref().is_none_or(|groups| !groups.is_empty());
        let stays = communicates && flight.bytes <= self.limit;
        let fits = |hoist: &Self| hoist.flying_bytes.saturating_add(flight.bytes) <= hoist.limit;
        while communicates && !self.flying.is_empty() && !fits(self) {
            self.land(0);
        }
        self.begin(flight);
        if !stays {
            self.land(self.flying.len() - 1);
        }
    }

    fn begin(&mut self, flight: Flight) {
        self.begun[flight.item] = true;
        self.ready.remove(&flight.item);
        self.turns.push(Turn::Post(flight.item));
        self.flying_bytes = self.flying_bytes.saturating_add(flight.bytes);
        self.flying.push_back(flight);
    }

    fn flight(&self, n: usize) -> Option<Flight> {
        let Item::Move { from, to, forward, .. } = &self.program.items()[n] else { return None };
        let bytes = [from, to].map(|v| local_bytes(self.program.get(*v)));
        Some(Flight { item: n, bytes: bytes[0].saturating_add(bytes[1]), groups: groups(forward) })
    }
}

/// The patterns of the groups of a plan; none between two meshes, whose members are other ranks, and where ranks are listed.
fn groups(plan: &Plan) -> Option<Vec<GroupPattern>> {
    let groups = plan.groups();
    let told = plan.from().mesh() == plan.to().mesh() && groups.iter().all(|group| group.layout().is_some());
    told.then(|| groups.into_iter().cloned().collect())
}
