//! Barriers: no rank leaves before the last has arrived, and a rank that never arrives is an error that names
//! it.
//!
//! Ranks share neither clocks nor a second channel, so each rank measures with its own clock. Two barriers
//! follow each other, and one rank, the late one, sleeps for `D` between them:
//!
//! ```text
//! this rank       t  barrier ------------- barrier ---------- u         u - t >= D
//! the late rank      barrier - sleep D --------------- barrier
//! ```
//!
//! The late rank leaves the first barrier after this rank has reached it, that is after `t`. So it reaches
//! the second one after `t + D`, and no rank may leave that one earlier. This holds on machines of any speed.

use std::time::{Duration, Instant};

use super::{Failure, Suite};
use reshard_collectives::{Communicator, Error};

/// Sleep time of the late rank.
const LATE: Duration = Duration::from_millis(20);
/// Extra time that a busy machine may need beyond the timeout.
const SLACK: Duration = Duration::from_secs(10);

/// Returns all ranks, halves, every other rank, and the ends: ascending groups that jointly cover all ranks.
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
    /// Makes each member of several groups late in turn; in large groups only some of them.
    pub(super) fn barriers(&mut self) -> Result<(), Failure> {
        for group in groups(self.size) {
            if !group.contains(&self.rank) {
                continue;
            }
            for late in group.iter().step_by(group.len().div_ceil(8)) {
                let title = format!("a barrier of {group:?} at which rank {late} arrives late");
                let waited = self.late(&group, *late).map_err(|error| self.broken(&title, error))?;
                self.count();
                if waited < LATE {
                    self.wrong(format!("{title}, by {LATE:?}: this rank left after {waited:?}"));
                }
            }
        }
        self.no_groups();
        Ok(())
    }

    /// Returns the time that the two barriers took on this rank.
    fn late(&mut self, group: &[usize], late: usize) -> Result<Duration, Error> {
        let start = Instant::now();
        self.comm.barrier(group)?;
        if late == self.rank {
            std::thread::sleep(LATE);
        }
        self.comm.barrier(group)?;
        Ok(start.elapsed())
    }

    /// Checks that this rank alone rejects an invalid group, and that the engine stays usable.
    fn no_groups(&mut self) {
        let (rank, size) = (self.rank, self.size);
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        for group in [others, vec![rank, rank], vec![rank, size], Vec::new()] {
            match self.comm.barrier(&group) {
                Err(Error::Group { .. }) => self.count(),
                Err(error) => {
                    self.wrong(format!("a barrier of {group:?} failed for another reason: {error}"));
                }
                Ok(()) => self.wrong(format!("a barrier of {group:?} was accepted")),
            }
        }
    }

    /// Checks a barrier that all ranks but one reach.
    pub(super) fn missing(&mut self, missing: usize) {
        if self.rank == missing {
            return;
        }
        let (all, start) = ((0..self.size).collect::<Vec<_>>(), Instant::now());
        let result = self.comm.barrier(&all);
        let (took, time_out) = (start.elapsed(), self.comm.timeout());
        self.count();
        match result {
            Ok(()) => self.wrong(format!("rank {missing} never arrived at a barrier, but this rank left it")),
            Err(error) if error.failed_rank() != Some(missing) => {
                self.wrong(format!(
                    "rank {missing} never arrived at a barrier, but the error does not name it: {error}"
                ));
            }
            Err(_) if took > time_out.saturating_add(SLACK) => {
                self.wrong(format!("this rank waited {took:?} for rank {missing}, not {time_out:?}"));
            }
            Err(_) => {}
        }
    }
}
