//! Plans in two halves: their results, the order in which ranks reach exchanges, and unfinished plans.

use std::collections::VecDeque;
use std::time::Duration;

use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_collectives::{Batch, Communicator, CompiledPlan, Error, Exchange, ReturnedBuffers, Scratch};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner, Topology};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding};
use reshard_test_support::{Sweep, every};

use crate::pair::{shards, to_bytes};

/// Runs in halves each plan in which this rank takes part, with at most `window` in flight.
fn in_halves<C: Communicator<Buffer = [u8], Owned = Vec<u8>>>(
    comm: &mut C,
    all: &[(Option<CompiledPlan>, Vec<u8>)],
    window: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut memory = Vec::new();
    for (compiled, _) in all {
        let mut scratch = Scratch::new();
        compiled.iter().try_for_each(|compiled| compiled.reserve(comm, &mut scratch))?;
        memory.push((vec![0xa5; compiled.as_ref().map_or(0, CompiledPlan::target_bytes)], scratch));
    }
    let mut started = VecDeque::new();
    for ((compiled, source), (target, scratch)) in all.iter().zip(&mut memory) {
        if started.len() == window
            && let Some(Some(oldest)) = started.pop_front()
        {
            reshard_collectives::PendingRun::finish(oldest, comm)?;
        }
        let one = compiled.as_ref().map(|compiled| compiled.start(comm, source, target, scratch));
        started.push_back(one.transpose()?);
    }
    for one in started.into_iter().flatten() {
        one.finish(comm)?;
    }
    Ok(memory.into_iter().map(|(target, _)| target).collect())
}

/// Returns all placements of two axes on a shape of two dims, except averages.
fn lists() -> Vec<Vec<Placement>> {
    let strided = Placement::StridedShard { dim: 0, split_factor: 2 };
    let partial = Placement::Partial(ReduceOp::Sum);
    every(&[Placement::Replicate, Placement::Shard(0), Placement::Shard(1), strided, partial], 2)
}

#[test]
fn a_plan_in_two_halves_is_its_run_to_the_bit() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let mut world = World::new(4).unwrap();
    let mut checked = 0;
    for (shape, topology) in [([12, 12], Topology::uniform()), ([7, 5], Topology::h100())] {
        let lists = lists();
        let mut cases = Vec::new();
        for (n, (from, to)) in
            lists.iter().flat_map(|from| lists.iter().map(move |to| (from, to))).enumerate()
        {
            if !Sweep::asked().takes_one_in(7, n) {
                continue;
            }
            let [source, target] = [from, to].map(|list| Sharding::new(&mesh, &shape, list).unwrap());
            let plan = Planner::new().topology(topology.clone()).plan(&source, &target, DType::F32).unwrap();
            // Floats whose sum depends on the order.
            cases.push((plan, to_bytes(&shards::<f32>(&source, from))));
        }
        for window in [1, 2, 5] {
            let halves = world.run(|comm| {
                let ready = |(plan, shards): &(Plan, Vec<Vec<u8>>)| {
                    Ok((Some(CompiledPlan::new(plan, comm.rank())?), shards[comm.rank()].clone()))
                };
                let ready = cases.iter().map(ready).collect::<Result<Vec<_>, Error>>()?;
                in_halves(comm, &ready, window)
            });
            let halves: Vec<Vec<Vec<u8>>> = halves.into_iter().map(Result::unwrap).collect();
            for (n, (plan, shards)) in cases.iter().enumerate() {
                let (run, _) = world.redistribute(plan, shards).unwrap();
                for (rank, run) in run.iter().enumerate() {
                    assert!(halves[rank][n] == *run, "rank {rank}, {window} in flight: {plan}");
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "{checked}");
}

/// An engine that records posts and waits: the members, and the id of the exchange.
struct Noting<'c> {
    inner: &'c mut ThreadCommunicator,
    posts: Vec<(Vec<usize>, u64)>,
    waits: Vec<(Vec<usize>, u64)>,
    /// The greatest number of exchanges in flight.
    most: usize,
}

impl Communicator for Noting<'_> {
    type Buffer = [u8];
    type Owned = Vec<u8>;
    type Pending<'a> = (&'a Exchange, <ThreadCommunicator as Communicator>::Pending<'a>);

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn allocate(&self, bytes: usize) -> Result<Vec<u8>, Error> {
        self.inner.allocate(bytes)
    }

    fn check_agreement(&mut self, exchange: &Exchange) -> Result<(), Error> {
        self.inner.check_agreement(exchange)
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a [u8],
        target: &'a mut [u8],
        staging: &'a mut [u8],
    ) -> Result<Self::Pending<'a>, Error> {
        if !exchange.is_local() {
            self.posts.push((exchange.members().to_vec(), exchange.tag()));
            self.most = self.most.max(self.posts.len() - self.waits.len());
        }
        Ok((exchange, self.inner.post(exchange, source, target, staging)?))
    }

    fn wait<'a>(
        &mut self,
        (exchange, pending): Self::Pending<'a>,
    ) -> Result<ReturnedBuffers<'a, [u8]>, Error> {
        if !exchange.is_local() {
            self.waits.push((exchange.members().to_vec(), exchange.tag()));
        }
        self.inner.wait(pending)
    }
}

