//! Errors of compiling and running plans.

use std::fmt;
use std::time::Duration;

use reshard_kernels::DType;
use reshard_layout::ErrorKind;

/// Location of an error: the step of a plan, or a barrier, and the group of ranks that take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of the step in the plan.
    ///
    /// `None` outside any plan, as in [`barrier`](crate::Communicator::barrier).
    pub step: Option<usize>,
    /// The ranks of the group, ascending, including the reporting rank.
    pub group: Vec<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step} of group ")?,
            None => write!(f, "a barrier of group ")?,
        }
        show_group(&self.group, f)
    }
}

/// Formats the first ranks of a group and its size.
fn show_group(group: &[usize], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown: Vec<String> = group.iter().take(16).map(usize::to_string).collect();
    let more = if group.len() > 16 { format!(",.. ({} ranks)", group.len()) } else { String::new() };
    write!(f, "[{}{more}]", shown.join(","))
}

/// The reason why a plan was not compiled or did not run; displays as one line that names ranks and values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of the sharding crate.
    Sharding(reshard_sharding::Error),
    /// An error of the planner.
    Planner(reshard_planner::Error),
    /// An error of the kernels.
    Kernel(reshard_kernels::Error),
    /// An error of the layout crate.
    Layout(reshard_layout::Error),
    /// The rank takes no part in the plan.
    NotInPlan {
        /// The rank.
        rank: usize,
    },
    /// Ranks that are not a valid group.
    Group {
        /// The rank that requested the group.
        rank: usize,
        /// The group.
        group: Vec<usize>,
        /// The fault in the group, as a clause.
        message: String,
    },
    /// Ranks that are not a valid framework group.
    Offer {
        /// The name of the group in the framework.
        name: String,
        /// The fault in the group, as a clause.
        message: String,
    },
    /// A memory layout that does not fit the local shape.
    Memory {
        /// The rank.
        rank: usize,
        /// The mismatch, as a full message.
        message: String,
    },
    /// A text that is not a valid memory layout of buffers.
    Parse {
        /// The text.
        input: String,
        /// The fault in the text and the expected form, as a clause.
        message: String,
    },
    /// A buffer is too short, or the number of buffers is wrong.
    Buffer {
        /// The rank.
        rank: usize,
        /// `source`, `target`, `first scratch buffer`, `second scratch buffer`, `staging` or `message`.
        which: &'static str,
        /// Required bytes.
        needed: usize,
        /// Available bytes.
        given: usize,
    },
    /// Shards of another type than the plan's.
    DType {
        /// The type of the plan's elements.
        needed: DType,
        /// The type of the elements of the given shards.
        given: DType,
    },
    /// The number of shards is not the number of ranks.
    ShardCount {
        /// Ranks of the source mesh.
        needed: usize,
        /// Shards given.
        given: usize,
    },
    /// The number of targets is not the number of ranks.
    TargetCount {
        /// Ranks of the target mesh.
        needed: usize,
        /// Targets given.
        given: usize,
    },
    /// The number of lists of shards is not the number of tensors of a batch.
    TensorCount {
        /// Tensors of the batch.
        needed: usize,
        /// Lists given.
        given: usize,
    },
    /// A tensor that the batch does not have.
    NoTensor {
        /// The requested index.
        tensor: usize,
        /// Tensors of the batch.
        tensors: usize,
    },
    /// The engine has too few ranks for the plan.
    WorldTooSmall {
        /// Ranks that the plan needs: its greatest rank plus one.
        needed: usize,
        /// Ranks of the engine.
        given: usize,
    },
    /// A phase that cannot run as written.
    Phase {
        /// The step.
        step: usize,
        /// The fault in the phase, as a full message.
        message: String,
    },
    /// Ranks whose calls differ in more than offsets, so they are not one SPMD program.
    PlanMismatch {
        /// The step.
        step: usize,
        /// The difference, as a full message.
        message: String,
    },
    /// This rank stopped because another rank panicked, returned an error or left.
    RankFailed {
        /// The rank that failed.
        rank: usize,
        /// The failure of that rank.
        reason: String,
        /// The location at which this rank waited for it; `None` if it did not wait.
        place: Option<Location>,
    },
    /// This rank panicked.
    Panicked {
        /// The rank.
        rank: usize,
        /// The panic message.
        message: String,
    },
    /// A rank did not arrive within the timeout.
    TimedOut {
        /// The first rank that is missing.
        rank: usize,
        /// The location at which it was expected.
        place: Location,
        /// The time that this rank waited.
        after: Duration,
    },
    /// Two ranks run different plans.
    Mismatch {
        /// The other rank.
        rank: usize,
        /// The location at which the difference was found.
        place: Location,
    },
    /// An engine that holds state per group was given a group that has not yet agreed on a plan.
    NotAgreed {
        /// This rank.
        rank: usize,
        /// The location at which this was found.
        place: Location,
    },
    /// A receiver counted a different number of bytes than the sender.
    Trace {
        /// The step.
        step: usize,
        /// The receiving rank.
        receiver: usize,
        /// The sending rank.
        sender: usize,
        /// Bytes that were received.
        received: u64,
        /// Bytes that were sent.
        sent: u64,
    },
    /// Threads could not be started.
    Threads {
        /// The message of the operating system.
        message: String,
    },
    /// The library under an engine returned an error or failed.
    Engine {
        /// This rank.
        rank: usize,
        /// The call and its result, as a full message.
        message: String,
    },
    /// An injected failure, for tests of how the other ranks react.
    InjectedFault {
        /// The rank that fails.
        rank: usize,
        /// The step in which it fails.
        step: usize,
    },
}

