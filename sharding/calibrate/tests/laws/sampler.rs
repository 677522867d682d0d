//! Samples of drawn networks: the times found, the points that are unstable, and the order of samples.

use std::collections::BTreeMap;

use reshard_calibrate::{
    Cause, Check, Filter, Options, Sample, SampleOptions, Sampled, Sampler, Table, Unsettled, calibrate,
    points,
};
use reshard_kernels::DType;
use reshard_planner::{StepOp, Topology};
use reshard_test_support::Random;

/// A network: latencies, rates, and a jump.
#[derive(Clone, Copy)]
struct Network {
    latency_us: f64,
    bytes_per_us: f64,
    jump: (u64, f64),
}

impl Network {
    fn drawn(random: &mut Random) -> Network {
        let jump = (1 << (12 + random.below(14)), 1.0 + 2.0 * share(random));
        Network {
            latency_us: 1.0 + 40.0 * share(random),
            bytes_per_us: 10.0_f64.powf(2.0 + 3.0 * share(random)),
            jump,
        }
    }

    /// Returns the time of one call.
    fn call_us(&self, collective: StepOp, ranks: usize, nodes: usize, bytes: u64) -> f64 {
        let factor =
            if collective == StepOp::AllReduce { 2.0 } else { 1.0 } * if nodes > 1 { 5.0 } else { 1.0 };
        let line = self.latency_us * (ranks as f64).log2() + bytes as f64 / self.bytes_per_us;
        line * factor * if bytes >= self.jump.0 { self.jump.1 } else { 1.0 }
    }

    fn sample_us(&self, sample: &Sample) -> f64 {
        let Sample { collective, members, nodes, bytes, calls } = sample;
        self.call_us(*collective, members.len(), *nodes, *bytes) * *calls as f64
    }
}

fn share(random: &mut Random) -> f64 {
    random.below(1 << 20) as f64 / f64::from(1 << 20)
}

fn nodes(world: usize, node_ranks: usize, most_bytes: u64) -> SampleOptions {
    SampleOptions { node_ranks, most_bytes, ..SampleOptions::new(world) }
}

/// Takes all samples; returns them too.
fn run(options: &SampleOptions, mut time: impl FnMut(&Sample) -> f64) -> (Vec<Sample>, Sampled) {
    let mut sampler = Sampler::new(options).unwrap();
    let mut samples = Vec::new();
    let mut progress = 0.0;
    while let Some(sample) = sampler.next_sample() {
        assert_eq!(sampler.next_sample().as_ref(), Some(&sample));
        assert!((0.0..=1.0).contains(&progress), "{progress}");
        sampler.record(time(&sample));
        progress = sampler.progress();
        samples.push(sample);
    }
    // Times after the last sample change nothing.
    let sampled = sampler.clone().finish();
    sampler.record(1.0);
    assert_eq!((sampler.next_sample(), sampler.finish()), (None, sampled.clone()));
    (samples, sampled)
}

/// One sample in five takes 1.5 to 4 times as long, and all have 1 % of noise.
fn disturbed(random: &mut Random) -> f64 {
    let factor = if random.below(5) == 0 { 1.5 + 2.5 * share(random) } else { 1.0 };
    factor * (1.0 + (share(random) - 0.5) * 0.02)
}

#[test]
fn times_are_found_though_one_sample_in_five_is_disturbed() {
    let mut random = Random(21);
    let (mut all, mut unstable) = (0, 0);
    for case in 0..30 {
        let (world, node_ranks) = *random.pick(&[(2, 2), (8, 8), (8, 4), (12, 3), (4, 1), (6, 6)]);
        let network = Network::drawn(&mut random);
        let options = SampleOptions { point_us: 1e9, total_us: 1e12, ..nodes(world, node_ranks, 8 << 20) };
        let mut noise = random.clone();
        let (_, sampled) = run(&options, |sample| network.sample_us(sample) * disturbed(&mut noise));
        let points = points(&sampled.table.measurements);
        for p in &points {
            let truth = network.call_us(p.collective, p.ranks, p.nodes, p.bytes);
            assert!((p.us / truth - 1.0).abs() <= 0.02, "{case}: {p:?}, {truth}");
            assert!((15..=200).contains(&p.deviations.len()));
        }
        let read = Table::parse(&sampled.table.to_string(), &Filter::default()).unwrap();
        assert!(read == sampled.table, "{case}: the written table is another");
        all += points.len();
        unstable += sampled.unsettled.len();
        let (profile, _) = calibrate(&sampled.table, &Options::new("a test")).unwrap();
        let errors = Check::of(&sampled.table, &Topology::try_from(profile).unwrap()).unwrap().all;
        assert!(errors.median_percent <= 2.0, "{case}: {errors:?}");
    }
    // One in five leaves the middle half as it is.
    assert!(all > 3000 && unstable * 100 < all, "{unstable} of {all}");
}

