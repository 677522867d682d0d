//! A schedule equals its program bit by bit.
//!
//! It has the same calls and exchanges, and no buffer is overwritten while another in the same bytes is live.

use std::collections::{BTreeMap, BTreeSet};

use ndarray::ArrayD;
use reshard_collectives::threads::World;
use reshard_planner::Planner;
use reshard_program::schedule::{
    ArenaSlice, CompileOptions, Event, Instruction, Order, Schedule, TransferMember,
};
use reshard_program::{ImplicitRedistribution, Program, ShardingSolver, Statement};
use reshard_reference::{Did, Number, Ranks, Values, on_one_device, on_ranks, on_schedules, on_this_rank};

use crate::programs::{inputs, same_as_one_device};

/// The options with which a program is compiled.
pub(crate) fn ways() -> [CompileOptions; 9] {
    let of = |hoist_bytes, bucket_bytes| CompileOptions {
        in_flight_bytes: hoist_bytes,
        bucket_bytes,
        ..CompileOptions::default()
    };
    let apart = CompileOptions { liveness: false, ..CompileOptions::default() };
    let pipe = |of: CompileOptions| CompileOptions { order: Order::OneForwardOneBackward, ..of };
    let [a, b, c, d, e, f] = [(0, 0), (600, 0), (1 << 30, 0), (0, 1 << 30), (1 << 30, 1000), (600, 1 << 30)]
        .map(|(hoist_bytes, bucket_bytes)| of(hoist_bytes, bucket_bytes));
    [apart, a, b, c, d, e, f, pipe(of(0, 0)), pipe(of(1 << 20, 1000))]
}

pub(crate) fn bits<T: Number>(shards: &[ArrayD<T>]) -> Vec<Vec<u64>> {
    shards.iter().map(|a| a.iter().map(|x| x.wide().to_bits()).collect()).collect()
}

/// Compares the schedules of a program, compiled with these options, with the program's events on ranks.
pub(crate) fn do_what_the_program_does<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
    ways: &[CompileOptions],
) -> Result<(), String> {
    for options in ways {
        let at = |e: String| format!("{options:?}: {e}");
        let scheduled = on_schedules(program, inputs, options).map_err(|e| at(e.to_string()))?;
        let mut compared = 0;
        for value in program.values() {
            let name = &value.name;
            if let Some(shards) = scheduled.shards(name) {
                compared += 1;
                if Some(bits(shards)) != ranks.shards(name).map(bits) {
                    return Err(at(format!("{name} is {shards:?} and was {:?}", ranks.shards(name))));
                }
            }
        }
        if compared == 0 || !options.liveness && compared < program.values().len() {
            return Err(at(format!("{compared} of {} values are there", program.values().len())));
        }
        for rank in program.mesh().ranks() {
            let (typed, erased) = (ranks.did(rank), scheduled.did(rank));
            let same = if options.bucket_bytes > 0 || options.order != Order::Program {
                calls(typed, options) == calls(erased, options) && together(typed, erased)
            } else {
                let hoisted = options.in_flight_bytes > 0;
                in_parts(typed, hoisted) == in_parts(erased, hoisted)
            };
            if !same {
                return Err(at(format!("rank {rank} did\n{typed:?}\nand by its schedule\n{erased:?}")));
            }
        }
        if options.bucket_bytes == 0 && scheduled.moves() != ranks.moves() {
            return Err(at(format!("{:?} moved, and {:?}", scheduled.moves(), ranks.moves())));
        }
    }
    Ok(())
}