impl Error {
    /// Returns one stable word for the kind of error.
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
            Error::PlanMismatch { .. } => "plan_mismatch",
            Error::RankFailed { .. } | Error::Panicked { .. } | Error::InjectedFault { .. } => "rank_failed",
            Error::TimedOut { .. } => "timed_out",
            Error::Mismatch { .. } => "mismatch",
            Error::NotAgreed { .. } => "not_agreed",
            Error::Trace { .. } => "trace",
            Error::Threads { .. } => "threads",
            Error::Engine { .. } => "engine",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Sharding(error) => error.kind(),
            Error::Planner(error) => error.kind(),
            Error::Kernel(error) => error.kind(),
            Error::Layout(error) => error.kind(),
            Error::Parse { .. } => ErrorKind::Parse,
            Error::NotInPlan { .. }
            | Error::Group { .. }
            | Error::Offer { .. }
            | Error::Memory { .. }
            | Error::Buffer { .. }
            | Error::DType { .. }
            | Error::ShardCount { .. }
            | Error::TargetCount { .. }
            | Error::TensorCount { .. }
            | Error::NoTensor { .. }
            | Error::WorldTooSmall { .. } => ErrorKind::InvalidInput,
            Error::Phase { .. } => ErrorKind::Unsupported,
            Error::PlanMismatch { .. } | Error::Mismatch { .. } | Error::NotAgreed { .. } => {
                ErrorKind::PlanMismatch
            }
            Error::RankFailed { .. } | Error::Panicked { .. } | Error::InjectedFault { .. } => {
                ErrorKind::RankFailed
            }
            Error::TimedOut { .. } => ErrorKind::Timeout,
            Error::Trace { .. } => ErrorKind::Verification,
            Error::Threads { .. } | Error::Engine { .. } => ErrorKind::Io,
        }
    }

    /// Returns the rank that failed and its failure, for the ranks to which `rank` passes this error on.
    ///
    /// If `rank` itself was notified of a failure, this is the first cause: an error never contains itself.
    pub(crate) fn cause(&self, rank: usize) -> (usize, String) {
        self.failure().unwrap_or_else(|| (rank, self.to_string()))
    }

    /// Returns the rank whose failure this error describes, if there is one.
    pub fn failed_rank(&self) -> Option<usize> {
        self.failure().map(|(rank, _)| rank)
    }

    /// Returns the rank whose failure this error describes and the reason, if there is one.
    fn failure(&self) -> Option<(usize, String)> {
        match self {
            Error::RankFailed { rank, reason, .. } => Some((*rank, reason.clone())),
            Error::Panicked { rank, message } => Some((*rank, format!("it panicked: {message}"))),
            Error::TimedOut { rank, place, after } => {
                Some((*rank, format!("it did not arrive at {place} within {after:?}")))
            }
            Error::Mismatch { rank, place } => Some((*rank, format!("it runs another plan in {place}"))),
            Error::InjectedFault { rank, step } => {
                Some((*rank, format!("a failure was injected in step {step}")))
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

    /// Returns the step in which the error happened, if it is known.
    #[doc(hidden)]
    pub fn step(&self) -> Option<usize> {
        if let Error::Phase { step, .. } | Error::Trace { step, .. } | Error::InjectedFault { step, .. } =
            self
        {
            return Some(*step);
        }
        self.place()?.step
    }

    /// Returns the location at which a rank was waited for, if one was.
    ///
    /// ```
    /// use reshard_collectives::{Error, Location};
    /// let place = Location { step: Some(2), group: vec![0, 1] };
    /// let error = Error::RankFailed { rank: 1, reason: "it left".to_owned(), place: Some(place.clone()) };
    /// assert_eq!((error.failed_rank(), error.place()), (Some(1), Some(&place)));
    /// ```
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
                write!(f, "rank {rank}: invalid group ")?;
                show_group(group, f)?;
                write!(f, ": {message}")
            }
            Error::Offer { name, message } => write!(f, "invalid framework group {name:?}: {message}"),
            Error::Memory { rank, message } => write!(f, "memory of rank {rank}: {message}"),
            Error::Parse { input, message } => write!(f, "cannot parse {input:?}: {message}"),
            Error::Buffer { rank, which, needed, given } => {
                write!(f, "the {which} of rank {rank} has {given} bytes but {needed} are needed")
            }
            Error::DType { needed, given } => {
                write!(
                    f,
                    "the shards have dtype {given}, but the plan is for {needed}; pass {needed} elements, or their bytes as u8"
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
                write!(
                    f,
                    "step {step}: {message}; the ranks cannot share one SPMD program, use per-rank calls"
                )
            }
            Error::Phase { step, message } => write!(f, "step {step}: {message}"),
            Error::RankFailed { rank, reason, place: Some(place) } => {
                write!(f, "rank {rank} failed ({reason}) while others waited for it in {place}")
            }
            Error::RankFailed { rank, reason, place: None } => write!(f, "rank {rank} failed ({reason})"),
            Error::Panicked { rank, message } => write!(f, "rank {rank} panicked: {message}"),
            Error::TimedOut { rank, place, after } => {
                write!(f, "rank {rank} did not arrive at {place} within {after:?}")
            }
            Error::Mismatch { rank, place } => write!(f, "rank {rank} runs another plan in {place}"),
            Error::NotAgreed { rank, place } => {
                write!(f, "rank {rank}: the members of group ")?;
                show_group(&place.group, f)?;
                f.write_str(" have not agreed on a plan; call `CompiledPlan::scratch` first")
            }
            Error::Trace { step, receiver, sender, received, sent } => write!(
                f,
                "in step {step} rank {receiver} received {received} bytes from rank {sender}, which sent {sent}"
            ),
            Error::Threads { message } => write!(f, "could not start the ranks' threads: {message}"),
            Error::Engine { rank, message } => write!(f, "rank {rank}: {message}"),
            Error::InjectedFault { rank, step } => {
                write!(f, "a failure of rank {rank} was injected in step {step}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<reshard_planner::Error> for Error {
    fn from(error: reshard_planner::Error) -> Self {
        // An error that the planner only passed on is reported as if it had been raised here.
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
