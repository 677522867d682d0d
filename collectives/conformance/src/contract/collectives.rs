//! The collectives on groups with members in any order and counts of any size, with hand-written phases.
//!
//! Results are compared with the definitions.
//!
//! ```text
//! counts n_0 .. n_g-1, members m_0 .. m_g-1 in any order, start_i = n_0 + .. + n_i-1
//! all_gather       target[start_i ..] = source of m_i                      n_i elements
//! all_to_all       target[j] = the block of m_j for me: n_((i + j) mod g) elements, in order of j
//! reduce_scatter   target = op over j of source of m_j [start_i ..]        n_i elements
//! all_reduce       reduce_scatter ; all_gather
//! ring             target = source of the member before me, then my own
//! ```

use reshard_kernels::DType;
use reshard_layout::{InlineVec, Mode, Modes};
use reshard_planner::{Block, Message, Phase, Reduce, StepOp};
use reshard_sharding::ReduceOp;

use super::data::{Kind, bits, mix};
use super::{Failure, Suite};
use reshard_collectives::{Communicator, CompiledPlan};

/// The collectives with hand-written phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByHand {
    AllGather,
    AllToAll,
    ReduceScatter,
    AllReduce,
    Ring,
}

const ALL: [ByHand; 5] =
    [ByHand::AllGather, ByHand::AllToAll, ByHand::ReduceScatter, ByHand::AllReduce, ByHand::Ring];

/// Returns disjoint groups, each with its members in the order of their blocks.
fn families(size: usize) -> Vec<Vec<Vec<usize>>> {
    let all: Vec<usize> = (0..size).collect();
    let every = |n: usize, of: usize| (0..size).filter(|rank| rank % of == n).collect::<Vec<_>>();
    let mut families = vec![
        vec![all.clone()],
        vec![all.iter().rev().copied().collect()],
        // Single ranks.
        all.iter().map(|rank| vec![*rank]).collect(),
        // Contiguous halves, the second one reversed.
        vec![all[..size / 2].to_vec(), all[size / 2..].iter().rev().copied().collect()],
        // Strided.
        vec![every(0, 2), every(1, 2)],
        // Rotated: in no layout's order.
        vec![all.iter().map(|rank| (rank * 2 + 1) % size.max(1)).collect::<Vec<_>>()],
    ];
    // A rank occurs twice if the size is even.
    families[5].retain(|group| group.iter().collect::<std::collections::BTreeSet<_>>().len() == group.len());
    if size >= 4 {
        // Joint and not contiguous: the outer and the inner bit of four, with the middle one fixed.
        families.push(vec![vec![0, 3], vec![2, 1]]);
    }
    if size >= 8 {
        families.push(vec![vec![0, 1, 4, 5], vec![6, 2, 7, 3]]);
    }
    for family in &mut families {
        family.retain(|group| !group.is_empty());
    }
    families
}

/// Returns the number of elements of each member's block.
fn counts(which: usize, members: usize) -> Vec<usize> {
    match which {
        0 => vec![6; members],
        1 => (0..members).map(|i| (i * 5 + 3) % 7).collect(),
        _ => (0..members).map(|i| if i == 0 { 4 } else { 0 }).collect(),
    }
}

fn block(source_offset: usize, target_offset: usize, extent: usize) -> Block {
    let modes = Modes::from_slice(&[Mode::new(extent as i64, (1, 1))]);
    Block { source_offset, target_offset, modes }
}

fn message(peer: usize, block: Block) -> Option<Message> {
    (block.numel() > 0).then(|| Message { peer, blocks: InlineVec::from_iter([block]) })
}

/// The phases of a collective, each with its step and op.
type Phases = Vec<(usize, StepOp, Phase)>;

/// The partial values of each target element, as (member, element of its source).
type Terms = Vec<Vec<(usize, usize)>>;

/// A collective on one group, as seen by its member at `me`.
struct Group<'a> {
    members: &'a [usize],
    counts: Vec<usize>,
    me: usize,
}

