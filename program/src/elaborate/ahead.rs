//! A lower bound on what follows a state, from the messages of `dual`.
//!
//! Whatever the messages, all that follows statement `n` costs at least
//!
//! ```text
//! rest(n)  =  sum over later ops of the least of each, and over values made later
//! + sum over values that are live after n, available in A, of
//!       min over types of the later consumers ( max of price(A -> type) - messages to these consumers )
//! ```
//!
//! with the messages added to ops and subtracted from values. Hence a state whose cost and this bound exceed
//! the cost of a known choice leads to nothing better, and the sum orders states by the best choice that each
//! could lead to.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::dual::{Dual, FAR, Origin, Port, ValueFactor, least_reached, nearest_first};
use crate::elaborate::moves::{TypeId, Types};

/// The bound on what follows each statement.
#[derive(Debug)]
pub(crate) struct Ahead {
    ports: Vec<Port>,
    values: FxHashMap<usize, ValueFactor>,
    /// By statement, the part that no state changes, with values from outside as they are given.
    rest: Vec<i64>,
    /// Results by value, number of later consumers and available types.
    known: RefCell<FxHashMap<(usize, usize, AtHand), i64>>,
}

impl Ahead {
    /// Returns the bound by these factors, for each of the statements.
    pub(crate) fn new(dual: Dual, types: &mut Types, statements: usize) -> Ahead {
        let mut here = vec![0i64; statements];
        for (op, made) in dual.ops.iter().zip(&dual.values[1..]) {
            here[op.at] += dual.least_of_op(op);
            for value in made {
                here[op.at] += dual.least_of_value(value);
            }
        }
        let given = |value: &ValueFactor| match value.origin {
            Origin::Op(_) => None,
            Origin::Outside(at) => Some((value.number, types.sets.number(&[value.costs.types[at]]))),
        };
        let outside: Vec<(usize, AtHand)> = dual.values[0].iter().filter_map(given).collect();
        let values = dual.values.into_iter().flatten().map(|value| (value.number, value)).collect();
        let known = RefCell::default();
        let mut ahead = Ahead { ports: dual.ports, values, rest: vec![0; statements], known };
        let mut later = 0;
        for n in (0..statements).rev() {
            let given: i64 = outside.iter().map(|&(value, given)| ahead.of(types, value, given, n)).sum();
            ahead.rest[n] = later + given;
            later += here[n];
        }
        ahead
    }

    /// Returns the bound after a statement, with values from outside as they are given, and no others.
    pub(crate) fn rest(&self, n: usize) -> i64 {
        self.rest[n]
    }

    /// Returns the part of the bound after statement `n` of a value that is available in these types.
    pub(crate) fn of(&self, types: &Types, value: usize, at_hand: AtHand, n: usize) -> i64 {
        let Some(factor) = self.values.get(&value) else { return 0 };
        let later = factor.taken.partition_point(|&port| self.ports[port].at <= n);
        let takers = &factor.taken[later..];
        if takers.is_empty() {
            return 0;
        }
        let key = (value, takers.len(), at_hand);
        if let Some(&known) = self.known.borrow().get(&key) {
            return known;
        }
        let least = self.least(factor, takers, types.sets.of(at_hand));
        self.known.borrow_mut().insert(key, least);
        least
    }

    fn least(&self, factor: &ValueFactor, takers: &[usize], at_hand: &[TypeId]) -> i64 {
        let costs = &factor.costs;
        let starts = at_hand.iter().filter_map(|is| costs.types.binary_search(is).ok());
        // From a type that no strategy has, nothing is known.
        let mut reach = vec![if starts.clone().count() == at_hand.len() { FAR } else { 0 }; costs.count];
        for start in starts {
            reach.iter_mut().zip(costs.from(start)).for_each(|(least, cost)| *least = (*least).min(*cost));
        }
        least_reached(&self.ports, takers, &nearest_first(&reach), &reach)
    }
}
