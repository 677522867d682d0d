//! The checks of every engine before an exchange, shared so that the same mistake is the same error
//! everywhere.
//!
//! ```text
//! Communicator::check_agreement check_rank
//! Communicator::post            check_rank, check_buffers, check_staging
//! comparing plans               check_tags     the tags of all members; reports the first that differs
//! reading a peer                check_peer     the published buffer has all the bytes that are read
//! ```

use crate::{Error, Exchange, Location, ReceiveMessage};

/// Succeeds if a rank of a world of `size` ranks can form a group with these members.
///
/// Errors: [`Error::Group`].
pub(crate) fn check_group(rank: usize, size: usize, members: &[usize]) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::Group { rank, group: members.to_vec(), message });
    let pairs = members.iter().zip(members.iter().skip(1));
    if let Some((one, next)) = pairs.into_iter().find(|(one, next)| one >= next) {
        return wrong(format!("ranks must be ascending, but {one} comes before {next}"));
    }
    if let Some(last) = members.last().filter(|last| **last >= size) {
        return wrong(format!("the engine has {size} ranks, so rank {last} does not exist"));
    }
    match members.binary_search(&rank) {
        Ok(_) => Ok(()),
        Err(_) => wrong("the rank is not a member".to_string()),
    }
}

impl Exchange {
    /// Returns `true` if no other rank is needed.
    pub fn is_local(&self) -> bool {
        !self.communicates() || self.members().len() == 1
    }

    /// Runs an exchange in which all data comes from this rank itself, in host memory.
    ///
    /// Requires [`is_local`](Exchange::is_local).
    pub fn run_local(&self, source: &[u8], target: &mut [u8]) -> Result<(), Error> {
        self.init_target(target)?;
        for receive in self.receives() {
            receive.take(target, source)?;
        }
        self.finalize_target(target)
    }

    /// Succeeds if this rank of an engine of `size` ranks can take part.
    ///
    /// Errors: [`Error::NotInPlan`] if the exchange is another rank's, [`Error::WorldTooSmall`].
    pub fn check_rank(&self, rank: usize, size: usize) -> Result<(), Error> {
        if self.rank() != rank {
            return Err(Error::NotInPlan { rank });
        }
        match self.members().last() {
            Some(&last) if last >= size => Err(Error::WorldTooSmall { needed: last + 1, given: size }),
            Some(_) | None => Ok(()),
        }
    }

    /// Succeeds if buffers of these sizes are large enough.
    ///
    /// Errors: [`Error::Buffer`].
    pub fn check_buffers(&self, source: usize, target: usize) -> Result<(), Error> {
        check_length(self.rank(), "source", self.source_bytes(), source)?;
        check_length(self.rank(), "target", self.target_bytes(), target)
    }

    /// Succeeds if the staging buffer has the size that the engine needs.
    ///
    /// Errors: [`Error::Buffer`].
    #[doc(hidden)]
    pub fn check_staging(&self, needed: usize, given: usize) -> Result<(), Error> {
        check_length(self.rank(), "staging", needed, given)
    }

    /// Succeeds if a peer that exposes `given` bytes of its source has the data of the receive.
    ///
    /// Errors: [`Error::Buffer`] of the peer.
    #[doc(hidden)]
    pub fn check_peer(&self, receive: &ReceiveMessage, given: usize) -> Result<(), Error> {
        check_length(receive.peer(), "source", receive.source_bytes()?, given)
    }

    /// Succeeds if all members have the plan of this rank.
    ///
    /// `tags` are the members with their [`tag`](Exchange::tag)s.
    /// Errors: [`Error::Mismatch`], which names the first member with another plan.
    pub fn check_tags(&self, tags: impl IntoIterator<Item = (usize, u64)>) -> Result<(), Error> {
        match tags.into_iter().find(|(_, tag)| *tag != self.tag()) {
            Some((rank, _)) => Err(Error::Mismatch { rank, place: self.place() }),
            None => Ok(()),
        }
    }

    /// Returns the error of an engine with per-group state for a group that has not yet agreed.
    ///
    /// See [`check_agreement`](crate::Communicator::check_agreement).
    #[doc(hidden)]
    pub fn not_agreed(&self) -> Error {
        Error::NotAgreed { rank: self.rank(), place: self.place() }
    }
}

