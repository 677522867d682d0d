//! Construction of an exchange: from one phase of a plan, from several, or as a barrier of a group.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use reshard_kernels::{CopySide, DType, LoopNest, PreparedCombine, PreparedCopy, PreparedDivide};
use reshard_layout::Mode;
use reshard_planner::internal::combine_op;
use reshard_planner::{Message, Phase, StepOp};
use smallvec::SmallVec;

use super::{Average, Exchange, Fill};
use crate::buffer_layout::{BufferMap, Nests, nest_of};
use crate::collective::{self, Collective, Reduction};
use crate::{Error, ReceiveMessage, ReceiveOp, SendMessage, TypedNest};

/// The id of the next exchange.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The tag of a barrier, which belongs to no plan.
const MEETING: u64 = u64::from_le_bytes(*b"barrier\0");

/// The inputs for compiling an exchange, except its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) rank: usize,
    pub(crate) step: usize,
    pub(crate) phase: usize,
    /// The same on all ranks that run the same plans.
    pub(crate) tag: u64,
}

/// A tensor's part in an exchange.
pub(crate) struct Part<'a> {
    pub(crate) dtype: DType,
    pub(crate) phase: &'a Phase,
    /// The step op of the plan; `None` if the part comes from no plan.
    pub(crate) op: Option<StepOp>,
    /// `true` if ranks communicate in this step.
    pub(crate) communicates: bool,
    /// `true` if shapes and memory layouts are the same on all members, except for start offsets.
    pub(crate) symmetric: bool,
    /// The memory of this rank's source and target.
    pub(crate) source: BufferMap,
    pub(crate) target: BufferMap,
    /// The memory of a peer's source.
    pub(crate) peer_source: &'a dyn Fn(usize) -> Result<BufferMap, Error>,
}

impl Exchange {
    /// Creates a synchronization of ranks without data. Errors: [`Error::Group`].
    pub(crate) fn meeting(rank: usize, size: usize, members: &[usize]) -> Result<Exchange, Error> {
        crate::check::check_group(rank, size, members)?;
        Ok(Exchange {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rank,
            step: 0,
            is_meeting: true,
            phase: 0,
            op: None,
            dtype: None,
            members: members.into(),
            communicates: true,
            source_bytes: 0,
            target_bytes: 0,
            fills: Vec::new(),
            receives: Vec::new(),
            sends: Vec::new(),
            reduces: false,
            reduction: None,
            averages: Vec::new(),
            tag: MEETING,
            collective: None,
        })
    }

    /// Compiles a phase of bytes between dense buffers that belongs to no plan.
    ///
    /// Requires a tag that is the same on all members, and different for different phases. For each receive, the source
    /// offsets are those in the sender's buffer. Errors: [`Error::Phase`], [`Error::Kernel`].
    #[doc(hidden)]
    pub fn of_bytes(rank: usize, tag: u64, phase: &Phase) -> Result<Exchange, Error> {
        let part = Part {
            dtype: DType::U8,
            phase,
            op: None,
            communicates: true,
            symmetric: false,
            source: BufferMap::dense(phase.source_len),
            target: BufferMap::dense(phase.target_len),
            peer_source: &|_| Ok(BufferMap::dense(0)),
        };
        Exchange::new(Head { rank, step: 0, phase: 0, tag }, &[part])
    }

