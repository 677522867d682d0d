//! The order of all calls, posts and waits: one for all ranks, found of the items, in the [order](super::Order) that is asked for, and of the bytes of the largest shards.
//!
//! # Hoisting
//!
//! Calls stay in that order. A move that communicates begins as soon as what it moves is there, and ends before the first item that takes what
//! it makes, as long as no more bytes are in flight than are allowed:
//!
//! ```text
//! before every item    begin moves whose source is there, those that are written first before others, until the next does not fit
//! a call               end the moves whose results it takes
//! a move               if it has not begun: end others, the first before the later ones, until it fits; begin it
//! the end              end what is in flight
//! ```
//!
//! # Buckets
//!
//! Moves that do the same steps over the same groups may be one exchange, so that each step pays its latency once:
//!
//! ```text
//! a move that could begin    joins the bucket of those like it; that one begins first if both together are more than is allowed
//! what a move makes is taken its bucket begins, however little is in it
//! the end                    all buckets begin
//! ```
//!
//! A move larger than a bucket may be is an exchange by itself, and so is one whose source or target lies in another bucket's already. What waits in a bucket counts as in flight.
//!
//! # Groups
//!
//! A move that alone is more than is allowed ends where it begins, and so does one in which nobody talks to others. Within a group moves end in the order in which they began, so that ending
//! one may end others before it: two moves may have a group in common where the patterns of their steps are equal, and where nothing can
//! be told of the patterns.

use std::collections::{BTreeSet, VecDeque};

use reshard_planner::{Plan, StepOp};
use reshard_sharding::{GroupPattern, Mesh};

use crate::program::{Program, Statement};
use crate::report::local_bytes;
use crate::schedule::CompileOptions;
use crate::schedule::pipeline::sequence;

/// One thing that ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// An op runs, by the number of its item.
    Call(usize),
    /// Moves begin as one exchange, by its number.
    Post(usize),
    /// They end.
    Wait(usize),
}

/// What ranks do, in order.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) list: Vec<Turn>,
    /// The items of each exchange: the moves, in the order in which they joined.
    pub(super) exchanges: Vec<Vec<usize>>,
}

/// That of a program, with at most so many bytes in flight and in a bucket. What leaves all bytes where they are has no turn.
pub(super) fn order(program: &Program, options: &CompileOptions) -> Turns {
    let sequence = sequence(program, options.order);
    let mut hoist = Hoist::new(program, options, &sequence);
    for n in sequence {
        hoist.begin_early();
        match &program.statements()[n] {
            Statement::Input(_) | Statement::NoGrad => {}
            Statement::Op { is_view, inputs, outputs, .. } => {
                if !is_view {
                    for v in inputs {
                        hoist.land_value(v.index());
                    }
                    hoist.turns.push(Turn::Call(n));
                }
                for v in outputs {
                    hoist.is_there(v.index());
                }
            }
            Statement::Redistribute { from, to, forward, .. } => {
                if forward.steps().is_empty() {
                    hoist.is_there(to.index());
                } else if !hoist.begun[n] {
                    hoist.land_value(from.index());
                    hoist.take_up(n);
                }
            }
        }
    }
    hoist.land_all();
    Turns { list: hoist.turns, exchanges: hoist.exchanges }
}

/// Moves in flight as one exchange, or on their way there.
#[derive(Clone, Debug)]
struct Flight {
    items: Vec<usize>,
    /// The number of the exchange, once it has begun.
    exchange: usize,
    bytes: u64,
    /// The patterns of its groups; none where nothing can be told.
    groups: Option<Vec<GroupPattern>>,
}

