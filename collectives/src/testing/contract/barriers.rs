//! Barriers: nobody leaves before the last has come, and a rank that never comes is an error that names it.
//!
//! Ranks share neither clocks nor a second channel, so each judges by its own clock alone. Two barriers follow each other,
//! and one rank, the late one, sleeps for `D` between them:
//!
//! ```text
//! this rank       t  barrier ------------- barrier ---------- u         u - t >= D
//! the late rank      barrier - sleep D --------------- barrier
//! ```
//!
//! The late rank leaves the first barrier after this rank has come to it, that is after `t`; so it comes to the second one
//! after `t + D`, and nobody may leave that one earlier. However slow the machine is, this holds.

use std::time::{Duration, Instant};

use super::{Failure, Suite};
use crate::{Communicator, Error};

/// How long the late rank sleeps.
const LATE: Duration = Duration::from_millis(20);
/// What a busy machine may take on top of a time-out.
const SLACK: Duration = Duration::from_secs(10);

/// All ranks, halves, every other rank, the ends: ascending, and together each rank in some of them.
fn groups(size: usize) -> Vec<Vec<usize>> {
    let every = |n: usize| (0..size).filter(|rank| rank % 2 == n).collect::<Vec<_>>();
    let mut groups = vec![
        (0..size).collect(),
        (0..size / 2).collect(),
        (size / 2..size).collect(),
        every(0),
        every(1),
        vec![0, size.saturating_sub(1)],
    ];
    groups.retain(|group: &Vec<usize>| group.windows(2).all(|pair| pair[0] < pair[1]) && !group.is_empty());
    groups
}

impl<C: Communicator> Suite<'_, C> {
    /// Of several groups each member in turn is late; in large ones some of them.
    pub(super) fn barriers(&mut self) -> Result<(), Failure> {
        for group in groups(self.size) {
            if !group.contains(&self.rank) {
                continue;
            }
            for late in group.iter().step_by(group.len().div_ceil(8)) {
                let title = format!("a barrier of {group:?} to which rank {late} comes late");
                let waited = self.late(&group, *late).map_err(|error| self.broken(&title, error))?;
                self.count();
                if waited < LATE {
                    self.wrong(format!("{title} by {LATE:?} is left after {waited:?}"));
                }
            }
        }
        self.no_groups();
        Ok(())
    }

    /// How long the two barriers took on this rank.
    fn late(&mut self, group: &[usize], late: usize) -> Result<Duration, Error> {
        let start = Instant::now();
        self.comm.barrier(group)?;
        if late == self.rank {
            std::thread::sleep(LATE);
        }
        self.comm.barrier(group)?;
        Ok(start.elapsed())
    }

    /// What is no group of this rank is refused by this rank alone, and nothing is the worse for it.
    fn no_groups(&mut self) {
        let (rank, size) = (self.rank, self.size);
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        for group in [others, vec![rank, rank], vec![rank, size], Vec::new()] {
            match self.comm.barrier(&group) {
                Err(Error::Group { .. }) => self.count(),
                Err(error) => {
                    self.wrong(format!("a barrier of {group:?} is refused for another reason: {error}"));
                }
                Ok(()) => self.wrong(format!("a barrier of {group:?} is not refused")),
            }
        }
    }

    /// All but one come to a barrier.
    pub(super) fn missing(&mut self, missing: usize) {
        if self.rank == missing {
            return;
        }
        let (all, start) = ((0..self.size).collect::<Vec<_>>(), Instant::now());
        let result = self.comm.barrier(&all);
        let (took, time_out) = (start.elapsed(), self.comm.timeout());
        self.count();
        match result {
            Ok(()) => self.wrong(format!("rank {missing} never came to a barrier, and this rank left it")),
            Err(error) if error.failed_rank() != Some(missing) => {
                self.wrong(format!(
                    "rank {missing} never came to a barrier, and the error does not name it: {error}"
                ));
            }
            Err(_) if took > time_out.saturating_add(SLACK) => {
                self.wrong(format!("rank {missing} was waited for for {took:?} and not for {time_out:?}"));
            }
            Err(_) => {}
        }
    }
}