/// Returns plans on all ranks, on some, and from some to others, in one phase and in many.
fn mixed_plans() -> Vec<Plan> {
    let all: Mesh = "x=2,y=2".parse().unwrap();
    let (low, high): (Mesh, Mesh) = ("x=2".parse().unwrap(), "x=2@2".parse().unwrap());
    let three: Mesh = "x=3@1".parse().unwrap();
    let mut plans = Vec::new();
    for (n, (from, to, ends)) in [
        (&all, &all, ["P,P", "R,R"]),
        (&all, &all, ["R,S(1)", "S(0),R"]),
        (&low, &high, ["P", "R"]),
        (&all, &all, ["S(0),S(1)", "S(1),S(0)"]),
        (&low, &all, ["P", "S(0),R"]),
        (&all, &high, ["P,S(0)", "R"]),
        (&three, &three, ["P", "R"]),
        (&all, &low, ["P,R", "S(1)"]),
        (&high, &high, ["S(0)", "S(1)"]),
        (&three, &all, ["S(0)", "S(1),S(0)"]),
        (&all, &all, ["P,S(1)", "S(1),S(0)"]),
    ]
    .into_iter()
    .enumerate()
    {
        let [source, target] = [(from, ends[0]), (to, ends[1])]
            .map(|(mesh, text)| Sharding::parse(mesh, &[12 + n, 8], text).unwrap());
        plans.push(Planner::new().topology(Topology::h100()).plan(&source, &target, DType::F32).unwrap());
    }
    plans
}

/// Returns `true` if the common entries of any two ranks are in one order on both.
fn is_one_order(all: &[Vec<(Vec<usize>, u64)>]) -> bool {
    let common = |one: usize, other: usize| -> Vec<&(Vec<usize>, u64)> {
        all[one].iter().filter(|(members, _)| members.contains(&other)).collect()
    };
    (0..all.len()).all(|one| (0..one).all(|other| common(one, other) == common(other, one)))
}