/// Checks that the typed trace equals that of the untyped list, on all ranks, with and without sharing.
pub(crate) fn traces_are_equal(program: &Program, ways: &[CompileOptions]) -> Result<(), String> {
    // Every statement is solved again: rows of the propagator, and plans of the original planner.
    let asked = program.redistributions().next().map(|m| Planner::from(m.forward.options().clone()));
    let elaborator = ShardingSolver::new()
        .planner(asked.unwrap_or_default())
        .implicit_redistribution(ImplicitRedistribution::Deny);
    let again = program.graph().and_then(|graph| elaborator.solve(&graph)).map_err(|e| e.to_string())?;
    let wired = program.lower_comm_dtypes().map_err(|e| e.to_string())?;
    for rank in program.mesh().ranks() {
        let typed = again.trace(rank).map_err(|e| e.to_string())?;
        for options in ways {
            let schedule = program.compile(rank, options).map_err(|e| e.to_string())?;
            let trace = schedule.trace();
            let is_call = |e: &&Event| matches!(e, Event::Call { .. });
            // Hoisting and buckets leave calls in order, and exchanges unchanged.
            let called = |list: &[Event]| {
                let mut list: Vec<String> = list.iter().filter(is_call).map(|e| format!("{e:?}")).collect();
                if options.order != Order::Program {
                    list.sort();
                }
                list
            };
            let calls_are_equal = called(&trace) == called(&typed);
            let same_elsewhere = calls_are_equal
                && if options.bucket_bytes > 0 {
                    moved(&trace) == moved(&typed) && received(&trace) == received(&typed)
                } else {
                    exchanged(&trace) == exchanged(&typed)
                };
            let in_order =
                options.in_flight_bytes.max(options.bucket_bytes) == 0 && options.order == Order::Program;
            if trace != typed && (in_order || !same_elsewhere) {
                return Err(format!("{schedule}with {options:?} differs from {typed:?}"));
            }
            let apart = program.compile(rank, &CompileOptions { liveness: false, ..options.clone() });
            if schedule.arena_bytes() > apart.map_err(|e| e.to_string())?.arena_bytes() {
                return Err(format!("{schedule}takes more than without sharing"));
            }
            bytes_have_one_owner(&wired, &schedule).map_err(|e| format!("{schedule}{e}"))?;
        }
    }
    for options in ways {
        groups_have_one_order(program, options)?;
    }
    Ok(())
}

/// The exchanges of a list, in any order.
fn exchanged(list: &[Event]) -> Vec<String> {
    let exchanges = list.iter().filter(|e| matches!(e, Event::Exchange { .. }));
    let mut texts: Vec<String> = exchanges.map(|e| format!("{e:?}")).collect();
    texts.sort();
    texts
}

/// Returns each redistributed value, with every step of its redistribution and the ranks that take part.
fn moved(list: &[Event]) -> Vec<String> {
    let of = |event: &Event| match event {
        Event::Exchange { op, over, members, values, .. } => {
            values.iter().map(|value| format!("{value:?} by {op} over {over} with {members:?}")).collect()
        }
        Event::Call { .. } => Vec::new(),
    };
    let mut texts: Vec<String> = list.iter().flat_map(of).collect();
    texts.sort();
    texts
}

/// The bytes of each kind of step with the same ranks.
fn received(list: &[Event]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for event in list {
        if let Event::Exchange { op, members, received_bytes, .. } = event {
            *all.entry(format!("{op} with {members:?}")).or_default() += received_bytes;
        }
    }
    all
}

/// Returns the calls in order, or sorted if the options reorder them.
fn calls(done: &[Did], options: &CompileOptions) -> Vec<String> {
    let calls = done.iter().filter(|did| matches!(did, Did::Call { .. }));
    let mut list: Vec<String> = calls.map(|did| format!("{did:?}")).collect();
    if options.order != Order::Program {
        list.sort();
    }
    list
}

/// Checks that fused exchanges received as much from each sender as their separate redistributions.
fn together(typed: &[Did], erased: &[Did]) -> bool {
    let received = |done: &[Did], names: &[String]| {
        let mut of: BTreeMap<usize, u64> = BTreeMap::new();
        for did in done {
            if let Did::Received { value, bytes } = did
                && value.split(", ").all(|name| names.iter().any(|n| n == name))
            {
                for ((_, sender), bytes) in bytes {
                    *of.entry(*sender).or_default() += bytes;
                }
            }
        }
        of
    };
    let names = |done: &[Did]| -> Vec<Vec<String>> {
        let of = |did: &Did| match did {
            Did::Received { value, .. } => Some(value.split(", ").map(str::to_owned).collect()),
            Did::Call { .. } => None,
        };
        done.iter().filter_map(of).collect()
    };
    let (mut one_by_one, buckets) = (names(typed).concat(), names(erased));
    // A rank may be in a bucket and receive nothing of some of its redistributions.
    let mut all: Vec<String> = buckets.concat();
    all.retain(|name| one_by_one.contains(name));
    one_by_one.sort();
    all.sort();
    all == one_by_one && buckets.iter().all(|names| received(typed, names) == received(erased, names))
}

