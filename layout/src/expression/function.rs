//! The functions of expressions.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseError;
use crate::{Error, ErrorCode};

macro_rules! functions {
    ($($variant:ident $name:literal $parameters:literal $what:literal;)*) => {
        /// A function of expressions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Function {
            $(#[doc = $what] $variant,)*
        }

        impl Function {
            /// All of them.
            #[doc(hidden)]
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name, as expressions write it.
            #[doc(hidden)]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the parameters, as messages write them; those in brackets may be left out.
            #[doc(hidden)]
            pub fn parameters(self) -> &'static str {
                match self {
                    $(Self::$variant => $parameters,)*
                }
            }

            /// Returns a one-line description.
            #[doc(hidden)]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $what,)*
                }
            }
        }
    };
}

functions! {
    Coalesce "coalesce" "A [, profile]" "The shortest layout of the same function, or that by profile.";
    Filter "filter" "A" "A without modes of stride 0 and extent 1.";
    Composition "composition" "A, B" "R(i) = A(B(i)); B may be a tiler, A may be a swizzle.";
    CompositionAt "composition_at" "A, k, B" "The function i -> A(k + B(i)) as A(k) and a layout.";
    CompositionExtended "composition_extended" "A, B" "The same, with the last leaf of A unbounded.";
    Composed "composed" "A, offset, B" "The function i -> A(offset + B(i)), not simplified.";
    Complement "complement" "A [, M]" "The layout that fills the gaps of A up to M, by default its cosize.";
    FilterZeros "filter_zeros" "A" "A with extent 1 where the stride is 0.";
    Tiles "tiles" "A, M" "Whether A and its complement cover [0, M) exactly.";
    RightInverse "right_inverse" "A" "A(R(i)) = i.";
    LeftInverse "left_inverse" "A" "R(A(i)) = i.";
    LogicalDivide "logical_divide" "A, T" "(tile, rest), by mode for a tiler.";
    ZippedDivide "zipped_divide" "A, T" "((tiles), (rests)).";
    TiledDivide "tiled_divide" "A, T" "((tiles), rest, ...).";
    FlatDivide "flat_divide" "A, T" "(tile, ..., rest, ...).";
    LogicalDivideExtended "logical_divide_extended" "A, T" "The same, with the last leaf of A unbounded, as in CuTe.";
    ZippedDivideExtended "zipped_divide_extended" "A, T" "((tiles), (rests)) of that.";
    TiledDivideExtended "tiled_divide_extended" "A, T" "((tiles), rest, ...) of that.";
    FlatDivideExtended "flat_divide_extended" "A, T" "(tile, ..., rest, ...) of that.";
    LogicalProduct "logical_product" "A, B" "(A, copies of A after B), by mode for a tiler.";
    ZippedProduct "zipped_product" "A, B" "((A), (copies)).";
    TiledProduct "tiled_product" "A, B" "((A), copies, ...).";
    FlatProduct "flat_product" "A, B" "(A, ..., copies, ...).";
    BlockedProduct "blocked_product" "A, B" "Blocks of A side by side.";
    RakedProduct "raked_product" "A, B" "Copies of A interleaved.";
    LocalTile "local_tile" "A, T, pattern" "The tiles that the pattern leaves open, with their offset.";
    ThreadValues "thread_values" "P, V" "(thread, value) to the index in a tile: threads P, each with a block of values V.";
    ThreadPartition "thread_partition" "A, tile, TV" "A as ((thread, value), rests).";
    ThreadOwners "thread_owners" "tile, TV" "The thread of every element of a tile, plus the number of threads for each value before.";
    LocalPartition "local_partition" "A, threads, t" "The part of A of thread t, with its offset.";
    TileToShape "tile_to_shape" "A, shape [, order]" "A shape covered with copies of A.";
    DomainDistribute "domain_distribute" "shape, n" "Indices of a domain for n workers, or as many as divide.";
    MaxCommonLayout "max_common_layout" "A, B" "A(R(i)) = i = B(R(i)).";
    MaxCommonVector "max_common_vector" "A, B" "Number of elements that one vector instruction can copy.";
    Slice "slice" "A, pattern" "The modes that the pattern leaves open.";
    Dice "dice" "A, pattern" "The modes that the pattern fixes.";
    SliceAndOffset "slice_and_offset" "A, pattern" "The function of the open modes, with the value of the fixed ones.";
    Select "select" "A, k, ..." "Modes of A or of a tuple, in this order.";
    Take "take" "A, begin, end" "Modes [begin, end).";
    Append "append" "A, X [, n]" "The modes and X, or as many X as make n modes.";
    Prepend "prepend" "A, X [, n]" "X and the modes, or as many X as make n modes.";
    Replace "replace" "A, k, X" "X in place of mode k.";
    Group "group" "A, begin, end" "Modes [begin, end) as one mode.";
    Split "split" "A, shape" "A split into modes of these sizes, each coalesced.";
    Zip "zip" "A, B" "The layout of pairs (A(i), B(i)).";
    Flatten "flatten" "A" "All leaves as modes.";
    Reversed "reversed" "A" "The modes from right to left.";
    Upcast "upcast" "A, n" "Elements n times as wide.";
    Downcast "downcast" "A, n" "Elements 1/n times as wide.";
    Nullspace "nullspace" "A" "The indices that modes of stride 0 map to 0.";
    BankSwizzle "bank_swizzle" "row, element, access" "Swizzle for a row, element and access in bytes, without conflicts in 32 banks.";
    BankWays "bank_ways" "A, element, access" "Accesses at A(i): the most words of one of 32 banks.";
    Concat "concat" "A, B, ..." "The tuple of these layouts.";
    ColumnMajor "column_major" "shape" "The compact layout, leftmost fastest.";
    RowMajor "row_major" "shape" "The compact layout of the reversed shape; CuTe's is reversed(row_major(shape)).";
    MakeOrderedLayout "make_ordered_layout" "shape, order" "The compact layout, the least of the order fastest.";
    MakeLayoutLike "make_layout_like" "A" "The compact layout with the modes in the order of those of A.";
    Crd2Idx "crd2idx" "coordinate, shape [, stride]" "The index or value at a coordinate; the shape may be a layout.";
    Idx2Crd "idx2crd" "index, shape [, stride]" "The coordinate of an index, nested like the shape.";
    Crd2Crd "crd2crd" "coordinate, from, to" "The coordinate of the same index in another shape.";
    CeilDiv "ceil_div" "a, b" "The number of b that cover a, leaf by leaf.";
    ShapeDiv "shape_div" "a, b" "a / b where one divides the other, from the left.";
    ElemScale "elem_scale" "a, b" "Every leaf of a times the size of b there.";
    Product "product" "shape" "The product of the leaves.";
    ProductEach "product_each" "shape" "The product of every component.";
    InnerProduct "inner_product" "a, b" "The sum of the products of the leaves.";
    Mode "mode" "A, k" "Mode k.";
    Shape "shape" "A" "The extents.";
    Stride "stride" "A" "The strides.";
    Size "size" "A" "The number of indices.";
    Cosize "cosize" "A" "The length of the interval of values.";
    Rank "rank" "A" "The number of modes.";
    Depth "depth" "A" "The nesting depth of the modes.";
    SameFunction "same_function" "A, B" "Whether A(i) = B(i) for all i, on the same domain.";
    Injective "is_injective" "A" "Whether different indices have different values.";
    Surjective "is_surjective_onto" "A, M" "Whether the values are exactly [0, M).";
    Compact "is_compact" "A" "Whether A is a permutation of [0, size).";
    Disjoint "is_disjoint" "A, B" "Whether 0 is the only value of both.";
    Orthogonal "is_orthogonal" "A" "Whether the modes are radix-separable.";
    Compatible "is_compatible" "A, B" "Whether the shape of B refines that of A.";
    WeaklyCompatible "is_weakly_compatible" "A, B" "Whether the extents of A divide those of B there.";
    SoftlyCompatible "is_softly_compatible" "A, B" "Whether those of B divide the extents of A.";
    WeaklyCongruent "is_weakly_congruent" "A, B" "Whether B is nested like A, or deeper.";
    Congruent "is_congruent" "A, B" "Whether A and B have the same nesting.";
}

impl Function {
    /// Returns the function of this name.
    ///
    /// ```
    /// use reshard_layout::expression::Function;
    ///
    /// assert_eq!(Function::from_name("composition"), Some(Function::Composition));
    /// assert_eq!(Function::from_name("compose"), None);
    /// ```
    #[doc(hidden)]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }

    /// Returns the index of the argument that is a pattern, a coordinate with open positions.
    ///
    /// It is the last argument.
    ///
    /// ```
    /// use reshard_layout::expression::Function;
    ///
    /// assert_eq!(Function::LocalTile.pattern_argument(), Some(2));
    /// assert_eq!(Function::Composition.pattern_argument(), None);
    /// ```
    #[doc(hidden)]
    pub fn pattern_argument(self) -> Option<usize> {
        if self == Self::LocalTile {
            return Some(2);
        }
        matches!(self, Self::Slice | Self::SliceAndOffset | Self::Dice).then_some(1)
    }
}

impl FromStr for Function {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name).ok_or_else(|| {
            let message = "there is no function of this name".to_owned();
            Error::Parse(Box::new(ParseError::new(ErrorCode::Parse, name, 0, message)))
        })
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
