//! One faulty communicator among correct ones: the contract detects every fault, on some rank, and every rank
//! ends.
//!
//! The faulty rank is a [`Mailbox`] with a wrong habit. If the others can see the fault, they must detect it:
//! a faulty rank that checks itself could also report a wrong result.

use std::time::{Duration, Instant};

use reshard_conformance::{ContractOptions, Failure};

use crate::mailbox::{Habit, Mailbox};
use crate::messages::failures;

/// The faulty rank, of four.
const LIAR: usize = 2;

/// Returns the failure that each rank of four sees with a faulty rank.
fn seen(lie: Habit) -> Vec<Option<Failure>> {
    let mut ranks = Mailbox::all(4, Habit::Sound);
    for rank in &mut ranks {
        // No rank waits long for a missing one, unless lateness is the fault.
        rank.set_time_out(Duration::from_secs(if lie == Habit::TooLate { 1 } else { 5 }));
    }
    ranks[LIAR].set_habit(lie);
    let begin = Instant::now();
    let seen = failures(ranks, ContractOptions::quick());
    assert!(begin.elapsed() < Duration::from_mins(2), "{lie:?} took {:?}", begin.elapsed());
    seen
}

/// Checks that the fault shows in the faulty rank's own shard, and that the check of that shard detects it.
#[track_caller]
fn shows_in_its_results(lie: Habit) {
    let seen = seen(lie);
    let failure = seen[LIAR].as_ref().unwrap_or_else(|| panic!("{lie:?} is not detected"));
    assert_eq!(failure.rank, LIAR);
}

/// Checks that the others detect the fault, by an error or by the received data.
#[track_caller]
fn shows_to_the_others(lie: Habit) -> Vec<Failure> {
    let others = seen(lie).into_iter().enumerate().filter(|(rank, _)| *rank != LIAR);
    let failures: Vec<Failure> = others.filter_map(|(_, failure)| failure).collect();
    assert!(!failures.is_empty(), "{lie:?} is not detected");
    failures
}

#[test]
fn success_without_doing_anything_is_caught() {
    shows_in_its_results(Habit::SaysDone);
}

#[test]
fn a_reduction_that_drops_a_rank_is_caught() {
    shows_in_its_results(Habit::DropsARank);
}

#[test]
fn data_delivered_twice_is_caught() {
    shows_in_its_results(Habit::Twice);
}

#[test]
fn data_of_the_run_before_is_caught() {
    shows_in_its_results(Habit::OneBehind);
}

#[test]
fn a_target_that_is_written_once_only_is_caught() {
    shows_in_its_results(Habit::StaleTarget);
}

#[test]
fn other_data_is_caught() {
    shows_in_its_results(Habit::OtherData);
}

#[test]
fn another_ranks_data_is_caught() {
    shows_in_its_results(Habit::WrongPeer);
}

#[test]
fn a_lost_byte_is_caught() {
    shows_in_its_results(Habit::LosesLastByte);
}

#[test]
fn wrong_counts_are_caught_by_those_who_receive_them() {
    let failures = shows_to_the_others(Habit::ShortLetters);
    let short = |failure: &Failure| failure.error.as_ref().is_some_and(|error| error.code() == "buffer");
    assert!(failures.iter().any(short), "{failures:?}");
}

#[test]
fn a_rank_that_comes_too_late_is_named_by_the_others() {
    let failures = shows_to_the_others(Habit::TooLate);
    let named =
        |failure: &Failure| failure.error.as_ref().and_then(|error| error.failed_rank()) == Some(LIAR);
    assert!(failures.iter().any(named), "{failures:?}");
}

#[test]
fn a_wrong_fingerprint_is_named_by_the_others() {
    let failures = shows_to_the_others(Habit::WrongFingerprint);
    for failure in &failures {
        let error = failure.error.as_ref().unwrap();
        assert_eq!((error.code(), error.failed_rank()), ("mismatch", Some(LIAR)), "{failure}");
    }
    assert_eq!(failures.len(), 3);
}

#[test]
fn a_rank_that_agrees_to_everything_is_caught() {
    assert!(seen(Habit::NeverAgrees).iter().any(Option::is_some));
}

#[test]
fn a_rank_that_leaves_a_barrier_early_is_caught() {
    assert!(seen(Habit::NeverMeets).iter().any(Option::is_some));
}
