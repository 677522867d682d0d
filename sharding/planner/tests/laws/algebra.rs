//! A sharding is a layout: its properties, checked for every index, rank and message.

use reshard_kernels::DType;
use std::collections::BTreeMap;

use reshard_layout::{AxisStride, Layout, Mode};
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Sharding};

/// Returns families of shardings: per mesh and shape, all placements and some sub-axes.
fn families() -> Vec<Vec<Sharding>> {
    let mut all = Vec::new();
    for (mesh, shape, choices) in [
        ("x=2,y=2", &[8, 4][..], &["R", "S(0)", "S(1)", "SS(0,2)"][..]),
        ("x=6,y=4", &[48], &["R", "S(0)", "SS(0,2)", "SS(0,3)"]),
        ("x=4,y=2", &[8, 12], &["R", "S(0)", "S(1)", "SS(1,3)"]),
        ("x=2,y=3,z=2", &[12, 6], &["R", "S(0)", "S(1)"]),
        ("x=2:3,y=3:1@4", &[6, 1, 6], &["R", "S(0)", "S(2)"]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let mut texts = vec![String::new()];
        for _ in mesh.axes() {
            let longer = |t: &String| choices.iter().map(|c| format!("{t}{c},")).collect::<Vec<_>>();
            texts = texts.iter().flat_map(longer).collect();
        }
        texts.extend(["[{x:(1)2},{x:(2)2}],", "[{x:(2)2,y},{}],", "[{y,2,x:(2)3}],"].map(str::to_owned));
        let read = |t: &String| Sharding::parse(&mesh, shape, t.trim_end_matches(',')).ok();
        let family: Vec<Sharding> = texts.iter().filter_map(read).filter(|s| s.layout().is_some()).collect();
        assert!(family.len() >= 9, "{mesh}");
        all.push(family);
    }
    all
}

/// Returns `true` if the rank at a coordinate holds the element with this index.
///
/// Its steps along axes are its coordinates there. An axis of which only some steps occur is replicated over
/// the others.
fn holds(s: &Sharding, coordinate: &[usize], index: i64) -> bool {
    // From the definition: the coordinate's digit along every mode is that of the index.
    let mut left = index;
    s.layout().unwrap().flat().iter().all(|m| {
        let digit = left % m.extent;
        left /= m.extent;
        match m.stride.axis() {
            None => true,
            Some(a) => coordinate[a as usize] as i64 / m.stride.step() % m.extent == digit,
        }
    })
}

#[test]
fn the_layout_says_what_regions_say() {
    for s in families().concat() {
        let layout = s.layout().unwrap();
        for rank in s.mesh().ranks() {
            let coordinate = s.mesh().coordinate(rank).unwrap();
            let mut mine = BTreeMap::new();
            for i in (0..layout.size()).filter(|&i| holds(&s, &coordinate, i)) {
                mine.insert(layout.value(i).unwrap().local, i as usize);
            }
            // Every local offset once, from 0 on, in local order.
            assert!(mine.keys().copied().eq(0..mine.len() as i64), "{s}, rank {rank}");
            let held = s.global_indices(rank).unwrap();
            assert!(mine.values().copied().eq(held), "{s}, rank {rank}");
        }
    }
}

#[test]
fn ownership_is_the_inverse_of_the_layout() {
    for s in families().concat() {
        let (layout, ownership) = (s.layout().unwrap(), s.ownership().unwrap());
        let ranks = ownership.mode(0).unwrap().size();
        assert_eq!(ranks as usize, s.mesh().size(), "{s}");
        for (number, rank) in s.mesh().ranks().enumerate() {
            let coordinate = s.mesh().coordinate(rank).unwrap();
            for local in 0..ownership.mode(1).unwrap().size() {
                let index = ownership.offset_of(&[number as i64, local]).unwrap();
                assert_eq!(layout.value(index).unwrap().local, local, "{s}, rank {rank}");
                assert!(holds(&s, &coordinate, index), "{s}, rank {rank}");
            }
        }
    }
}

#[test]
fn placements_read_off_are_those_written() {
    let mut count = 0;
    for s in families().concat() {
        if let Ok(placements) = s.placements() {
            assert_eq!(Sharding::new(s.mesh(), s.shape(), &placements).as_ref(), Ok(&s));
            count += 1;
        } else {
            // Then there are none: no combination of placements over this mesh is the same sharding.
            assert!(s.to_string().starts_with("[{"), "{s}");
        }
    }
    println!("{count} with placements");
    assert!(count > 60);
}

/// Returns a sharding's layout with integer steps along axes.
///
/// The integers are far enough from each other, and from offsets, to be distinguished.
fn as_integers(s: &Sharding) -> Layout {
    const APART: i64 = 1 << 12;
    let weight = |at: AxisStride| APART.pow(at.axis().map_or(0, |a| a + 1));
    s.layout().unwrap().map(|at| at.step() * weight(at)).unwrap()
}

#[test]
fn a_view_is_a_composition_with_the_shape() {
    let (mut free, mut refused) = (0, 0);
    for s in families().concat() {
        let numel = s.numel();
        let divisors: Vec<usize> = (1..=numel).filter(|k| numel.is_multiple_of(*k)).collect();
        for &a in &divisors {
            for &b in divisors.iter().filter(|b| (numel / a).is_multiple_of(**b)) {
                let shape = [a, b, numel / a / b];
                let extents = shape.map(|n| n as i64);
                let composed = as_integers(&s).compose(&Layout::row_major(&extents).unwrap());
                match (s.try_view(&shape), composed) {
                    (Some(view), Ok(composed)) => {
                        assert!(as_integers(&view).is_equivalent(&composed), "{s} as {shape:?}");
                        let sizes: Vec<i64> = view.layout().unwrap().modes().map(|m| m.size()).collect();
                        assert!(sizes.iter().eq(extents.iter().rev()), "{s} as {shape:?}");
                        free += 1;
                    }
                    (None, Err(e)) => {
                        assert_eq!(e.code(), "not_representable", "{s} as {shape:?}");
                        refused += 1;
                    }
                    (view, composed) => panic!("{s} as {shape:?}: {view:?}, {composed:?}"),
                }
            }
        }
    }
    println!("{free} free views, {refused} rejected");
    assert!(free > 2000 && refused > 1000);
}

#[test]
fn messages_are_a_sliced_zip() {
    let planner = Planner::new().objective(Objective::Bytes);
    let mut elements = 0;
    for family in families() {
        for from in family.iter().step_by(2) {
            for to in family.iter().step_by(3) {
                let plan = planner.plan(from, to, DType::U8).unwrap();
                for (at, step) in plan.steps().iter().enumerate() {
                    let (Some(before), Some(after)) = (step.before.layout(), step.after.layout()) else {
                        continue;
                    };
                    // By rank and local offset, the index of the tensor that must be stored there afterwards.
                    for rank in from.mesh().ranks() {
                        let held = step.after.global_indices(rank).unwrap();
                        let phases = plan.steps()[at].phases(rank).unwrap();
                        let mut landed = vec![false; held.len()];
                        for message in &phases[0].receives {
                            let peer = from.mesh().coordinate(message.peer).unwrap();
                            for block in &message.blocks {
                                let both = Layout::from_flat(block.modes.clone()).unwrap();
                                for i in 0..both.size() {
                                    let (source, target) = both.value(i).unwrap();
                                    let source = source + block.source_offset as i64;
                                    let target = target as usize + block.target_offset;
                                    let index = held[target] as i64;
                                    assert_eq!(after.value(index).unwrap().local, target as i64);
                                    assert_eq!(before.value(index).unwrap().local, source, "{plan}");
                                    assert!(holds(&step.before, &peer, index), "{plan}");
                                    assert!(!core::mem::replace(&mut landed[target], true), "{plan}");
                                    elements += 1;
                                }
                            }
                        }
                        assert!(landed.iter().all(|&l| l), "{plan}");
                    }
                }
            }
        }
    }
    println!("{elements} elements");
    assert!(elements > 50_000);
}

#[test]
fn a_mode_and_its_sub_axis_are_one() {
    let mesh: Mesh = "x=12,y=8".parse().unwrap();
    for (axis, n) in [(0, 12), (1, 8)] {
        for step in (1..=n).filter(|k| n % k == 0) {
            for extent in (1..=n / step).filter(|k| (n / step) % k == 0) {
                let mode = Mode::new(extent, AxisStride::along(step, axis));
                let sub = mesh.sub_axis(mode).unwrap();
                assert_eq!(mesh.known_mode(sub), mode);
                for c in 0..n {
                    assert_eq!(sub.known_digit(c as usize, n as usize) as i64, c / step % extent);
                }
            }
        }
    }
}
