//! Between the coordinates of a region: leaving it along an axis, a move, and entering again.

use reshard_kernels::DType;
use reshard_ops::rules::{Argument, OpCall};
use reshard_sharding::{Counts, Placement};

use crate::Error;
use crate::along::{Along, Partly};
use crate::notation::{outside_brackets, refused};
use crate::region::kind::Kind;
use crate::region::slices::DimSlices;
use crate::region::{ShardMap, ShardMapValue, numbers};

impl ShardMap<'_> {
    /// The same value, something else along an axis: given back as one thing and taken as another.
    fn between(
        &mut self,
        value: &ShardMapValue,
        axis: usize,
        from: &Along,
        to: Along,
        name: Option<&str>,
    ) -> Result<ShardMapValue, Error> {
        let called = self.graph.name(value.value).to_owned();
        let left = self.leave(value, &[(axis, from.clone())], &called)?;
        self.enter(&left, &[(axis, to)], name)
    }

    /// In what the moves of a region travel from here on: in elements of a [narrower type](crate::Graph::moved_via), or as they are.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::{Elaborator, Graph, Rates};
    /// let mut graph: Graph = "mesh tp=2\nx: f32[8,16] S(1)\nw: f32[16,32] S(0)".parse()?;
    /// let (x, w) = (graph.value("x").unwrap(), graph.value("w").unwrap());
    /// graph.local(&["tp"], &[(x, "S(1)"), (w, "S(0)")], &["S(0)"], |region, v| {
    ///     let h = region.op("mm", &[&v[0], &v[1]])?;
    ///     Ok(vec![region.via(Some(DType::BF16)).reduce_scatter(&h, "tp", 0)?])
    /// })?;
    /// let report = Elaborator::new().elaborate(&graph)?.report(&Rates::uniform());
    /// // Four rows of 32 numbers of two bytes.
    /// assert_eq!(report.traffic.forward.received_bytes, 4 * 32 * 2);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    pub fn comm_dtype(&mut self, wire: Option<DType>) -> &mut Self {
        self.wire = wire;
        self
    }

    /// The sum over the coordinates of an axis on all of them: as `R`, or as `I` where all do the same with it.
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
        self.between(value, axis, &Along::Terms, to, name)
    }

    /// What the coordinates of an axis have, as the parts of a dim, on all of them: one after the other, where only the dim is said.
    pub fn all_gather(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        parts: impl Into<DimSlices>,
        to: &str,
    ) -> Result<ShardMapValue, Error> {
        self.all_gathered(value, axis, parts.into(), to, None)
    }

    /// What the coordinates of an axis have, along a new dim, on all of them.
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

    /// The sum over the coordinates of an axis, of which each gets its part of a dim.
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
        self.between(value, axis, &Along::Terms, parts.along(), name)
    }

    /// Each coordinate of an axis cuts a dim into a part for each, and puts what it gets of all together as the parts of another.
    pub fn all_to_all(
        &mut self,
        value: &ShardMapValue,
        axis: &str,
        split: impl Into<DimSlices>,
        concat: impl Into<DimSlices>,
    ) -> Result<ShardMapValue, Error> {
        self.exchanged(value, axis, split.into(), concat.into(), None)
    }

    /// Each coordinate of an axis sends each other so many indices of a dim: the first that it has, in the order of whom they are for.
    ///
    /// Row `i` of the counts says what coordinate `i` has for each. What a coordinate gets, in the order of whom it is from, are the first indices of
    /// the result, which has room for so many, or for the most that one gets, and zeros behind. Exactly these move, also backward.
    ///
    /// Errors: counts of another number of coordinates, more than a coordinate has or has room for.
    ///
    /// ```
    /// use reshard_program::{Elaborator, Graph};
    /// use reshard_sharding::Counts;
    /// let mut graph: Graph = "mesh ep=2\nx: f32[8,3] S(0)".parse()?;
    /// let x = graph.value("x").unwrap();
    /// let counts = Counts::new(&[vec![1, 3], vec![2, 0]])?;
    /// graph.local(&["ep"], &[(x, "S(0)")], &["S(0)"], |region, v| {
    ///     let tokens = region.all_to_all_by_counts(&v[0], "ep", 0, &counts, Some(6))?;
    ///     assert_eq!(region.shape(&tokens), [6, 3]);
    ///     Ok(vec![tokens])
    /// })?;
    /// let program = Elaborator::new().elaborate(&graph)?;
    /// // Three rows go to the second rank, and two to the first.
    /// assert_eq!(program.moves().map(|m| m.forward.received_bytes()).max(), Some(3 * 3 * 4));
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

    /// Makes `R`, `I` and `P` of each other, and shards of them: what the same value is along an axis.
    pub fn convert(&mut self, value: &ShardMapValue, axis: &str, to: &str) -> Result<ShardMapValue, Error> {
        let axis = self.axis(axis)?;
        let to = self.word(self.graph.name(value.value), axis, to)?;
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
            Some(Kind::Different) => Along::Different,
            Some(Kind::Same) => Along::Same,
            Some(Kind::Terms) => Along::Terms,
            Some(Kind::Varying(_)) if to == Along::Terms => {
                let made = self.summed(value, &[axis])?;
                return Ok(made);
            }
            Some(Kind::Varying(_)) | None => {
                return refused(format!(
                    "{} varies over {} and cannot be {to} by a move alone: all_reduce it, all_gather it, or say P for the terms of its sum",
                    self.graph.name(value.value),
                    self.axis_name(axis)
                ));
            }
        };
        self.between(value, axis, &from, to, name)
    }

    /// A value along the axes of the innermost region as these words say; `_` leaves it along an axis as it is.
    pub(crate) fn moved_as(
        &mut self,
        value: &ShardMapValue,
        axes: &[usize],
        text: &str,
        name: &str,
    ) -> Result<ShardMapValue, Error> {
        let said: Vec<&str> = outside_brackets(text).map(str::trim).collect();
        let words = if said.len() == axes.len() {
            let said = axes.iter().zip(&said).filter(|(_, word)| **word != "_");
            said.map(|(axis, word)| Ok((*axis, self.word(name, *axis, word)?)))
                .collect::<Result<Partly, Error>>()?
        } else {
            self.words(name, axes, text)?
        };
        let mut made = value.clone();
        let wanted = |made: &ShardMapValue, axis: usize, along: &Along| match (made.kind(axis), along) {
            (Some(Kind::Different), Along::Different)
            | (Some(Kind::Same), Along::Same)
            | (Some(Kind::Terms), Along::Terms) => false,
            (Some(_) | None, _) => true,
        };
        for (axis, along) in words {
            if wanted(&made, axis, &along) {
                made = self.moved_to(&made, axis, along, Some(name))?;
            }
        }
        Ok(made)
    }

    /// What the coordinate so many before has, around the axis: the roll of the coordinates.
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
                "{} is the same on all of {}: nothing is shifted; leave it out",
                self.graph.name(value.value),
                self.axis_name(axis)
            ));
        };
        let size = self.size(axis) as i64;
        let by = by.rem_euclid(size.max(1));
        if by == 0 {
            return Ok(value.clone());
        }
        let rolled = Along::Cut(Placement::rolled(at, by as usize));
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

    /// The number of each coordinate along an axis, a tensor without dims.
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
            self.axes.iter().map(|&a| (a, if a == axis { Kind::Varying(None) } else { Kind::Different }));
        let local = ShardMapValue { value: made[0], kinds: kinds.collect(), trained: false };
        self.by(Some(&local.value), [&local].into_iter());
        Ok(local)
    }

    fn replicas(&self, what: &str, axis: usize, text: &str) -> Result<Along, Error> {
        match self.word(what, axis, text)? {
            to @ (Along::Different | Along::Same) => Ok(to),
            Along::Terms | Along::Cut(_) => {
                refused(format!("{what} makes R or I of a value, and not {text}"))
            }
        }
    }
}