impl Error {
    /// Returns the error that a rank of an engine reports for every call after this failure.
    ///
    /// ```
    /// use reshard_collectives::Error;
    /// let first = Error::RankFailed { rank: 2, reason: "it left".to_string(), place: None };
    /// assert_eq!(first.again(0, None).to_string(), "rank 2 failed (it left)");
    /// assert_eq!(first.again(0, None).again(0, None), first);
    /// ```
    #[must_use]
    #[doc(hidden)]
    pub fn again(&self, rank: usize, place: Option<Location>) -> Error {
        let (rank, reason) = self.cause(rank);
        Error::RankFailed { rank, reason, place }
    }
}

fn check_length(rank: usize, which: &'static str, needed: usize, given: usize) -> Result<(), Error> {
    if given < needed { Err(Error::Buffer { rank, which, needed, given }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use reshard_kernels::DType;
    use reshard_planner::Planner;
    use reshard_sharding::{Mesh, Sharding};

    use super::*;
    use crate::CompiledPlan;

    /// Returns rank 1's exchange of an all-gather of two bytes each over ranks 0 and 1 of three.
    fn gather(rank: usize) -> Exchange {
        let mesh: Mesh = "x=2".parse().unwrap();
        let parse = |text: &str| Sharding::parse(&mesh, &[4], text).unwrap();
        let plan = Planner::new().plan(&parse("S(0)"), &parse("R"), DType::U8).unwrap();
        CompiledPlan::new(&plan, rank).unwrap().exchanges().next().unwrap().clone()
    }

    #[track_caller]
    fn says(result: Result<(), Error>, text: &str) {
        assert_eq!(result.unwrap_err().to_string(), text);
    }

    #[test]
    fn a_group_is_ascending_of_the_world_and_ones_own() {
        for group in [&[1][..], &[0, 1], &[1, 2], &[0, 1, 2]] {
            check_group(1, 3, group).unwrap();
        }
        says(check_group(1, 3, &[]), "rank 1: invalid group []: the rank is not a member");
        says(check_group(1, 3, &[0, 2]), "rank 1: invalid group [0,2]: the rank is not a member");
        says(
            check_group(1, 3, &[0, 1, 3]),
            "rank 1: invalid group [0,1,3]: the engine has 3 ranks, so rank 3 does not exist",
        );
        let unsorted = "rank 1: invalid group [1,0]: ranks must be ascending, but 1 comes before 0";
        says(check_group(1, 3, &[1, 0]), unsorted);
        let twice = "rank 1: invalid group [1,1]: ranks must be ascending, but 1 comes before 1";
        says(check_group(1, 3, &[1, 1]), twice);
    }

    #[test]
    fn an_exchange_is_of_its_rank_in_a_world_that_has_its_members() {
        let exchange = gather(1);
        exchange.check_rank(1, 2).unwrap();
        says(exchange.check_rank(0, 2), "rank 0 takes no part in the plan");
        says(exchange.check_rank(1, 1), "the plan needs 2 ranks but the engine has 1");
    }

    #[test]
    fn buffers_are_as_long_as_they_must_be() {
        let exchange = gather(1);
        exchange.check_buffers(2, 4).unwrap();
        exchange.check_staging(8, 8).unwrap();
        says(exchange.check_buffers(1, 4), "the source of rank 1 has 1 bytes but 2 are needed");
        says(exchange.check_buffers(2, 3), "the target of rank 1 has 3 bytes but 4 are needed");
        says(exchange.check_staging(8, 7), "the staging of rank 1 has 7 bytes but 8 are needed");
        let theirs = exchange.receives().iter().find(|receive| receive.peer() == 0).unwrap();
        exchange.check_peer(theirs, 2).unwrap();
        says(exchange.check_peer(theirs, 1), "the source of rank 0 has 1 bytes but 2 are needed");
    }

    #[test]
    fn tags_are_compared_and_a_group_that_has_not_agreed_is_told() {
        let exchange = gather(1);
        exchange.check_tags([(0, exchange.tag()), (1, exchange.tag())]).unwrap();
        let other = exchange.check_tags([(0, !exchange.tag()), (1, exchange.tag())]);
        says(other, "rank 0 runs another plan in step 0 of group [0,1]");
        says(
            Err(exchange.not_agreed()),
            "rank 1: the members of group [0,1] have not agreed on a plan; call `CompiledPlan::scratch` first",
        );
    }

    #[test]
    fn what_is_local_needs_nobody() {
        let meeting = Exchange::meeting(2, 3, &[2]).unwrap();
        assert!(meeting.is_local() && !gather(0).is_local());
        meeting.run_local(&[], &mut []).unwrap();
        assert_ne!(meeting.tag(), gather(0).tag());
    }
}
