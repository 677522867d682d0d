//! Thread-value layouts, from the position of every thread and every value.

use reshard_layout::algebra::ThreadValueLayout;
use reshard_layout::{Error, IntTuple, Layout, reference};

/// The digits of an index, leftmost fastest.
fn coordinate(mut index: i64, extents: &[i64]) -> Vec<i64> {
    let digit = |n: &i64| {
        let digit = index % n;
        index /= n;
        digit
    };
    extents.iter().map(digit).collect()
}

fn index(coordinate: &[i64], extents: &[i64]) -> i64 {
    coordinate.iter().zip(extents).rev().fold(0, |at, (c, n)| at * n + c)
}

fn size(extents: &[i64]) -> i64 {
    extents.iter().product()
}

/// All layouts of these extents that are permutations, with the dims in any order.
fn permutations(extents: [i64; 2]) -> [Layout; 2] {
    let [m, n] = extents;
    [format!("({m},{n}):(1,{m})"), format!("({m},{n}):({n},1)")].map(|text| text.parse().expect("a layout"))
}

const GRIDS: [[i64; 2]; 6] = [[1, 1], [4, 2], [2, 3], [3, 1], [1, 5], [8, 4]];
const BLOCKS: [[i64; 2]; 5] = [[1, 1], [2, 1], [1, 4], [2, 3], [4, 2]];

/// The tile of a grid of blocks, by looking every thread and every value up.
fn defined(grid: [i64; 2], threads: &Layout, block: [i64; 2], values: &Layout) -> Vec<i64> {
    let tile = [grid[0] * block[0], grid[1] * block[1]];
    let mut all = vec![-1; (size(&grid) * size(&block)) as usize];
    for p in 0..size(&grid) {
        for q in 0..size(&block) {
            let (at, within) = (coordinate(p, &grid), coordinate(q, &block));
            let element = [within[0] + block[0] * at[0], within[1] + block[1] * at[1]];
            let (t, v) = (threads.at(p).expect("a thread"), values.at(q).expect("a value"));
            all[(t + size(&grid) * v) as usize] = index(&element, &tile);
        }
    }
    all
}

#[test]
fn a_tiled_copy_has_every_value_beside_those_of_its_thread() {
    for grid in GRIDS {
        for block in BLOCKS {
            for threads in permutations(grid) {
                for values in permutations(block) {
                    let copy = ThreadValueLayout::of_grid(&threads, &values).expect("permutations");
                    let got = reference::values(copy.layout());
                    assert_eq!(got, defined(grid, &threads, block, &values), "{threads} with {values}");
                    // It is the inverse of the raked product, which drawings use.
                    let raked = threads.raked_product(&values).expect("permutations");
                    let owners = copy.owners().expect("small");
                    assert_eq!(
                        reference::values(&owners),
                        reference::values(&raked),
                        "{threads} with {values}"
                    );
                    assert_eq!(ThreadValueLayout::new(copy.tile(), copy.layout()), Ok(copy));
                }
            }
        }
    }
}

#[test]
fn a_grid_of_instructions_has_each_in_its_place() {
    let tile: IntTuple = "(16,8)".parse().expect("two");
    let one: Layout = "((4,8),(2,2)):((32,1),(16,8))".parse().expect("a layout");
    let instruction = ThreadValueLayout::new(&tile, &one).expect("a permutation");
    for grid in GRIDS {
        for groups in permutations(grid) {
            let all = instruction.on_grid(&groups).expect("within the tile");
            let greater = [16 * grid[0], 8 * grid[1]];
            let threads = 32 * size(&grid);
            for g in 0..size(&grid) {
                let at = coordinate(g, &grid);
                let group = groups.at(g).expect("a group");
                for thread in 0..32 {
                    for value in 0..4 {
                        let within = coordinate(one.at(thread + 32 * value).expect("inside"), &[16, 8]);
                        let element = [within[0] + 16 * at[0], within[1] + 8 * at[1]];
                        let number = thread + 32 * group + threads * value;
                        assert_eq!(all.layout().at(number), Ok(index(&element, &greater)), "{groups}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_partition_is_the_tensor_at_the_elements_of_every_thread() {
    let tensors = ["(16,24):(24,1)", "(16,24):(1,16)", "((4,4),24):((1,100),4)"];
    for tensor in tensors.map(|text| text.parse::<Layout>().expect("a layout")) {
        for grid in [[4, 2], [8, 4], [2, 3]] {
            for block in [[2, 1], [1, 2], [2, 4]] {
                let [threads, _] = permutations(grid);
                let [_, values] = permutations(block);
                let copy = ThreadValueLayout::of_grid(&threads, &values).expect("permutations");
                let tile = [grid[0] * block[0], grid[1] * block[1]];
                if 16 % tile[0] > 0 || 24 % tile[1] > 0 {
                    continue;
                }
                let tiles = [16 / tile[0], 24 / tile[1]];
                let all = copy.partition(&tensor).expect("it divides");
                let mut seen = Vec::new();
                for thread in 0..size(&grid) {
                    let (mine, start) = copy.of_thread(&tensor, thread).expect("a thread");
                    for value in 0..size(&block) {
                        for rest in 0..size(&tiles) {
                            let at = coordinate(rest, &tiles);
                            let inside = coordinate(
                                copy.layout().at(thread + size(&grid) * value).expect("inside"),
                                &tile,
                            );
                            let element = [inside[0] + tile[0] * at[0], inside[1] + tile[1] * at[1]];
                            let want = tensor.at(index(&element, &[16, 24])).expect("inside");
                            let number = value + size(&block) * rest;
                            assert_eq!(mine.at(number).map(|x| x + start), Ok(want), "{tensor} by {threads}");
                            let of_all = thread + size(&grid) * number;
                            assert_eq!(all.at(of_all), Ok(want), "{tensor} by {threads}");
                            seen.push(want);
                        }
                    }
                }
                seen.sort_unstable();
                let mut whole = reference::values(&tensor);
                whole.sort_unstable();
                assert_eq!(seen, whole, "every element once");
            }
        }
    }
}

#[test]
fn what_is_no_permutation_is_refused() {
    let parse = |text: &str| text.parse::<Layout>().expect("a layout");
    let tile: IntTuple = "(4,2)".parse().expect("two");
    let kind = |result: Result<ThreadValueLayout, Error>| result.expect_err("refused").code();
    for bad in ["(4,2):(1,8)", "(4,2):(1,0)", "(4,2):(-1,4)", "(4,2):(1,1)"].map(parse) {
        assert_eq!(kind(ThreadValueLayout::of_grid(&bad, &parse("1:0"))), "inadmissible", "{bad}");
        assert_eq!(kind(ThreadValueLayout::of_grid(&parse("1:0"), &bad)), "inadmissible", "{bad}");
        assert_eq!(kind(ThreadValueLayout::new(&tile, &bad)), "inadmissible", "{bad}");
    }
    assert_eq!(kind(ThreadValueLayout::new(&tile, &parse("8:1"))), "inadmissible");
    assert_eq!(kind(ThreadValueLayout::new(&tile, &parse("(4,4):(1,4)"))), "inadmissible");
    let huge = parse("(4611686018427387904,1):(1,1)");
    assert_eq!(kind(ThreadValueLayout::of_grid(&huge, &parse("4:1"))), "overflow");
    let copy = ThreadValueLayout::of_grid(&parse("(4,2):(1,4)"), &parse("1:0")).expect("permutations");
    assert!(copy.of_thread(&parse("(8,4):(1,8)"), 8).is_err());
    assert!(copy.of_thread(&parse("(8,4):(1,8)"), -1).is_err());
}
