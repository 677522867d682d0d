//! What can go wrong when a plan is compiled or carried out.

use std::fmt;
use std::time::Duration;

use reshard_kernels::DType;

/// Where something happened: the step of a plan, or a meeting, and the ranks that take part in it with the rank that tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of the step in the plan; `None` where ranks meet without one, as in
    /// [`barrier`](crate::Communicator::barrier).
    pub step: Option<usize>,
    /// The ranks of the group, ascending.
    pub group: Vec<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step} of group ")?,
            None => write!(f, "a meeting of group ")?,
        }
        show_group(&self.group, f)
    }
}

/// The first ranks of a group, and how many there are.
fn show_group(group: &[usize], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown: Vec<String> = group.iter().take(16).map(usize::to_string).collect();
    let more = if group.len() > 16 { format!(",.. ({} ranks)", group.len()) } else { String::new() };
    write!(f, "[{}{more}]", shown.join(","))
}

/// Why a plan was not compiled or not carried out; displays as one sentence that names ranks and values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The sharding crate refused.
    Sharding(reshard_sharding::Error),
    /// The planner refused.
    Planner(reshard_planner::Error),
    /// The kernels refused.
    Kernel(reshard_kernels::Error),
    /// The layout crate refused.
    Layout(reshard_layout::Error),
    /// The rank takes no part in the plan.
    NotInPlan {
        /// The rank.
        rank: usize,
    },
    /// Ranks that cannot meet as a group.
    Group {
        /// The rank that asked.
        rank: usize,
        /// The group.
        group: Vec<usize>,
        /// What is wrong with it, as a clause.
        message: String,
    },
    /// Ranks that cannot be a framework's group.
    Offer {
        /// What the framework calls it.
        name: String,
        /// What is wrong with it, as a clause.
        message: String,
    },
    /// A memory layout that does not fit the local shape.
    Memory {
        /// The rank.
        rank: usize,
        /// What does not fit, as a sentence.
        message: String,
    },
    /// A text that does not say how buffers lie in memory.
    Parse {
        /// The text.
        input: String,
        /// What is wrong with it, and what would be right, as a clause.
        message: String,
    },
    /// A buffer is too short, or the number of buffers is wrong.
    Buffer {
        /// The rank.
        rank: usize,
        /// `source`, `target`, `first scratch buffer`, `second scratch buffer`, `staging` or `message`.
        which: &'static str,
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are there.
        given: usize,
    },
    /// Shards of another type than the plan's.
    DType {
        /// The type of the plan's elements.
        needed: DType,
        /// The type of the shards' items.
        given: DType,
    },
    /// Not one shard for every rank.
    ShardCount {
        /// Ranks of the source mesh.
        needed: usize,
        /// Shards given.
        given: usize,
    },
    /// Not one target for every rank.
    TargetCount {
        /// Ranks of the target mesh.
        needed: usize,
        /// Targets given.
        given: usize,
    },
    /// Not one list of shards for every tensor of a batch.
    TensorCount {
        /// Tensors of the batch.
        needed: usize,
        /// Lists given.
        given: usize,
    },
    /// A tensor that the batch does not have.
    NoTensor {
        /// The index that was asked for.
        tensor: usize,
        /// Tensors of the batch.
        tensors: usize,
    },
    /// The engine has too few ranks for the plan.
    WorldTooSmall {
        /// Ranks that the plan needs: one more than its greatest rank.
        needed: usize,
        /// Ranks of the engine.
        given: usize,
    },
    /// A phase that cannot be carried out as it is written.
    Phase {
        /// The step.
        step: usize,
        /// What is wrong with it, as a sentence.
        message: String,
    },
    /// Ranks whose calls are not alike but for offsets, so that they are no one program.
    PlanMismatch {
        /// The step.
        step: usize,
        /// What is not alike, as a sentence.
        message: String,
    },
    /// Another rank panicked, returned an error or left, and so this one could not go on.
    RankFailed {
        /// The rank that failed.
        rank: usize,
        /// What happened to it.
        reason: String,
        /// Where the rank that tells was waiting for it; `None` if it was not.
        place: Option<Location>,
    },
    /// This rank panicked.
    Panicked {
        /// The rank.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A rank did not come in time.
    TimedOut {
        /// The first rank that is missing.
        rank: usize,
        /// Where it was expected.
        place: Location,
        /// How long it was waited for.
        after: Duration,
    },
    /// Two ranks are carrying out different plans.
    Mismatch {
        /// The other rank.
        rank: usize,
        /// Where that was noticed.
        place: Location,
    },
    /// A group was met that has not yet agreed on a plan, by an engine that keeps something for each group.
    NotAgreed {
        /// This rank.
        rank: usize,
        /// Where that was noticed.
        place: Location,
    },
    /// A receiver counted other bytes than the sender.
    Trace {
        /// The step.
        step: usize,
        /// Who received.
        receiver: usize,
        /// Who sent.
        sender: usize,
        /// Bytes that landed.
        received: u64,
        /// Bytes that were sent.
        sent: u64,
    },
    /// Threads could not be started.
    Threads {
        /// What the operating system said.
        message: String,
    },
    /// The library that an engine stands on refused or failed.
    Engine {
        /// This rank.
        rank: usize,
        /// What was called and what came of it, as a sentence.
        message: String,
    },
    /// A failure that was asked for, to see what the others make of it.
    InjectedFault {
        /// The rank that fails.
        rank: usize,
        /// The step in which it fails.
        step: usize,
    },
}

