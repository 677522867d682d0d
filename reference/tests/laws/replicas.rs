//! Replicas that differ although a type declares them equal are found, with value, axis and ranks.

use ndarray::ArrayD;
use reshard_collectives::threads::World;
use reshard_program::schedule::{
    ArenaSlice, CommunicatorExchanges, CompileOptions, Kernels, LocalCall, Schedule, ValueHashes,
};
use reshard_program::{Program, ShardingSolver};
use reshard_reference::{Error, Host, Values};
use reshard_sharding::Sharding;

use crate::programs::inputs;

/// Kernels of a rank that change one bit of one result.
struct Lying {
    inner: Host<f64>,
    takes: Vec<usize>,
    /// The number of the faulty call, if any.
    at: Option<usize>,
    calls: usize,
}

impl Kernels for Lying {
    type Buffer = [u8];
    type Error = Error;

    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Error> {
        self.takes.push(call.inputs.len());
        self.inner.prepare(call)
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Error> {
        self.inner.run(kernel, args, arena)?;
        if self.at == Some(self.calls)
            && let Some(made) = args[self.takes[kernel as usize]..].iter().find(|arg| arg.bytes > 0)
        {
            arena[made.offset] ^= 1;
        }
        self.calls += 1;
        Ok(())
    }
}

/// Runs all ranks, of which one makes a wrong number in one of its calls.
fn hashes(program: &Program, given: &Values<f64>, liar: Option<(usize, usize)>) -> Vec<ValueHashes> {
    let run = |comm: &mut reshard_collectives::threads::ThreadCommunicator| -> Result<ValueHashes, Error> {
        let rank = reshard_collectives::Communicator::rank(comm);
        let schedule = program.compile(rank, &CompileOptions::default())?;
        let at = liar.filter(|(who, _)| *who == rank).map(|(_, at)| at);
        let mut kernels = Lying { inner: Host::new(program.table()), takes: Vec::new(), at, calls: 0 };
        let mut engine = CommunicatorExchanges::new(comm);
        let mut arena = vec![0; schedule.arena_bytes()];
        for local in schedule.buffers().iter().filter(|local| local.is_input) {
            let is = &program.get(program.value(&local.name).unwrap()).ty.value;
            let shard = shard(is, rank, &given[&local.name]);
            let bytes = shard.iter().flat_map(|x| x.to_ne_bytes());
            arena[local.slice.range()].iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        let prepared = schedule.prepare(&mut kernels, &mut engine)?;
        Ok(prepared.run_hashed(&mut kernels, &mut engine, &mut arena)?)
    };
    World::new(program.mesh().world_size()).unwrap().run(run).into_iter().map(Result::unwrap).collect()
}

fn shard(is: &Sharding, rank: usize, whole: &ArrayD<f64>) -> Vec<f64> {
    let all: Vec<f64> = whole.iter().copied().collect();
    is.global_indices(rank).unwrap().into_iter().map(|i| all[i]).collect()
}

/// The program's name of the result of a rank's call.
fn made(schedule: &Schedule, call: usize) -> Option<String> {
    use reshard_program::schedule::Instruction;
    let calls = schedule.instructions().iter().filter_map(|instr| match instr {
        Instruction::Call { kernel, args } => Some((*kernel, args.clone())),
        Instruction::Post { .. } | Instruction::Wait { .. } => None,
    });
    let (kernel, args) = calls.into_iter().nth(call)?;
    let takes = schedule.calls()[kernel as usize].inputs.len();
    let made = (args.start as usize + takes..args.end as usize).find(|&arg| schedule.args()[arg].bytes > 0);
    made.map(|arg| schedule.arg_names()[arg].clone())
}

/// Returns `true` if another rank along one non-partial axis has the same indices of a value.
fn has_replicas(program: &Program, name: &str, rank: usize) -> bool {
    let is = &program.get(program.value(name).unwrap()).ty.value;
    let at = is.mesh().coordinate(rank).unwrap();
    is.mesh().ranks().filter(|&other| other != rank).any(|other| {
        let there = is.mesh().coordinate(other).unwrap();
        let differ: Vec<usize> = (0..there.len()).filter(|&axis| there[axis] != at[axis]).collect();
        let terms = is.partial().iter().any(|terms| differ.contains(&terms.sub.axis));
        differ.len() == 1 && !terms && is.global_indices(other) == is.global_indices(rank)
    })
}

#[test]
fn a_rank_that_makes_something_else_is_named_and_nobody_else_is() {
    let texts = [
        "mesh dp=2,tp=2
         x: f64[4,6] S(0),I
         w: f64[6,4] I,S(1)
         u: f64[4,6] I,S(0)
         h = mm(x, w)
         a = gelu(h)
         o = mm(a, u)
         l = sum(o)
         gradient l wrt w, u",
        "mesh tp=2,dp=2
         x: f64[4,6] R,S(0)
         w: f64[6,4] S(1),I
         wr: S(1),R = w
         local tp
           in x: R
           in w: S(1) = wr
           h = mm(x, w)
           e = exp(x)
           p = sum(h)
           s: I = all_reduce(p)
           out y: I = s
           out z: R = e
         end
         m = sum(y)
         gradient m wrt w",
    ];
    let (mut found, mut silent) = (0, 0);
    for text in texts {
        let program = ShardingSolver::new()
            .solve(&text.parse().unwrap())
            .unwrap()
            .in_one_dtype(reshard_kernels::DType::F64)
            .unwrap();
        let given = inputs::<f64>(&program, 7);
        let honest = hashes(&program, &given, None);
        assert!(program.check_replicas(&honest).unwrap() > 10, "few replicas are compared");
        for hashes in &honest {
            assert_eq!(hashes.to_string().parse::<ValueHashes>().as_ref(), Ok(hashes));
        }
        for rank in program.mesh().ranks() {
            let schedule = program.compile(rank, &CompileOptions::default()).unwrap();
            for call in 0.. {
                let Some(name) = made(&schedule, call) else { break };
                let lied = hashes(&program, &given, Some((rank, call)));
                match program.check_replicas(&lied) {
                    Err(e) if has_replicas(&program, &name, rank) => {
                        let e = e.to_string();
                        let named = e.starts_with(&format!("`{name}` is the same over "));
                        let of_rank =
                            e.contains(&format!(" {rank} and ")) || e.contains(&format!(" and {rank};"));
                        assert!(named && of_rank, "{name} on rank {rank}: {e}");
                        found += 1;
                    }
                    // Dependent replicas may differ then: a fault in partial values or shards is detected
                    // only where it reaches replicas.
                    other if !has_replicas(&program, &name, rank) => {
                        silent += usize::from(other.is_ok());
                    }
                    other => panic!("{name} on rank {rank}: {other:?}"),
                }
            }
        }
    }
    assert!(found > 30 && silent > 10, "{found} found, {silent} without a replica");
}

#[test]
fn an_input_given_differently_is_found() {
    let program: Program = "mesh dp=2,tp=2\nx: f64[4] S(0),I\ny = exp(x)".parse().unwrap();
    let of = |rank: usize, x: usize| format!("rank {rank}\nx {x:016x}").parse::<ValueHashes>().unwrap();
    assert_eq!(program.check_replicas(&[of(0, 1), of(1, 1), of(2, 5), of(3, 5)]), Ok(2));
    let e = program.check_replicas(&[of(0, 1), of(1, 1), of(2, 5), of(3, 6)]).unwrap_err();
    assert_eq!(e.code(), "replicas");
    assert!(
        e.to_string().starts_with("`x` is the same over tp by its type, but differs between ranks 2 and 3;"),
        "{e}"
    );
    for text in [
        "",
        "rank",
        "rank x",
        "rank 1\nx",
        "rank 1\nx 12",
        "rank 1\nx 000000000000000g",
        "rank 1\nx +00000000000000f",
    ] {
        let e = text.parse::<ValueHashes>().unwrap_err().to_string();
        assert!(e.contains("such as"), "{e}");
    }
}
