//! Propagation against full enumeration.
//!
//! It tries every product of strategies of one axis, filled with every kind that some input has along that
//! axis or plain ones. The result is the least cost, and of those the least number of changed inputs.

use reshard_kernels::DType;
use reshard_ops::propagate::{OpSharding, Operand, OutputConstraint, Propagator};
use reshard_ops::rules::{Op, OperandPlacement, Rule, Strategy};
use reshard_planner::Planner;
use reshard_sharding::Mesh;

use reshard_sharding::{Placement, Placements, Sharding};

use reshard_test_support::{Random, Sweep};

use crate::propagation::{ADD, mesh, op, operand};

/// The remaining major factors before a label in a dim: their letters and sizes.
type Majors = fn(usize, usize, Option<char>) -> Vec<(char, usize)>;

struct Best {
    picoseconds: u64,
    changed: usize,
    tried: usize,
}

fn fill(part: &OperandPlacement, split: usize) -> Option<Placement> {
    Some(match part {
        OperandPlacement::Replicate => Placement::Replicate,
        OperandPlacement::Partial(op) => Placement::Partial(*op),
        OperandPlacement::Dim { dim, .. } if split == 1 => Placement::Shard(*dim),
        OperandPlacement::Dim { dim, .. } => Placement::StridedShard { dim: *dim, split_factor: split },
        OperandPlacement::Fixed(p) => p.clone(),
        OperandPlacement::Factor(_) | OperandPlacement::Rest => return None,
    })
}

fn kind(p: &Placement) -> Option<usize> {
    match p {
        Placement::Shard(_) => Some(1),
        Placement::StridedShard { split_factor, .. } => Some(*split_factor),
        Placement::Replicate
        | Placement::Ragged { .. }
        | Placement::Custom { .. }
        | Placement::Partial(_) => None,
    }
}

/// Returns `true` if the reduction of the partial values that a row makes of its inputs is accounted for.
///
/// That holds if an input holds such partial values, if the op itself leaves them, or if the output has a
/// constraint, so that their reduction is counted.
fn terms_are_answered_for(row: &Strategy, held: &[&Placement], counted: bool) -> bool {
    let mut makes = false;
    let mut holds = false;
    for (part, held) in row.inputs.iter().zip(held) {
        if let OperandPlacement::Partial(op) = part {
            makes = true;
            holds |= matches!(held, Placement::Partial(h) if h.mixes_with(*op));
        }
    }
    let leaves = row.inputs.iter().any(|p| matches!(p, OperandPlacement::Dim { .. }));
    holds || leaves || counted || !makes
}

