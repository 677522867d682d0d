//! The algebra of layouts, one operation a file.
//!
//! Every operation is a method of [`Layout`](crate::Layout). Each has a property, which is a test in
//! `tests/laws`: over all small layouts first, then over random ones. `A`, `B`, `T` are layouts, `i` runs
//! over the domain. Properties that hold for strides of any kind are tested for integers, steps along axes,
//! and pairs of both.
//!
//! | operation | property | file | test |
//! |---|---|---|---|
//! | coalesce | `coalesce(A)(i) = A(i)`; idempotent, shortest | `coalesce` | `coalesce_keeps_the_function_and_is_idempotent_and_shortest` |
//! | same function | `coalesce(A) = coalesce(B)` exactly if `A(i) = B(i)` | `coalesce` | `coalesce_is_a_complete_invariant` |
//! | | the same for steps along axes and for pairs: any two lists | `modes` | `coalesced_forms_are_unique_in_every_module` |
//! | coalesce by profile | the same, mode by mode | `by_mode` | `coalesce_by_profile_keeps_the_function_and_the_modes` |
//! | filter | the same set of values | `filter` | `filter_keeps_the_set_of_values` |
//! | compose | `R(i) = A(B(i))`, `size(R) = size(B)`, the shape of `R` refines that of `B`; errors are correct | `compose`, `exact` | `compose_is_composition_of_functions_or_says_why_not` |
//! | | `(A o B) o C = A o (B o C)` where both exist | | `compose_is_associative_where_defined` |
//! | | `A o (B, C) = (A o B, A o C)` where it exists | | `compose_distributes_over_concatenation_where_defined` |
//! | | `A o id = A = id o A` | | `the_identity_is_neutral` |
//! | | carries of opposite weight may cancel | | `compose_is_exact_where_weights_have_both_signs` |
//! | compose from an offset | `R(i) = A(offset + B(i)) - A(offset)`, pairs retain their other side; errors are correct | `compose` | `composition_from_an_offset_is_the_function_from_there_on` |
//! | | modes of `B` with negative strides are read from its least value on | `compose` | `composition_from_an_offset_goes_backwards_where_strides_are_negative` |
//! | compose extended | the same, the last leaf of `A` without end | `compose` | `compose_extended_agrees_within_the_domain_and_goes_on_beyond` |
//! | compose lazily | `(A o k o B)(i) = A(k + B(i))` | `composed` | `compose_is_composition_of_functions_or_says_why_not` |
//! | | it has these values and no others | `composed` | `a_composition_has_the_values_of_its_definition_and_no_others` |
//! | of a composition | `(S o B) o C = S o (B o C)` | `swizzled` | `what_acts_on_indices_acts_on_what_is_applied_first` |
//! | of two compositions | `(f, g)(i, j) = f(i) + g(j)`, or no single function is applied last | `compositions` | `parts_beside_each_other_are_their_sum_or_no_one_function_is_applied_last` |
//! | | `A o f`, `f o g`; errors about the domain are correct | `compositions` | `a_layout_or_composition_after_a_composition_is_one_function_of_the_other` |
//! | | `f(i) = f(0) + R(i)`, or no layout | `compositions` | `from_its_first_value_on_a_composition_is_a_layout_or_none` |
//! | | `A / t = A o (t, t*)` | `compositions` | `what_is_divided_by_a_composition_is_its_function_of_the_tile_and_of_the_rest` |
//! | | a product begins with its first operand; injective if both are | `compositions` | `what_is_repeated_after_a_composition_begins_with_itself_and_is_injective` |
//! | | tiles and parts of threads are its values there | `partition` | `tiles_and_parts_of_threads_of_a_composition_are_its_values_there` |
//! | | what two have in common are neighbours in both | `compositions` | `what_two_compositions_have_in_common_are_neighbours_in_both` |
//! | | queries about values agree with the values | `compositions` | `questions_about_values_are_answered_by_the_values` |
//! | | `A(S(x)) = S'(A(x))` | `swizzled` | `a_swizzle_through_a_layout_is_the_layout_after_the_swizzle` |
//! | | its inverses are inverses, recast it is the same memory | `swizzled` | `inverses_of_a_swizzled_layout_are_inverses`, `a_recast_composition_reads_the_same_memory` |
//! | complement | `(A, A*)` is injective, a bijection onto `[0, M)` if it tiles, and the least | `complement` | `complement_tiles_and_is_the_least_that_fits` |
//! | | `A**` is `A` sorted, if it tiles | | `complement_twice_is_the_sorted_layout` |
//! | | an error only for overlapping or negative modes | | `complement_is_refused_exactly_for_overlapping_or_negative_modes` |
//! | gaps | with the modes they cover `[0, M)` once, if all divisions are exact | `complement` | `a_complement_of_modes_fills` |
//! | zip | `zip(A, B)(i) = (A(i), B(i))`; errors and their boundaries are correct | `zip` | `a_zip_is_both_functions_or_there_is_none` |
//! | | the same for every spelling of `A` and `B` | | `a_zip_does_not_depend_on_how_its_operands_are_written` |
//! | split | the parts have their sizes and are coalesced, concatenated they are `A`; errors are correct | `zip` | `a_split_is_the_function_in_parts_or_there_is_none` |
//! | | `split((A, B), (size(A), size(B))) = (A, B)` for coalesced `A`, `B` | | `splitting_gives_the_parts_of_a_concatenation_back` |
//! | | `split(A, shape) = A o column_major(shape)`, with the same errors | | `a_view_is_a_composition` |
//! | right inverse | `A(R(i)) = i`, the longest | `inverse` | `right_inverse_finds_the_index_of_each_value` |
//! | left inverse | `R(A(i)) = i`; `A(R(A(i))) = A(i)` with stride 0 | `inverse` | `left_inverse_finds_the_index_of_each_index` |
//! | | both are equal for a permutation | | `inverses_of_a_permutation_agree` |
//! | divide | a permutation of the values of `A` if `T` tiles; mode 0 is `A o T` | `divide` | `divide_is_a_permutation_when_the_tile_tiles` |
//! | product | mode 0 is `A`; injective if `A` and `B` are | `product` | `product_begins_with_its_first_operand_and_repeats_it` |
//! | by mode | `op(A, <T, U>) = (op(A_0, T), op(A_1, U), ...)` | `by_mode` | `by_mode_is_mode_by_mode` |
//! | tile to shape | mode `k` has the requested size | `tile_to_shape` | `tile_to_shape_covers_the_shape` |
//! | common layout | `A(R(i)) = i = B(R(i))` | `common` | `common_layout_is_the_identity_through_both` |
//! | compact in an order | `R(c)` is the number of coordinates before `c` in the order | `ordered` | `a_compact_layout_in_an_order_numbers_the_coordinates_in_that_order` |
//! | compact like another | the same in the order of its strides | `ordered` | `a_layout_like_another_numbers_its_coordinates_in_the_order_of_its_strides` |
//! | select, take, append, ... | the modes that are named | `pick` | `picked_modes_are_the_modes` |
//! | distribute | ascending, `size(R)` divides `n`, `A o R` exists for all `A` of the shape | `distribute` | `what_is_distributed_ascends_divides_and_composes_with_every_layout_of_the_shape` |
//! | local tile, partition | the tiles cover `A` once, and so do the parts of all threads | `partition` | `tiles_and_parts_of_threads_cover_a_layout_once` |
//! | thread values | `TV(t, v)` is the element at `q + size(V) p`, `P(p) = t`, `V(q) = v` | `thread_values` | `a_tiled_copy_has_every_value_beside_those_of_its_thread` |
//! | | a partition is the tensor at the elements of every thread | | `a_partition_is_the_tensor_at_the_elements_of_every_thread` |
//! | slice, dice | `A(c) = offset + R(open coordinates of c)` | `slice` | `slice_and_dice_split_the_function` |
//! | group, flatten | the same function | `group` | `nesting_does_not_change_the_function` |
//! | recast | upcast undoes downcast | `recast` | `upcast_undoes_downcast` |
//! | null space | `A(N(i)) = 0` | `nullspace` | `nullspace_is_what_modes_of_stride_zero_map_to_zero` |
//! | swizzle | its effect on bits; composition is sequential application | `swizzle` | `swizzles_compose_to_what_they_do_one_after_the_other` |
//! | order | lexicographic is reversed colexicographic, for every operation | `order` | `lexicographic_order_is_reversed_colexicographic_order` |
//! | nested | `flat_modes` undoes it | `layout` | `nested_and_flat_modes_are_inverse` |
//! | reach | a layout exists if its size and, along every axis, its span fit in 64 bits | `stride` | `what_fits_along_every_axis_is_accepted_and_nothing_else` |
//! | notation | `FromStr` undoes `Display` | `notation` | `display_then_from_str_is_the_identity` |
//! | | the same for steps along axes and for pairs | | `display_then_from_str_is_the_identity_for_every_stride` |
//! | | names of axes are only other numbers | `named` | `names_are_only_other_numbers` |
//! | composition after axes | `R(i) = A(B(i))` along every axis, or there is none | `named` | `composition_after_axes_is_its_definition_or_proved_not_to_be_a_layout` |
//! | | any other text is rejected with a message | | `mutated_texts_are_read_or_refused` |

mod by_mode;
mod coalesce;
mod common;
mod complement;
mod compose;
mod composed;
mod compositions;
mod distribute;
mod divide;
mod exact;
mod filter;
mod group;
mod inverse;
mod nullspace;
mod ordered;
mod partition;
mod pick;
mod product;
mod recast;
mod slice;
mod swizzled;
mod thread_values;
mod tile_to_shape;
pub(crate) mod zip;

pub use by_mode::Tiler;
pub use complement::gaps;
pub use composed::{ComposedLayout, Outer};
pub use compositions::Form;
pub use distribute::gcd;
pub use exact::ENUMERATION_BUDGET;
pub(crate) use exact::recognise;
pub use slice::SlicePattern;
pub use thread_values::ThreadValueLayout;
pub use zip::{split_into, zip, zip_into};
