//! The sizes of the factors of a call, read off the shapes of its operands.

use crate::Error;
use crate::rules::bind::Binding;
use crate::rules::factor::Dim;
use crate::rules::row::OperandDims;
use crate::rules::rule::Equation;

/// The sizes of factors, and the source of each.
pub(super) struct Sizes<'a> {
    pub(super) call: &'a Binding<'a>,
    pub(super) equation: &'a Equation,
    pub(super) letters: usize,
    pub(super) known: Vec<Option<(usize, String)>>,
}

impl Sizes<'_> {
    pub(super) fn name(&self, x: usize) -> String {
        self.equation
            .factors
            .get(x)
            .map_or_else(|| format!("dim -{} of the ellipsis", self.known.len() - x), |f| f.name.to_string())
    }

    fn set(&mut self, x: usize, n: usize, what: &str) -> Result<(), Error> {
        match &self.known[x] {
            Some((known, who)) if *known != n => {
                let sense = |who: &str| if who == "the rule" { String::new() } else { format!(" in {who}") };
                Err(self.call.error(format!("{} is {known}{} and {n} in {what}", self.name(x), sense(who))))
            }
            Some(_) => Ok(()),
            None => {
                self.known[x] = Some((n, what.to_owned()));
                Ok(())
            }
        }
    }

    /// Reads the sizes off the dims, until nothing more is learned.
    pub(super) fn solve(
        &mut self,
        known: &[(&[Dim], &[usize], String)],
        dims: &[OperandDims],
    ) -> Result<(), Error> {
        let pairs = || {
            known.iter().zip(dims).flat_map(|((_, shape, what), dims)| {
                dims.iter()
                    .zip(*shape)
                    .enumerate()
                    .filter_map(move |(d, (list, &n))| list.as_ref().map(|l| (l, n, d, what)))
            })
        };
        for (list, n, d, what) in pairs() {
            match list[..] {
                [] if n != 1 => {
                    return Err(self
                        .call
                        .error(format!("dim {d} of {what} is {n}, but must be 1 by the rule")));
                }
                [x] if usize::from(x) >= self.letters && n == 1 => {}
                [x] => self.set(x.into(), n, what)?,
                _ => {}
            }
        }
        loop {
            let mut learned = false;
            for (list, n, d, what) in pairs().filter(|(l, ..)| l.len() > 1) {
                let mut product = 1usize;
                let mut unknown = None;
                let mut unknowns = 0;
                for &x in list {
                    if let Some((m, _)) = &self.known[usize::from(x)] {
                        product = product.saturating_mul(*m);
                    } else {
                        unknown = Some(usize::from(x));
                        unknowns += 1;
                    }
                }
                let fails = || {
                    let names: String = list.iter().map(|&x| self.name(x.into())).collect();
                    self.call.error(format!(
                        "dim {d} of {what} is {n}, which is not ({names}) with the other factors {product}"
                    ))
                };
                match (unknowns, unknown) {
                    (0, _) if product != n => return Err(fails()),
                    (1, Some(x)) if product > 0 => {
                        if !n.is_multiple_of(product) {
                            return Err(fails());
                        }
                        self.known[x] = Some((n / product, what.clone()));
                        learned = true;
                    }
                    _ => {}
                }
            }
            if !learned {
                return Ok(());
            }
        }
    }
}
