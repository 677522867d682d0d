//! Ragged sizes that keep blocks whole, compared with all possible distributions.

use reshard_sharding::Placement;
use reshard_test_support::{Random, every, property};

fn sizes(p: &Placement) -> Vec<usize> {
    let Placement::Ragged { sizes, .. } = p else { panic!("{p} is not ragged") };
    sizes.to_vec()
}

/// The least that the rank with the most can keep, over all ends of the first rank's share.
fn least_of_the_most(blocks: &[usize], ranks: usize) -> usize {
    if ranks == 1 {
        return blocks.iter().sum();
    }
    let mine = |n: usize| blocks[..n].iter().sum::<usize>();
    (0..=blocks.len()).map(|n| mine(n).max(least_of_the_most(&blocks[n..], ranks - 1))).min().unwrap()
}

/// Returns `true` if every size is a sum of the next blocks.
fn are_whole(sizes: &[usize], blocks: &[usize]) -> bool {
    let mut ends = vec![0];
    ends.extend(blocks.iter().scan(0, |sum, b| {
        *sum += b;
        Some(*sum)
    }));
    let mut at = 0;
    sizes.iter().all(|n| {
        at += n;
        ends.contains(&at)
    }) && at == *ends.last().unwrap()
}

fn check(blocks: &[usize], ranks: usize) {
    let got = sizes(&Placement::ragged_of_blocks(0, blocks, ranks).unwrap());
    assert_eq!(got.len(), ranks);
    assert!(are_whole(&got, blocks), "{blocks:?} over {ranks}: {got:?}");
    assert_eq!(
        got.iter().copied().max().unwrap(),
        least_of_the_most(blocks, ranks),
        "{blocks:?} over {ranks}: {got:?}"
    );
}

#[test]
fn blocks_stay_whole_and_the_most_is_the_least_possible() {
    for n in 0..=6 {
        for blocks in every(&[0, 1, 2, 5], n) {
            for ranks in 1..=4 {
                check(&blocks, ranks);
            }
        }
    }
    let mut random = Random(5);
    for _ in 0..300 {
        let blocks: Vec<usize> = (0..random.below(9)).map(|_| random.below(1000)).collect();
        check(&blocks, 1 + random.below(5));
    }
}

#[test]
fn equal_blocks_differ_by_one_at_most() {
    for len in 0..60 {
        for block in 1..9 {
            for ranks in 1..8 {
                let got = sizes(&Placement::ragged_in_blocks(0, len, block, ranks).unwrap());
                let blocks: Vec<usize> = (0..len).step_by(block).map(|at| block.min(len - at)).collect();
                assert!(are_whole(&got, &blocks), "{len} in {block} over {ranks}: {got:?}");
                let counts: Vec<usize> = got.iter().map(|n| n.div_ceil(block)).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{len} in {block} over {ranks}: {got:?}");
                assert_eq!(*most, blocks.len().div_ceil(ranks));
            }
        }
    }
}

#[test]
fn units_are_shares_of_the_dim() {
    fn law(units: Vec<u16>, times: u16) -> bool {
        let units: Vec<usize> = units.into_iter().map(usize::from).collect();
        let (sum, times) = (units.iter().sum::<usize>(), usize::from(times));
        let got = Placement::ragged_in_units(0, sum * times, &units);
        if sum == 0 {
            return got.is_ok();
        }
        let missed = sum < 2 || Placement::ragged_in_units(0, sum * times + 1, &units).is_err();
        missed && sizes(&got.unwrap()).iter().zip(&units).all(|(size, unit)| *size == unit * times)
    }
    property!().holds(law as fn(Vec<u16>, u16) -> bool);
}

#[test]
fn what_cannot_be_shared_out_is_refused() {
    for (refused, word) in [
        (Placement::ragged_of_blocks(0, &[1], 0), "ranks"),
        (Placement::ragged_of_blocks(0, &[usize::MAX, 1], 2), "sum"),
        (Placement::ragged_of_blocks(0, &[1], usize::MAX), "ranks"),
        (Placement::ragged_in_blocks(0, 4, 0, 2), "block"),
        (Placement::ragged_in_blocks(0, 4, 1, usize::MAX), "ranks"),
        (Placement::ragged_in_units(0, 4, &[usize::MAX, usize::MAX]), "sum"),
        (Placement::ragged_in_units(0, 4, &[0, 0]), "units"),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(word) && !said.contains('\n'), "{said}");
    }
    // Large, and at once.
    assert!(Placement::ragged_in_blocks(0, usize::MAX, usize::MAX, 3).is_ok());
}