impl Error {
    /// One stable word for the kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Sharding(error) => error.code(),
            Error::Planner(error) => error.code(),
            Error::Kernel(error) => error.code(),
            Error::Layout(_) | Error::Memory { .. } => "memory",
            Error::Parse { .. } => "parse",
            Error::NotInPlan { .. }
            | Error::WorldTooSmall { .. }
            | Error::Group { .. }
            | Error::Offer { .. } => "rank",
            Error::Buffer { .. }
            | Error::ShardCount { .. }
            | Error::TargetCount { .. }
            | Error::TensorCount { .. }
            | Error::NoTensor { .. } => "buffer",
            Error::DType { .. } => "dtype",
            Error::Phase { .. } => "phase",
            Error::PlanMismatch { .. } => "not_alike",
            Error::RankFailed { .. } | Error::Panicked { .. } | Error::InjectedFault { .. } => "rank_failed",
            Error::TimedOut { .. } => "timed_out",
            Error::Mismatch { .. } => "mismatch",
            Error::NotAgreed { .. } => "not_agreed",
            Error::Trace { .. } => "trace",
            Error::Threads { .. } => "threads",
            Error::Engine { .. } => "engine",
        }
    }

    /// The rank that failed and what happened to it, for those who are told by a `rank` that got this error.
    ///
    /// Of what that rank was told itself this is the first cause: an error never stands in itself.
    pub(crate) fn cause(&self, rank: usize) -> (usize, String) {
        self.failure().unwrap_or_else(|| (rank, self.to_string()))
    }

    /// The rank whose failure this is about, if it is about one.
    pub fn failed_rank(&self) -> Option<usize> {
        self.failure().map(|(rank, _)| rank)
    }

    /// The rank whose failure this is about and what happened to it, if it is about one.
    fn failure(&self) -> Option<(usize, String)> {
        match self {
            Error::RankFailed { rank, reason, .. } => Some((*rank, reason.clone())),
            Error::Panicked { rank, message } => Some((*rank, format!("it panicked: {message}"))),
            Error::TimedOut { rank, place, after } => {
                Some((*rank, format!("it did not come to {place} within {after:?}")))
            }
            Error::Mismatch { rank, place } => {
                Some((*rank, format!("it carries out another plan in {place}")))
            }
            Error::InjectedFault { rank, step } => {
                Some((*rank, format!("a failure was planted in step {step}")))
            }
            Error::Sharding(_)
            | Error::Planner(_)
            | Error::Kernel(_)
            | Error::Layout(_)
            | Error::NotInPlan { .. }
            | Error::Group { .. }
            | Error::Offer { .. }
            | Error::Memory { .. }
            | Error::Parse { .. }
            | Error::Buffer { .. }
            | Error::DType { .. }
            | Error::ShardCount { .. }
            | Error::TargetCount { .. }
            | Error::TensorCount { .. }
            | Error::NoTensor { .. }
            | Error::WorldTooSmall { .. }
            | Error::Phase { .. }
            | Error::PlanMismatch { .. }
            | Error::NotAgreed { .. }
            | Error::Trace { .. }
            | Error::Threads { .. }
            | Error::Engine { .. } => None,
        }
    }

    /// The step in which it happened, if that is known.
    ///
    /// ```
    /// use reshard_collectives::{Error, Place};
    /// let place = Some(Place { step: Some(2), group: vec![0, 1] });
    /// let error = Error::RankFailed { rank: 1, reason: "it left".to_owned(), place };
    /// assert_eq!((error.failed_rank(), error.step()), (Some(1), Some(2)));
    /// assert_eq!(error.place().map(|place| place.group.as_slice()), Some(&[0, 1][..]));
    /// ```
    pub fn step(&self) -> Option<usize> {
        if let Error::Phase { step, .. } | Error::Trace { step, .. } | Error::InjectedFault { step, .. } =
            self
        {
            return Some(*step);
        }
        self.place()?.step
    }

    /// Where a rank was waited for, if one was.
    pub fn place(&self) -> Option<&Location> {
        match self {
            Error::RankFailed { place, .. } => place.as_ref(),
            Error::TimedOut { place, .. }
            | Error::Mismatch { place, .. }
            | Error::NotAgreed { place, .. } => Some(place),
            Error::Sharding(_)
            | Error::Planner(_)
            | Error::Kernel(_)
            | Error::Layout(_)
            | Error::NotInPlan { .. }
            | Error::Group { .. }
            | Error::Offer { .. }
            | Error::PlanMismatch { .. }
            | Error::Memory { .. }
            | Error::Parse { .. }
            | Error::Buffer { .. }
            | Error::DType { .. }
            | Error::ShardCount { .. }
            | Error::TargetCount { .. }
            | Error::TensorCount { .. }
            | Error::NoTensor { .. }
            | Error::WorldTooSmall { .. }
            | Error::Phase { .. }
            | Error::Panicked { .. }
            | Error::Trace { .. }
            | Error::Threads { .. }
            | Error::Engine { .. }
            | Error::InjectedFault { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sharding(error) => error.fmt(f),
            Error::Planner(error) => error.fmt(f),
            Error::Kernel(error) => error.fmt(f),
            Error::Layout(error) => error.fmt(f),
            Error::NotInPlan { rank } => write!(f, "rank {rank} takes no part in the plan"),
            Error::Group { rank, group, message } => {
                write!(f, "rank {rank} cannot meet group ")?;
                show_group(group, f)?;
                write!(f, ": {message}")
            }
            Error::Offer { name, message } => write!(f, "{name:?} cannot be a group: {message}"),
            Error::Memory { rank, message } => write!(f, "memory of rank {rank}: {message}"),
            Error::Parse { input, message } => write!(f, "{message}, not {input:?}"),
            Error::Buffer { rank, which, needed, given } => {
                write!(f, "the {which} of rank {rank} has {given} bytes but {needed} are needed")
            }
            Error::DType { needed, given } => {
                write!(
                    f,
                    "the shards are of {given}, and the plan is for {needed}: give its items, or their bytes as u8"
                )
            }
            Error::ShardCount { needed, given } => {
                write!(f, "{given} shards were given but the source mesh has {needed} ranks")
            }
            Error::TargetCount { needed, given } => {
                write!(f, "{given} targets were given but the target mesh has {needed} ranks")
            }
            Error::TensorCount { needed, given } => {
                write!(f, "shards of {given} tensors were given but the batch has {needed}")
            }
            Error::NoTensor { tensor, tensors } => {
                write!(f, "there is no tensor {tensor} in a batch of {tensors}")
            }
            Error::WorldTooSmall { needed, given } => {
                write!(f, "the plan needs {needed} ranks but the engine has {given}")
            }
            Error::PlanMismatch { step, message } => {
                write!(f, "step {step}: {message}, so the ranks are no one program: give each its own calls")
            }
            Error::Phase { step, message } => write!(f, "step {step}: {message}"),
            Error::RankFailed { rank, reason, place: Some(place) } => {
                write!(f, "rank {rank} failed ({reason}) while it was waited for in {place}")
            }
            Error::RankFailed { rank, reason, place: None } => write!(f, "rank {rank} failed ({reason})"),
            Error::Panicked { rank, message } => write!(f, "rank {rank} panicked: {message}"),
            Error::TimedOut { rank, place, after } => {
                write!(f, "rank {rank} did not come to {place} within {after:?}")
            }
            Error::Mismatch { rank, place } => write!(f, "rank {rank} carries out another plan in {place}"),
            Error::NotAgreed { rank, place } => {
                write!(f, "rank {rank}: the members of group ")?;
                show_group(&place.group, f)?;
                f.write_str(" have not agreed on a plan; see `Compiled::scratch`")
            }
            Error::Trace { step, receiver, sender, received, sent } => write!(
                f,
                "in step {step} rank {receiver} received {received} bytes from rank {sender}, which sent {sent}"
            ),
            Error::Threads { message } => write!(f, "could not start the ranks' threads: {message}"),
            Error::Engine { rank, message } => write!(f, "rank {rank}: {message}"),
            Error::InjectedFault { rank, step } => {
                write!(f, "a failure of rank {rank} was planted in step {step}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<reshard_planner::Error> for Error {
    fn from(error: reshard_planner::Error) -> Self {
        // What the planner was told itself is said as if it had been told here.
        if let reshard_planner::Error::Sharding(error) = error {
            Error::Sharding(error)
        } else if let reshard_planner::Error::Kernel(error) = error {
            Error::Kernel(error)
        } else {
            Error::Planner(error)
        }
    }
}

impl From<reshard_sharding::Error> for Error {
    fn from(error: reshard_sharding::Error) -> Self {
        Error::Sharding(error)
    }
}

impl From<reshard_kernels::Error> for Error {
    fn from(error: reshard_kernels::Error) -> Self {
        Error::Kernel(error)
    }
}

impl From<reshard_layout::Error> for Error {
    fn from(error: reshard_layout::Error) -> Self {
        Error::Layout(error)
    }
}
