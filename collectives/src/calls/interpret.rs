//! Reference semantics of calls: runs all ranks' calls on plain buffers, slowly.

use std::collections::{BTreeMap, VecDeque};

use reshard_kernels::{CombineOp, DType, LoopNest, PreparedCombine, PreparedDivide};
use reshard_layout::Mode;

use super::{CollectiveCall, RankCall, RankCalls, View};
use crate::Error;

/// Elements of any type, each as its bytes.
pub(super) type Elements = Vec<Vec<u8>>;

/// Returns the buffers of all ranks after their calls, given those before, both in the order of `ranks`.
///
/// This is the definition of the calls. A rank makes its calls in order. A call of a group is made when all
/// its members have reached a call on it; messages are sent at once and received when available.
///
/// Errors: [`Error::ShardCount`] and [`Error::Buffer`] if sources do not fit the calls; [`Error::Phase`] if a
/// rank is listed twice, if ranks wait for each other forever, or if calls do not match; [`Error::DType`] if
/// ranks have different dtypes; those of the kernels.
///
/// ```
/// use reshard_collectives::calls::{FrameworkGroups, RankCalls, interpret};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::{Mesh, Sharding};
///
/// let mesh: Mesh = "x=2".parse()?;
/// let from = Sharding::parse(&mesh, &[2, 2], "S(0)")?;
/// let plan = Planner::new().plan(&from, &Sharding::parse(&mesh, &[2, 2], "S(1)")?, DType::U8)?;
/// let ranks = [0, 1].map(|rank| RankCalls::new(&plan, rank, DType::U8, &FrameworkGroups::none()));
/// let [a, b] = ranks;
/// assert_eq!(interpret(&[a?, b?], &[vec![1, 2], vec![3, 4]])?, [[1, 3], [2, 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interpret(ranks: &[RankCalls], sources: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Error> {
    let mut states: BTreeMap<usize, State<'_>> = BTreeMap::new();
    if ranks.len() != sources.len() {
        return Err(Error::ShardCount { needed: ranks.len(), given: sources.len() });
    }
    for (calls, source) in ranks.iter().zip(sources) {
        let (item, rank) = (calls.dtype().element_bytes()?, calls.rank());
        let elements = calls.iter().next().map(|call| call.source_len);
        if let Some(needed) = elements.map(|n| n.saturating_mul(item)).filter(|n| *n != source.len()) {
            return Err(Error::Buffer { rank, which: "source", needed, given: source.len() });
        }
        if let Some(other) = states.values().find(|state| state.dtype != calls.dtype()) {
            return Err(Error::DType { needed: other.dtype, given: calls.dtype() });
        }
        if states.contains_key(&rank) {
            return Err(Error::Phase { step: 0, message: format!("rank {rank} is listed twice") });
        }
        let buffer = source.chunks(item).map(<[u8]>::to_vec).collect();
        let left: Vec<&RankCall> = calls.iter().collect();
        states.insert(rank, State { dtype: calls.dtype(), buffer, left: left.into(), sent: None });
    }
    let mut mail: BTreeMap<(usize, usize), VecDeque<Elements>> = BTreeMap::new();
    while let Some(step) = states.values().find_map(|state| Some(state.left.front()?.step)) {
        let mut moved = false;
        for rank in states.keys().copied().collect::<Vec<_>>() {
            let Some(call) = states[&rank].left.front().copied() else { continue };
            let Some(group) = call.call.group() else {
                let received = one(rank, call, states.get_mut(&rank), &mut mail);
                moved |= received.is_some();
                land(&mut states, rank, received)?;
                continue;
            };
            let members = group.members();
            let is_here = |member: &usize| {
                let at = states.get(member).and_then(|state| state.left.front());
                at.is_some_and(|at| at.call.group() == Some(group))
            };
            if rank == members[0] && members.iter().all(is_here) {
                let calls: Vec<&RankCall> = members.iter().map(|member| states[member].left[0]).collect();
                let packed =
                    calls.iter().zip(members).map(|(call, member)| pack(call, &states[member].buffer));
                let received = together(&calls, states[&rank].dtype, &packed.collect::<Vec<_>>())?;
                for (member, received) in members.iter().zip(received) {
                    land(&mut states, *member, Some(received))?;
                }
                moved = true;
            }
        }
        if !moved {
            return Err(Error::Phase {
                step,
                message: "deadlock: the ranks wait for each other".to_string(),
            });
        }
    }
    Ok(ranks.iter().map(|calls| states[&calls.rank()].buffer.concat()).collect())
}

/// The progress of one rank.
struct State<'a> {
    dtype: DType,
    buffer: Elements,
    left: VecDeque<&'a RankCall>,
    /// `Some` if the messages of the next call have been sent.
    sent: Option<()>,
}

pub(super) fn pack(call: &RankCall, buffer: &Elements) -> Elements {
    call.pack.iter().flat_map(View::elements).map(|element| buffer[element].clone()).collect()
}

/// Returns the elements that a rank receives in a call of no group; `None` if they have not arrived.
fn one(
    rank: usize,
    call: &RankCall,
    state: Option<&mut State<'_>>,
    mail: &mut BTreeMap<(usize, usize), VecDeque<Elements>>,
) -> Option<Elements> {
    let state = state?;
    let mut packed = pack(call, &state.buffer);
    let CollectiveCall::Messages { sends, receives } = &call.call else { return Some(packed) };
    if state.sent.replace(()).is_none() {
        for (peer, count) in sends {
            let rest = packed.split_off(*count);
            mail.entry((rank, *peer)).or_default().push_back(packed);
            packed = rest;
        }
    }
    let is_here =
        |(peer, _): &(usize, usize)| mail.get(&(*peer, rank)).is_some_and(|queue| !queue.is_empty());
    if !receives.iter().all(is_here) {
        return None;
    }
    state.sent = None;
    Some(
        receives.iter().filter_map(|(peer, _)| mail.get_mut(&(*peer, rank))?.pop_front()).flatten().collect(),
    )
}