/// Returns the events of a rank; with hoisted communication, calls in order and then receipts sorted by name.
fn in_parts(done: &[Did], hoisted: bool) -> Vec<Did> {
    let mut done = done.to_vec();
    if hoisted {
        done.sort_by_key(|did| match did {
            Did::Call { .. } => None,
            Did::Received { value, .. } => Some(value.clone()),
        });
    }
    done
}

/// Checks that exchanges have one order.
///
/// Members of a group post the same exchanges in the same order, and wait for them in that order. All ranks
/// wait for their shared exchanges in one order, whatever the group. No more bytes are in flight than
/// allowed, except for a single exchange.
fn groups_have_one_order(program: &Program, options: &CompileOptions) -> Result<(), String> {
    let mut orders: BTreeMap<Vec<usize>, (usize, Vec<String>)> = BTreeMap::new();
    let mut waits: Vec<Vec<String>> = Vec::new();
    for rank in program.mesh().ranks() {
        let schedule = program.compile(rank, options).map_err(|e| e.to_string())?;
        let mut mine: BTreeMap<Vec<usize>, [Vec<String>; 2]> = BTreeMap::new();
        let (mut flying, mut bytes, mut waited) = (0u64, 0u64, Vec::new());
        for instr in schedule.instructions() {
            let (exchange, which) = match instr {
                Instruction::Post { exchange } => (exchange, 0),
                Instruction::Wait { exchange } => (exchange, 1),
                Instruction::Call { .. } => continue,
            };
            let transfer = &schedule.exchanges()[*exchange as usize];
            if transfer.steps.iter().all(|step| !step.op.communicates()) {
                continue;
            }
            let size: usize = transfer.moves.iter().map(|m| m.source.bytes + m.target.bytes).sum();
            let size = size as u64;
            if transfer.moves.len() > 1 && size > options.bucket_bytes {
                return Err(format!("{schedule}{size} bytes are in a bucket on {options:?}"));
            }
            if which == 0 {
                (flying, bytes) = (flying + 1, bytes + size);
                if flying > 1 && bytes > options.in_flight_bytes {
                    return Err(format!("{schedule}{bytes} bytes are in flight on {options:?}"));
                }
            } else {
                (flying, bytes) = (flying - 1, bytes - size);
                waited.push(transfer.name());
            }
            let groups: BTreeSet<&Vec<usize>> =
                transfer.steps.iter().filter(|s| s.op.communicates()).map(|s| &s.members).collect();
            for group in groups {
                mine.entry(group.clone()).or_default()[which].push(transfer.name());
            }
        }
        for (group, [posts, ends]) in mine {
            if posts != ends {
                return Err(format!("{schedule}{group:?} posts {posts:?} and waits for {ends:?}"));
            }
            let (other, order) = orders.entry(group.clone()).or_insert_with(|| (rank, posts.clone()));
            if *order != posts {
                return Err(format!("in {group:?} rank {other} posts {order:?} and rank {rank} {posts:?}"));
            }
        }
        waits.push(waited);
    }
    for (a, b) in waits.iter().flat_map(|a| waits.iter().map(move |b| (a, b))) {
        let shared = |mine: &Vec<String>, other: &Vec<String>| -> Vec<String> {
            mine.iter().filter(|value| other.contains(value)).cloned().collect()
        };
        if shared(a, b) != shared(b, a) {
            return Err(format!("one rank waits for {a:?}, another for {b:?}"));
        }
    }
    Ok(())
}

/// Returns the value that owns each value's bytes: itself, or the source of a view or of a step-free copy.
fn origins(program: &Program) -> BTreeMap<&str, &str> {
    let mut of: BTreeMap<&str, &str> = BTreeMap::new();
    let name = |v: &reshard_program::ValueId| program.get(*v).name.as_str();
    for item in program.statements() {
        let same = match item {
            Statement::Op { is_view: true, inputs, outputs, .. } => Some((&inputs[0], &outputs[0])),
            Statement::Redistribute { from, to, forward, .. } if forward.steps().is_empty() => {
                Some((from, to))
            }
            Statement::Input(_)
            | Statement::Op { .. }
            | Statement::Redistribute { .. }
            | Statement::NoGrad => None,
        };
        for v in item.outputs() {
            let origin = same.map_or(name(v), |(from, _)| of[name(from)]);
            of.insert(name(v), origin);
        }
    }
    of
}

