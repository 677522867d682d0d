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
        let arithmetic = DType::ALL.into_iter().filter(|d| element_number(*d).is_some());
        std::iter::once(Program::Copy).chain(arithmetic.map(Program::Element))
    }

    /// CUDA C++ that needs no header, or `None` for a dtype without arithmetic.
    pub fn source(self) -> Option<String> {
        match self {
            Program::Copy => Some(format!("{INDEX}\n{COPY}")),
            Program::Element(dtype) => {
                let number = element_number(dtype)?;
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

/// The number of a dtype in `cu/element.cuh`.
fn element_number(dtype: DType) -> Option<u32> {
    match dtype {
        DType::U8 => Some(1),
        DType::I8 => Some(2),
        DType::U16 => Some(3),
        DType::I16 => Some(4),
        DType::U32 => Some(5),
        DType::I32 => Some(6),
        DType::U64 => Some(7),
        DType::I64 => Some(8),
        DType::F16 => Some(9),
        DType::BF16 => Some(10),
        DType::F32 => Some(11),
        DType::F64 => Some(12),
        DType::Bool
        | DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::C64
        | _ => None,
    }
}