#[test]
fn members_post_in_one_order_and_wait_in_one_order() {
    let plans = mixed_plans();
    let takes_part = |plan: &Plan, rank: usize| plan.ranks().contains(&rank);
    let mut batches = Vec::new();
    for start in 0..plans.len() {
        let chosen: Vec<&Plan> = (0..3).map(|n| &plans[(start + 4 * n) % plans.len()]).collect();
        let mut batch = Batch::new();
        for plan in &chosen {
            batch.add(*plan).unwrap();
        }
        batches.push((chosen, batch));
    }
    let mut most = 0;
    for window in [1, 2, 4, 30] {
        let logs = World::new(4).unwrap().run(|inner| {
            let rank = inner.rank();
            let mut all = Vec::new();
            for (n, plan) in plans.iter().enumerate() {
                all.push(takes_part(plan, rank).then(|| CompiledPlan::new(plan, rank)).transpose()?);
                let (chosen, batch) = &batches[n];
                let has_part = chosen.iter().any(|plan| takes_part(plan, rank));
                all.push(has_part.then(|| batch.compile(rank)).transpose()?);
            }
            let all: Vec<(Option<CompiledPlan>, Vec<u8>)> = all
                .into_iter()
                .map(|compiled| {
                    let bytes = compiled.as_ref().map_or(0, CompiledPlan::source_bytes);
                    (compiled, vec![0; bytes])
                })
                .collect();
            let mut comm = Noting { inner, posts: Vec::new(), waits: Vec::new(), most: 0 };
            in_halves(&mut comm, &all, window)?;
            Ok::<_, Error>((comm.posts, comm.waits, comm.most))
        });
        let (mut posts, mut waits) = (Vec::new(), Vec::new());
        for log in logs {
            let (its_posts, its_waits, in_flight) = log.unwrap();
            assert!(in_flight <= window && its_posts.len() == its_waits.len());
            most = most.max(in_flight);
            posts.push(its_posts);
            waits.push(its_waits);
        }
        assert!(is_one_order(&posts), "{window} in flight, posts: {posts:?}");
        assert!(is_one_order(&waits), "{window} in flight, waits: {waits:?}");
    }
    assert!(most > 10, "at most {most} in flight");
}

fn sum(n: usize) -> Plan {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, &[n], text).unwrap();
    Planner::new().plan(&parse("P"), &parse("R"), DType::U8).unwrap()
}

#[test]
fn a_started_plan_that_nobody_finishes_is_missing_to_others() {
    let plan = sum(1 << 16);
    let mut world = World::new(2).unwrap();
    for leaks in [false, true] {
        let results = world.run(|comm| {
            let compiled = CompiledPlan::new(&plan, comm.rank())?;
            let mut scratch = compiled.scratch(comm)?;
            let (source, mut target) = (vec![1; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
            let started = compiled.start(comm, &source, &mut target, &mut scratch)?;
            match (comm.rank(), leaks) {
                (0, false) => drop(started),
                (0, true) => _ = Box::leak(Box::new(started)),
                (_, _) => started.finish(comm)?,
            }
            Ok::<_, Error>(())
        });
        assert!(results[0].is_ok());
        let error = results[1].as_ref().unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank: 0, .. }), "{error}");
        // All ranks may drop it, and the world stays usable.
        let results = world.run(|comm| {
            let compiled = CompiledPlan::new(&plan, comm.rank())?;
            let mut scratch = compiled.scratch(comm)?;
            let (source, mut target) = (vec![1; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
            drop(compiled.start(comm, &source, &mut target, &mut scratch)?);
            compiled.run(comm, &source, &mut target, &mut scratch)?;
            Ok::<_, Error>(target)
        });
        assert!(results.into_iter().all(|target| target.unwrap() == vec![2; 1 << 16]));
    }
}

#[test]
fn the_errors_of_halves_are_those_of_runs() {
    let (little, much) = (sum(4), sum(1 << 16));
    let results = World::new(2).unwrap().run(|comm| {
        let (little, much) =
            (CompiledPlan::new(&little, comm.rank())?, CompiledPlan::new(&much, comm.rank())?);
        let foreign = CompiledPlan::new(&sum(4), 1 - comm.rank())?;
        let (source, mut target) = (vec![1; much.source_bytes()], vec![0; much.target_bytes()]);
        let mut reserved = much.scratch(comm)?;
        let (mut short, mut other) = (little.scratch(comm)?, little.scratch(comm)?);
        let mut count = 0;
        for (compiled, source, scratch) in [
            (&much, &source[..], &mut Scratch::new()),
            (&much, &source[..], &mut short),
            (&much, &source[1..], &mut reserved),
            (&foreign, &source[..], &mut other),
        ] {
            let run = compiled.run(comm, source, &mut target, scratch).unwrap_err();
            let halves = compiled.start(comm, source, &mut target, scratch).and_then(|one| one.finish(comm));
            assert_eq!(halves.unwrap_err(), run);
            count += 1;
        }
        // Nothing has begun.
        let started = much.start(comm, &source, &mut target, &mut reserved)?;
        started.finish(comm)?;
        Ok::<_, Error>((count, target))
    });
    assert!(results.into_iter().all(|result| result.unwrap() == (4, vec![2; 1 << 16])));
}
