//! Nothing is on the heap for layouts of up to eight leaves: counted by the allocator.

use reshard_layout::algebra::Tiler;
use reshard_layout::{IntTuple, Layout};
use reshard_test_support::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const EIGHT: &str = "((2,3),(2,(2,2)),2,(5,2)):((1,2),(6,(12,24)),48,(96,480))";

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations(|| Box::new(1)), 1);
}

#[test]
fn layouts_of_eight_leaves_are_not_on_the_heap() {
    assert_eq!(allocations(|| EIGHT.parse::<Layout>().expect("a layout")), 0, "FromStr");
    let a: Layout = EIGHT.parse().expect("a layout");
    assert_eq!(a.leaves().len(), 8);
    let size = a.size();
    let b = Layout::from_modes(&[(4, 4), (2, 1), (2, 2), (3, 240), (2, 16)]).expect("a layout");
    assert_eq!(allocations(|| Layout::new(a.shape(), a.stride()).expect("congruent")), 0, "new");
    assert_eq!(allocations(|| a.clone()), 0, "clone");
    assert_eq!(allocations(|| (a.rank(), a.depth(), a.size(), a.cosize(), a == b)), 0, "queries");
    assert_eq!(allocations(|| a.at(17).expect("in the domain")), 0, "at");
    assert_eq!(allocations(|| a.coordinates(17).and_then(|c| a.offset_at(&c))), 0, "coordinates");
    assert_eq!(allocations(|| a.modes().map(|mode| mode.size()).sum::<i64>()), 0, "modes");
    assert_eq!(allocations(|| Layout::concat(&[b.clone(), b.clone().mode(0).expect("a mode")])), 0, "concat");
    assert_eq!(allocations(|| a.coalesce()), 0, "coalesce");
    assert_eq!(allocations(|| a.is_equivalent(&b)), 0, "same_function");
    assert_eq!(allocations(|| a.compose(&b).expect("representable")), 0, "compose");
    assert_eq!(allocations(|| a.complement(4 * size).expect("admissible")), 0, "complement");
    assert_eq!(allocations(|| a.right_inverse().expect("always")), 0, "right_inverse");
    assert_eq!(allocations(|| a.left_inverse().expect("a permutation")), 0, "left_inverse");
    assert_eq!(allocations(|| a.reversed()), 0, "reversed");
    assert_eq!(allocations(|| a.group(1..3).expect("in range")), 0, "group");
    assert_eq!(allocations(|| a.filter()), 0, "filter");
    assert_eq!(allocations(|| a.nullspace()), 0, "nullspace");
    assert_eq!(allocations(|| a.max_common_vector(&b)), 0, "max_common_vector");
    assert_eq!(allocations(|| a.downcast(2).expect("a leaf of stride 1")), 0, "downcast");
    let profile: IntTuple = "(1,1)".parse().expect("a tuple");
    assert_eq!(allocations(|| a.coalesce_by(&profile).expect("a profile")), 0, "coalesce_by");
}

#[test]
fn division_and_product_are_not_on_the_heap() {
    let whole = Layout::from_modes(&[(16, 64), (64, 1)]).expect("a layout");
    for tiler in ["(4,8):(1,16)", "<4:1,8:1>"] {
        let tiler: Tiler = tiler.parse().expect("a tiler");
        assert_eq!(allocations(|| whole.logical_divide(&tiler).expect("divides")), 0, "logical_divide");
        assert_eq!(allocations(|| whole.zipped_divide(&tiler).expect("divides")), 0, "zipped_divide");
        assert_eq!(allocations(|| whole.tiled_divide(&tiler).expect("divides")), 0, "tiled_divide");
        assert_eq!(allocations(|| whole.flat_divide(&tiler).expect("divides")), 0, "flat_divide");
    }
    let block = Layout::from_modes(&[(4, 8), (8, 1)]).expect("a layout");
    let pattern = Layout::from_modes(&[(3, 4), (4, 1)]).expect("a layout");
    let tiler = Tiler::Layout(pattern.clone());
    assert_eq!(allocations(|| block.logical_product(&tiler).expect("fits")), 0, "logical_product");
    assert_eq!(allocations(|| block.blocked_product(&pattern).expect("fits")), 0, "blocked_product");
    assert_eq!(allocations(|| block.raked_product(&pattern).expect("fits")), 0, "raked_product");
}
