//! The actions of one rank in one step: its messages, their peers, and the offsets of their blocks.
//!
//! The zipped layouts before and after a step are its geometry (see `system`), and the actions of one rank
//! are that list sliced at its coordinates. Receiver `r` needs the elements at which the modes that go along
//! axes afterwards have its digits. With `x`, `y` a step and the digit that goes along it, they are stored on
//! the rank whose digit is
//!
//! ```text
//! (x, y)          the receiver's y digit                                     permuted
//! (x, local)      every value in turn, or the rank's where x becomes partial    gathered
//! not before      its own, except that the head of a path R -> .. -> R or R -> .. -> local takes its tail's,
//!                 which makes the exchange a permutation
//! ```
//!
//! so the peers are the product of the free digits, and every block consists of the modes that are local both
//! before and after: a layout of pairs. Sends invert the same equations. Uneven steps do the same with
//! overlapping regions (`regions`). An all-reduce works on blocks of the flat buffer (`pieces`). A step
//! between the cotangent shardings is transposed (`transposed`).

mod modes;
mod pieces;
mod regions;
pub(crate) mod transposed;

use reshard_layout::InlineVec;

use crate::Error;
use crate::message::{DigitPhase, Phases};
use crate::step::{Action, Moves, Step};
use reshard_sharding::internal::{members_along, ranks_of_both};

impl Step {
    /// Returns the phases of one rank: one, two for an all-reduce, none if it does not take part.
    ///
    /// The buffer after a phase is the buffer before the next one. A rank outside of the plan's
    /// [`ranks`](crate::Plan::ranks) has none.
    pub fn phases(&self, rank: usize) -> Result<Phases, Error> {
        let (before, after) = (&*self.before, &*self.after);
        let mesh = before.mesh();
        let one_mesh = mesh == after.mesh();
        if one_mesh && !mesh.contains(rank) {
            return Ok(Phases::new());
        }
        let mut members = if one_mesh {
            members_along(mesh, &mesh.modes(&self.axes), rank)?
        } else {
            ranks_of_both(mesh, after.mesh())
        };
        members.sort_unstable();
        let phase = match &*self.action {
            Action::Transposed(turned) => return turned.phases(rank),
            Action::AllReduce(reduction) => return pieces::all_reduced(before, reduction, rank, &members),
            Action::Slice(moves)
            | Action::ZeroFill(moves)
            | Action::AllGather(moves)
            | Action::AllToAll(moves)
            | Action::Exchange(moves) => match moves {
                Moves::Modes { zip, senders, terms } => {
                    modes::phase([zip, senders], terms.as_ref(), mesh, rank, members)?
                }
                Moves::Regions(regions) => regions.phase(rank, members)?,
            },
            Action::ReduceScatter(moves, reduction) | Action::OrderedReduce(moves, reduction) => {
                match moves {
                    Moves::Modes { zip, .. } => modes::reduced(zip, reduction, mesh, rank, members)?,
                    Moves::Regions(regions) => regions.reduced(rank, reduction, members)?,
                }
            }
        };
        Ok(InlineVec::from_iter([phase]))
    }

    /// Returns the one phase of a rank without a list of its peers.
    ///
    /// It exists where digits change positions on one mesh and nothing is filled; otherwise it is `None`, and
    /// only [`Step::phases`] has it.
    #[doc(hidden)]
    pub fn digit_phase(&self, rank: usize) -> Result<Option<DigitPhase>, Error> {
        let mesh = self.before.mesh();
        if mesh != self.after.mesh() || !mesh.contains(rank) {
            return Ok(None);
        }
        match &*self.action {
            Action::AllGather(Moves::Modes { zip, senders, terms: None })
            | Action::AllToAll(Moves::Modes { zip, senders, terms: None })
            | Action::Exchange(Moves::Modes { zip, senders, terms: None }) => {
                modes::digits([zip, senders], mesh, rank)
            }
            Action::ReduceScatter(Moves::Modes { zip, .. }, reduction) => {
                modes::reduced_digits(zip, reduction, mesh, rank)
            }
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::Exchange(_)
            | Action::ReduceScatter(..)
            | Action::OrderedReduce(..)
            | Action::AllReduce(_)
            | Action::Transposed(_) => Ok(None),
        }
    }
}
