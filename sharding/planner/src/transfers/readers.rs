//! Terms that go straight to whoever wants them: the blocks that every rank receives and sends.

use reshard_layout::Few;
use smallvec::SmallVec;

use super::regions::blocks;
use crate::Error;
use crate::message::{Block, Message, Phase};
use crate::regions::intersection::Intersection;
use crate::regions::readers::{Part, Readers};
use reshard_sharding::internal::{Run, digit, shared};

impl Readers {
    pub(super) fn phase(&self, rank: usize, members: Vec<usize>) -> Result<Phase, Error> {
        let mesh = self.from.mesh();
        let mut phase = Phase {
            source_len: Intersection::local_len(&self.from, rank)?,
            target_len: Intersection::local_len(&self.to, rank)?,
            fill: self.fill,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: self.reduce,
            members,
        };
        let Some(mine) = mesh.coordinate(rank) else { return Ok(phase) };
        // Receives term by term, so that replicas add in one order.
        let mut receives: Vec<(i64, Message)> = Vec::new();
        let mut sends = Vec::new();
        for &peer in &phase.members {
            let Some(its) = mesh.coordinate(peer) else { continue };
            if let Some(part) = self.part(&its, &mine) {
                let blocks = self.blocks(peer, rank, part)?;
                if !blocks.is_empty() {
                    receives.push((self.term(&its), Message { peer, blocks }));
                }
            }
            if peer != rank
                && let Some(part) = self.part(&mine, &its)
            {
                let blocks = self.blocks(rank, peer, part)?;
                if !blocks.is_empty() {
                    sends.push(Message { peer, blocks });
                }
            }
        }
        receives.sort_by_key(|(term, message)| (*term, mesh.index_of(message.peer)));
        phase.sends = sends;
        phase.receives = receives.into_iter().map(|(_, message)| message).collect();
        Ok(phase)
    }

    /// Which term a rank holds.
    fn term(&self, c: &[usize]) -> i64 {
        self.gone.iter().fold(0, |i, &m| i * m.extent + digit(c, m))
    }

    /// What goes from one rank to another.
    fn blocks(&self, source: usize, target: usize, part: Part) -> Result<Few<Block, 1>, Error> {
        let (s, t) = (self.from.region(source)?, self.to.region(target)?);
        let mut runs: Vec<Vec<Run>> = s.dims.iter().zip(&t.dims).map(|(s, t)| shared(s, t)).collect();
        let lens: SmallVec<[usize; 4]> =
            runs.iter().map(|runs| runs.iter().map(|run| run.len * run.count).sum()).collect();
        match (part.range(&lens), part) {
            (Some((dim, range)), _) => runs[dim] = cut(&runs[dim], range),
            (None, Part::Of(i, _)) if i > 0 => return Ok(Few::new()),
            (None, Part::Of(..) | Part::Whole) => {}
        }
        let runs: Vec<&[Run]> = runs.iter().map(Vec::as_slice).collect();
        Ok(blocks(&runs, &s.local_shape(), &t.local_shape()))
    }
}

/// Of the indices of these runs, in order, those from one to another.
fn cut(runs: &[Run], [start, end]: [usize; 2]) -> Vec<Run> {
    let (mut kept, mut before) = (Vec::new(), 0);
    for run in runs {
        // One piece of each repetition that is met; whole ones together.
        let first = start.saturating_sub(before).min(run.len * run.count);
        let last = end.saturating_sub(before).min(run.len * run.count);
        let mut at = first;
        while at < last {
            let (i, inside) = (at / run.len, at % run.len);
            let whole = (last - at) / run.len;
            let place = |run: &Run| {
                [run.source + i * run.source_step + inside, run.target + i * run.target_step + inside]
            };
            let [source, target] = place(run);
            if inside == 0 && whole > 1 {
                kept.push(Run { source, target, count: whole, ..*run });
                at += whole * run.len;
            } else {
                let len = (run.len - inside).min(last - at);
                kept.push(Run { source, target, len, count: 1, source_step: 0, target_step: 0 });
                at += len;
            }
        }
        before += run.len * run.count;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_the_indices_of_its_range_in_order() {
        let run = |source, target, len, count, source_step, target_step| Run {
            source,
            target,
            len,
            count,
            source_step,
            target_step,
        };
        let runs = [run(0, 5, 3, 4, 7, 3), run(40, 20, 2, 1, 0, 0), run(50, 30, 1, 5, 2, 4)];
        let indices = |runs: &[Run]| -> Vec<(usize, usize)> {
            let of = |r: &Run| {
                let r = *r;
                (0..r.count).flat_map(move |i| {
                    (0..r.len)
                        .map(move |j| (r.source + i * r.source_step + j, r.target + i * r.target_step + j))
                })
            };
            runs.iter().flat_map(of).collect()
        };
        let all = indices(&runs);
        for start in 0..=all.len() {
            for end in start..=all.len() {
                assert_eq!(indices(&cut(&runs, [start, end])), all[start..end], "{start}..{end}");
            }
        }
    }
}
