//! A schedule does to the bit what its program does, in the same calls and exchanges, and no buffer is written while another is there.

use std::collections::BTreeMap;

use ndarray::ArrayD;
use reshard_planner::Planner;
use reshard_program::schedule::{Arg, Instr, Options, Schedule};
use reshard_program::{Elaborator, Item, Moves, Program};
use reshard_reference::{Did, Number, Ranks, Values, on_schedules};

use crate::programs::{inputs, same_as_one_device};

/// The ways to compile a program.
fn ways() -> [Options; 2] {
    [Options { liveness: false, ..Options::default() }, Options::default()]
}

fn bits<T: Number>(shards: &[ArrayD<T>]) -> Vec<Vec<u64>> {
    shards.iter().map(|a| a.iter().map(|x| x.wide().to_bits()).collect()).collect()
}

/// Holds the schedules of a program against what the program did on ranks.
pub(crate) fn do_what_the_program_does<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    ranks: &Ranks<T>,
) -> Result<(), String> {
    for options in ways() {
        let at = |e: String| format!("{options:?}: {e}");
        let scheduled = on_schedules(program, inputs, &options).map_err(|e| at(e.to_string()))?;
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
            if typed != erased {
                return Err(at(format!("rank {rank} did\n{typed:?}\nand by its schedule\n{erased:?}")));
            }
        }
        if scheduled.moves() != ranks.moves() {
            return Err(at(format!("{:?} moved, and {:?}", scheduled.moves(), ranks.moves())));
        }
    }
    Ok(())
}

/// What is found item by item, with types, is what the list without types says; on all ranks, with and without sharing.
pub(crate) fn traces_are_equal(program: &Program) -> Result<(), String> {
    // Every item is asked for again: rows of the propagator, and plans of the planner as it was.
    let asked = program.moves().next().map(|m| Planner::from(m.forward.options().clone()));
    let elaborator = Elaborator::new().planner(asked.unwrap_or_default()).moves(Moves::Written);
    let again = program.graph().and_then(|graph| elaborator.elaborate(&graph)).map_err(|e| e.to_string())?;
    for rank in program.mesh().ranks() {
        let typed = again.trace(rank).map_err(|e| e.to_string())?;
        let mut most = usize::MAX;
        for options in ways() {
            let schedule = program.compile(rank, &options).map_err(|e| e.to_string())?;
            if schedule.trace() != typed {
                return Err(format!("{schedule}is on {options:?} what {typed:?} says"));
            }
            if schedule.arena_bytes() > most {
                return Err(format!("{schedule}takes more than {most} bytes"));
            }
            most = schedule.arena_bytes();
            bytes_have_one_owner(program, &schedule).map_err(|e| format!("{schedule}{e}"))?;
        }
    }
    Ok(())
}

/// The value whose bytes each value is: itself, or for a view and a move without steps what that is of.
fn origins(program: &Program) -> BTreeMap<&str, &str> {
    let mut of: BTreeMap<&str, &str> = BTreeMap::new();
    let name = |v: &reshard_program::ValueId| program.get(*v).name.as_str();
    for item in program.items() {
        let same = match item {
            Item::Op { op, inputs, outputs, .. } if op.is_view() => Some((&inputs[0], &outputs[0])),
            Item::Move { from, to, forward, .. } if forward.steps().is_empty() => Some((from, to)),
            Item::Input(_) | Item::Op { .. } | Item::Move { .. } | Item::NoGrad => None,
        };
        for v in item.makes() {
            let origin = same.map_or(name(v), |(from, _)| of[name(from)]);
            of.insert(name(v), origin);
        }
    }
    of
}

fn own<'a>(owner: &mut [&'a str], at: Arg, who: &'a str) {
    owner[at.range()].fill(who);
}

fn owns(owner: &[&str], at: Arg, who: &str) -> Result<(), String> {
    match owner[at.range()].iter().find(|other| **other != who) {
        Some(other) => Err(format!("{who} at {at:?} was written by {other:?}")),
        None => Ok(()),
    }
}

/// By the definition: who wrote each byte last, instruction by instruction. What is read was last written by the value that is meant, and
/// what is in flight by nobody else.
fn bytes_have_one_owner(program: &Program, schedule: &Schedule) -> Result<(), String> {
    let origins = origins(program);
    let scratch: BTreeMap<&str, String> = (schedule.exchanges().iter())
        .map(|exchange| (exchange.values.1.as_str(), format!("scratch of {}", exchange.values.1)))
        .collect();
    let mut owner: Vec<&str> = vec![""; schedule.arena_bytes()];
    for local in schedule.locals().iter().filter(|local| local.is_input) {
        own(&mut owner, local.at, origins[local.name.as_str()]);
    }
    let mut flying: Vec<&str> = Vec::new();
    for instr in schedule.instrs() {
        match instr {
            Instr::Call { kernel, args } => {
                let args = args.start as usize..args.end as usize;
                let takes = schedule.calls()[*kernel as usize].takes.len();
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
            Instr::Post { exchange } => {
                let transfer = &schedule.exchanges()[*exchange as usize];
                let (from, to) = (transfer.values.0.as_str(), transfer.values.1.as_str());
                owns(&owner, transfer.source, origins[from])?;
                own(&mut owner, transfer.target, to);
                for at in transfer.scratch {
                    own(&mut owner, at, &scratch[to]);
                }
                if flying.contains(&origins[from]) {
                    return Err(format!("{from} is moved before it has landed"));
                }
                flying.push(to);
            }
            Instr::Wait { exchange } => {
                let transfer = &schedule.exchanges()[*exchange as usize];
                let (from, to) = (transfer.values.0.as_str(), transfer.values.1.as_str());
                owns(&owner, transfer.source, origins[from])?;
                owns(&owner, transfer.target, to)?;
                for at in transfer.scratch {
                    owns(&owner, at, &scratch[to])?;
                }
                flying.retain(|value| *value != to);
            }
        }
    }
    if !flying.is_empty() {
        return Err(format!("{flying:?} never land"));
    }
    for local in schedule.locals().iter().filter(|local| local.lasts) {
        owns(&owner, local.at, origins[local.name.as_str()])?;
    }
    Ok(())
}

/// Every example of these laws is held against its schedules where it is held against one device; here is what that looked at.
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
    let program = Elaborator::new().elaborate(&text.parse().unwrap()).unwrap();
    let given = inputs::<f64>(&program, 7);
    let ranks = same_as_one_device(&program, &given, 1e-12);
    let (mut apart, mut shared) = (0, 0);
    for rank in program.mesh().ranks() {
        let bytes = ways().map(|options| program.compile(rank, &options).unwrap().arena_bytes());
        apart += bytes[0];
        shared += bytes[1];
        // An op, an exchange, and nothing for the view.
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