#[allow(clippy::too_many_arguments, reason = "the whole problem")]
fn best(
    planner: &Planner,
    op: &Op,
    mesh: &Mesh,
    inputs: &[Operand],
    evens: &[(char, usize)],
    sizes: &[(char, usize)],
    majors: Majors,
    to: Option<&Sharding>,
) -> Option<Best> {
    let have: Vec<Placements> = inputs.iter().map(|i| i.sharding.placements().unwrap()).collect();
    let wanted = to.map(|t| t.placements().unwrap());
    let rows = op.strategies();
    let axes = mesh.axes().len();
    // The filled rows of every axis.
    let choices: Vec<Vec<(&Strategy, usize)>> = (0..axes)
        .map(|axis| {
            let held: Vec<&Placement> = have.iter().map(|p| &p[axis]).collect();
            let mut kinds = vec![1];
            kinds.extend(held.iter().copied().chain(wanted.iter().map(|w| &w[axis])).filter_map(kind));
            kinds.sort_unstable();
            kinds.dedup();
            let rows = rows.iter().filter(|r| terms_are_answered_for(r, &held, to.is_some()));
            rows.flat_map(|r| kinds.iter().map(move |&k| (r, k))).collect()
        })
        .collect();
    let mut best: Option<Best> = None;
    let mut tried = 0;
    let mut at = vec![0; axes];
    'all: loop {
        tried += 1;
        let picked: Vec<(&Strategy, usize)> = (0..axes).map(|a| choices[a][at[a]]).collect();
        // The target of an operand.
        let target = |o: usize, shape: &[usize], output: bool| -> Option<Sharding> {
            let mut placements = Vec::new();
            let mut cut: Vec<(char, usize)> = Vec::new();
            for (axis, (row, kind)) in picked.iter().enumerate() {
                let n = mesh.axes()[axis].size();
                let part = if output { &row.outputs[o] } else { &row.inputs[o] };
                let number = if output { inputs.len() + o } else { o };
                let mut split = *kind;
                if let OperandPlacement::Dim { dim, label } = part {
                    let taken = |letter: char| -> usize {
                        cut.iter().filter(|c| c.0 == letter).map(|c| c.1).product()
                    };
                    let skip: usize =
                        majors(number, *dim, *label).iter().map(|&(l, size)| size / taken(l)).product();
                    // Blocks of blocks after other factors must be aligned with those factors.
                    if skip > 1 && *kind > 1 {
                        let label = label.expect("a factor after others");
                        let size = sizes.iter().find(|s| s.0 == label).expect("its size").1;
                        if size % (taken(label) * kind) != 0 {
                            return None;
                        }
                    }
                    split *= skip;
                    if let Some(label) = label {
                        cut.push((*label, n));
                    }
                }
                placements.push(fill(part, split)?);
            }
            Sharding::new(mesh, shape, &placements).ok()
        };
        let even = evens.iter().all(|&(letter, size)| {
            let mut left = size;
            picked.iter().enumerate().all(|(axis, (row, kind))| {
                let cuts = row
                    .inputs
                    .iter()
                    .chain(&row.outputs)
                    .any(|p| matches!(p, OperandPlacement::Dim { label: Some(l), .. } if *l == letter));
                let n = mesh.axes()[axis].size();
                let fits = !cuts || left % (n * kind) == 0;
                left /= if cuts { n } else { 1 };
                fits
            })
        });
        let cost = || -> Option<(u64, usize)> {
            let (mut cost, mut changed) = (0, 0);
            let picoseconds = |from: &Sharding, to: &Sharding| {
                let plan = planner.plan(from, to, DType::F32).ok()?;
                Some(plan.steps().iter().map(|s| (s.cost_us * 1e6).round() as u64).sum::<u64>())
            };
            for (i, x) in inputs.iter().enumerate() {
                let t = target(i, &op.inputs()[i], false)?;
                cost += picoseconds(&x.sharding, &t)?;
                changed += usize::from(t != x.sharding);
            }
            let out = target(0, &op.outputs()[0], true)?;
            if let Some(to) = to {
                cost += picoseconds(&out, to)?;
            }
            Some((cost, changed))
        };
        if even
            && let Some((cost, changed)) = cost()
            && best.as_ref().is_none_or(|b| (cost, changed) < (b.picoseconds, b.changed))
        {
            best = Some(Best { picoseconds: cost, changed, tried: 0 });
        }
        for a in (0..axes).rev() {
            at[a] += 1;
            if at[a] < choices[a].len() {
                continue 'all;
            }
            at[a] = 0;
        }
        break;
    }
    best.map(|b| Best { tried, ..b })
}

pub(crate) fn placements(random: &mut Random, shape: &[usize], axes: usize, terms: &[&str]) -> String {
    let term = *random.pick(terms);
    let one = |r: &mut Random| match r.below(7) {
        2..=4 if !shape.is_empty() => format!("S({})", r.below(shape.len())),
        5 if !shape.is_empty() => format!("SS({},2)", r.below(shape.len())),
        6 => term.to_owned(),
        _ => "R".to_owned(),
    };
    (0..axes).map(|_| one(random)).collect::<Vec<_>>().join(",")
}

