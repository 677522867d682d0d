//! Plans in two halves: the result equals that of running the plan, also with others in flight.

use std::borrow::{Borrow, BorrowMut};
use std::collections::VecDeque;

use reshard_sharding::ReduceOp;

use super::data::{Kind, Tensor};
use super::plans::{DENSE, meshes, title};
use super::{Failure, Suite};
use reshard_collectives::{Communicator, CompiledPlan, Error, PendingRun};

/// Source and target placements, each on the first axis and on the others.
///
/// They are copied and reduced, in one phase and in several, with a slice before them.
const PLANS: [([&str; 2], [&str; 2]); 8] = [
    (["P", "P"], ["R", "R"]),
    (["S(0)", "S(0)"], ["S(1)", "S(1)"]),
    (["P", "P"], ["S(0)", "S(0)"]),
    (["R", "S(1)"], ["S(0)", "R"]),
    (["P", "S(0)"], ["S(1)", "S(0)"]),
    (["R", "R"], ["S(0)", "S(1)"]),
    (["S(1)", "R"], ["R", "R"]),
    (["P", "R"], ["R", "S(0)"]),
];

/// Numbers of plans in flight at a time.
const WINDOWS: [usize; 3] = [1, 3, PLANS.len()];

impl<C: Communicator> Suite<'_, C> {
    /// Tests plans that are started and finished.
    pub(super) fn started(&mut self) -> Result<(), Failure> {
        for mesh in self.planned(meshes(self.size))? {
            let axes = mesh.axes().len();
            let on_axes = |[first, others]: [&str; 2]| {
                (0..axes).map(|axis| if axis == 0 { first } else { others }).collect::<Vec<_>>().join(",")
            };
            for (n, window) in WINDOWS.into_iter().enumerate() {
                let (kind, shape) =
                    [(Kind::F32, &[12usize, 24][..]), (Kind::BF16, &[7, 5]), (Kind::I64, &[2, 3])][n];
                let mut plans = Vec::new();
                for (from, to) in PLANS {
                    plans.push(self.plan(&mesh, shape, kind, &on_axes(from), &on_axes(to))?);
                }
                let tensors: Vec<Tensor<'_>> = plans
                    .iter()
                    .zip(self.options.seed..)
                    .map(|(plan, seed)| {
                        let op = plan.from().is_partial().then_some(ReduceOp::Sum);
                        Tensor { sharding: plan.from(), kind, seed, op, in_order: false }
                    })
                    .collect();
                let what = format!("{window} plans in flight");
                let takes_part = mesh.contains(self.rank);
                let (mut run, mut halves) = (vec![Vec::new(); plans.len()], vec![Vec::new(); plans.len()]);
                if takes_part {
                    let mut ready = Vec::new();
                    for (plan, tensor) in plans.iter().zip(&tensors) {
                        let compiled = self.planned(CompiledPlan::new(plan, self.rank))?;
                        ready.push((compiled, self.planned(tensor.shard(self.rank))?));
                    }
                    run = self.run_each(&ready).map_err(|error| self.broken("run as a whole", error))?;
                    let results = self.run_in_halves(&ready, window);
                    halves = results.map_err(|error| self.broken(&what, error))?;
                }
                for (((plan, tensor), run), halves) in plans.iter().zip(&tensors).zip(run).zip(halves) {
                    let title = format!("{}, {what}", title(plan, kind, DENSE));
                    if run != halves {
                        self.wrong(format!("{title}: start and finish give another result than run"));
                    }
                    self.judge(plan, tensor, halves, takes_part, &title)?;
                }
            }
        }
        Ok(())
    }

    fn run_each(&mut self, ready: &[(CompiledPlan, Vec<u8>)]) -> Result<Vec<Vec<u8>>, Error> {
        let run =
            |(compiled, source): &(CompiledPlan, Vec<u8>)| self.run(compiled, std::slice::from_ref(source));
        Ok(ready.iter().map(run).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Starts each plan, and finishes the oldest before more than `window` are in flight.
    fn run_in_halves(
        &mut self,
        ready: &[(CompiledPlan, Vec<u8>)],
        window: usize,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut memory = Vec::new();
        for (compiled, source) in ready {
            let target = self.buffer(&vec![0xa5; compiled.target_bytes()])?;
            memory.push((self.buffer(source)?, target, compiled.scratch(self.comm)?));
        }
        let mut started = VecDeque::new();
        for ((compiled, _), (source, target, scratch)) in ready.iter().zip(&mut memory) {
            if started.len() >= window
                && let Some(oldest) = started.pop_front()
            {
                PendingRun::finish(oldest, self.comm)?;
            }
            started.push_back(compiled.start(self.comm, (*source).borrow(), target.borrow_mut(), scratch)?);
        }
        for one in started {
            one.finish(self.comm)?;
        }
        let loaded = ready.iter().zip(&memory);
        loaded.map(|((compiled, _), (_, target, _))| self.bytes(target, compiled.target_bytes())).collect()
    }
}