impl Group<'_> {
    fn start(&self, i: usize) -> usize {
        self.counts[..i].iter().sum()
    }

    fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Returns the number of elements from member `i` to member `j` in an all-to-all.
    fn between(&self, i: usize, j: usize) -> usize {
        self.counts[(i + j) % self.members.len()]
    }

    fn phase(&self, source_len: usize, target_len: usize) -> Phase {
        let mut members = self.members.to_vec();
        members.sort_unstable();
        Phase {
            source_len,
            target_len,
            fill_identity: None,
            receives: Vec::new(),
            sends: Vec::new(),
            reduce: None,
            members,
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.members.iter().copied().enumerate().filter(|(i, _)| *i != self.me)
    }

    fn all_gather(&self) -> Phase {
        let mine = self.counts[self.me];
        let mut phase = self.phase(mine, self.total());
        for (i, &peer) in self.members.iter().enumerate() {
            phase.receives.extend(message(peer, block(0, self.start(i), self.counts[i])));
        }
        let out = |(_, peer)| message(peer, block(0, self.start(self.me), mine));
        phase.sends = self.others().filter_map(out).collect();
        phase
    }

    fn all_to_all(&self) -> Phase {
        let (me, g) = (self.me, self.members.len());
        // Offsets of the elements from i to j in i's source, and in j's target.
        let out = |i: usize, j: usize| (0..j).map(|k| self.between(i, k)).sum::<usize>();
        let into = |i: usize, j: usize| (0..i).map(|k| self.between(k, j)).sum::<usize>();
        let mut phase = self.phase(out(me, g), into(g, me));
        for (i, &peer) in self.members.iter().enumerate() {
            phase.receives.extend(message(peer, block(out(i, me), into(i, me), self.between(i, me))));
        }
        let gives = |(j, peer)| message(peer, block(out(me, j), into(me, j), self.between(me, j)));
        phase.sends = self.others().filter_map(gives).collect();
        phase
    }

    fn reduce_scatter(&self, op: ReduceOp) -> Phase {
        let mine = self.counts[self.me];
        let mut phase = self.phase(self.total(), mine);
        phase.reduce = Some(Reduce { op, divisor: 1 });
        for &peer in self.members {
            phase.receives.extend(message(peer, block(self.start(self.me), 0, mine)));
        }
        let out = |(j, peer)| message(peer, block(self.start(j), 0, self.counts[j]));
        phase.sends = self.others().filter_map(out).collect();
        phase
    }

    fn ring(&self) -> Phase {
        let g = self.members.len();
        let before = (self.me + g - 1) % g;
        let mine = self.counts[self.me];
        let theirs = self.counts[before];
        let mut phase = self.phase(mine, theirs + mine);
        phase.receives.extend(message(self.members[self.me], block(0, theirs, mine)));
        if g > 1 {
            phase.receives.extend(message(self.members[before], block(0, 0, theirs)));
            let after = self.members[(self.me + 1) % g];
            phase.sends.extend(message(after, block(0, 0, mine)));
        } else {
            phase.receives.extend(message(self.members[self.me], block(0, 0, theirs)));
        }
        phase
    }

    /// Returns the phases, and the source elements of each target element; several are reduced.
    fn make(&self, what: ByHand, op: ReduceOp) -> (Phases, Terms) {
        let g = self.members.len();
        let step = |op: StepOp, phase: Phase| vec![(0, op, phase)];
        let all = |i: usize| (0..self.counts[i]).map(move |e| vec![(i, e)]);
        let terms = |e: usize| (0..g).map(|i| (i, e)).collect::<Vec<_>>();
        match what {
            ByHand::AllGather => (step(StepOp::AllGather, self.all_gather()), (0..g).flat_map(all).collect()),
            ByHand::AllToAll => {
                let out = |i: usize| (0..self.me).map(|k| self.between(i, k)).sum::<usize>();
                let from = |i: usize| (0..self.between(i, self.me)).map(move |e| vec![(i, out(i) + e)]);
                (step(StepOp::AllToAll, self.all_to_all()), (0..g).flat_map(from).collect())
            }
            ByHand::ReduceScatter => {
                let start = self.start(self.me);
                let elements = (start..start + self.counts[self.me]).map(terms).collect();
                (step(StepOp::ReduceScatter, self.reduce_scatter(op)), elements)
            }
            ByHand::AllReduce => {
                let mut phases = step(StepOp::AllReduce, self.reduce_scatter(op));
                phases.extend(step(StepOp::AllReduce, self.all_gather()));
                (phases, (0..self.total()).map(terms).collect())
            }
            ByHand::Ring => {
                let before = (self.me + g - 1) % g;
                (step(StepOp::Exchange, self.ring()), all(before).chain(all(self.me)).collect())
            }
        }
    }

    /// Returns the number of elements of a member's source.
    fn source_len(&self, what: ByHand, i: usize) -> usize {
        match what {
            ByHand::AllGather | ByHand::Ring => self.counts[i],
            ByHand::AllToAll => (0..self.members.len()).map(|j| self.between(i, j)).sum(),
            ByHand::ReduceScatter | ByHand::AllReduce => self.total(),
        }
    }
}