/// Returns the elements that each member of a group receives.
fn together(calls: &[&RankCall], dtype: DType, packed: &[Elements]) -> Result<Vec<Elements>, Error> {
    let members = calls.len();
    let step = calls[0].step;
    let wrong = |message: &str| Err(Error::Phase { step, message: message.to_string() });
    let reduced = |op: CombineOp, terms: Vec<&[Vec<u8>]>| {
        let (first, others) =
            terms.split_first().map_or((&[][..], &[][..]), |(first, others)| (*first, others));
        others.iter().try_fold(first.to_vec(), |all, term| combine(dtype, op, &all, term))
    };
    if calls.iter().any(|call| std::mem::discriminant(&call.call) != std::mem::discriminant(&calls[0].call)) {
        return wrong("members of a group make different calls");
    }
    let alike = packed.iter().all(|all| all.len() == packed[0].len());
    if !alike && !matches!(calls[0].call, CollectiveCall::AllToAll { .. }) {
        return wrong("members of a group pack different numbers of elements");
    }
    match &calls[0].call {
        CollectiveCall::AllGather { .. } => Ok(vec![packed.concat(); members]),
        CollectiveCall::AllReduce { op, .. } => {
            Ok(vec![reduced(*op, packed.iter().map(Vec::as_slice).collect())?; members])
        }
        CollectiveCall::ReduceScatter { op, .. } => {
            let block = packed[0].len() / members;
            let of = |place: usize| {
                reduced(*op, packed.iter().map(|all| &all[place * block..][..block]).collect())
            };
            (0..members).map(of).collect()
        }
        CollectiveCall::AllToAll { .. } => {
            let mut received = vec![Elements::new(); members];
            for (from, (call, mut left)) in calls.iter().zip(packed.iter().map(Vec::as_slice)).enumerate() {
                let CollectiveCall::AllToAll { sends, .. } = &call.call else {
                    return wrong("not all members of a group call all-to-all");
                };
                for (to, count) in sends.iter().enumerate() {
                    let CollectiveCall::AllToAll { receives, .. } = &calls[to].call else {
                        return wrong("not all members of a group call all-to-all");
                    };
                    if receives[from] != *count {
                        return wrong("sent and received counts differ");
                    }
                    let (block, rest) = left.split_at(*count);
                    received[to].extend_from_slice(block);
                    left = rest;
                }
            }
            Ok(received)
        }
        CollectiveCall::Local | CollectiveCall::Messages { .. } => {
            wrong("a call on a group is not a collective")
        }
    }
}

/// Returns `op` of two lists of elements, element by element.
fn combine(dtype: DType, op: CombineOp, a: &[Vec<u8>], b: &[Vec<u8>]) -> Result<Elements, Error> {
    let mut bytes = a.concat();
    let nest = LoopNest::new(0, 0, [Mode::new(a.len() as i64, (1, 1))]);
    PreparedCombine::new(&nest, dtype, op)?.run(&mut bytes, &b.concat())?;
    Ok(bytes.chunks(dtype.element_bytes()?).map(<[u8]>::to_vec).collect())
}

/// Turns the received elements of a rank into its buffer.
fn land(
    states: &mut BTreeMap<usize, State<'_>>,
    rank: usize,
    received: Option<Elements>,
) -> Result<(), Error> {
    let (Some(received), Some(state)) = (received, states.get_mut(&rank)) else { return Ok(()) };
    let Some(call) = state.left.pop_front() else { return Ok(()) };
    if received.len() != call.received_len() {
        let message = format!(
            "rank {rank} receives {} elements, but its call expects {}",
            received.len(),
            call.received_len()
        );
        return Err(Error::Phase { step: call.step, message });
    }
    if call.is_idle() {
        return Ok(());
    }
    state.buffer = landed(call, state.dtype, received)?;
    Ok(())
}

/// Returns the buffer after a call, given the received elements.
pub(super) fn landed(call: &RankCall, dtype: DType, received: Elements) -> Result<Elements, Error> {
    let item = call.fill.map_or_else(
        || Ok(vec![0; dtype.element_bytes()?]),
        |op| Ok::<_, Error>(dtype.identity(op)?.into_vec()),
    );
    let mut target = vec![item?; call.target_len];
    if let Some(terms) = &call.combine {
        for (i, term) in terms.terms.iter().enumerate() {
            let places: Vec<usize> =
                call.unpack[term.views.clone()].iter().flat_map(View::elements).collect();
            let new = &received[term.start..][..places.len()];
            let old: Elements = places.iter().map(|place| target[*place].clone()).collect();
            let overwrites = i == 0 && call.fill.is_none();
            let new = if overwrites { new.to_vec() } else { combine(dtype, terms.op, &old, new)? };
            places.into_iter().zip(new).for_each(|(place, element)| target[place] = element);
        }
    } else {
        let places = call.unpack.iter().flat_map(View::elements);
        places.zip(received).for_each(|(place, element)| target[place] = element);
    }
    let mut bytes = target.concat();
    if call.divisor != 1 {
        let whole = LoopNest::new(0, 0, [Mode::new(call.target_len as i64, (0, 1))]);
        PreparedDivide::new(&whole, dtype, call.divisor)?.run(&mut bytes)?;
    }
    Ok(bytes.chunks(dtype.element_bytes()?).map(<[u8]>::to_vec).collect())
}