fn own<'a>(owner: &mut [&'a str], at: ArenaSlice, who: &'a str) {
    owner[at.range()].fill(who);
}

fn within(part: ArenaSlice, whole: ArenaSlice) -> Result<(), String> {
    let is_part = part.bytes == 0 || whole.offset <= part.offset && part.range().end <= whole.range().end;
    if is_part { Ok(()) } else { Err(format!("{part:?} is not in {whole:?}")) }
}

fn owns(owner: &[&str], at: ArenaSlice, who: &str) -> Result<(), String> {
    match owner[at.range()].iter().find(|other| **other != who) {
        Some(other) => Err(format!("{who} at {at:?} was written by {other:?}")),
        None => Ok(()),
    }
}

/// Tracks the last writer of each byte, instruction by instruction.
///
/// The bytes read were last written by the expected value, and no other value overwrites bytes in flight.
fn bytes_have_one_owner(program: &Program, schedule: &Schedule) -> Result<(), String> {
    let origins = origins(program);
    let scratch: Vec<String> =
        schedule.exchanges().iter().map(|exchange| format!("scratch of {}", exchange.name())).collect();
    let mut owner: Vec<&str> = vec![""; schedule.arena_bytes()];
    for local in schedule.buffers().iter().filter(|local| local.is_input) {
        own(&mut owner, local.slice, origins[local.name.as_str()]);
    }
    let mut flying: Vec<&str> = Vec::new();
    for instr in schedule.instructions() {
        match instr {
            Instruction::Call { kernel, args } => {
                let args = args.start as usize..args.end as usize;
                let takes = schedule.calls()[*kernel as usize].inputs.len();
                let names = &schedule.arg_names()[args.clone()];
                for (n, (name, at)) in names.iter().zip(&schedule.args()[args]).enumerate() {
                    let origin = origins[name.as_str()];
                    if flying.contains(&origin) {
                        return Err(format!("{name} is used before it has landed"));
                    }
                    if n < takes {
                        owns(&owner, *at, origin)?;
                    } else {
                        own(&mut owner, *at, origin);
                    }
                }
            }
            Instruction::Post { exchange } => {
                let transfer = &schedule.exchanges()[*exchange as usize];
                for TransferMember { values: (from, to), source, target } in &transfer.moves {
                    within(*source, transfer.source)?;
                    within(*target, transfer.target)?;
                    owns(&owner, *source, origins[from.as_str()])?;
                    own(&mut owner, *target, to);
                    if flying.contains(&origins[from.as_str()]) {
                        return Err(format!("{from} is sent before it has landed"));
                    }
                    flying.push(to);
                }
                for at in transfer.scratch {
                    own(&mut owner, at, &scratch[*exchange as usize]);
                }
            }
            Instruction::Wait { exchange } => {
                let transfer = &schedule.exchanges()[*exchange as usize];
                for TransferMember { values: (from, to), source, target } in &transfer.moves {
                    owns(&owner, *source, origins[from.as_str()])?;
                    owns(&owner, *target, to)?;
                    flying.retain(|value| value != to);
                }
                for at in transfer.scratch {
                    owns(&owner, at, &scratch[*exchange as usize])?;
                }
            }
        }
    }
    if !flying.is_empty() {
        return Err(format!("{flying:?} never land"));
    }
    for local in schedule.buffers().iter().filter(|local| local.is_live_out) {
        owns(&owner, local.slice, origins[local.name.as_str()])?;
    }
    Ok(())
}