    /// Compiles the phases of one or more tensors, all with the same members.
    ///
    /// Reductions are only fused with reductions whose partial values come in the same order.
    pub(crate) fn new(head: Head, parts: &[Part<'_>]) -> Result<Exchange, Error> {
        let Head { rank, step, .. } = head;
        let wrong = |message: String| Error::Phase { step, message };
        let Some(first) = parts.first() else { return Err(wrong("the exchange has no tensors".to_string())) };
        let mut members: SmallVec<[usize; 16]> = first.phase.members.iter().copied().collect();
        members.sort_unstable();
        let Ok(my_place) = members.binary_search(&rank) else {
            return Err(wrong(format!("rank {rank} is not a member of group {members:?}")));
        };
        let all_same = |same: &dyn Fn(&Part<'_>) -> bool| parts.iter().all(same);
        let mut exchange = Exchange {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rank,
            step,
            is_meeting: false,
            phase: head.phase,
            op: first.op.filter(|_| all_same(&|part| part.op == first.op)),
            dtype: all_same(&|part| part.dtype == first.dtype).then_some(first.dtype),
            members: members.as_slice().into(),
            communicates: first.communicates,
            source_bytes: 0,
            target_bytes: 0,
            fills: Vec::new(),
            receives: Vec::new(),
            sends: Vec::new(),
            reduces: first.phase.reduce.is_some(),
            reduction: None,
            averages: Vec::new(),
            tag: head.tag ^ ((step as u64) << 8 | head.phase as u64),
            collective: None,
        };
        let mut reductions = Vec::with_capacity(parts.len());
        let mut places = Places::default();
        for part in parts {
            if part.phase.reduce.is_some() != first.phase.reduce.is_some()
                || part.communicates != first.communicates
            {
                return Err(wrong("steps of different kinds cannot share an exchange".to_string()));
            }
            reductions.push(exchange.add(part, &mut places)?);
        }
        let same = reductions.first().copied().flatten();
        exchange.reduction = same.filter(|_| reductions.iter().all(|other| *other == same));
        if !exchange.reduces {
            // Each rank starts with itself, so that not all ranks read the same peer first.
            let n = exchange.members.len();
            let place = |peer: &usize| members.binary_search(peer).unwrap_or(0);
            exchange.receives.sort_by_key(|receive| (place(&receive.peer()) + n - my_place) % n);
        }
        if !exchange.communicates && exchange.receives.iter().any(|receive| receive.peer() != rank) {
            return Err(wrong(format!("rank {rank} receives from other ranks in a local step")));
        }
        if let (Some(op), [part]) = (exchange.op, parts)
            && part.symmetric
            && exchange.fills.is_empty()
        {
            exchange.collective = collective::recognise(&exchange, op);
        }
        Ok(exchange)
    }

    /// Adds a tensor's part, and returns the reduction of its partial values.
    fn add(&mut self, part: &Part<'_>, places: &mut Places) -> Result<Option<Reduction>, Error> {
        let Part { dtype, phase, .. } = *part;
        let (rank, step) = (self.rank, self.step);
        let item_bytes = dtype.element_bytes()?;
        let wrong = |message: String| Error::Phase { step, message };
        let end = |map: &BufferMap| {
            map.end()
                .and_then(|elements| elements.checked_mul(item_bytes))
                .filter(|bytes| isize::try_from(*bytes).is_ok())
                .ok_or(reshard_kernels::Error::Overflow { what: "the size of a buffer" })
        };
        let target_end = end(&part.target)?;
        self.source_bytes = self.source_bytes.max(end(&part.source)?);
        self.target_bytes = self.target_bytes.max(target_end);
        let reduction = phase.reduce.map(|reduce| Reduction {
            op: combine_op(reduce.op),
            dtype,
            divisor: reduce.divisor,
        });
        let mut whole = whole_target(phase.target_len);
        part.target.apply(&mut whole, CopySide::Target)?;
        if let Some(op) = phase.fill_identity {
            let item = dtype.identity(combine_op(op))?;
            for nest in &whole {
                let copy = PreparedCopy::new(nest, item_bytes)?;
                self.fills.push(Fill {
                    piece: TypedNest { nest: nest.clone(), dtype },
                    item: item.clone(),
                    copy,
                });
            }
        }
        let mut overwrite = phase.fill_identity.is_none();
        let mut last = 0;
        for message in &phase.receives {
            if self.members.binary_search(&message.peer).is_err() {
                return Err(wrong(format!(
                    "rank {} is not a member of group {:?}",
                    message.peer, self.members
                )));
            }
            let whole = phase.fill_identity.is_some() || elements(message)? == Some(phase.target_len);
            if reduction.is_some() && !whole {
                return Err(wrong(format!(
                    "the partial value of rank {} does not cover the target",
                    message.peer
                )));
            }
            let peer_map =
                if message.peer == rank { part.source.clone() } else { (part.peer_source)(message.peer)? };
            let mut any = false;
            let mut nests = nests(message);
            peer_map.apply(&mut nests, CopySide::Source)?;
            part.target.apply(&mut nests, CopySide::Target)?;
            for nest in nests {
                let copy = PreparedCopy::new(&nest, item_bytes)?;
                if copy.bytes() == 0 {
                    continue;
                }
                if copy.target_range().end > target_end {
                    return Err(wrong(format!("a block of rank {} ends outside the target", message.peer)));
                }
                let one = match reduction {
                    Some(Reduction { op, .. }) if !overwrite => {
                        ReceiveOp::Combine(PreparedCombine::new(&nest, dtype, op)?)
                    }
                    Some(_) | None => ReceiveOp::Copy(copy),
                };
                let at = places.receive(message.peer, &mut self.receives);
                if reduction.is_some() && at < last {
                    return Err(wrong(
                        "partial values in different orders cannot share an exchange".to_string(),
                    ));
                }
                last = at;
                self.receives[at].push(TypedNest { nest, dtype }, one)?;
                any = true;
            }
            overwrite &= reduction.is_none() || !any;
        }
        for message in phase.sends.iter().filter(|message| message.peer != rank) {
            let mut nests = nests(message);
            part.source.apply(&mut nests, CopySide::Source)?;
            for nest in nests {
                if nest.len()? > 0 {
                    let at = places.send(message.peer, &mut self.sends);
                    self.sends[at].push(TypedNest { nest, dtype })?;
                }
            }
        }
        if let Some(Reduction { op, divisor, .. }) = reduction {
            dtype.check_combine(op)?;
            if divisor != 1 {
                for nest in &whole {
                    let divide = PreparedDivide::new(nest, dtype, divisor)?;
                    let piece = TypedNest { nest: nest.clone(), dtype };
                    self.averages.push(Average { piece, divisor, divide });
                }
            }
        }
        Ok(reduction)
    }

    /// Converts an exchange in which every member receives every member's whole source to an all-reduce.
    pub(crate) fn into_all_reduce(mut self, symmetric: bool) -> Option<Exchange> {
        let reduction = self.reduction()?;
        let pieces =
            self.receives.iter().find(|receive| receive.peer() == self.rank).map(ReceiveMessage::pieces);
        let (source, target) = match pieces {
            None => (0..0, 0..0),
            Some([piece]) => (piece.contiguous(CopySide::Source)?, piece.contiguous(CopySide::Target)?),
            Some(_) => return None,
        };
        self.op = Some(StepOp::AllReduce);
        self.collective = symmetric.then_some(Collective::AllReduce { source, target, reduction });
        self.collective.is_some().then_some(self)
    }
}

/// The index of each peer's message in the lists.
#[derive(Default)]
struct Places {
    receives: HashMap<usize, usize>,
    sends: HashMap<usize, usize>,
}

impl Places {
    fn receive(&mut self, peer: usize, all: &mut Vec<ReceiveMessage>) -> usize {
        *self.receives.entry(peer).or_insert_with(|| {
            all.push(ReceiveMessage::new(peer));
            all.len() - 1
        })
    }

    fn send(&mut self, peer: usize, all: &mut Vec<SendMessage>) -> usize {
        *self.sends.entry(peer).or_insert_with(|| {
            all.push(SendMessage::new(peer));
            all.len() - 1
        })
    }
}

/// Returns the number of elements of a message; `None` on overflow.
fn elements(message: &Message) -> Result<Option<usize>, Error> {
    let mut all = Some(0usize);
    for block in &message.blocks {
        let more = nest_of(block).len()?;
        all = all.and_then(|all| all.checked_add(more));
    }
    Ok(all)
}

/// Returns a nest over every element of a dense target, from one repeated source element.
fn whole_target(len: usize) -> Nests {
    Nests::from_iter([LoopNest::new(0, 0, [Mode::new(len as i64, (0, 1))])])
}

/// Returns a message's blocks as nests.
fn nests(message: &Message) -> Nests {
    message.blocks.iter().map(nest_of).collect()
}
