//! The kernels' sources, and which of their names a program has.

use reshard_kernels::{CombineOp, DType, Exponent};
use reshard_layout::Banks;

use crate::select::{CopyKernel, ElementKernel, ElementOp};

const INDEX: &str = include_str!("../cu/index.cuh");
const ELEMENT: &str = include_str!("../cu/element.cuh");
const NORM: &str = include_str!("../cu/norm.cuh");
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
            Program::Copy => Some(format!("{INDEX}\n{}\n{COPY}", tile_pads())),
            Program::Element(dtype) => {
                let number = 1 + ELEMENTS.iter().position(|d| *d == dtype)?;
                Some(format!("#define ELEMENT {number}\n{INDEX}\n{NORM}\n{ELEMENT}\n{COMBINE}"))
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

/// How many words of `word` bytes the rows of a tile with `side` words are apart beyond their own: the fewest with which rows
/// begin in a bank, and a column, of which a phase takes 128 bytes, waits for no bank.
fn tile_pad(word: usize, side: usize) -> usize {
    let lanes = (128 / word).min(side) as i64;
    let waits = |row: usize| {
        let column = (0..lanes).map(|lane| lane * (row * word) as i64);
        !(row * word).is_multiple_of(4) || Banks::SHARED.ways(column, word as u32) > 1
    };
    (0..side).find(|pad| !waits(side + pad)).unwrap_or(0)
}

/// The pads of all tiles, by the bytes of a word, as a macro.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// By the formula that the kernels were measured with, and without conflicts.
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
