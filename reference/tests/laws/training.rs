//! Training by schedules: every step equals that of one device.

#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../examples/gpt/model.rs"]
mod model;
#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../examples/parallel/steps.rs"]
mod parallel;
#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../examples/gpt/training.rs"]
mod steps;

use model::{Gpt, Kept};
use ndarray::{ArrayD, arr1, arr2};
use reshard_collectives::threads::World;
use reshard_program::schedule::CompileOptions;
use reshard_program::{Program, ShardingSolver};
use reshard_reference::{Training, Values, on_one_device};
use reshard_test_support::Sweep;

#[test]
fn a_gpt_learns_on_ranks_as_on_one_device() {
    let gpt = Gpt { batch: 4, sequence: 8, width: 16, heads: 4, vocabulary: 32, layers: 2 };
    let alone = steps::on_one_device(&gpt).unwrap();
    assert!(alone.len() == steps::STEPS && alone[steps::STEPS - 1] < 0.5 * alone[0], "{alone:?}");
    let some = if Sweep::asked().is_exhaustive() { 3 } else { 1 };
    for kept in [Kept::Sharded, Kept::Updated, Kept::Everywhere].into_iter().take(some) {
        let ranks = World::new(4).unwrap().run(|comm| steps::on_a_rank(&gpt, kept, comm));
        for (rank, losses) in ranks.into_iter().enumerate() {
            let losses = losses.unwrap();
            assert_eq!(losses.len(), alone.len());
            for (step, (loss, alone)) in losses.iter().zip(&alone).enumerate() {
                let off = (loss - alone).abs() / alone.abs();
                assert!(off < steps::ALLOWED, "{kept:?}, step {step}, rank {rank}: {loss} and {alone}");
            }
        }
    }
}

/// Each rank that holds the loss: two of a pipeline's second stage, and all of a layer of experts.
#[test]
fn a_pipeline_and_experts_learn_on_ranks_as_on_one_device() {
    for (step, holding) in parallel::Step::ALL.into_iter().zip([2, 4]) {
        let alone = parallel::on_one_device(step).unwrap();
        assert!(alone.len() == parallel::STEPS && (alone[0] - alone[1]).abs() > 1e-6, "{alone:?}");
        let ranks = World::new(4).unwrap().run(|comm| parallel::on_a_rank(step, comm));
        let losses: Vec<Vec<f64>> = ranks.into_iter().map(Result::unwrap).collect();
        assert_eq!(losses.iter().filter(|losses| losses.len() == alone.len()).count(), holding);
        for (loss, alone) in losses.iter().flat_map(|losses| losses.iter().zip(&alone)) {
            assert!((loss - alone).abs() < parallel::ALLOWED * alone.abs(), "{step:?}: {loss} and {alone}");
        }
    }
}

/// Four values that are replaced in each step.
///
/// The result of an elementwise op is made in place. Others are copied: a product with itself, a value that
/// is read afterwards, and two that are swapped.
#[test]
fn what_cannot_be_made_in_place_is_carried() {
    let text = "mesh x=2
a: f64[2,2] R
b: f64[2,2] S(0)
c: f64[2,2] S(1)
d: f64[2,2] R
e: f64[2,2] R
a' = mm(a, a)
b' = mul(b, b)
c' = neg(c)
s = add(c, c')
t = add(c', s)
d' = mul(e, e)
e' = mul(d, e)
u = sum(b')
v = sum(t)
r = sum(a')
uv = add(u, v)
o = sum(d')
l: R = add(uv, r)
k: R = add(l, o)";
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let start = arr2(&[[0.5, 0.25], [0.125, 0.75]]).into_dyn();
    let inputs: Values<f64> = ["a", "b", "c", "d", "e"]
        .iter()
        .enumerate()
        .map(|(n, name)| ((*name).to_owned(), &start * (1.0 + n as f64 / 8.0)))
        .collect();
    let mut alone = Vec::new();
    let mut values = inputs.clone();
    let batches = vec![Values::new(); 5];
    for _ in &batches {
        let made = on_one_device(&program, &values).unwrap();
        alone.push(made["k"].clone());
        for name in ["a", "b", "c", "d", "e"] {
            values.insert(name.to_owned(), made[&format!("{name}'")].clone());
        }
    }
    for options in
        [CompileOptions::default(), CompileOptions { liveness: false, ..CompileOptions::default() }]
    {
        let schedule = program.compile(1, &options).unwrap();
        let place = |name: &str| schedule.local(name).unwrap().slice;
        let carried =
            |name: &str| schedule.loop_carried_copies().contains(&(place(&format!("{name}'")), place(name)));
        assert!(carried("a") && carried("c") && carried("d"), "{schedule}");
        assert_eq!(carried("b"), !options.liveness, "{schedule}");
        assert_eq!(place("b") == place("b'"), options.liveness, "{schedule}");
        let all: Vec<_> =
            schedule.loop_carried_copies().iter().flat_map(|(from, to)| [from.range(), to.range()]).collect();
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| one.end <= other.start || other.end <= one.start), "{all:?}");
        }
        let training = Training {
            program: &program,
            options: &options,
            inputs: &inputs,
            batches: &batches,
            watched: "k",
        };
        for losses in World::new(2).unwrap().run(|comm| training.run(comm)) {
            let losses = losses.unwrap();
            assert!(
                losses.iter().zip(&alone).all(|(a, b)| (a - b).iter().all(|x| x.abs() < 1e-12)),
                "{losses:?} {alone:?}"
            );
        }
    }
}

fn watching<'a>(
    program: &'a Program,
    options: &'a CompileOptions,
    inputs: &'a Values<f64>,
    batches: &'a [Values<f64>],
) -> Training<'a, f64> {
    Training { program, options, inputs, batches, watched: "k" }
}

