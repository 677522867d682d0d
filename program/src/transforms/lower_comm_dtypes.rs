//! Lowers redistributions in a communication dtype to casts, a redistribution and sums. See `wire.rs`.
//!
//! ```text
//! y: S(1) via bf16 = x              y: S(0) via bf16 = x, with x partial over n ranks
//!
//! y.sent  = cast(x)                 y.terms = x as [n, ..] S(0): a view, one partial value per rank
//! y.got: S(1) = y.sent              y.sent  = cast(y.terms)
//! y = cast(y.got)                   y.got: the shard of y, of all n = y.sent
//!                                   y.wide  = cast(y.got)
//!                                   y = sum(y.wide, dims=[0])
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::propagate::TypedStrategy;
use reshard_ops::rules::{Argument, OpCall};
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Sharding, ShardingType};

use crate::Error;
use crate::comm_dtype::{Way, is_narrower};
use crate::graph::ValueId;
use crate::program::{Program, Statement};

impl Program {
    /// Returns the program in which redistributions in a communication dtype are lowered.
    ///
    /// They become casts, redistributions in the narrower dtype, and sums in the dtype of the values.
    ///
    /// Schedules, traces and peaks are those of this program. Its per-rank partial values are not values of
    /// one device, so its text cannot be parsed as a program.
    ///
    /// ```
    /// use reshard_program::{Statement, Program};
    /// let program: Program = "mesh dp=2\nx: f32[64,8] S(0)\nt = sum(x, dims=[0])\ny: S(0) via bf16 = t".parse()?;
    /// let wired = program.lower_comm_dtypes()?;
    /// let lines = wired.statements().iter().filter_map(|item| match item {
    ///     Statement::Op { call, outputs, .. } => Some(format!("{} = {call}", wired.get(outputs[0]).name)),
    ///     Statement::Redistribute { to, .. } => Some(format!("{} is moved", wired.get(*to).name)),
    ///     Statement::Input(_) | Statement::NoGrad => None,
    /// });
    /// assert_eq!(lines.collect::<Vec<_>>(), [
    ///     "t = sum(dims=[0])",
    ///     "y.terms is moved",
    ///     "y.sent = cast(dtype=bf16)",
    ///     "y.got is moved",
    ///     "y.wide = cast(dtype=f32)",
    ///     "y = sum(dims=[0])",
    /// ]);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error only if a tensor has more elements than can be counted.
    pub fn lower_comm_dtypes(&self) -> Result<Cow<'_, Program>, Error> {
        let is_wired = |item: &Statement| self.travels(item).is_some();
        if !self.statements().iter().any(is_wired) {
            return Ok(Cow::Borrowed(self));
        }
        let mut made = self.clone();
        made.statements = Vec::with_capacity(self.statements().len());
        for item in self.statements() {
            match (item, self.travels(item)) {
                (Statement::Redistribute { from, to, forward, .. }, Some(via)) => {
                    Wire { program: &mut made, to: *to }.carry(*from, forward, via)?;
                }
                (
                    Statement::Input(_)
                    | Statement::Op { .. }
                    | Statement::Redistribute { .. }
                    | Statement::NoGrad,
                    _,
                ) => {
                    made.statements.push(item.clone());
                }
            }
        }
        Ok(Cow::Owned(made))
    }

    /// Returns the communication dtype of a statement, if it is narrower than the dtype of the value.
    pub(crate) fn travels(&self, item: &Statement) -> Option<DType> {
        match item {
            Statement::Redistribute { to, forward, via, .. } => {
                via.filter(|via| forward.dtype() == *via && is_narrower(*via, self.get(*to).dtype))
            }
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        }
    }
}

/// A redistribution that is being lowered.
struct Wire<'a> {
    program: &'a mut Program,
    /// The result of the redistribution.
    to: ValueId,
}

impl Wire<'_> {
    fn carry(&mut self, from: ValueId, plan: &Arc<Plan>, via: DType) -> Result<(), Error> {
        let [source, target] = [from, self.to].map(|v| self.program.get(v).clone());
        match Way::of(&source.ty.value, &target.ty.value)? {
            Way::Alone | Way::Narrow => {
                let sent = self.cast(from, "sent", via)?;
                let got = self.moved(sent, "got", &target.ty.value, plan);
                self.call(OpCall::new("cast"), got, self.to)
            }
            Way::Terms(slices) => {
                let [slices, parts] = *slices;
                // A view of each rank's own partial value: its bytes are unchanged.
                let none = Planner::from(plan.options().clone()).plan(&slices, &slices, source.dtype)?;
                let terms = self.moved(from, "terms", &slices, &Arc::new(none));
                let sent = self.cast(terms, "sent", via)?;
                let got = self.moved(sent, "got", &parts, plan);
                let wide = self.cast(got, "wide", target.dtype)?;
                let sum = OpCall::new("sum").with("dims", Argument::Numbers(vec![0]));
                self.call(sum, wide, self.to)
            }
        }
    }

    /// Adds an intermediate value, which has no gradient.
    fn value(&mut self, word: &str, dtype: DType, is: Sharding) -> ValueId {
        let mut name = format!("{}.{word}", self.program.get(self.to).name);
        while self.program.value(&name).is_some() {
            name.push('\'');
        }
        self.program.add(&name, dtype, ShardingType::new(is, None))
    }

    fn moved(&mut self, from: ValueId, word: &str, is: &Sharding, plan: &Arc<Plan>) -> ValueId {
        let to = self.value(word, self.program.get(from).dtype, is.clone());
        self.program.statements.push(Statement::Redistribute {
            from,
            to,
            forward: Arc::clone(plan),
            backward: None,
            via: None,
        });
        to
    }

    fn cast(&mut self, from: ValueId, word: &str, dtype: DType) -> Result<ValueId, Error> {
        let is = self.program.get(from).ty.value.clone();
        let to = self.value(word, dtype, is);
        self.call(OpCall::new("cast"), from, to)?;
        Ok(to)
    }

    /// Adds a call on the shards of a value, in which each rank computes its shard of another value.
    fn call(&mut self, call: OpCall, from: ValueId, to: ValueId) -> Result<(), Error> {
        let [takes, makes] = [from, to].map(|v| self.program.get(v));
        let call = match call.name() {
            Some("cast") => call.with("dtype", Argument::Word(makes.dtype.name().to_owned())),
            Some(_) | None => call,
        };
        let op = self.program.table.op(&call, &[takes.shape()])?;
        let all = takes.shape().iter().map(|&n| n as f64).product::<f64>();
        let share = if all > 0.0 { takes.ty.value.max_local_numel() as f64 / all } else { 0.0 };
        let without_gradient = |is: &ShardingType| is.clone().without_gradient();
        let strategy = TypedStrategy {
            inputs: vec![without_gradient(&takes.ty).into()],
            outputs: vec![without_gradient(&makes.ty).into()],
            rows: Arc::default(),
            work_fraction: share,
            region: false,
        };
        let operations = op.operations() * share;
        self.program.statements.push(Statement::Op {
            call,
            op,
            inputs: vec![from],
            outputs: vec![to],
            strategy: Arc::new(strategy),
            operations,
            is_view: false,
        });
        Ok(())
    }
}
