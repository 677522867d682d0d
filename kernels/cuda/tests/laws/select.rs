//! Selection of the kernel for a nest: pure, compared with an independent definition.

use crate::cases::Case;
use reshard_cuda::{Alignment, CopyKernel, THREADS, copies};
use reshard_kernels::{CopySide, LoopNest};
use reshard_layout::Mode;
use reshard_test_support::properties;

/// Returns rows of `run` bytes with the given distances between their beginnings on both sides.
fn rows(count: usize, run: usize, steps: (i64, i64), offsets: (i64, i64)) -> LoopNest {
    LoopNest::new(offsets.0, offsets.1, [Mode::new(run as i64, (1, 1)), Mode::new(count as i64, steps)])
}

/// Returns the greatest power of two up to 16 that divides all of these numbers.
fn common(numbers: &[usize]) -> usize {
    [16, 8, 4, 2].into_iter().find(|w| numbers.iter().all(|n| n % w == 0)).unwrap_or(1)
}

#[test]
fn runs_of_more_than_a_word_that_are_not_at_multiples_of_8_go_by_words_and_others_by_the_widest_unit() {
    let mut runs = 0;
    for run in 1..200 {
        for (gaps, offsets) in [((0, 3), (0, 0)), ((5, 2), (1, 1)), ((56, 200), (0, 8)), ((8, 4), (4, 16))] {
            // The distance is large enough that rows do not merge.
            let steps = ((run + gaps.0 + 1) as i64, (run + gaps.1 + 1) as i64);
            let width =
                common(&[run, steps.0 as usize, steps.1 as usize, offsets.0 as usize, offsets.1 as usize]);
            let launches = copies(&rows(3, run, steps, offsets), 1, Alignment::FULL).unwrap();
            let expected = match (width, run) {
                (1 | 2 | 4, 17..) => CopyKernel::Runs { width },
                (width, _) => CopyKernel::Rows { width },
            };
            runs += usize::from(matches!(expected, CopyKernel::Runs { .. }));
            assert_eq!(launches.len(), 1);
            assert_eq!(launches[0].kernel, expected, "runs of {run}, {steps:?}, {offsets:?}");
        }
    }
    assert!(runs > 100, "{runs}");
}

/// Every alignment of a run's target has words enough, and some alignment needs all of them.
#[test]
fn a_run_has_as_many_words_as_it_can_touch() {
    for width in [1, 2, 4] {
        for run in (20_usize..400).step_by(width) {
            let step = |gap: usize| (run + gap * width) as i64;
            let nest = rows(5, run, (step(1), step(3)), (0, width as i64));
            let launch = &copies(&nest, 1, Alignment::FULL).unwrap()[0];
            assert_eq!(launch.kernel, CopyKernel::Runs { width });
            let words = launch.job.list[0].extent as usize;
            let touched = |lead: usize| (lead + run).div_ceil(16);
            assert_eq!((0..16).step_by(width).map(touched).max(), Some(words), "a run of {run}");
            assert_eq!((launch.job.columns as usize, launch.job.count as usize), (run, 5 * words));
            assert_eq!(launch.blocks, (5 * words).div_ceil(2 * THREADS as usize) as u32);
        }
    }
}

#[test]
fn addresses_that_are_not_aligned_take_words_too() {
    let nest = LoopNest::new(0, 0, [Mode::new(4096, (1, 1))]);
    let kernel = |source, target| copies(&nest, 1, Alignment::of(source, target)).unwrap()[0].kernel;
    assert_eq!(kernel(0, 0), CopyKernel::Rows { width: 16 });
    assert_eq!(kernel(8, 16), CopyKernel::Rows { width: 8 });
    assert_eq!(kernel(4, 16), CopyKernel::Runs { width: 4 });
    assert_eq!(kernel(1, 1), CopyKernel::Runs { width: 1 });
    assert_eq!(kernel(32, 2), CopyKernel::Runs { width: 2 });
}

#[test]
fn a_run_of_more_than_a_launch_takes_is_several() {
    let length = (1usize << 32) + 5;
    let launches =
        copies(&LoopNest::new(1, 0, [Mode::new(length as i64, (1, 1))]), 1, Alignment::FULL).unwrap();
    assert!(
        launches.iter().all(|l| matches!(l.kernel, CopyKernel::Runs { .. }) || l.job.columns == 0),
        "{launches:?}"
    );
    let bytes = |l: &reshard_cuda::Launch<CopyKernel>| match l.kernel {
        CopyKernel::Runs { .. } => l.job.columns as usize,
        CopyKernel::Rows { width } => l.job.count as usize * width,
        CopyKernel::Transpose { .. } => unreachable!("a run is not a transpose"),
    };
    assert_eq!(launches.iter().map(bytes).sum::<usize>(), length);
    let mut at = 0;
    for l in &launches {
        assert_eq!((l.job.source, l.job.target), (at + 1, at));
        at += bytes(l) as i64;
    }
}

properties! {
    /// For every selected kernel, the jobs have as many bytes as the nest.
    fn jobs_have_the_bytes_of_the_nest(case: Case) -> bool {
        let bytes = |l: &reshard_cuda::Launch<CopyKernel>| -> usize {
            let loops = |first: usize| -> usize {
                l.job.list[first..l.job.loops as usize].iter().map(|l| l.extent as usize).product()
            };
            match l.kernel {
                CopyKernel::Rows { width } => loops(0) * width,
                CopyKernel::Runs { .. } => loops(1) * l.job.columns as usize,
                CopyKernel::Transpose { width, .. } => loops(2) * l.job.rows as usize * l.job.columns as usize * width,
            }
        };
        let launches = copies(&case.nest, case.item, Alignment::FULL).unwrap();
        let needed = case.nest.len().unwrap() * case.item;
        case.bytes(CopySide::Target) >= needed && launches.iter().map(bytes).sum::<usize>() == needed
    }
}
