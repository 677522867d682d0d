//! Operands: tensors as inputs and outputs of ops.

use core::fmt;

use reshard_kernels::DType;

use crate::Error;
use crate::rules::Brackets;
use reshard_sharding::Sharding;

/// The element type of a tensor and who holds which elements.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_ops::propagate::Operand;
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let x = Operand::new(DType::F32, Sharding::parse(&mesh, &[2048, 256], "S(0),R")?);
/// assert_eq!(x.to_string(), "f32[2048,256] [S(0),R] on dp=2,tp=4");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The element type.
    pub dtype: DType,
    /// The distribution of elements over ranks.
    pub sharding: Sharding,
    /// `true` if it is known that no element is negative, as of a norm.
    ///
    /// Only such tensors become partial values of a norm without communication.
    pub nonnegative: bool,
}

impl Operand {
    /// An operand.
    pub fn new(dtype: DType, sharding: Sharding) -> Operand {
        let nonnegative = is_of_magnitudes(&sharding);
        Operand { dtype, sharding, nonnegative }
    }

    /// Marks the operand as having no negative element.
    #[must_use]
    #[doc(hidden)]
    pub fn nonnegative(self) -> Operand {
        Operand { nonnegative: true, ..self }
    }

    /// Returns the element type; fails if its elements share bytes.
    pub(super) fn whole_bytes(&self) -> Result<DType, Error> {
        match self.dtype.element_bytes() {
            Ok(_) => Ok(self.dtype),
            Err(e) => Err(Error::Unsupported { reason: e.to_string() }),
        }
    }
}

/// Returns `true` if a tensor with this sharding has no negative element.
#[doc(hidden)]
pub fn is_of_magnitudes(sharding: &Sharding) -> bool {
    sharding.partial().iter().any(|p| p.op.is_of_magnitudes())
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.sharding;
        write!(f, "{}{} [{s}] on {}", self.dtype, Brackets(s.shape()), s.mesh())
    }
}