impl Flight {
    /// Whether it talks to others, or nothing can be told.
    fn communicates(&self) -> bool {
        self.groups.as_ref().is_none_or(|groups| !groups.is_empty())
    }

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
    /// The most bytes of a bucket.
    most: u64,
    turns: Vec<Turn>,
    exchanges: Vec<Vec<usize>>,
    /// Of each value, the one whose buffer it has.
    root: Vec<usize>,
    /// Whether a value that has a buffer is there.
    there: Vec<bool>,
    /// The move that makes each value, if one does.
    maker: Vec<Option<usize>>,
    /// The moves that take each value that has a buffer and talk to other ranks.
    movers: Vec<Vec<usize>>,
    /// Which moves have begun or wait in a bucket.
    begun: Vec<bool>,
    /// The place of each item among all.
    places: Vec<usize>,
    /// Moves that could begin, with their places.
    ready: BTreeSet<(usize, usize)>,
    flying: VecDeque<Flight>,
    flying_bytes: u64,
    /// Buckets that have not begun.
    open: Vec<Flight>,
    /// Of each value that has a buffer, whether a bucket has it.
    in_bucket: Vec<bool>,
}

impl<'a> Hoist<'a> {
    fn new(program: &'a Program, options: &CompileOptions, sequence: &[usize]) -> Hoist<'a> {
        let (items, values) = (program.statements(), program.values().len());
        let mut root: Vec<usize> = (0..values).collect();
        let (mut maker, mut movers) = (vec![None; values], vec![Vec::new(); values]);
        for (n, item) in items.iter().enumerate() {
            if let Some((from, to)) = item.viewed() {
                root[to.index()] = root[from.index()];
            } else if let Statement::Redistribute { from, to, forward, .. } = item {
                maker[to.index()] = Some(n);
                if forward.communicating_steps() > 0 {
                    movers[root[from.index()]].push(n);
                }
            }
        }
        let mut places = vec![0; items.len()];
        for (place, &n) in sequence.iter().enumerate() {
            places[n] = place;
        }
        let mut hoist = Hoist {
            program,
            places,
            limit: options.in_flight_bytes,
            most: options.bucket_bytes,
            turns: Vec::new(),
            exchanges: Vec::new(),
            root,
            there: vec![false; values],
            maker,
            movers,
            begun: vec![false; items.len()],
            ready: BTreeSet::new(),
            flying: VecDeque::new(),
            flying_bytes: 0,
            open: Vec::new(),
            in_bucket: vec![false; values],
        };
        for item in items {
            if let Statement::Input(v) = item {
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
        let movers = self.movers[v].iter().filter(|n| !self.begun[**n]);
        self.ready.extend(movers.map(|&n| (self.places[n], n)));
    }

    /// Ends the move that makes a value, if it is in flight.
    fn land_value(&mut self, v: usize) {
        let root = self.root[v];
        let Some(n) = self.maker[root].filter(|_| !self.there[root]) else { return };
        if let Some(at) = self.open.iter().position(|bucket| bucket.items.contains(&n)) {
            self.begin_bucket(at);
        }
        if let Some(at) = self.flying.iter().position(|flight| flight.items.contains(&n)) {
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
                self.flying_bytes = self.flying_bytes.saturating_sub(flight.bytes);
                self.turns.push(Turn::Wait(flight.exchange));
                for item in flight.items {
                    if let Statement::Redistribute { to, .. } = &self.program.statements()[item] {
                        self.is_there(to.index());
                    }
                }
            }
        }
    }

    fn land_all(&mut self) {
        while !self.open.is_empty() {
            self.begin_bucket(0);
        }
        while !self.flying.is_empty() {
            self.land(0);
        }
    }

    /// Begins moves whose source is there, as long as they fit.
    fn begin_early(&mut self) {
        while let Some(&(_, n)) = self.ready.first() {
            let Some(flight) = self.flight(n) else { return };
            let waiting = self.open.iter().fold(self.flying_bytes, |sum, b| sum.saturating_add(b.bytes));
            if waiting.saturating_add(flight.bytes) > self.limit {
                return;
            }
            if self.may_join(&flight) { self.join(flight) } else { self.begin(flight) }
        }
    }

    /// Takes up a move whose turn it is.
    fn take_up(&mut self, n: usize) {
        let Some(flight) = self.flight(n) else { return };
        if self.may_join(&flight) { self.join(flight) } else { self.begin_now(flight) }
    }

    /// Begins what cannot be put off.
    fn begin_now(&mut self, flight: Flight) {
        let (bytes, communicates) = (flight.bytes, flight.communicates());
        let stays = communicates && bytes <= self.limit;
        let fits = |hoist: &Self| hoist.flying_bytes.saturating_add(bytes) <= hoist.limit;
        while communicates && !self.flying.is_empty() && !fits(self) {
            self.land(0);
        }
        self.begin(flight);
        if !stays {
            self.land(self.flying.len() - 1);
        }
    }

    fn begin(&mut self, mut flight: Flight) {
        for &item in &flight.items {
            self.begun[item] = true;
            self.ready.remove(&(self.places[item], item));
        }
        flight.exchange = self.exchanges.len();
        self.exchanges.push(flight.items.clone());
        self.turns.push(Turn::Post(flight.exchange));
        self.flying_bytes = self.flying_bytes.saturating_add(flight.bytes);
        self.flying.push_back(flight);
    }

    /// Whether a move may be in a bucket.
    fn may_join(&self, flight: &Flight) -> bool {
        let talks = flight.groups.as_ref().is_some_and(|groups| !groups.is_empty());
        talks && flight.bytes <= self.most && self.buffers(&flight.items).iter().all(|&v| !self.in_bucket[v])
    }

    /// The values whose buffers some moves have: sources and targets.
    fn buffers(&self, items: &[usize]) -> Vec<usize> {
        let of = |&n: &usize| match &self.program.statements()[n] {
            Statement::Redistribute { from, to, .. } => vec![self.root[from.index()], to.index()],
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => Vec::new(),
        };
        items.iter().flat_map(of).collect()
    }

    /// Puts a move into the bucket of those like it.
    fn join(&mut self, flight: Flight) {
        let is_like = |bucket: &Flight| match (bucket.items.first(), flight.items.first()) {
            (Some(&a), Some(&b)) => steps(self.program, a) == steps(self.program, b),
            (None, _) | (_, None) => false,
        };
        let mut known = self.open.iter().position(is_like);
        if let Some(at) = known
            && self.open[at].bytes.saturating_add(flight.bytes) > self.most
        {
            self.begin_bucket(at);
            known = None;
        }
        for v in self.buffers(&flight.items) {
            self.in_bucket[v] = true;
        }
        for &item in &flight.items {
            self.begun[item] = true;
            self.ready.remove(&(self.places[item], item));
        }
        match known {
            Some(at) => {
                let bucket = &mut self.open[at];
                bucket.items.extend(flight.items);
                bucket.bytes = bucket.bytes.saturating_add(flight.bytes);
            }
            None => self.open.push(flight),
        }
    }

    /// Begins a bucket. One of a single move leaves its buffers to others.
    fn begin_bucket(&mut self, at: usize) {
        let bucket = self.open.remove(at);
        if bucket.items.len() == 1 {
            for v in self.buffers(&bucket.items) {
                self.in_bucket[v] = false;
            }
        }
        self.begin_now(bucket);
    }

    fn flight(&self, n: usize) -> Option<Flight> {
        let Statement::Redistribute { from, to, forward, .. } = &self.program.statements()[n] else {
            return None;
        };
        let bytes = [from, to].map(|v| local_bytes(self.program.get(*v)));
        let bytes = bytes[0].saturating_add(bytes[1]);
        Some(Flight { items: vec![n], exchange: usize::MAX, bytes, groups: groups(forward) })
    }
}

/// What moves of one bucket have in common: their mesh, and what they do over which groups.
fn steps(program: &Program, item: usize) -> Option<(&Mesh, Vec<(StepOp, &GroupPattern)>)> {
    let Statement::Redistribute { forward, .. } = &program.statements()[item] else { return None };
    let steps = forward.steps().iter().map(|step| (step.op(), &step.group)).collect();
    Some((forward.from().mesh(), steps))
}

/// The patterns of the groups of a plan; none between two meshes, whose members are other ranks, and where ranks are listed.
fn groups(plan: &Plan) -> Option<Vec<GroupPattern>> {
    if plan.communicating_steps() == 0 {
        return Some(Vec::new());
    }
    let groups = plan.groups();
    let told = plan.from().mesh() == plan.to().mesh() && groups.iter().all(|group| group.layout().is_some());
    told.then(|| groups.into_iter().cloned().collect())
}
