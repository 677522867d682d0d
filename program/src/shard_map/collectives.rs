//! Collectives inside a shard map: leave along an axis, redistribute, and enter again.

use reshard_kernels::DType;
use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::internal::outside_brackets;
use reshard_sharding::{Counts, Placement};

use crate::Error;
use crate::local_type::{Along, Partly};
use crate::notation::refused;
use crate::shard_map::kind::Kind;
use crate::shard_map::slices::DimSlices;
use crate::shard_map::{ShardMap, ShardMapValue, numbers};

impl ShardMap<'_> {
    /// Leaves a value with one placement along an axis and enters it with another.
    fn between(
        &mut self,
        value: &ShardMapValue,
        axis: usize,
        from: &Along,
        to: Along,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let called = self.shown(value.value).to_owned();
        let left = self.leave(value, &[(axis, from.clone())], &called)?;
        self.enter(&left, &[(axis, to)], name)
    }

    /// Sets the communication dtype of subsequent collectives.
    ///
    /// It is a [narrower dtype](crate::Graph::redistribute_as), or `None` for the dtype of the values.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::{ShardingSolver, Graph, ComputeRates};
    /// let mut graph: Graph = "mesh tp=2\nx: f32[8,16] S(1)\nw: f32[16,32] S(0)".parse()?;
    /// let (x, w) = (graph.value("x").unwrap(), graph.value("w").unwrap());
    /// graph.shard_map(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["S(0)"], |region, v| {
    ///     let h = region.op("mm", &[&v[0], &v[1]])?;
    ///     Ok(vec![region.comm_dtype(Some(DType::BF16)).reduce_scatter(&h, "tp", 0)?])
    /// })?;
    /// let report = ShardingSolver::new().solve(&graph)?.report(&ComputeRates::uniform());
    /// // Four rows of 32 numbers of two bytes.
    /// assert_eq!(report.traffic.forward.received_bytes, 4 * 32 * 2);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn comm_dtype(&mut self, wire: Option<DType>) -> &mut Self {
        self.wire = wire;
        self
    }

    /// Returns the sum over the coordinates of an axis, on all of them.
    ///
    /// `to` is `R`, or `I` if all coordinates do the same work with it.
    pub fn all_reduce(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        to: &str,
    ) -> Result<ShardMapValue, Error> {
        self.all_reduced(value, axis, to, None)
    }

    pub(crate) fn all_reduced(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        to: &str,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let to = self.replicas("all_reduce", axis, to)?;
        self.between(value, axis, &Along::Partial, to, name)
    }

    /// Gathers the slices of all coordinates of an axis along a dim, on all of them.
    ///
    /// With only a dim given, the slices are concatenated in the order of the coordinates.
    pub fn all_gather(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        parts: impl Into<DimSlices>,
        to: &str,
    ) -> Result<ShardMapValue, Error> {
        self.all_gathered(value, axis, parts.into(), to, None)
    }

    /// Stacks the values of all coordinates of an axis along a new dim, on all of them.
    pub fn all_gather_stack(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        dim: usize,
        to: &str,
    ) -> Result<ShardMapValue, Error> {
        self.stacked(value, axis, dim, to, None)
    }

    pub(crate) fn stacked(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        dim: usize,
        to: &str,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let one = self.op(&format!("unsqueeze(dim={dim})"), &[value])?;
        self.all_gathered(&one, axis, dim.into(), to, name)
    }

    pub(crate) fn all_gathered(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        parts: DimSlices,
        to: &str,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let to = self.replicas("all_gather", axis, to)?;
        self.between(value, axis, &parts.along(), to, name)
    }

    /// Sums over the coordinates of an axis; each coordinate gets its slice of a dim.
    pub fn reduce_scatter(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        parts: impl Into<DimSlices>,
    ) -> Result<ShardMapValue, Error> {
        self.reduce_scattered(value, axis, parts.into(), None)
    }

    pub(crate) fn reduce_scattered(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        parts: DimSlices,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        self.between(value, axis, &Along::Partial, parts.along(), name)
    }

    /// Exchanges slices: splits one dim among the coordinates of an axis, and concatenates another.
    pub fn all_to_all(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        split: impl Into<DimSlices>,
        concat: impl Into<DimSlices>,
    ) -> Result<ShardMapValue, Error> {
        self.exchanged(value, axis, split.into(), concat.into(), None)
    }

    /// Sends a variable number of indices of a dim from each coordinate of an axis to each other.
    ///
    /// Row `i` of the counts has the numbers that coordinate `i` sends to each. It sends its first indices,
    /// ordered by target. A coordinate receives them ordered by source, as the first indices of the result;
    /// the rest is zeros. The result has `room` indices, or the maximum that a coordinate receives. Exactly
    /// these are sent, also backward.
    ///
    /// Returns an error for counts of another number of coordinates, and for more indices than a coordinate
    /// has or can hold.
    ///
    /// ```
    /// use reshard_program::{ShardingSolver, Graph};
    /// use reshard_sharding::Counts;
    /// let mut graph: Graph = "mesh ep=2\nx: f32[8,3] S(0)".parse()?;
    /// let x = graph.value("x").unwrap();
    /// let counts = Counts::new(&[vec![1, 3], vec![2, 0]])?;
    /// graph.shard_map(&["ep"], &[(x, "S(0)")], &["S(0)"], |region, v| {
    ///     let tokens = region.all_to_all_v(&v[0], "ep", 0, &counts, Some(6))?;
    ///     assert_eq!(region.shape(&tokens), [6, 3]);
    ///     Ok(vec![tokens])
    /// })?;
    /// let program = ShardingSolver::new().solve(&graph)?;
    /// // Three rows go to the second rank, and two to the first.
    /// assert_eq!(program.redistributions().map(|m| m.forward.received_bytes()).max(), Some(3 * 3 * 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn all_to_all_v(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        dim: usize,
        counts: &Counts,
        room: Option<usize>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        self.sent(value, (axis, dim), counts, room, None)
    }

    pub(crate) fn exchanged(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        split: DimSlices,
        concat: DimSlices,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        self.between(value, axis, &concat.along(), split.along(), name)
    }

    /// Redistributes among `R`, `I` and `P`, and from these to shards, along an axis.
    pub fn convert(&mut self, value: &ShardMapValue, axis: &str, to: &str) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let to = self.word(self.shown(value.value), axis, to)?;
        self.moved_to(value, axis, to, None)
    }

    fn moved_to(
        &mut self,
        value: &ShardMapValue,
        axis: usize,
        to: Along,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let from = match value.kind(axis) {
            Some(Kind::Replicated) => Along::Replicated,
            Some(Kind::Invariant) => Along::Invariant,
            Some(Kind::Partial) => Along::Partial,
            Some(Kind::Varying(_)) if to == Along::Partial => {
                let made = self.summed(value, &[axis])?;
                return Ok(made);
            }
            Some(Kind::Varying(_)) | None => {
                return refused(format!(
                    "`{}` varies over {} and cannot be converted to {to}; all_reduce it, all_gather it, or convert it to P for its sum",
                    self.shown(value.value),
                    self.axis_name(axis)
                ));
            }
        };
        self.between(value, axis, &from, to, name)
    }

    /// Redistributes a value along the innermost shard map's axes to the placements of a text.
    ///
    /// `_` leaves it unchanged along an axis.
    pub(crate) fn moved_as(
        &mut self,
        value: &ShardMapValue,
        axes: &[usize],
        text: &str,
        name: &str,
    ) -> Result<ShardMapValue, Error> {
        let said: Vec<&str> = outside_brackets(text, ',').collect();
        let words = if said.len() == axes.len() {
            let said = axes.iter().zip(&said).filter(|(_, word)| **word != "_");
            said.map(|(axis, word)| Ok((*axis, self.word(name, *axis, word)?)))
                .collect::<Result<Partly, Error>>()?
        } else {
            self.words(name, axes, text)?
        };
        let mut made = value.clone();
        let wanted = |made: &ShardMapValue, axis: usize, along: &Along| match (made.kind(axis), along) {
            (Some(Kind::Replicated), Along::Replicated)
            | (Some(Kind::Invariant), Along::Invariant)
            | (Some(Kind::Partial), Along::Partial) => false,
            (Some(_) | None, _) => true,
        };
        for (axis, along) in words {
            if wanted(&made, axis, &along) {
                made = self.moved_to(&made, axis, along, Some(name))?;
            }
        }
        Ok(made)
    }

    /// Returns the value of the coordinate `by` positions before, cyclically along the axis.
    pub fn shift(&mut self, value: &ShardMapValue, axis: &str, by: i64) -> Result<ShardMapValue, Error> {
        self.shifted(value, axis, by, None)
    }

    pub(crate) fn shifted(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        by: i64,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let Some(at) = value.varies().iter().position(|&v| v == axis) else {
            return refused(format!(
                "`{}` is the same on all of {}, so nothing is shifted; remove the shift",
                self.shown(value.value),
                self.axis_name(axis)
            ));
        };
        let size = self.size(axis) as i64;
        let by = by.rem_euclid(size.max(1));
        if by == 0 {
            return Ok(value.clone());
        }
        let rolled = Along::Varying(Placement::rolled(at, by as usize));
        let at_hand = self.name(None);
        let moved = self.graph.moved_along(value.value, &at_hand, vec![(axis, rolled.clone())], self.wire)?;
        let roll =
            OpCall::new("roll").with("shifts", Argument::Numbers(vec![by])).with("dims", numbers(&[at]));
        let made = self.emit(&roll, &[moved], &name.into_iter().collect::<Vec<_>>())?;
        let local = ShardMapValue { value: made[0], ..value.clone() };
        let before = value
            .along()
            .into_iter()
            .map(|(known, along)| (known, if known == axis { rolled.clone() } else { along }));
        self.graph.strategy_along(local.value, vec![before.collect(), local.along()]);
        Ok(local)
    }

    /// Returns the index of each coordinate along an axis, as a tensor without dims.
    pub fn coordinate(&mut self, axis: &str) -> Result<ShardMapValue, Error> {
        self.counted(axis, None)
    }

    pub(crate) fn counted(&mut self, axis: &str, name: Option<&str>) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let size = Argument::Number(self.size(axis) as i64);
        let made =
            self.emit(&OpCall::new("arange").with("size", size), &[], &name.into_iter().collect::<Vec<_>>())?;
        self.graph.values[made[0].0].dtype = DType::I64;
        let kinds =
            self.axes.iter().map(|&a| (a, if a == axis { Kind::Varying(None) } else { Kind::Replicated }));
        let local = ShardMapValue { value: made[0], kinds: kinds.collect(), trained: false };
        self.by(Some(&local.value), [&local].into_iter());
        Ok(local)
    }

    fn replicas(&self, what: &str, axis: usize, text: &str) -> Result<Along, Error> {
        match self.word(what, axis, text)? {
            to @ (Along::Replicated | Along::Invariant) => Ok(to),
            Along::Partial | Along::Varying(_) => refused(format!("{what} gives R or I, not {text}")),
        }
    }
}
