//! Computes the order of calls, posts and waits, which is the same for all ranks.
//!
//! It depends on the statements, on the requested [order](super::Order), and on the bytes of the largest
//! shards.
//!
//! # Hoisting
//!
//! Calls stay in that order. A communicating redistribution begins as soon as its source is available, and
//! ends before the first statement that takes its result, within the limit of bytes in flight:
//!
//! ```text
//! before a statement   begin redistributions whose source is computed, in program order, until the next does not fit
//! a call               end the redistributions whose results it uses
//! a redistribution     if it has not begun: end others, the oldest first, until it fits; begin it
//! the end              end all redistributions in flight
//! ```
//!
//! # Buckets
//!
//! Redistributions with the same steps over the same groups may be one exchange, so that each step pays its
//! latency once:
//!
//! ```text
//! a redistribution may begin    it joins the bucket of its kind; a bucket that would exceed the limit begins first
//! a result is used              its bucket begins, even if it is not full
//! the end                       all buckets begin
//! ```
//!
//! A redistribution larger than the bucket limit is an exchange by itself. So is one whose source or target
//! is in another bucket already. Redistributions in a waiting bucket count as in flight.
//!
//! # Groups
//!
//! A redistribution that alone exceeds the limit ends where it begins, and so does one without communication.
//! Within a group redistributions end in the order in which they began, so ending one may end others before
//! it. Two redistributions may share a group if the patterns of their steps are equal, or if a pattern is
//! unknown.

use std::collections::{BTreeSet, VecDeque};

use reshard_planner::{Plan, StepOp};
use reshard_sharding::{GroupPattern, Mesh};

use crate::program::{Program, Statement};
use crate::report::local_bytes;
use crate::schedule::CompileOptions;
use crate::schedule::pipeline::sequence;

/// A turn: an instruction common to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Run an op, by the index of its statement.
    Call(usize),
    /// Start an exchange, by its number.
    Post(usize),
    /// Complete an exchange.
    Wait(usize),
}

/// The turns of all ranks, in order.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) list: Vec<Turn>,
    /// The redistributions of each exchange, in the order in which they joined.
    pub(super) exchanges: Vec<Vec<usize>>,
}

/// Returns the turns of a program within the limits of bytes in flight and per bucket.
///
/// A statement that leaves all bytes in place has no turn.
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

/// Redistributions that are, or will be, in flight as one exchange.
#[derive(Clone, Debug)]
struct Flight {
    items: Vec<usize>,
    /// The number of the exchange, once it has begun.
    exchange: usize,
    bytes: u64,
    /// The patterns of its groups; `None` if unknown.
    groups: Option<Vec<GroupPattern>>,
}

impl Flight {
    /// Returns `true` if it communicates, or its groups are unknown.
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
    /// The byte limit of a bucket.
    most: u64,
    turns: Vec<Turn>,
    exchanges: Vec<Vec<usize>>,
    /// The value whose buffer each value uses.
    root: Vec<usize>,
    /// `true` for each buffer value that is available.
    there: Vec<bool>,
    /// The redistribution that produces each value, if one does.
    maker: Vec<Option<usize>>,
    /// The communicating redistributions that take each buffer value.
    movers: Vec<Vec<usize>>,
    /// `true` for the redistributions that have begun or wait in a bucket.
    begun: Vec<bool>,
    /// The position of each statement in the order.
    places: Vec<usize>,
    /// Redistributions that could begin, with their positions.
    ready: BTreeSet<(usize, usize)>,
    flying: VecDeque<Flight>,
    flying_bytes: u64,
    /// Buckets that have not begun.
    open: Vec<Flight>,
    /// `true` for each buffer value that a bucket uses.
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

    /// Marks a value as available, unless it shares the buffer of a value in flight.
    fn is_there(&mut self, v: usize) {
        if self.root[v] != v || self.there[v] {
            return;
        }
        self.there[v] = true;
        let movers = self.movers[v].iter().filter(|n| !self.begun[**n]);
        self.ready.extend(movers.map(|&n| (self.places[n], n)));
    }

    /// Ends the redistribution that produces a value, if it is in flight.
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

    /// Ends an exchange in flight, after the earlier ones that may share a group with it.
    fn land(&mut self, at: usize) {
        let mut ends = vec![at];
        for earlier in (0..at).rev() {
            if ends.iter().any(|&end| self.flying[earlier].may_meet(&self.flying[end])) {
                ends.push(earlier);
            }
        }
        // Earliest first; each removal shifts the later indices by one.
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

    /// Begins redistributions whose source is available, as long as they fit.
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

    /// Processes a redistribution at its position in the order: adds it to a bucket or begins it.
    fn take_up(&mut self, n: usize) {
        let Some(flight) = self.flight(n) else { return };
        if self.may_join(&flight) { self.join(flight) } else { self.begin_now(flight) }
    }

    /// Begins an exchange at once, after ending others until it fits.
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

    /// Returns `true` if a redistribution may join a bucket.
    fn may_join(&self, flight: &Flight) -> bool {
        let talks = flight.groups.as_ref().is_some_and(|groups| !groups.is_empty());
        talks && flight.bytes <= self.most && self.buffers(&flight.items).iter().all(|&v| !self.in_bucket[v])
    }

    /// Returns the buffer values of some redistributions: sources and targets.
    fn buffers(&self, items: &[usize]) -> Vec<usize> {
        let of = |&n: &usize| match &self.program.statements()[n] {
            Statement::Redistribute { from, to, .. } => vec![self.root[from.index()], to.index()],
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => Vec::new(),
        };
        items.iter().flat_map(of).collect()
    }

    /// Adds a redistribution to the bucket with the same steps.
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

    /// Begins a bucket. A bucket of a single redistribution releases its buffers for other buckets.
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

/// Returns the bucket key of a redistribution: its mesh, and its steps with their groups.
fn steps(program: &Program, item: usize) -> Option<(&Mesh, Vec<(StepOp, &GroupPattern)>)> {
    let Statement::Redistribute { forward, .. } = &program.statements()[item] else { return None };
    let steps = forward.steps().iter().map(|step| (step.op(), &step.group)).collect();
    Some((forward.from().mesh(), steps))
}

/// Returns the patterns of the groups of a plan.
///
/// `None` between two meshes, whose members differ, and if a group is a list of ranks.
fn groups(plan: &Plan) -> Option<Vec<GroupPattern>> {
    if plan.communicating_steps() == 0 {
        return Some(Vec::new());
    }
    let groups = plan.groups();
    let told = plan.from().mesh() == plan.to().mesh() && groups.iter().all(|group| group.layout().is_some());
    told.then(|| groups.into_iter().cloned().collect())
}
