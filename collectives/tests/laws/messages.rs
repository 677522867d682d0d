//! A third-party engine: ranks that share no memory and send messages through channels. It shows that the
//! contract needs no view of a peer's buffer, and checks packing and unpacking against the threads engine.

use std::thread;

use crate::mailbox::{Habit, Mailbox};
use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_conformance::ContractOptions;
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;

/// Runs a plan with a thread and a mailbox for each rank.
fn by_mail(plan: &Plan, shards: &[Vec<u8>]) -> Vec<Vec<u8>> {
    thread::scope(|scope| {
        let run = |(mut mailbox, shard): (Mailbox, &'_ Vec<u8>)| {
            let shard = shard.clone();
            scope.spawn(move || {
                let compiled = CompiledPlan::new(plan, mailbox.rank())?;
                let mut scratch = compiled.scratch(&mut mailbox)?;
                let mut target = vec![0; compiled.target_bytes()];
                compiled.run(&mut mailbox, &shard, &mut target, &mut scratch)?;
                Ok::<_, Error>(target)
            })
        };
        let ranks: Vec<_> =
            Mailbox::all(shards.len(), Habit::Sound).into_iter().zip(shards).map(run).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
    })
}

#[test]
fn messages_and_shared_memory_agree() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let mut world = World::new(6).unwrap();
    let texts = ["R,R", "S(0),S(1)", "S(1),S(0)", "SS(0,3),S(0)", "P,S(0)", "S(1),P", "P,P", "R,S(1)"];
    for shape in [&[12, 18][..], &[7, 5], &[1200, 900]] {
        // The large one, in which ranks read from each other before all have arrived, with few pairs.
        let texts = if shape[0] > 1000 { &texts[1..5] } else { &texts[..] };
        for from in texts {
            for to in texts {
                let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
                let (source, target) = (parse(from), parse(to));
                let plan = Planner::new().plan(&source, &target, DType::F32).unwrap();
                // Replicas must agree, so the data depends on the global index only.
                let shard = |rank: usize| {
                    let held = source.global_indices(rank).unwrap();
                    held.into_iter()
                        .flat_map(|e| (0.1f32 + e as f32 * 1.7).to_ne_bytes())
                        .collect::<Vec<u8>>()
                };
                let shards: Vec<Vec<u8>> = mesh.ranks().map(shard).collect();
                let (want, _) = world.redistribute(&plan, &shards).unwrap();
                assert!(by_mail(&plan, &shards) == want, "{from} -> {to} of {shape:?}");
            }
        }
    }
}

/// Returns the contract failures of ranks with a habit: for each rank its failure, if it saw one.
fn contract_of(
    habit: Habit,
    ranks: usize,
    options: ContractOptions,
) -> Vec<Option<reshard_conformance::Failure>> {
    failures(Mailbox::all(ranks, habit), options)
}

/// Returns the contract failures of these ranks: for each its failure, if it saw one.
pub(crate) fn failures(
    ranks: Vec<Mailbox>,
    options: ContractOptions,
) -> Vec<Option<reshard_conformance::Failure>> {
    let check = move |mut mailbox: Mailbox| reshard_conformance::check(&mut mailbox, &options).err();
    let threads: Vec<_> = ranks.into_iter().map(|mailbox| thread::spawn(move || check(mailbox))).collect();
    threads.into_iter().map(|rank| rank.join().unwrap()).collect()
}

#[test]
fn a_mailbox_keeps_the_contract() {
    // Everything with few ranks; a sample of the pairs of shardings with many, and a greater one in an
    // exhaustive run.
    let some = ContractOptions { every: Sweep::asked().one_in(4), ..ContractOptions::default() };
    for (ranks, options) in [
        (1, ContractOptions::default()),
        (3, some),
        (2, ContractOptions::quick()),
        (5, ContractOptions::quick()),
        (8, ContractOptions::quick()),
    ] {
        let failure = contract_of(Habit::Sound, ranks, options).into_iter().flatten().next();
        assert_eq!(failure, None, "{ranks} ranks");
    }
}

#[test]
fn a_rank_that_never_comes_to_a_barrier_is_named() {
    for missing in 0..3 {
        let check = move |mut mailbox: Mailbox| {
            mailbox.set_time_out(std::time::Duration::from_millis(200));
            reshard_conformance::check_missing(&mut mailbox, missing)
        };
        let mailboxes = Mailbox::all(3, Habit::Sound).into_iter();
        let ranks: Vec<_> = mailboxes.map(|mailbox| thread::spawn(move || check(mailbox))).collect();
        assert!(ranks.into_iter().all(|rank| rank.join().unwrap() == Ok(())));
    }
}

#[test]
fn every_wrong_habit_is_caught() {
    // In a sample, with the fewest pairs of shardings that detect each.
    let every = if Sweep::asked().is_exhaustive() { ContractOptions::quick().every } else { 131 };
    for habit in Habit::WRONG {
        let failures: Vec<_> = contract_of(habit, 4, ContractOptions { every, ..ContractOptions::quick() })
            .into_iter()
            .flatten()
            .collect();
        assert!(!failures.is_empty(), "{habit:?} is not detected");
        println!("{habit:?}: {} of 4 ranks detect it: {}", failures.len(), failures[0]);
    }
}
