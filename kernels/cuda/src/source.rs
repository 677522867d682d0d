//! The kernels' sources, and the kernel names of each program.

use reshard_kernels::random::coefficients::{
    ERF_INV_INNER_F32, ERF_INV_INNER_F64, ERF_INV_MIDDLE_F64, ERF_INV_OUTER_F32, ERF_INV_OUTER_F64,
    LN_SINGLE, LOG1P_DENOMINATOR, LOG1P_NUMERATOR,
};
use reshard_kernels::{CombineOp, DType, Exponent};
use reshard_layout::Banks;

use crate::select::{CopyKernel, ElementKernel, ElementOp};

const INDEX: &str = include_str!("../cu/index.cuh");
const ELEMENT: &str = include_str!("../cu/element.cuh");
const NORM: &str = include_str!("../cu/norm.cuh");
const COPY: &str = include_str!("../cu/copy.cu");
const COMBINE: &str = include_str!("../cu/combine.cu");
const RANDOM: &str = include_str!("../cu/random.cu");

/// A unit of compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// All copies.
    Copy,
    /// All elementwise kernels of one dtype.
    Element(DType),
    /// The draws of random elements of one dtype; of bool they are those of u8.
    Random(DType),
}

impl Program {
    /// Returns every program.
    pub fn all() -> impl Iterator<Item = Program> {
        std::iter::once(Program::Copy)
            .chain(ELEMENTS.map(Program::Element))
            .chain(ELEMENTS.map(Program::Random))
    }

    /// Returns CUDA C++ that needs no header, or `None` for a dtype without arithmetic.
    pub fn source(self) -> Option<String> {
        match self {
            Program::Copy => Some(format!("{INDEX}\n{}\n{COPY}", tile_pads())),
            Program::Element(dtype) => {
                Some(format!("{}\n{INDEX}\n{NORM}\n{ELEMENT}\n{COMBINE}", element_of(dtype)?))
            }
            Program::Random(dtype) => {
                let (of, polynomials) = (element_of(dtype)?, polynomials());
                Some(format!("#define DRAWS\n{of}\n{INDEX}\n{NORM}\n{ELEMENT}\n{polynomials}\n{RANDOM}"))
            }
        }
    }

    /// Returns the exported names of its kernels.
    pub fn kernels(self) -> Vec<String> {
        match self {
            Program::Copy => {
                let alone = CopyKernel::ALL.into_iter().map(|k| exported(&k.name()));
                alone.chain([exported("copy_jobs")]).collect()
            }
            Program::Random(_) => vec![exported("draw")],
            Program::Element(dtype) => {
                let item = dtype.element_bytes().unwrap_or(16);
                // One kernel has all norms.
                let all = CombineOp::ALL.into_iter().chain([CombineOp::Norm(Exponent::TWO)]);
                let ops = all
                    .filter(|op| dtype.check_combine(*op).is_ok())
                    .flat_map(|op| [ElementOp::Combine(op), ElementOp::Reduce(op)]);
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

/// Returns the number of a dtype, as a macro; `None` for a dtype without arithmetic.
fn element_of(dtype: DType) -> Option<String> {
    let number = 1 + ELEMENTS.iter().position(|d| *d == dtype)?;
    Some(format!("#define ELEMENT {number}"))
}

/// Returns the polynomials of draws as functions, with their coefficients as bits.
fn polynomials() -> String {
    let f32s = [
        ("ln_single_terms", LN_SINGLE),
        ("erf_inv_inner_f32", ERF_INV_INNER_F32),
        ("erf_inv_outer_f32", ERF_INV_OUTER_F32),
    ]
    .map(|(name, list)| {
        let bits = list.iter().map(|c| format!("__uint_as_float({:#x}u)", c.to_bits())).collect();
        horner("float", name, bits)
    });
    let f64s = [
        ("log1p_numerator", LOG1P_NUMERATOR),
        ("log1p_denominator", LOG1P_DENOMINATOR),
        ("erf_inv_inner_f64", ERF_INV_INNER_F64),
        ("erf_inv_middle_f64", ERF_INV_MIDDLE_F64),
        ("erf_inv_outer_f64", ERF_INV_OUTER_F64),
    ]
    .map(|(name, list)| {
        let bits =
            list.iter().map(|c| format!("__longlong_as_double({:#x}ll)", c.to_bits() as i64)).collect();
        horner("double", name, bits)
    });
    f32s.concat() + &f64s.concat()
}

/// Returns a polynomial, the highest coefficient first.
fn horner(float: &str, name: &str, coefficients: Vec<String>) -> String {
    let sum = coefficients.into_iter().reduce(|p, c| format!("({p} * x + {c})")).unwrap_or_default();
    format!("__device__ __forceinline__ {float} {name}({float} x) {{ return {sum}; }}\n")
}

/// Returns the padding, in words of `word` bytes, between the rows of a tile with `side` words.
///
/// It is the least padding with which rows begin in a bank, and a column, of which a phase takes 128 bytes,
/// has no bank conflict.
fn tile_pad(word: usize, side: usize) -> usize {
    let lanes = (128 / word).min(side) as i64;
    let waits = |row: usize| {
        let column = (0..lanes).map(|lane| lane * (row * word) as i64);
        !(row * word).is_multiple_of(4) || Banks::SHARED.conflicts(column, word as u32) > 1
    };
    (0..side).find(|pad| !waits(side + pad)).unwrap_or(0)
}

/// Returns the pads of all tiles, by word size in bytes, as a macro.
fn tile_pads() -> String {
    let mut pads = std::collections::BTreeMap::new();
    for kernel in CopyKernel::ALL {
        if let CopyKernel::Transpose { width, words } = kernel {
            pads.insert(width * words, tile_pad(width * words, kernel.words_along_a_side()));
        }
    }
    let cases: Vec<String> = pads.iter().map(|(word, pad)| format!("(S) == {word} ? {pad} : ")).collect();
    format!("#define TILE_PAD(S) ({}0)", cases.concat())
}

/// Returns the name of a kernel in its module.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the formula that the kernels were measured with, and checks for conflicts.
    #[test]
    fn rows_of_tiles_are_an_odd_number_of_banks_apart() {
        for kernel in CopyKernel::ALL {
            let CopyKernel::Transpose { width, words } = kernel else { continue };
            let (word, side) = (width * words, kernel.words_along_a_side());
            let pad = tile_pad(word, side);
            assert_eq!(pad, if word < 4 { 4 / word } else { 1 }, "{kernel:?}");
            assert!(((side + pad) * word / 4) % 2 == 1 || word > 4, "{kernel:?}");
            assert!(tile_pads().contains(&format!("(S) == {word} ? {pad} : ")), "{}", tile_pads());
        }
    }
}