/// A rule, the shapes of its inputs, those of its outputs unless they follow, and evenly split factors.
type Family = (&'static str, Vec<&'static [usize]>, Option<Vec<&'static [usize]>>, Vec<(char, usize)>);

#[test]
fn the_choice_is_what_full_enumeration_finds() {
    use reshard_planner::{Level, Planner, SearchBudget, Topology};
    let none: Majors = |_, _, _| Vec::new();
    // `(ij)k->i(jk)` with i = 4 and j = 6: the factor before another one in its dim.
    let regroup: Majors = |operand, dim, label| match (operand, dim, label) {
        (0, 0, Some('j')) => vec![('i', 4)],
        (1, 1, Some('k')) => vec![('j', 6)],
        _ => Vec::new(),
    };
    let families: Vec<(Family, Majors)> = vec![
        (("mk,kn->mn", vec![&[24, 12], &[12, 36]], None, vec![]), none),
        (("mk,kn->mn", vec![&[5, 7], &[7, 3]], None, vec![]), none),
        (("bmk,bkn->bmn", vec![&[4, 12, 24], &[4, 24, 8]], None, vec![]), none),
        (("...,...->... {linear, increasing}", vec![&[24, 12], &[24, 12]], None, vec![]), none),
        (("...,...->... {linear, increasing}", vec![&[24, 12], &[12]], None, vec![]), none),
        (("...,...->... {multilinear}", vec![&[7, 1], &[7, 5]], None, vec![]), none),
        (("*j,*j->*j {selecting}", vec![&[24, 12], &[12, 12]], Some(vec![&[36, 12]]), vec![]), none),
        (("ij->i {j: max}", vec![&[24, 12]], None, vec![]), none),
        (("ij->i {j: avg, linear}", vec![&[9, 12]], None, vec![('j', 12)]), none),
        (("ij->ij {j: replicate}", vec![&[24, 12]], None, vec![]), none),
        (
            ("ij,im,mj->ij {linear(0,1), linear(0,2)}", vec![&[24, 12], &[24, 6], &[6, 12]], None, vec![]),
            none,
        ),
        (
            (
                "?0,R->?0; R,?1->?1; ?1,?0->P; S(0),S(0)->S(0)",
                vec![&[8, 6], &[6, 8]],
                Some(vec![&[8, 8]]),
                vec![],
            ),
            none,
        ),
        (("(ij)k->i(jk) {i: 4}", vec![&[24, 6]], None, vec![('i', 4), ('j', 6)]), regroup),
    ];
    let sizes = [('i', 4), ('j', 6), ('k', 6)];
    let mut random = Random(7 + Sweep::asked().seed());
    // Without a budget the choice is the cheapest; with one, it is that or marked as exhausted.
    let (mut cases, mut products, mut exhausted) = (0, 0, 0);
    let sweep = Sweep::asked();
    let rounds = sweep.count(2, 160);
    for round in 0..rounds {
        for ((rule, shapes, outs, evens), majors) in &families {
            let rule: Rule = rule.parse().unwrap();
            let op = match outs {
                None => Op::new("op", &rule, shapes).unwrap(),
                Some(outs) => Op::with_outputs("op", &rule, shapes, outs).unwrap(),
            };
            let mesh: Mesh = ["x=2", "x=3", "x=2,y=2", "x=2,y=3", "x=4,y=2", "x=2,y=2,z=2"]
                [if round % 8 == 0 { 5 } else { random.below(5) }]
            .parse()
            .unwrap();
            let axes = mesh.axes().len();
            // Bytes cost nothing, much, or all; and there may be nodes of two ranks.
            let level = |ranks, latency_us, gbytes_per_s| Level { ranks, latency_us, gbytes_per_s };
            let topology = match random.below(4) {
                0 => Topology::uniform(),
                1 => Topology::new(6.6, 0.2, &[level(None, 0.0, 1e-4)]).unwrap(),
                2 => Topology::new(0.1, 0.0, &[level(None, 0.0, 1e-5)]).unwrap(),
                _ => Topology::new(6.6, 0.2, &[level(Some(2), 1.0, 1e-3), level(None, 5.0, 1e-4)]).unwrap(),
            };
            let planner = Planner::new().topology(topology);
            let terms = [&["P"][..], &["P(max)"], &["P", "P(avg)"], &["R"]][random.below(4)];
            let inputs: Vec<Operand> = shapes
                .iter()
                .map(|s| {
                    loop {
                        let text = placements(&mut random, s, axes, terms);
                        if let Ok(made) = Sharding::parse(&mesh, s, &text) {
                            return Operand::new(DType::F32, made);
                        }
                    }
                })
                .collect();
            let constraint = (random.below(3) == 0).then(|| {
                let text = placements(&mut random, &op.outputs()[0], axes, &["R"]);
                Sharding::parse(&mesh, &op.outputs()[0], &text).unwrap()
            });
            let constraints: Vec<OutputConstraint> =
                constraint.iter().cloned().map(OutputConstraint::Exactly).collect();
            let hasty = Propagator::new().with_planner(planner.clone());
            let patient = hasty.clone().with_budget(SearchBudget::UNLIMITED);
            let ours = patient.propagate(&op, &mesh, &inputs, &constraints);
            let hasty = hasty.propagate(&op, &mesh, &inputs, &constraints);
            let best = best(&planner, &op, &mesh, &inputs, evens, &sizes, *majors, constraint.as_ref());
            let shown: Vec<String> = inputs.iter().map(ToString::to_string).collect();
            let shown = format!("{rule} of {} constraint {constraint:?}", shown.join(" and "));
            let cost = |c: &OpSharding| {
                let changed = c.plans.iter().filter(|p| p.is_some()).count();
                ((c.cost_us * 1e6).round() as u64, changed)
            };
            match (&ours, &hasty) {
                (Ok(ours), Ok(hasty)) if hasty.is_budget_exhausted() => {
                    assert!(cost(hasty) >= cost(ours), "{shown}: {hasty:?}");
                    exhausted += 1;
                }
                (Ok(ours), Ok(hasty)) => {
                    let whole = |c: &OpSharding| (cost(c), c.inputs.clone(), c.outputs.clone());
                    assert_eq!(whole(ours), whole(hasty), "{shown}");
                }
                (Err(_), Err(_)) => {}
                (ours, hasty) => panic!("{shown}: {ours:?}, within the budget {hasty:?}"),
            }
            match (ours, best) {
                (Ok(ours), Some(best)) => {
                    assert_eq!(cost(&ours), (best.picoseconds, best.changed), "{shown}: {ours:?}");
                    cases += 1;
                    products += best.tried;
                }
                (Err(_), None) => {}
                (Ok(ours), None) => panic!("{shown}: enumeration finds nothing, we {ours:?}"),
                (Err(e), Some(_)) => panic!("{shown}: {e}"),
            }
        }
    }
    println!(
        "{cases} propagations equal to the best of {products} products of strategies, {exhausted} of them \
         only beyond the budget"
    );
    assert!(50 * exhausted <= cases, "{exhausted} of {cases} propagations run out of the budget");
    // Ten of thirteen rules, at least.
    assert!(cases > 10 * rounds, "{cases} of {rounds} rounds");
}

/// Sums of two tensors of the size where bytes weigh as much as launches, all pairs of placements of two axes.
#[test]
fn every_pair_of_placements_is_added_and_multiplied_at_least_cost() {
    let m = mesh("a=2,b=2");
    let shape: &[usize] = &[1024, 1024];
    let none: Majors = |_, _, _| Vec::new();
    let words = ["R", "S(0)", "S(1)", "P"];
    let planner = Planner::new();
    for rule in [ADD, "mk,kn->mn"] {
        let op = op("op", rule, &[shape, shape]);
        for code in 0..256usize {
            let word = |i: usize| words[code >> (2 * i) & 3];
            let text = |i: usize| format!("{},{}", word(i), word(i + 1));
            let inputs = [operand(&m, shape, &text(0)), operand(&m, shape, &text(2))];
            let ours = Propagator::new().propagate(&op, &m, &inputs, &[]).unwrap();
            let best = best(&planner, &op, &m, &inputs, &[], &[], none, None).unwrap();
            let changed = ours.plans.iter().filter(|p| p.is_some()).count();
            let least = (ours.cost_us * 1e6).round() as u64;
            assert_eq!(
                (least, changed),
                (best.picoseconds, best.changed),
                "{rule} of {} and {}",
                inputs[0],
                inputs[1]
            );
        }
    }
}

/// A dim may be so short that one rank holds all of it; then an apparent redistribution may be none.
#[test]
fn short_dims_are_chosen_for_as_enumeration_does() {
    let none: Majors = |_, _, _| Vec::new();
    let planner = Planner::new();
    let mut random = Random(11);
    let mut checked = 0;
    let families: [(&str, [&[usize]; 2]); 4] = [
        ("mk,kn->mn", [&[1, 1], &[1, 1]]),
        ("mk,kn->mn", [&[3, 1], &[1, 2]]),
        (ADD, [&[1, 4], &[1, 4]]),
        ("ab,ac->bc", [&[3, 1], &[3, 2]]),
    ];
    for _ in 0..60 {
        for (rule, shapes) in families {
            let m = mesh(["x=2", "x=3", "x=2,y=2", "x=4"][random.below(4)]);
            let op = op("op", rule, &shapes);
            let mut text = |shape: &[usize]| {
                let axes: Vec<String> = (0..m.axes().len())
                    .map(|_| match random.below(4) {
                        0 => "R".to_owned(),
                        1 => format!("SS({},4)", random.below(shape.len())),
                        _ => format!("S({})", random.below(shape.len())),
                    })
                    .collect();
                axes.join(",")
            };
            let inputs = [operand(&m, shapes[0], &text(shapes[0])), operand(&m, shapes[1], &text(shapes[1]))];
            let ours = Propagator::new().propagate(&op, &m, &inputs, &[]).unwrap();
            let best = best(&planner, &op, &m, &inputs, &[], &[], none, None).unwrap();
            let least = (ours.cost_us * 1e6).round() as u64;
            assert_eq!(least, best.picoseconds, "{rule} of {} and {}", inputs[0], inputs[1]);
            checked += 1;
        }
    }
    assert_eq!(checked, 240);
}