impl<C: Communicator> Suite<'_, C> {
    /// Runs every collective on every family of groups.
    pub(super) fn collectives(&mut self) -> Result<(), Failure> {
        let mut number = 0;
        for family in families(self.size) {
            for (which, what) in (0..3).flat_map(|which| ALL.map(|what| (which, what))) {
                number += 1;
                let kind = Kind::ALL[number % Kind::ALL.len()];
                let seed = mix(&[self.options.seed, number as u64]);
                for members in &family {
                    let Some(me) = members.iter().position(|member| *member == self.rank) else { continue };
                    let group = Group { members, counts: counts(which, members.len()), me };
                    self.by_hand(&group, what, kind, seed)?;
                }
            }
        }
        Ok(())
    }

    fn by_hand(&mut self, group: &Group<'_>, what: ByHand, kind: Kind, seed: u64) -> Result<(), Failure> {
        // Minimum and maximum are exact in every dtype, also for arbitrary bits read as integers.
        let reduces = matches!(what, ByHand::ReduceScatter | ByHand::AllReduce);
        let (kind, op) = match (reduces, seed % 2) {
            (false, _) => (kind, ReduceOp::Max),
            (true, 0) => (Kind::U8, ReduceOp::Max),
            (true, _) => (Kind::I64, ReduceOp::Sum),
        };
        let (phases, elements) = group.make(what, op);
        let title =
            format!("{what:?} of {} over {:?} with counts {:?}", kind.dtype(), group.members, group.counts);
        let item = kind.item_bytes();
        let source = |seed: u64, i: usize| {
            let mut bytes = Vec::new();
            let salt = mix(&[seed, i as u64]);
            (0..group.source_len(what, i)).for_each(|e| bits(kind, salt, e, &mut bytes));
            bytes
        };
        let seeds = [seed, !seed];
        let sources: Vec<Vec<u8>> = seeds.iter().map(|seed| source(*seed, group.me)).collect();
        let compiled = CompiledPlan::from_phases(self.rank, kind.dtype(), &phases);
        let results = compiled.and_then(|compiled| self.run(&compiled, &sources));
        let results = results.map_err(|error| self.broken(&title, error))?;
        for (seed, result) in seeds.iter().zip(results) {
            self.count();
            let all: Vec<Vec<u8>> = (0..group.members.len()).map(|i| source(*seed, i)).collect();
            let item_of = |&(i, e): &(usize, usize)| &all[i][e * item..(e + 1) * item];
            let should: Vec<u8> =
                elements.iter().flat_map(|terms| fold(kind.dtype(), op, terms.iter().map(item_of))).collect();
            if let Some(at) =
                (0..should.len().max(result.len())).find(|at| should.get(*at) != result.get(*at))
            {
                let (is, should) = (result.get(at), should.get(at));
                self.wrong(format!("{title}: byte {at} is {is:02x?}, expected {should:02x?}"));
            }
        }
        Ok(())
    }
}

/// Reduces elements: the greatest byte or the sum of 8-byte integers; a single element is returned unchanged.
fn fold<'a>(dtype: DType, op: ReduceOp, items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let add = |a: Vec<u8>, b: Vec<u8>| -> Vec<u8> {
        if dtype == DType::I64 && op == ReduceOp::Sum {
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_ne_bytes);
            number(&a).wrapping_add(number(&b)).to_ne_bytes().to_vec()
        } else {
            a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect()
        }
    };
    items.map(<[u8]>::to_vec).reduce(add).unwrap_or_default()
}
