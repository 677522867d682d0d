//! Several tensors redistributed in one fused run.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use reshard_planner::Plan;
use reshard_sharding::Sharding;

use crate::lower::Tensor;
use crate::{BufferLayout, CompiledPlan, Error};

/// Alignment, in bytes, of the beginning of a tensor, unless the caller passes an offset.
const ALIGNMENT: usize = 64;

/// Plans of several tensors, to be compiled into one run.
///
/// A model has hundreds of small tensors, and each exchange costs its latency regardless of its size. A batch
/// runs the `i`-th phases of all its tensors jointly: those between the same ranks are one exchange, so that
/// a message carries the nests of all tensors.
///
/// All sources are in one buffer and all targets in another. Each tensor begins at the same offset on every
/// rank, so a rank knows the offsets of its peers.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_collectives::{Batch, Communicator, Error, threads::World};
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let parse = |shape: &[usize], text: &str| Sharding::parse(&mesh, shape, text);
/// let weight = Planner::new().plan(&parse(&[2, 2], "S(0)")?, &parse(&[2, 2], "S(1)")?, DType::U8)?;
/// let bias = Planner::new().plan(&parse(&[4], "S(0)")?, &parse(&[4], "R")?, DType::U8)?;
/// let mut batch = Batch::new();
/// let weight = batch.add(&weight)?;
/// let bias = batch.add(&bias)?;
///
/// let results = World::new(2)?.run(|comm| {
///     let compiled = batch.compile(comm.rank())?;
///     assert_eq!(compiled.exchanges().len(), 1);
///     let (mut source, mut target) = (vec![0; batch.source_bytes()], vec![0; batch.target_bytes()]);
///     let mine = if comm.rank() == 0 { [1, 2] } else { [3, 4] };
///     source[batch.source_start(weight)?..][..2].copy_from_slice(&mine);
///     source[batch.source_start(bias)?..][..2].copy_from_slice(&mine);
///     let mut scratch = compiled.scratch(comm)?;
///     compiled.run(comm, &source, &mut target, &mut scratch)?;
///     let start = batch.target_start(bias)?;
///     Ok::<_, Error>((target[..2].to_vec(), target[start..start + 4].to_vec()))
/// });
/// assert_eq!(results[0], Ok((vec![1, 3], vec![1, 2, 3, 4])));
/// assert_eq!(results[1], Ok((vec![2, 4], vec![1, 2, 3, 4])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Plans that are owned or shared live in the batch, which a struct can then store:
///
/// ```
/// # use reshard_collectives::{Batch, Error};
/// # use reshard_planner::Plan;
/// struct Model {
///     weights: Batch<'static>,
/// }
/// # let _ = |plan: Plan, shared: std::sync::Arc<Plan>| {
/// let mut weights = Batch::new();
/// weights.add(plan)?;
/// weights.add(shared)?;
/// let model = Model { weights };
/// # let _ = model.weights.source_bytes();
/// # Ok::<(), Error>(())
/// # };
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    tensors: Vec<Placed<'a>>,
    source_bytes: usize,
    target_bytes: usize,
    scratch_bytes: usize,
}

/// A tensor of a batch, and its offsets in the buffers, in bytes.
#[derive(Clone, Debug)]
struct Placed<'a> {
    plan: PlanRef<'a>,
    source: Cow<'a, BufferLayout>,
    target: Cow<'a, BufferLayout>,
    source_start: usize,
    target_start: usize,
    scratch_start: usize,
}

/// A plan that is borrowed, or shared and owned; a [`Batch`] of only shared plans has no lifetime.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub enum PlanRef<'a> {
    /// Borrowed.
    Borrowed(&'a Plan),
    /// Shared.
    Shared(Arc<Plan>),
}

impl Deref for PlanRef<'_> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        match self {
            PlanRef::Borrowed(plan) => plan,
            PlanRef::Shared(plan) => plan,
        }
    }
}

impl<'a> From<&'a Plan> for PlanRef<'a> {
    fn from(plan: &'a Plan) -> Self {
        PlanRef::Borrowed(plan)
    }
}

impl From<Plan> for PlanRef<'_> {
    fn from(plan: Plan) -> Self {
        PlanRef::Shared(Arc::new(plan))
    }
}

impl From<Arc<Plan>> for PlanRef<'_> {
    fn from(plan: Arc<Plan>) -> Self {
        PlanRef::Shared(plan)
    }
}

impl<'a> From<&'a BufferLayout> for Cow<'a, BufferLayout> {
    fn from(layout: &'a BufferLayout) -> Self {
        Cow::Borrowed(layout)
    }
}

impl From<BufferLayout> for Cow<'_, BufferLayout> {
    fn from(layout: BufferLayout) -> Self {
        Cow::Owned(layout)
    }
}

impl<'a> Batch<'a> {
    /// Creates a batch of no tensors.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Adds a tensor with dense row-major buffers after the existing tensors, and returns its index.
    ///
    /// The plan is borrowed, owned or shared. Errors: [`Error::Kernel`] for sizes that overflow.
    pub fn add(&mut self, plan: impl Into<PlanRef<'a>>) -> Result<usize, Error> {
        let (source, target) = (aligned(self.source_bytes)?, aligned(self.target_bytes)?);
        self.add_at(plan, (BufferLayout::RowMajor, source), (BufferLayout::RowMajor, target))
    }

