//! The kernels' sources, and which of their names a program has.

use reshard_kernels::{CombineOp, DType};

use crate::select::{CopyKernel, ElementKernel, ElementOp};

const INDEX: &str = include_str!("../cu/index.cuh");
const ELEMENT: &str = include_str!("../cu/element.cuh");
const COPY: &str = include_str!("../cu/copy.cu");
const COMBINE: &str = include_str!("../cu/combine.cu");

/// A program that is compiled at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// All copies.
    Copy,
    /// All elementwise kernels of one dtype.
    Element(DType),
}

impl Program {
    /// Every program that there is.
    pub fn all() -> impl Iterator<Item = Program> {
        std::iter::once(Program::Copy).chain(ELEMENTS.map(Program::Element))
    }

    /// CUDA C++ that needs no header, or `None` for a dtype without arithmetic.
    pub fn source(self) -> Option<String> {
        match self {
            Program::Copy => Some(format!("{INDEX}\n{COPY}")),
            Program::Element(dtype) => {
                let number = 1 + ELEMENTS.iter().position(|d| *d == dtype)?;
                Some(format!("#define ELEMENT {number}\n{INDEX}\n{ELEMENT}\n{COMBINE}"))
            }
        }
    }

    /// The names of its kernels, as they are exported.
    pub fn kernels(self) -> Vec<String> {
        match self {
            Program::Copy => {
                let alone = CopyKernel::ALL.into_iter().map(|k| exported(&k.name()));
                alone.chain([exported("copy_jobs")]).collect()
            }
            Program::Element(dtype) => {
                let item = dtype.item_bytes().unwrap_or(16);
                let ops =
                    CombineOp::ALL.into_iter().flat_map(|op| [ElementOp::Combine(op), ElementOp::Reduce(op)]);
                let divide = dtype.check_average().is_ok().then_some(ElementOp::Divide);
                let ops: Vec<ElementOp> = ops.chain(divide).collect();
                let widths = [1, 2, 4, 8, 16].into_iter().filter(|w| *w >= item);
                widths
                    .flat_map(|width| ops.iter().map(move |&op| ElementKernel { op, dtype, width }))
                    .map(|k| exported(&k.name()))
                    .collect()
            }
        }
    }
}

/// The name under which a kernel is found in its module.
pub fn exported(name: &str) -> String {
    format!("reshard_{name}")
}

/// The dtypes with arithmetic, in the order of their numbers in `cu/element.cuh`, which begin with 1.
const ELEMENTS: [DType; 12] = [
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];