/// Lasting values are not overwritten, read values are copied first, and impossible cases are rejected.
#[test]
fn what_the_next_step_begins_with_is_what_this_one_ends_with() {
    let text = "mesh x=2
w: f64[4] R
u: f64[4] S(0)
p: f64[4] R
q: f64[4] R
g = mul(w, p)
r = view(w, shape=[2,2])
w': R = sub(w, g)
q': R = p
p': R = w
u': S(0) = mul(u, u)
a = sum(p)
b = sum(q)
c = add(a, b)
d = sum(u')
k: R = add(c, d)";
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let inputs: Values<f64> = ["w", "u", "p", "q"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            ((*name).to_owned(), arr1(&[0.5, 0.25, 0.125, 0.75]).mapv(|x| x + n as f64 / 8.0).into_dyn())
        })
        .collect();
    let batches = vec![Values::new(); 5];
    let (mut alone, mut values) = (Vec::new(), inputs.clone());
    for _ in &batches {
        let made = on_one_device(&program, &values).unwrap();
        alone.push(made["k"].clone());
        for name in ["w", "u", "p", "q"] {
            values.insert(name.to_owned(), made[&format!("{name}'")].clone());
        }
    }
    for options in crate::schedules::ways() {
        for seen in
            World::new(2).unwrap().run(|comm| watching(&program, &options, &inputs, &batches).run(comm))
        {
            let seen = seen.unwrap();
            let near = |(a, b): (&ArrayD<f64>, &ArrayD<f64>)| (a - b).iter().all(|x| x.abs() < 1e-12);
            assert!(
                seen.len() == alone.len() && seen.iter().zip(&alone).all(near),
                "{options:?}: {seen:?} {alone:?}"
            );
        }
    }
    let refused = |text: &str, inputs: &Values<f64>, batches: &[Values<f64>], said: &str| {
        let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
        let options = CompileOptions::default();
        for seen in World::new(2).unwrap().run(|comm| watching(&program, &options, inputs, batches).run(comm))
        {
            let error = seen.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    };
    let both = "mesh x=2\nw: f64[4] R\nu: f64[4] R\nk = sum(w)\n";
    let swapped = format!("{both}w': R = u\nu': R = w\n");
    refused(
        &swapped,
        &inputs,
        &batches,
        "w, u are swapped in the next step; compute one of them by an op, as in `w' = clone(..)`",
    );
    let cut = format!("{both}w': S(0) = clone(u)\n");
    let given: Values<f64> =
        inputs.clone().into_iter().filter(|(name, _)| ["w", "u"].contains(&name.as_str())).collect();
    refused(&cut, &given, &batches, "`w'` is S(0)");
    refused(both, &inputs, &batches, "is given, but is not an input of the program");
    refused(both, &Values::new(), &batches, "w");
    // A next value that is an input itself is not computed.
    let same = ShardingSolver::new()
        .solve(&"mesh x=2\nw: f64[4] R\nu: f64[4] R\nw': R = u\n".parse().unwrap())
        .unwrap();
    let schedule = same.compile(0, &CompileOptions::default()).unwrap();
    let at = |name: &str| schedule.local(name).unwrap().slice;
    assert_eq!((schedule.loop_carried_copies(), at("w'")), (&[(at("u"), at("w"))][..], at("u")));
    assert_ne!(at("u"), at("w"));
}
