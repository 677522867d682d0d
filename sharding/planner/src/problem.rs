//! One planning problem: the two shardings, the element size, and the options.

use core::cell::OnceCell;
use std::sync::Arc;

use reshard_kernels::DType;

use crate::Error;
use crate::model::network::Network;
use crate::options::PlanOptions;
use crate::stop;
use reshard_sharding::Sharding;

/// Maximum number of ranks that are examined individually where no formula gives the same.
pub(crate) const COUNTED: usize = 1 << 14;

/// The input of every generator of candidates.
pub(crate) struct Question<'a> {
    pub(crate) options: &'a PlanOptions,
    /// The source's mesh on the network.
    pub(crate) network: Network<'a>,
    pub(crate) from: &'a Sharding,
    pub(crate) to: &'a Sharding,
    pub(crate) dtype: DType,
    /// Bytes of an element.
    pub(crate) item: u64,
    /// `true` for the second segment of a relay, which is not relayed again.
    pub(crate) is_relayed: bool,
    /// Both ends in the form that plans and steps share.
    shared: OnceCell<[Arc<Sharding>; 2]>,
}

impl<'a> Question<'a> {
    #[inline]
    pub(crate) fn new(
        options: &'a PlanOptions,
        from: &'a Sharding,
        to: &'a Sharding,
        dtype: DType,
        item: u64,
    ) -> Question<'a> {
        let network = Network::new(&options.model, from.mesh());
        Question { options, network, from, to, dtype, item, is_relayed: false, shared: OnceCell::new() }
    }

    /// Returns the problem, or the error if no planner can solve it.
    #[inline]
    pub(crate) fn checked(
        options: &'a PlanOptions,
        from: &'a Sharding,
        to: &'a Sharding,
        dtype: DType,
    ) -> Result<Question<'a>, Error> {
        stop::go_on()?;
        if from.shape() != to.shape() {
            let reason = format!(
                "cannot redistribute a tensor {:?} to {:?}: the shapes must be equal",
                from.shape(),
                to.shape()
            );
            return Err(Error::Incompatible { reason });
        }
        let item = dtype.element_bytes()?;
        let most = from.numel().max(1).checked_mul(item).and_then(|b| i64::try_from(b).ok());
        if most.is_none() {
            return Err(Error::overflow(format!("{:?} elements of {item} bytes", from.shape())));
        }
        options.arithmetic.check(from, dtype)?;
        options.arithmetic.check(to, dtype)?;
        refuse_avg_of_shards(from, to)?;
        Ok(Question::new(options, from, to, dtype, item as u64))
    }

    /// Returns the same problem for other shardings of the tensor, such as a segment of a plan.
    pub(crate) fn part<'b>(
        &self,
        options: &'b PlanOptions,
        from: &'b Sharding,
        to: &'b Sharding,
    ) -> Question<'b> {
        Question::new(options, from, to, self.dtype, self.item)
    }

    /// Returns both ends, to be shared by all steps of all candidates.
    pub(crate) fn shared(&self) -> &[Arc<Sharding>; 2] {
        self.shared.get_or_init(|| [self.from, self.to].map(|s| Arc::new(s.clone())))
    }

    /// Returns `true` if there is nothing to do: the same sharding, or no elements.
    pub(crate) fn is_trivial(&self) -> bool {
        self.from == self.to || self.from.numel() == 0
    }

    pub(crate) fn on_one_mesh(&self) -> bool {
        self.from.mesh() == self.to.mesh()
    }

    /// Returns `true` if partial values must be combined in rank order, which only regions support.
    pub(crate) fn reduces_in_order(&self) -> bool {
        self.options.deterministic && self.from.is_partial()
    }
}

/// Rejects a shard that would become a partial value of an average.
///
/// Its value would have to be multiplied by the number of ranks.
pub(crate) fn refuse_avg_of_shards(from: &Sharding, to: &Sharding) -> Result<(), Error> {
    let shards = |axis: usize| from.mesh() == to.mesh() && from.cutting().any(|sub| sub.axis == axis);
    let average = |p: &&reshard_sharding::PartialAxis| !p.op.has_identity() && shards(p.sub.axis);
    let Some(p) = to.partial().iter().find(average) else { return Ok(()) };
    let name = to.mesh().axes()[p.sub.axis].name();
    Err(Error::Sharding(reshard_sharding::Error::Placement {
        reason: format!(
            "a shard cannot become a partial value of an average: {from} shards over {name}, which {to} averages over; \
             make it P(sum), or replicate it first"
        ),
    }))
}
