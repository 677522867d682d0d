//! Plans without search, in a digit system.
//!
//! Draw an edge `s(d) -> t(d)` for every digit `d`, with replicated and partial as open ends. Positions hold at most one
//! digit in each state, so every component is a path or a cycle, and
//!
//! ```text
//! zero-fill ; slice ; reduce-scatter ; all-reduce ; one permuting exchange ; one all-gather ; zero-fill
//! ```
//!
//! (missing ones dropped) takes every digit along its edge:
//!
//! * the **head** of a path that was replicated or partial takes the position at the end of the path, if that
//!   exists and is local in the source; else an *unused* position, local in both; else it stays (a partial
//!   head is all-reduced);
//! * the **tail** of a path that becomes replicated or partial goes in the exchange to the position at the
//!   start of the path, or the one that its head took, or stays replicated; from there it is gathered or
//!   zero-filled;
//! * every other digit changes its position in the exchange, which preserves the local size.
//!
//! Without partial sums, every rank receives exactly the bytes of its target that it did not hold. With them,
//! *lean* leaves replicated paths and unchanged partial digits alone, and *full* lets idle replicas share the
//! work. The cheaper of the two is the least in bytes where unused positions exist.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::op::StepOp;
use crate::states::system::{Place, Stands, State, System};

/// A step between two states.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) op: StepOp,
    pub(crate) before: State,
    pub(crate) after: State,
}

/// A path from one state to another.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) system: Arc<System>,
    pub(crate) moves: SmallVec<[Move; 4]>,
}

impl Route {
    /// Returns the number of steps in which ranks communicate.
    pub(crate) fn communicating_moves(&self) -> usize {
        self.moves.iter().filter(|m| m.op.communicates()).count()
    }
}

/// The digits that take part although they need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Form {
    /// Every replicated or partial head takes an unused position.
    Full,
    /// Replicated paths and unchanged partial digits stay; digits that become partial do so first.
    Lean,
    /// Like lean, but a replicated digit that becomes partial is only filled at the end.
    Plain,
}

impl core::fmt::Display for Form {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Form::Full => "full",
            Form::Lean => "lean",
            Form::Plain => "plain",
        })
    }
}

/// Digits in sequence: the target position of each is the source position of the next.
pub(crate) type Path = SmallVec<[usize; 4]>;

/// Returns the open paths of two states.
///
/// Cycles have no ends to treat, and digits that stay at a position are not paths.
pub(crate) fn paths(system: &System, s: &State, t: &State) -> SmallVec<[Path; 8]> {
    let (standing_s, standing_t) = (system.standing(s), system.standing(t));
    let starts = |d: &usize| s[*d].position().is_none_or(|p| standing_t[p].is_none());
    let mut paths = SmallVec::new();
    for first in (0..system.digits.len()).filter(starts) {
        let mut path = Path::new();
        path.push(first);
        let mut last = first;
        while let Some(next) = t[last].position().and_then(|p| standing_s[p]).map(usize::from) {
            path.push(next);
            last = next;
        }
        paths.push(path);
    }
    paths
}

/// Returns the sender digits: a replicated head takes the value of its path's tail, all others their own.
///
/// A head whose level is further out than its path's other digits keeps its own value: the nearest replica.
pub(crate) fn senders(
    system: &System,
    s: &State,
    t: &State,
    level: impl Fn(usize) -> usize,
) -> SmallVec<[usize; 8]> {
    let mut sender: SmallVec<[usize; 8]> = SmallVec::new();
    for d in 0..system.digits.len() {
        sender.push(d);
    }
    if !s.contains(&Place::REPLICATED) {
        return sender;
    }
    for path in paths(system, s, t) {
        let (head, tail) = (path[0], path[path.len() - 1]);
        let others = path[1..].iter().map(|&d| level(d)).max();
        if s[head] == Place::REPLICATED && others.is_none_or(|l| level(head) <= l) {
            sender[head] = tail;
        }
    }
    sender
}

/// Returns `true` if a digit is partial in the same form before and after.
fn kept(a: Place, b: Place) -> bool {
    a.is_partial() && a == b
}

