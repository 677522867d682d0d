//! Counts allocations of schedules and of the solver.
//!
//! A schedule runs without any. Those of the solver do not depend on the number of ranks.
#![allow(unsafe_code, reason = "a counting allocator implements an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use reshard_collectives::threads::World;
use reshard_collectives::{Communicator, Error};
use reshard_program::Program;
use reshard_program::schedule::{
    ArenaSlice, CommunicatorExchanges, CompileOptions, Instruction, Kernels, LocalCall, RunError,
};

struct Counting;

thread_local! {
    /// `true` if calls of this thread count: the test harness allocates at any time.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    /// The calls of this thread.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        let _ = OWN.try_with(|own| own.set(own.get() + 1));
        // A thread that ends has no flag any more.
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of alloc.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Layout) {
        // SAFETY: the caller keeps the contract of dealloc.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Kernels that copy their inputs, shifted by one byte.
struct Turning {
    takes: Vec<usize>,
}

/// An error of an exchange; there are no others.
#[derive(Debug)]
struct Failed(Error);

impl From<RunError<Infallible, Error>> for Failed {
    fn from(error: RunError<Infallible, Error>) -> Failed {
        match error {
            RunError::Kernel(never) => match never {},
            RunError::Exchange(error) => Failed(error),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Kernels for Turning {
    type Buffer = [u8];
    type Error = Infallible;

    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Infallible> {
        self.takes.push(call.inputs.len());
        Ok(self.takes.len() as u32 - 1)
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Infallible> {
        let (takes, makes) = args.split_at(self.takes[kernel as usize]);
        for to in makes {
            for n in 0..to.bytes {
                let sum = takes
                    .iter()
                    .filter(|from| from.bytes > 0)
                    .fold(n as u8, |sum, from| sum.wrapping_add(arena[from.offset + (n + 1) % from.bytes]));
                arena[to.offset + n] = sum;
            }
        }
        Ok(())
    }
}

/// A step with every kind of exchange, on two meshes, with even and uneven shards.
const STEP: &str = "
    mesh dp=2,tp=2
    mesh storage: fsdp=4
    x: f32[7,16] S(0),I
    w: f32[16,32] S(0) on storage
    v: f32[32,16] I,S(0)
    h = mm(x, w)
    a = relu(h)
    s: S(0),S(0) = a
    t: S(0),S(1) = s
    y: S(0),I = mm(t, v)
    loss = sum(y)
    gradient loss wrt w, v
    w' = sgd(w, dw)
    v' = sgd(v, dv)
";

#[test]
fn a_schedule_runs_without_the_heap() {
    let graph: reshard_program::Graph = STEP.parse().unwrap();
    let program: Program = reshard_program::ShardingSolver::new().solve(&graph).unwrap();
    for options in
        [CompileOptions::default(), CompileOptions { liveness: false, ..CompileOptions::default() }]
    {
        let results = World::new(4).unwrap().run(|comm| {
            let all = [0, 1, 2, 3];
            let schedule = program.compile(comm.rank(), &options).unwrap();
            let is_post = |instr: &&Instruction| matches!(instr, Instruction::Post { .. });
            let posts = schedule.instructions().iter().filter(is_post).count();
            let mut kernels = Turning { takes: Vec::new() };
            let mut engine = CommunicatorExchanges::new(comm);
            let prepared = schedule.prepare(&mut kernels, &mut engine)?;
            let mut arena = vec![1; schedule.arena_bytes()];
            COUNTED.set(true);
            prepared.run(&mut kernels, &mut engine, &mut arena)?;
            engine.communicator().barrier(&all)?;
            let before = CALLS.load(Ordering::Relaxed);
            // No rank begins before all have read the counter.
            engine.communicator().barrier(&all)?;
            for _ in 0..20 {
                prepared.run(&mut kernels, &mut engine, &mut arena)?;
            }
            engine.communicator().barrier(&all)?;
            let after = CALLS.load(Ordering::Relaxed);
            engine.communicator().barrier(&all)?;
            let seen = CALLS.load(Ordering::Relaxed);
            engine.communicator().barrier(&all)?;
            drop(std::hint::black_box(vec![0u8; 64]));
            engine.communicator().barrier(&all)?;
            assert!(CALLS.load(Ordering::Relaxed) > seen, "the allocator counts");
            COUNTED.set(false);
            let (own, start) = (OWN.get(), std::time::Instant::now());
            let clock = || start.elapsed();
            let record = prepared.run_timed(&mut kernels, &mut engine, &mut arena, clock)?;
            // The only allocation is the record, before the run.
            assert_eq!((OWN.get() - own, record.times().len()), (1, schedule.instructions().len()));
            Ok::<_, Failed>((after - before, posts, schedule.calls().len()))
        });
        for result in results {
            let (calls, posts, kernels) = result.unwrap();
            assert_eq!(calls, 0, "{options:?}");
            assert!(posts >= 4 && kernels >= 8, "{posts} exchanges, {kernels} kernels");
        }
    }
}

/// Returns the number of allocations to solve, and to report, `blocks` Megatron blocks of four ops each.
fn touched(mesh: &str, blocks: usize) -> [u64; 2] {
    let mut lines = vec![format!("mesh {mesh}\nx0: bf16[16384,1024] S(0),I")];
    for b in 0..blocks {
        lines.push(format!(
            "w{b}: bf16[1024,4096] R,S(1)\nv{b}: bf16[4096,1024] R,S(0)\nr{b}: S(0),R = x{b}\nh{b} = mm(r{b}, w{b})\na{b} = gelu(h{b})\n\
             p{b} = mm(a{b}, v{b})\no{b}: S(0),I = p{b}\nx{} = add(x{b}, o{b})",
            b + 1
        ));
    }
    let graph: reshard_program::Graph = lines.join("\n").parse().unwrap();
    let written = reshard_program::ShardingSolver::new()
        .implicit_redistribution(reshard_program::ImplicitRedistribution::Deny);
    let before = OWN.get();
    let program = written.solve(&graph).unwrap();
    let elaborated = OWN.get();
    let report = program.report(&reshard_program::ComputeRates::h100());
    let reported = OWN.get();
    assert_eq!(report.redistributions.len(), 2 * blocks);
    [elaborated - before, reported - elaborated]
}

#[test]
fn a_thousand_ops_take_as_much_on_131072_ranks_as_on_16_and_twice_what_five_hundred_take() {
    let [few, many] = ["dp=2,tp=8", "dp=16384,tp=8"].map(|mesh| touched(mesh, 250));
    let half = touched("dp=16384,tp=8", 125);
    for pass in 0..2 {
        assert!(many[pass] <= few[pass] + few[pass] / 20, "{many:?} on 131,072 ranks, {few:?} on 16");
        assert!(many[pass] <= 2 * half[pass] + half[pass] / 20, "{many:?} of 1,000 ops, {half:?} of 500");
    }
    // Some hundred for each op, forward and backward; at a microsecond each they would take a tenth of a
    // second.
    assert!(many[0] + many[1] < 400_000, "{many:?}");
}