    /// Adds a tensor with the given memory layouts and byte offsets, and returns its index.
    ///
    /// The offsets hold on every rank. Requires that targets do not overlap, and the same calls on every
    /// rank. Errors: as [`add`](Batch::add), and [`Error::Memory`] for an offset inside of an element. A
    /// failed call adds nothing.
    pub fn add_at(
        &mut self,
        plan: impl Into<PlanRef<'a>>,
        (source, source_start): (impl Into<Cow<'a, BufferLayout>>, usize),
        (target, target_start): (impl Into<Cow<'a, BufferLayout>>, usize),
    ) -> Result<usize, Error> {
        let (plan, source, target) = (plan.into(), source.into(), target.into());
        let item = plan.element_bytes();
        for start in [source_start, target_start] {
            if !start.is_multiple_of(item) {
                let message = format!("offset {start} is not a multiple of the element size, {item} bytes");
                return Err(Error::Memory { rank: 0, message });
            }
        }
        let scratch_start = aligned(self.scratch_bytes)?;
        let source_end = end(source_start, most_elements(plan.from(), &source), item)?;
        let target_end = end(target_start, most_elements(plan.to(), &target), item)?;
        let scratch = usize::try_from(plan.max_shard_bytes()).unwrap_or(usize::MAX);
        self.scratch_bytes = end(scratch_start, scratch, 1)?;
        self.source_bytes = self.source_bytes.max(source_end);
        self.target_bytes = self.target_bytes.max(target_end);
        self.tensors.push(Placed { plan, source, target, source_start, target_start, scratch_start });
        Ok(self.tensors.len() - 1)
    }

    /// Returns the number of tensors.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Returns `true` if there are no tensors.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    fn tensor(&self, tensor: usize) -> Result<&Placed<'a>, Error> {
        self.tensors.get(tensor).ok_or(Error::NoTensor { tensor, tensors: self.tensors.len() })
    }

    /// Returns the byte offset of a tensor in the source. Errors: [`Error::NoTensor`].
    #[doc(hidden)]
    pub fn source_start(&self, tensor: usize) -> Result<usize, Error> {
        Ok(self.tensor(tensor)?.source_start)
    }

    /// Returns the byte offset of a tensor in the target. Errors: [`Error::NoTensor`].
    #[doc(hidden)]
    pub fn target_start(&self, tensor: usize) -> Result<usize, Error> {
        Ok(self.tensor(tensor)?.target_start)
    }

    /// Returns the bytes of a source that is large enough on every rank.
    #[doc(hidden)]
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Returns the bytes of a target that is large enough on every rank.
    #[doc(hidden)]
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// Returns the plan of a tensor. Errors: [`Error::NoTensor`].
    #[doc(hidden)]
    pub fn plan(&self, tensor: usize) -> Result<&Plan, Error> {
        Ok(&self.tensor(tensor)?.plan)
    }

    /// Returns the plans of all tensors, in order.
    #[doc(hidden)]
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &Plan> {
        self.tensors.iter().map(|tensor| &*tensor.plan)
    }

    /// Returns `true` if all tensors have dense row-major buffers.
    pub(crate) fn is_row_major(&self) -> bool {
        let dense = |layout: &BufferLayout| *layout == BufferLayout::RowMajor;
        self.tensors.iter().all(|tensor| dense(&tensor.source) && dense(&tensor.target))
    }

    /// Compiles all tensors for a rank.
    ///
    /// Steps of its [`exchanges`](CompiledPlan::exchanges) are rounds: round `i` has the `i`-th phases of all
    /// tensors. Errors: as [`CompiledPlan::with_layouts`]; [`Error::NotInPlan`] if the rank takes part in none of
    /// the plans; [`Error::NoTensor`] if there are none.
    pub fn compile(&self, rank: usize) -> Result<CompiledPlan, Error> {
        self.tensor(0)?;
        CompiledPlan::of_tensors(rank, &self.tensors.iter().map(Placed::tensor).collect::<Vec<_>>())
    }
}

impl Placed<'_> {
    fn tensor(&self) -> Tensor<'_> {
        let Placed { ref plan, ref source, ref target, source_start, target_start, scratch_start } = *self;
        Tensor { plan, source, target, source_start, target_start, scratch_start }
    }
}

/// Returns the next offset at which a tensor may begin.
fn aligned(bytes: usize) -> Result<usize, Error> {
    Ok(bytes.checked_next_multiple_of(ALIGNMENT).ok_or(overflow())?)
}

fn end(start: usize, elements: usize, item: usize) -> Result<usize, Error> {
    let end = elements.checked_mul(item).and_then(|bytes| bytes.checked_add(start));
    Ok(end.filter(|end| isize::try_from(*end).is_ok()).ok_or(overflow())?)
}

fn overflow() -> reshard_kernels::Error {
    reshard_kernels::Error::Overflow { what: "the size of a batch" }
}

/// Returns the greatest number of elements in the buffer of any rank.
fn most_elements(sharding: &Sharding, memory: &BufferLayout) -> usize {
    let dense = sharding.max_local_numel();
    match memory {
        BufferLayout::RowMajor | BufferLayout::Order(_) => dense,
        BufferLayout::Layouts(layouts) => {
            layouts.values().map(|layout| layout.cosize() as usize).max().unwrap_or(0).max(dense)
        }
    }
}