/// Returns the plan of one form; `None` if a head would have to be embedded as avg.
pub(crate) fn plan(system: &Arc<System>, s: &State, t: &State, form: Form, spares: bool) -> Option<Route> {
    let mut system = Arc::clone(system);
    // Averages are embedded last, since replicas need no change for that.
    let copy = |state: &State| State::from_slice(state);
    let (mut s, mut t, last) = (copy(s), copy(t), copy(t));
    let mut relabelled: SmallVec<[usize; 4]> = SmallVec::new();
    for d in 0..s.len() {
        if t[d].is_average() && !kept(s[d], t[d]) {
            if s[d].position().is_some() {
                return None;
            }
            t[d] = Place::REPLICATED;
            relabelled.push(d);
        }
    }
    let op_of = |state: &State| {
        state.iter().find_map(|p| match p.stands() {
            Stands::Partial(op) => Some(op.combining()),
            Stands::At(_) | Stands::Replicated => None,
        })
    };
    let ops_agree = match (op_of(&s), op_of(&t)) {
        (Some(a), Some(b)) => a == b,
        (None, _) | (_, None) => true,
    };
    let paths = paths(&system, &s, &t);
    // The states between the steps, filled in path by path; the exchange leads to `goal`, and the gather to
    // `t`.
    let mut filled = copy(&s);
    let mut placed = copy(&s);
    let mut goal = copy(&t);
    for mut path in paths {
        let head = path[0];
        let (start, end) = (s[head], t[path[path.len() - 1]]);
        if path.len() == 1 && (kept(start, end) || (start, end) == (Place::REPLICATED, Place::REPLICATED)) {
            // A reduced digit would have to be embedded again, which averages do not support.
            if form != Form::Full || start.is_average() {
                continue;
            }
        } else if form != Form::Full && start == Place::REPLICATED && end == Place::REPLICATED {
            // R -> .. -> R: the head takes its position in the exchange, and the tail leaves it.
            continue;
        } else if form == Form::Plain && path.len() == 1 && start == Place::REPLICATED && end.is_partial() {
            continue;
        }
        let mut end = end;
        if form != Form::Full
            && start == Place::REPLICATED
            && end.is_partial()
            && path.len() >= 2
            && ops_agree
        {
            // R -> .. -> P: the tail is embedded at once and leaves its position to the head.
            let tail = path.pop().expect("it has two digits");
            filled[tail] = end;
            placed[tail] = end;
            goal[tail] = end;
            end = s[tail];
        }
        let tail = path[path.len() - 1];
        match (start.stands(), end.stands()) {
            (Stands::At(_), Stands::At(_)) => {}
            (Stands::At(_), Stands::Replicated | Stands::Partial(_)) => goal[tail] = start,
            (Stands::Replicated | Stands::Partial(_), Stands::At(_)) => placed[head] = end,
            (Stands::Replicated | Stands::Partial(_), Stands::Replicated | Stands::Partial(_)) => {
                let extent = system.digits[head].extent;
                let states = [&s, &t, &placed, &goal];
                let spare = if spares { find_spare(&system, &states, extent) } else { None };
                if let Some(mut p) = spare {
                    if system.zip[p].extent != extent {
                        let states = &mut [&mut s, &mut t, &mut filled, &mut placed, &mut goal];
                        p = Arc::make_mut(&mut system).split(p, extent, states);
                    }
                    placed[head] = Place::at(p);
                    goal[tail] = Place::at(p);
                } else {
                    if start.is_partial() && !(path.len() == 1 && kept(start, end)) {
                        placed[head] = Place::REPLICATED;
                    }
                    goal[tail] = placed[head];
                }
            }
        }
    }
    let moves = steps(&s, &filled, &placed, &goal, &t);
    let mut route = Route { system, moves };
    if !relabelled.is_empty() {
        let before = route.moves.last().map_or(s, |m| m.after.clone());
        let mut after = before.clone();
        for d in relabelled {
            after[d] = last[d];
        }
        route.moves.push(Move { op: StepOp::ZeroFill, before, after });
    }
    Some(route)
}

/// Returns the slowest position that no state uses and that the extent divides.
fn find_spare(system: &System, states: &[&State], extent: i64) -> Option<usize> {
    (0..system.zip.len()).rev().find(|&p| {
        system.zip[p].extent % extent == 0 && states.iter().all(|s| s.iter().all(|x| *x != Place::at(p)))
    })
}

/// Returns the steps through the states: each kind at most once.
///
/// A reduction and a gather over the same digits are one step.
fn steps(s: &State, filled: &State, placed: &State, goal: &State, t: &State) -> SmallVec<[Move; 4]> {
    let mut moves: SmallVec<[Move; 4]> = SmallVec::new();
    let mut state = State::from_slice(s);
    let mut go = |op: StepOp, after: &State| {
        if state != *after {
            let before = core::mem::replace(&mut state, State::from_slice(after));
            moves.push(Move { op, before, after: State::from_slice(after) });
        }
    };
    // The state in which only digits for which `change` holds take their next value.
    let some = |from: &State, to: &State, change: &dyn Fn(Place, Place) -> bool| -> State {
        let mut state = State::from_slice(from);
        for (a, &b) in state.iter_mut().zip(to) {
            if change(*a, b) {
                *a = b;
            }
        }
        state
    };
    go(StepOp::ZeroFill, filled);
    let sliced = some(filled, placed, &|a, b| a == Place::REPLICATED && b.position().is_some());
    go(StepOp::Slice, &sliced);
    let gathered = some(goal, t, &|a, b| a.position().is_some() && b == Place::REPLICATED);
    let reduced = |d: usize| sliced[d].is_partial() && placed[d] != sliced[d];
    let grown = |d: usize| gathered[d] != goal[d];
    let n = s.len();
    // Without an exchange between them, a reduce-scatter and an all-gather of the same digits are one
    // all-reduce.
    if placed == goal
        && (0..n).any(reduced)
        && (0..n)
            .all(|d| !sliced[d].is_partial() || placed[d] == sliced[d] || gathered[d] == Place::REPLICATED)
        && (0..n).all(|d| !grown(d) || sliced[d].is_partial())
    {
        go(StepOp::AllReduce, &gathered);
    } else {
        let scattered = some(&sliced, placed, &|a, b| a.is_partial() && b.position().is_some());
        go(StepOp::ReduceScatter, &scattered);
        go(StepOp::AllReduce, placed);
        go(StepOp::Exchange, goal);
        go(StepOp::AllGather, &gathered);
    }
    go(StepOp::ZeroFill, t);
    moves
}