/// Compiles a worked example.
///
/// All examples of these tests are compared with their schedules wherever they are compared with one device;
/// this test shows what that comparison covers.
#[test]
fn the_worked_examples_are_scheduled() {
    let text = "
        mesh dp=2,tp=2
        mesh storage: fsdp=4
        x: f32[7,16] S(0),I
        w: f32[16,32] S(0) on storage
        v: f32[32,16] I,S(0)
        m: f32[16,32] S(0)|- on storage
        h = mm(x, w)
        a = relu(h)
        y: S(0),I = mm(a, v)
        z = view(y, shape=[7,4,4])
        loss = sum(z)
        gradient loss wrt w, v
        w', m' = sgd_momentum(w, dw, m)
        v' = sgd(v, dv)
    ";
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let given = inputs::<f64>(&program, 7);
    let ranks = same_as_one_device(&program, &given, 1e-12);
    let (mut apart, mut shared) = (0, 0);
    for rank in program.mesh().ranks() {
        let bytes = ways().map(|options| program.compile(rank, &options).unwrap().arena_bytes());
        apart += bytes[0];
        shared += bytes[1];
        // An op, an exchange, and no event for the view.
        let names = |did: &Did| match did {
            Did::Call { call, .. } => call.clone(),
            Did::Received { value, .. } => format!("received {value}"),
        };
        let did: Vec<String> = ranks.did(rank).iter().map(names).collect();
        assert!(did.contains(&"mm".to_owned()) && did.iter().any(|d| d.starts_with("received")), "{did:?}");
        assert!(did.iter().all(|d| !d.starts_with("view")), "{did:?}");
    }
    assert!(shared < apart, "{shared} bytes of {apart}");
}

/// Each rank runs separately, with its own communicator.
///
/// Every rank gets the values of all ranks, bit by bit, and receives the counted bytes.
#[test]
fn every_rank_gets_what_all_ranks_hold() {
    let text = "
        mesh dp=2,tp=2
        mesh storage: fsdp=4
        mesh last: x=2@2
        x: f32[7,16] S(0),I
        w: f32[16,32] S(0) on storage
        v: f32[32,16] I,S(0)
        h = mm(x, w)
        y: S(0),I = mm(h, v)
        z: S(1)|- on last = y
        l = sum(y)
        gradient l wrt w, v
    ";
    let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
    let given = inputs::<f64>(&program, 3);
    let expected = on_ranks(&program, &given).unwrap();
    let world = || World::new(4).unwrap();
    let all = world().run(|comm| on_this_rank(&program, &given, comm));
    for ranks in all {
        let ranks = ranks.unwrap();
        for value in program.values() {
            let shards = ranks.shards(&value.name).map(bits);
            assert_eq!(shards, expected.shards(&value.name).map(bits), "{}", value.name);
        }
        assert_eq!((ranks.moves(), ranks.received_bytes()), (expected.moves(), expected.received_bytes()));
        for rank in 0..4 {
            let received = expected.did(rank).iter().filter(|did| matches!(did, Did::Received { .. }));
            assert!(ranks.did(rank).iter().eq(received), "{:?}", ranks.did(rank));
        }
    }
    // All ranks return an error, before anything is sent.
    for ranks in World::new(5).unwrap().run(|comm| on_this_rank(&program, &given, comm)) {
        assert_eq!(ranks.unwrap_err().to_string(), "the job has 5 ranks, but the mesh dp=2,tp=2 has 4");
    }
    for ranks in world().run(|comm| on_this_rank::<f64, _>(&program, &Values::new(), comm)) {
        assert_eq!(ranks.unwrap_err().code(), "input");
    }
}

/// `dx1` of a quotient is computed from `dx0`, and `dw` from `dh`: both are results all the same.
#[test]
fn requested_gradients_are_results() {
    for (text, gradients) in [
        (
            "mesh x=2\nx0: f64[4] S(0)\nx1: f64[4] S(0)\ny = div(x0, x1)\ngradient y wrt x0, x1",
            ["dx0", "dx1"],
        ),
        (
            "mesh x=2\nw: f64[4,4] I\nx: f64[4,4] S(0)\nh = mm(x, w)\nl = sum(h)\ngradient l wrt w, h",
            ["dw", "dh"],
        ),
    ] {
        let program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
        let at: Values<f64> = inputs(&program, 1);
        let alone = on_one_device(&program, &at).unwrap();
        let ranks = on_schedules(&program, &at, &CompileOptions::default()).unwrap();
        for name in gradients {
            let made = ranks.whole(name).unwrap_or_else(|e| panic!("{name}: {e}\n{program}"));
            assert!((&made - &alone[name]).iter().all(|e| e.abs() < 1e-12), "{name}: {made} {}", alone[name]);
        }
    }
}