#[test]
fn a_network_that_is_too_noisy_is_unstable() {
    let mut random = Random(22);
    let network = Network::drawn(&mut random);
    let options = nodes(4, 2, 1 << 20);
    let (_, sampled) = run(&options, |sample| network.sample_us(sample) * (1.0 + share(&mut random)));
    let points = points(&sampled.table.measurements);
    // No size between those that are always measured: noise is not a bend.
    assert_eq!(points.len(), 8 * 4 * 3);
    assert_eq!(sampled.unsettled.len(), points.len());
    for of in &sampled.unsettled {
        let Cause::Unstable { samples, range_percent } = of.cause else { panic!("{of:?}") };
        assert!((5..=200).contains(&samples) && (15.0..60.0).contains(&range_percent), "{of:?}");
    }
}

/// Constant times settle after the least samples, and drift is the same for all groups of a size.
#[test]
fn groups_take_turns() {
    let network = Network { latency_us: 3.0, bytes_per_us: 1e4, jump: (1 << 40, 1.0) };
    let options = nodes(16, 4, 1 << 20);
    let (samples, sampled) = run(&options, |sample| network.sample_us(sample));
    assert_eq!(sampled.unsettled, []);
    // 2 and 4 of a node, one of 2 and 4 nodes, all of 2 and 4 nodes.
    let groups = [
        (1, vec![0, 1]),
        (1, vec![0, 1, 2, 3]),
        (2, vec![0, 4]),
        (2, (0..8).collect()),
        (4, vec![0, 4, 8, 12]),
        (4, (0..16).collect::<Vec<usize>>()),
    ];
    let sizes = 8;
    assert_eq!(samples.len(), sizes * 4 * groups.len() * 20);
    for block in samples.chunks(groups.len()) {
        let mut found: Vec<_> = block.iter().map(|s| (s.nodes, s.members.clone())).collect();
        found.sort_by_key(|(nodes, members)| (*nodes, members.len()));
        assert_eq!(found, groups);
        assert!(block.iter().all(|s| (s.collective, s.bytes) == (block[0].collective, block[0].bytes)));
    }
    // After the first sample, samples take 200 us, or one call.
    for sample in samples.iter().skip(groups.len()).filter(|s| s.calls > 1) {
        let us = network.sample_us(sample);
        assert!((200.0..401.0).contains(&us), "{us}: {sample:?}");
    }
}

/// Sizes next to a jump are measured, and none of a line.
#[test]
fn sizes_between_are_measured_where_curves_jump() {
    let sizes = |jump| {
        let network = Network { latency_us: 5.0, bytes_per_us: 1e3, jump };
        let options = SampleOptions { collectives: vec![StepOp::AllGather], ..nodes(2, 2, 4 << 20) };
        let (_, sampled) = run(&options, |sample| network.sample_us(sample));
        points(&sampled.table.measurements).iter().map(|p| p.bytes >> 10).collect::<Vec<_>>()
    };
    let base = [0, 2, 8, 32, 128, 256, 512, 1024, 2048, 4096];
    assert_eq!(sizes((1 << 40, 1.0)), base);
    let mut more = base.to_vec();
    more.extend([384, 768, 1536]);
    more.sort_unstable();
    assert_eq!(sizes((1 << 20, 1.5)), more);
}

/// Ranks of groups of 3 and 6 have whole elements.
#[test]
fn every_rank_has_whole_elements() {
    for (world, dtype, bytes) in [(6, DType::F32, 24), (3, DType::F16, 6), (600, DType::F64, 16)] {
        let options = SampleOptions { dtype, ..nodes(world, world, 4096) };
        let (samples, sampled) = run(&options, |_| 50.0);
        assert!(
            samples.iter().all(|s| s.bytes % (bytes / world.min(6) as u64 * s.members.len() as u64) == 0)
        );
        assert_eq!(sampled.table.dtype.as_deref(), Some(dtype.name()));
    }
}

