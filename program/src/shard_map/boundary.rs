//! Entering and leaving a shard map along axes that shard dims into blocks.

use reshard_ops::rules::OpCall;
use reshard_sharding::Placement;
use reshard_sharding::internal::outside_brackets;

use crate::Error;
use crate::local_type::{Along, Partly, in_order};
use crate::notation::refused;
use crate::shard_map::kind::{Kind, Origin};
use crate::shard_map::slices::{Slicing, sliced};
use crate::shard_map::{ShardMap, ShardMapValue, numbers, origin};

impl ShardMap<'_> {
    /// Parses a text with one placement for each axis.
    pub(super) fn words(&self, name: &str, axes: &[usize], text: &str) -> Result<Partly, Error> {
        let words: Vec<&str> = outside_brackets(text, ',').collect();
        if words.len() != axes.len() {
            let names: Vec<&str> = axes.iter().map(|&axis| self.axis_name(axis)).collect();
            return refused(format!(
                "`{name}: {text}` does not fit `local {}`; write {} placements, one for each axis: R, I, P or a shard such as S(0)",
                names.join(","),
                axes.len()
            ));
        }
        let word = |(axis, word): (&usize, &&str)| Ok((*axis, self.word(name, *axis, word)?));
        axes.iter().zip(&words).map(word).collect()
    }

    pub(super) fn word(&self, name: &str, axis: usize, text: &str) -> Result<Along, Error> {
        match text.parse::<Along>()? {
            Along::Varying(Placement::Shard(dim)) => Ok(Along::Varying(Placement::Shard(dim))),
            Along::Varying(other) if Slicing::of(&other).is_some() => Ok(Along::Varying(other)),
            Along::Varying(other) => refused(format!(
                "`{name}` is {other} along {}, which `local` does not support; redistribute it outside to a shard S(0), Z(0), SS(0,2) or RG(0,[..])",
                self.axis_name(axis)
            )),
            other @ (Along::Replicated | Along::Invariant | Along::Partial) => Ok(other),
        }
    }

    /// Enters a value with the placements of a text along these axes.
    pub(crate) fn enter_as(
        &mut self,
        value: &ShardMapValue,
        axes: &[usize],
        text: &str,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let words = self.words(name.unwrap_or(self.shown(value.value)), axes, text)?;
        self.enter(value, &words, name)
    }

    /// Enters a value, which has no placement along these axes yet.
    pub(super) fn enter(
        &mut self,
        value: &ShardMapValue,
        words: &[(usize, Along)],
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        if let Some((first, rest)) = sliced(words) {
            let alone = name.filter(|_| rest.is_empty());
            let taken = self.enter_sliced(value, first, &rest, alone)?;
            return if rest.is_empty() { Ok(taken) } else { self.enter(&taken, &rest, name) };
        }
        let (before, shape) = (value.varies().len(), self.shape(value).to_vec());
        // The axes that shard each dim, outermost first: in the order of the mesh.
        let mut cuts: Vec<Vec<usize>> = vec![Vec::new(); shape.len()];
        let mut moved: Partly = Partly::new();
        for (axis, along) in in_order(words.to_vec()) {
            let along = match along {
                Along::Varying(placement) => {
                    let dim = placement.dim().unwrap_or_default();
                    let Some(by) = cuts.get_mut(dim) else {
                        return refused(format!(
                            "`{}` has {} dims and cannot be S({dim}) along {}",
                            self.shown(value.value),
                            shape.len(),
                            self.axis_name(axis)
                        ));
                    };
                    by.push(axis);
                    Along::Varying(placement.with_dim(before + dim))
                }
                other @ (Along::Replicated | Along::Invariant | Along::Partial) => other,
            };
            moved.push((axis, along));
        }
        for (dim, by) in cuts.iter().enumerate() {
            let pieces: usize = by.iter().map(|&axis| self.size(axis)).product();
            if !shape[dim].is_multiple_of(pieces.max(1)) {
                let names: Vec<&str> = by.iter().map(|&axis| self.axis_name(axis)).collect();
                return refused(format!(
                    "`{}` has {} indices along dim {dim}, which {} does not split into {pieces} equal parts; pad the dim, because all coordinates run the same code",
                    self.shown(value.value),
                    shape[dim],
                    names.join(" and ")
                ));
            }
        }
        let is_cut = cuts.iter().any(|by| !by.is_empty());
        let at = self.name(name.filter(|_| !is_cut));
        let made = self.graph.moved_along(value.value, &at, moved.clone(), self.wire)?;
        let mut kinds = value.kinds.clone();
        for (axis, along) in words {
            let kind = match along {
                Along::Replicated => Kind::Replicated,
                Along::Invariant => Kind::Invariant,
                Along::Partial => Kind::Partial,
                Along::Varying(placement) => origin(placement.dim()),
            };
            kinds.push((*axis, kind));
        }
        self.sort(&mut kinds);
        let local = ShardMapValue { value: made, kinds, trained: value.trained };
        if is_cut { self.split(&local, before, &cuts, &moved, value, name) } else { Ok(local) }
    }

    /// Splits the sharded dims: the part of each axis becomes a separate leading dim.
    fn split(
        &mut self,
        entered: &ShardMapValue,
        before: usize,
        cuts: &[Vec<usize>],
        moved: &[(usize, Along)],
        of: &ShardMapValue,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let shape = self.graph.shape(entered.value).to_vec();
        let outer = of.varies();
        // The dims after the split: the axis number, or `None` for the rest of a dim of the slice; and the
        // size.
        let mut dims: Vec<(Option<usize>, usize)> =
            outer.iter().map(|&axis| (Some(axis), self.size(axis))).collect();
        let mut rest: Vec<usize> = Vec::new();
        for (dim, by) in cuts.iter().enumerate() {
            let pieces: usize = by.iter().map(|&axis| self.size(axis)).product();
            dims.extend(by.iter().map(|&axis| (Some(axis), self.size(axis))));
            rest.push(dims.len());
            dims.push((None, shape[before + dim] / pieces.max(1)));
        }
        let place = |axis: usize| dims.iter().position(|(known, _)| *known == Some(axis));
        let sizes: Vec<usize> = dims.iter().map(|(_, size)| *size).collect();
        // The placement along every axis of the shard map before, and after with the given sharded dims.
        let with = |cut: &dyn Fn(usize) -> Option<usize>| -> Partly {
            let others = of.along().into_iter().filter(|(axis, _)| !moved.iter().any(|(m, _)| m == axis));
            let all = in_order(others.chain(moved.iter().cloned()).collect());
            let placed = |(axis, along): (usize, Along)| match (along, cut(axis)) {
                (Along::Varying(_), Some(dim)) => (axis, Along::Varying(Placement::Shard(dim))),
                (other, _) => (axis, other),
            };
            all.into_iter().map(placed).collect()
        };
        let (from, apart) = (with(&|_| None), with(&place));
        let reshape = OpCall::new("reshape").with("shape", numbers(&sizes));
        let order: Vec<usize> =
            entered.varies().iter().filter_map(|&axis| place(axis)).chain(rest.iter().copied()).collect();
        let stays = order.iter().enumerate().all(|(i, &d)| i == d);
        let split =
            self.emit(&reshape, &[entered.value], &name.filter(|_| stays).into_iter().collect::<Vec<_>>())?;
        self.graph.strategy_along(split[0], vec![from, apart.clone()]);
        let mut local = ShardMapValue { value: split[0], ..entered.clone() };
        if !stays {
            let permute = OpCall::new("permute").with("dims", numbers(&order));
            local = self.reshaped(&permute, &local, entered.kinds.clone(), name)?;
            self.graph.strategy_along(local.value, vec![apart, local.along()]);
        }
        Ok(local)
    }

    /// Leaves a value along some axes with the placements of a text; returns it with its actual placements.
    pub(crate) fn leave_as(
        &mut self,
        value: &ShardMapValue,
        axes: &[usize],
        text: &str,
        called: &str,
    ) -> Result<(ShardMapValue, Partly), Error> {
        let words = self.words(called, axes, text)?;
        let left = self.leave(value, &words, called)?;
        // A value used for the same work on all coordinates stays invariant where replicas are declared.
        let kept = |(axis, claim): (usize, Along)| match (value.kind(axis), &claim) {
            (Some(Kind::Invariant), Along::Replicated) => (axis, Along::Invariant),
            _ => (axis, claim),
        };
        let mut said: Partly = words.into_iter().map(kept).collect();
        said.sort_by_key(|(axis, _)| *axis);
        Ok((left, said))
    }

    /// Checks that a value matches its declared placement along an axis.
    pub(super) fn claims(
        &self,
        value: &ShardMapValue,
        axis: usize,
        claim: &Along,
        called: &str,
    ) -> Result<(), Error> {
        let Some(kind) = value.kind(axis) else {
            return refused(format!("`{called}` belongs to another shard map"));
        };
        let (name, at) = (called, self.axis_name(axis));
        let reason = match (kind, claim) {
            (Kind::Varying(_), Along::Varying(_) | Along::Partial)
            | (Kind::Replicated, Along::Replicated)
            | (Kind::Invariant, Along::Invariant | Along::Replicated)
            | (Kind::Partial, Along::Partial) => return Ok(()),
            (Kind::Varying(from), Along::Replicated | Along::Invariant) => match from {
                Some(Origin::Sum(what)) => format!(
                    "`{name}` varies over {at} but is declared {claim}: {what} sums a dim that {at} shards; declare P, or all_reduce it"
                ),
                Some(Origin::Dim(dim)) => format!(
                    "`{name}` varies over {at} but is declared {claim}: {at} shards its dim {dim}; declare S({dim}), or all_gather it"
                ),
                None => format!(
                    "`{name}` varies over {at} but is declared {claim}; declare P if the coordinates have partial sums, or S(d) if they have parts of dim d"
                ),
            },
            (Kind::Replicated | Kind::Invariant, Along::Partial) => format!(
                "`{name}` is the same on all of {at} but is declared P: its sum would count it {} times; declare {}",
                self.size(axis),
                kind.letter()
            ),
            (Kind::Replicated | Kind::Invariant, Along::Varying(_)) => format!(
                "`{name}` is the same on all of {at} but is declared {claim}, which would repeat it {} times; declare {}, or convert it to {claim} inside",
                self.size(axis),
                kind.letter()
            ),
            (Kind::Replicated, Along::Invariant) => format!(
                "`{name}` is R along {at} but is declared I: coordinates do different work with it, so its gradient is partial; declare R, or convert it to I inside"
            ),
            (Kind::Partial, Along::Replicated | Along::Invariant | Along::Varying(_)) => format!(
                "`{name}` is partial over {at} but is declared {claim}: no coordinate has the sum; declare P, or convert it to {claim} inside"
            ),
        };
        Err(Error::OutSpecMismatch { reason })
    }

    /// Leaves a value along some axes, after checking the declared placements.
    pub(super) fn leave(
        &mut self,
        value: &ShardMapValue,
        words: &[(usize, Along)],
        called: &str,
    ) -> Result<ShardMapValue, Error> {
        for (axis, claim) in words {
            self.claims(value, *axis, claim, called)?;
        }
        if let Some((first, rest)) = sliced(words) {
            let left = if rest.is_empty() { value.clone() } else { self.leave(value, &rest, called)? };
            return self.leave_sliced(&left, first, &rest, called);
        }
        let summed: Vec<usize> =
            words.iter().filter(|(_, claim)| *claim == Along::Partial).map(|(axis, _)| *axis).collect();
        let mut local = self.summed(value, &summed)?;
        // The axes that shard each dim, outermost first: in the order of the mesh.
        let (sorted, varies) = (in_order(words.to_vec()), local.varies());
        let shape = self.shape(&local).to_vec();
        let mut cuts: Vec<Vec<usize>> = vec![Vec::new(); shape.len()];
        for (axis, claim) in &sorted {
            let Along::Varying(placement) = claim else { continue };
            let dim = placement.dim().unwrap_or_default();
            match cuts.get_mut(dim) {
                Some(by) => by.push(*axis),
                None => {
                    return refused(format!(
                        "`{called}` has {} dims inside `local` but is declared {claim} along {}",
                        shape.len(),
                        self.axis_name(*axis)
                    ));
                }
            }
        }
        let left = |axis: &usize| words.iter().any(|(known, _)| known == axis);
        if cuts.iter().any(|by| !by.is_empty()) {
            local = self.put_back(&local, &varies, &cuts)?;
        }
        local.kinds.retain(|(axis, _)| !left(axis));
        Ok(local)
    }

    /// Merges the leading dims of axes into the dims of slices that they shard.
    fn put_back(
        &mut self,
        local: &ShardMapValue,
        varies: &[usize],
        cuts: &[Vec<usize>],
    ) -> Result<ShardMapValue, Error> {
        let shape = self.graph.shape(local.value).to_vec();
        let cut = |axis: &usize| cuts.iter().any(|by| by.contains(axis));
        let stay: Vec<usize> = (0..varies.len()).filter(|&i| !cut(&varies[i])).collect();
        let place = |axis: &usize| varies.iter().position(|v| v == axis);
        let mut order = stay.clone();
        let mut merged: Vec<usize> = stay.iter().map(|&i| shape[i]).collect();
        // The position of each axis's dim after the dims are permuted.
        let mut apart: Vec<(usize, usize)> =
            stay.iter().enumerate().map(|(at, &i)| (varies[i], at)).collect();
        let mut whole = apart.clone();
        for (dim, by) in cuts.iter().enumerate() {
            for axis in by {
                apart.push((*axis, order.len()));
                whole.push((*axis, merged.len()));
                order.extend(place(axis));
            }
            order.push(varies.len() + dim);
            let pieces: usize = by.iter().map(|&axis| self.size(axis)).product();
            merged.push(shape[varies.len() + dim] * pieces);
        }
        let placed = |at: &[(usize, usize)]| -> Partly {
            let of = |(axis, along): (usize, Along)| match at.iter().find(|(known, _)| *known == axis) {
                Some((_, dim)) => (axis, Along::Varying(Placement::Shard(*dim))),
                None => (axis, along),
            };
            local.along().into_iter().map(of).collect()
        };
        let (mut from, mut made) = (local.along(), local.clone());
        if !order.iter().enumerate().all(|(i, &d)| i == d) {
            let permute = OpCall::new("permute").with("dims", numbers(&order));
            made = self.reshaped(&permute, local, local.kinds.clone(), None)?;
            self.graph.strategy_along(made.value, vec![from, placed(&apart)]);
            from = placed(&apart);
        }
        let reshape = OpCall::new("reshape").with("shape", numbers(&merged));
        let back = self.reshaped(&reshape, &made, local.kinds.clone(), None)?;
        self.graph.strategy_along(back.value, vec![from, placed(&whole)]);
        Ok(back)
    }

    /// Converts a value that varies over these axes to partial values of its sum.
    pub(super) fn summed(&mut self, value: &ShardMapValue, axes: &[usize]) -> Result<ShardMapValue, Error> {
        let varies = value.varies();
        let own: Vec<usize> = axes.iter().copied().filter(|axis| varies.contains(axis)).collect();
        if own.is_empty() {
            return Ok(value.clone());
        }
        let dims: Vec<usize> = (0..varies.len()).filter(|&i| own.contains(&varies[i])).collect();
        let kinds = (value.kinds.iter())
            .map(|(axis, kind)| (*axis, if own.contains(axis) { Kind::Partial } else { kind.clone() }));
        let sum = OpCall::new("sum").with("dims", numbers(&dims));
        let made = self.reshaped(&sum, value, kinds.collect(), None)?;
        self.by(Some(&made.value), [value, &made].into_iter());
        Ok(made)
    }
}
