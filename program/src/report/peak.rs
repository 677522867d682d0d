//! The most bytes at hand at a time.
//!
//! Items run in order and write their results beside their operands. A value is there
//!
//! ```text
//! an input      from the start to the end; one that is updated (w by w') until it is no longer taken
//! any other     from the item that makes it to the last that takes it; to the end if nothing takes what that item makes
//! ```
//!
//! and the result of a view, or of a move that does nothing to the buffers, is its operand. While a move is carried out, its
//! staging is there too: what its plan holds beyond source and target. Communication buffers of an engine are not counted.

use crate::graph::ValueId;
use crate::program::Item;
use crate::report::build::{Known, local_bytes};

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// An input whose gradient is asked, or that has one and is updated (`w` by `w'`).
    Parameter,
    /// An input without a gradient that is updated, such as a momentum.
    State,
    /// Any other input.
    Input,
    /// What the forward pass makes, copies of parameters too.
    Activation,
    /// What backward and update make, but for what takes the place of a parameter or of state.
    Gradient,
}

impl Class {
    /// All, in order.
    pub const ALL: [Class; 5] =
        [Class::Parameter, Class::State, Class::Input, Class::Activation, Class::Gradient];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Parameter => "parameter",
            Class::State => "state",
            Class::Input => "input",
            Class::Activation => "activation",
            Class::Gradient => "gradient",
        }
    }
}

/// The moment in which most bytes are at hand on the worst rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peak {
    /// All of them.
    pub bytes: u64,
    /// What is made at that moment; empty of a program without items.
    pub at: String,
    /// Those of values, by class in the order of [`Class::ALL`].
    pub by_class: [u64; 5],
    /// Those that a move holds beyond source and target.
    pub staging: u64,
}

impl Peak {
    /// The bytes of a class.
    pub fn of(&self, class: Class) -> u64 {
        self.by_class[class as usize]
    }
}

/// Where a value is there until the end.
pub(crate) const END: usize = usize::MAX;

/// The most of all ranks, of values of these classes.
pub(super) fn peak(known: &Known<'_>, classes: &[Class]) -> Peak {
    let peaks = known.classes.iter().map(|&ranks| peak_of(known, classes, ranks));
    // Of equal ones the first.
    peaks.reduce(|most, other| if other.bytes > most.bytes { other } else { most }).unwrap_or_default()
}

/// When the values of a program are there, on ranks that are in the same meshes; see the top of this file.
#[derive(Debug)]
pub(crate) struct Lives {
    /// Of each value, the one whose buffer it has.
    pub(crate) root: Vec<usize>,
    /// Of each value that has a buffer, the last item for which it is there; [`END`] where that is the end.
    pub(crate) until: Vec<usize>,
    /// Of each value, the one that is it in the next step.
    pub(crate) next: Vec<Option<usize>>,
}

/// Walks over the items of a program, for the ranks that are in these meshes.
pub(super) fn lives(known: &Known<'_>, ranks: u64) -> Lives {
    let holds = |v: usize| known.holds(ranks, v);
    let (items, values) = (known.program.items(), known.program.values());
    let mut root: Vec<usize> = (0..values.len()).collect();
    let mut last: Vec<Option<usize>> = vec![None; values.len()];
    for (n, item) in items.iter().enumerate() {
        for v in item.takes() {
            last[v.0] = Some(n);
        }
        let of = match item {
            Item::Op { op, inputs, outputs, .. } if op.is_view() => inputs.first().zip(outputs.first()),
            Item::Move { from, to, forward, .. } if forward.steps().is_empty() => Some((from, to)),
            Item::Input(_) | Item::Op { .. } | Item::Move { .. } | Item::NoGrad => None,
        };
        if let Some((from, to)) = of.filter(|(from, to)| holds(from.0) && holds(to.0)) {
            root[to.0] = root[from.0];
        }
    }
    let mut until = vec![0; values.len()];
    for (v, &of) in root.iter().enumerate() {
        let made = known.made[v];
        let taken = |v: &ValueId| last[v.0].is_some();
        let end = match (&items[made], last[v]) {
            (Item::Input(_), last) => {
                known.updates[v].map_or(END, |u| known.made[u.0].max(last.unwrap_or(0)))
            }
            (item, None) if item.makes().iter().any(taken) => made,
            (_, None) => END,
            (_, Some(last)) => last,
        };
        until[of] = until[of].max(end);
    }
    for update in known.updates.iter().flatten() {
        until[root[update.0]] = END;
    }
    // What lies elsewhere is no value to begin the next step with.
    let lies_there = |w: usize, u: usize| values[w].is.value == values[u].is.value;
    let next = known.updates.iter().enumerate();
    let next = next.map(|(w, update)| update.map(|u| u.0).filter(|&u| lies_there(w, u))).collect();
    Lives { root, until, next }
}

/// Follows the bytes of the ranks that are in these meshes from item to item.
fn peak_of(known: &Known<'_>, classes: &[Class], ranks: u64) -> Peak {
    let holds = |v: usize| known.holds(ranks, v);
    let (items, values) = (known.program.items(), known.program.values());
    let Lives { root, until, .. } = lives(known, ranks);
    let mut frees: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    for (v, &end) in until.iter().enumerate() {
        if root[v] == v && holds(v) && end < items.len() {
            frees[end].push(v);
        }
    }
    let mut now = Peak::default();
    let hold = |now: &mut Peak, v: usize| {
        let bytes = local_bytes(&values[v]);
        now.by_class[classes[v] as usize] = now.by_class[classes[v] as usize].saturating_add(bytes);
        now.bytes = now.bytes.saturating_add(bytes);
    };
    for v in items.iter().filter_map(|item| if let Item::Input(v) = item { Some(v.0) } else { None }) {
        if holds(v) {
            hold(&mut now, v);
        }
    }
    let mut most = now.clone();
    for (n, item) in items.iter().enumerate() {
        let makes = item.makes();
        if !matches!(item, Item::Input(_)) {
            for v in makes.iter().filter(|v| root[v.0] == v.0 && holds(v.0)) {
                hold(&mut now, v.0);
            }
        }
        let staging = match item {
            Item::Move { from, to, forward, .. } if root[to.0] == to.0 && (holds(from.0) || holds(to.0)) => {
                let here = [from.0, to.0].into_iter().filter(|&v| holds(v)).map(|v| local_bytes(&values[v]));
                forward.peak_bytes().saturating_sub(here.fold(0, u64::saturating_add))
            }
            Item::Input(_) | Item::Op { .. } | Item::Move { .. } | Item::NoGrad => 0,
        };
        let bytes = now.bytes.saturating_add(staging);
        if bytes > most.bytes || most.at.is_empty() {
            let at = makes.first().map_or(String::new(), |v| values[v.0].name.clone());
            most = Peak { bytes, at, staging, ..now.clone() };
        }
        for &v in &frees[n] {
            let bytes = local_bytes(&values[v]);
            now.by_class[classes[v] as usize] = now.by_class[classes[v] as usize].saturating_sub(bytes);
            now.bytes = now.bytes.saturating_sub(bytes);
        }
    }
    most
}