/// All ranks record the same times, and so choose the same samples.
#[test]
fn samplers_with_the_same_times_agree() {
    let mut random = Random(23);
    for _ in 0..20 {
        let network = Network::drawn(&mut random);
        let options = nodes(8, *random.pick(&[1, 2, 4, 8]), 1 << (10 + random.below(12)));
        let [mut one, mut two] = [0, 1].map(|_| Sampler::new(&options).unwrap());
        while let Some(sample) = one.next_sample() {
            assert_eq!(two.next_sample().as_ref(), Some(&sample));
            let us = network.sample_us(&sample) * disturbed(&mut random);
            one.record(us);
            two.record(us);
        }
        assert_eq!(two.next_sample(), None);
        assert_eq!(one.finish(), two.finish());
    }
}

/// Whatever the times, samples end, and every size of every curve is measured or reported.
#[test]
fn samples_end_for_any_times() {
    let mut random = Random(24);
    let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e-300, 1e12, 200.0];
    for case in 0..60 {
        let options = SampleOptions {
            warmups: random.below(6),
            samples: random.below(40),
            total_us: 10.0_f64.powf(12.0 * share(&mut random)),
            ..nodes(8, *random.pick(&[1, 2, 4, 8]), 1 + random.below(1 << 22) as u64)
        };
        let mut noise = random.clone();
        let (samples, sampled) = run(&options, |_| {
            if noise.below(3) == 0 {
                *noise.pick(&odd)
            } else {
                10.0_f64.powf(20.0 * share(&mut noise) - 8.0)
            }
        });
        let measured = points(&sampled.table.measurements);
        assert!(samples.len() <= (measured.len() + 1) * 206, "{case}: {} {}", samples.len(), measured.len());
        assert!(samples.iter().all(|s| (1..=10_000).contains(&s.calls)));
        assert!(sampled.table.measurements.iter().all(|m| (1e-6..=1e9).contains(&m.us)));
        let mut sizes: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for p in &measured {
            sizes.entry((p.collective.to_string(), p.nodes, p.ranks)).or_default().push(p.bytes);
        }
        for of in sampled.unsettled.iter().filter(|of| of.cause == Cause::NotMeasured) {
            let Unsettled { collective, nodes, ranks, bytes, .. } = *of;
            let sizes = sizes.entry((collective.to_string(), nodes, ranks)).or_default();
            // The greater sizes are left out.
            assert!(sizes.iter().all(|&size| size < bytes), "{case}: {of:?}");
        }
        let most: Vec<u64> = sizes.values().filter_map(|sizes| sizes.last().copied()).collect();
        let left_out = sampled.unsettled.iter().any(|of| of.cause == Cause::NotMeasured);
        assert!(left_out || most.iter().all(|&size| size >= options.most_bytes), "{case}: {most:?}");
    }
}

/// A network of seconds a call: a few samples of each point, and no size after the time is over.
#[test]
fn a_slow_network_is_measured_within_the_time() {
    let network = Network { latency_us: 5.0, bytes_per_us: 12.0, jump: (1 << 40, 1.0) };
    let mut spent = 0.0;
    let (_, sampled) = run(&nodes(2, 2, 64 << 20), |sample| {
        let us = network.sample_us(sample);
        spent += us;
        us
    });
    // The point that is begun last may take longer: at least 1 discarded and 5 counted samples.
    assert!((50e6..100e6).contains(&spent), "{spent}");
    assert!(
        !sampled.unsettled.is_empty() && sampled.unsettled.iter().all(|of| of.cause == Cause::NotMeasured)
    );
    let most = points(&sampled.table.measurements).iter().map(|p| p.bytes).max();
    assert!(most >= Some(16 << 20), "{most:?}");
}

#[test]
fn options_that_describe_no_measurement_are_errors() {
    let error = |options: SampleOptions| Sampler::new(&options).unwrap_err().to_string();
    let usual = SampleOptions::new(4);
    assert_eq!(
        error(SampleOptions::new(1)),
        "the world has 1 ranks, which do not communicate; start at least 2"
    );
    assert_eq!(error(nodes(4, 3, 1024)), "the world has 4 ranks, which are not a multiple of 3 in a node");
    assert_eq!(error(nodes(4, 4, 0)), "the greatest size is 0 B; expected 1 B to 1 TiB");
    assert_eq!(
        error(SampleOptions { collectives: vec![StepOp::Slice], ..usual.clone() }),
        "collectives to measure must be some of all_gather, reduce_scatter, all_reduce, all_to_all"
    );
    assert_eq!(
        error(SampleOptions { collectives: vec![], ..usual.clone() }).split(' ').next(),
        Some("collectives")
    );
    assert_eq!(
        error(SampleOptions { point_us: f64::NAN, ..usual.clone() }),
        "times and tolerances must be positive numbers"
    );
    assert_eq!(error(SampleOptions { dtype: DType::F4, ..usual }), "an element of f4 is less than a byte");
}
