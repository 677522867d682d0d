//! Compiled plans run without heap allocation, and repeated work leaves nothing on the heap: counted by the
//! allocator.
#![allow(unsafe_code, reason = "a counting allocator implements an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use reshard_collectives::threads::World;
use reshard_collectives::{Batch, BufferLayout, Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

struct Counting;

thread_local! {
    /// `true` if this thread's calls count: the test harness may allocate at any time.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        // A thread that ends has no flag any more.
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
        LIVE.fetch_add(memory.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of alloc.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Layout) {
        LIVE.fetch_sub(memory.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of dealloc.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A lock, since the counts are of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn plan(mesh: &str, shape: &[usize], from: &str, to: &str) -> Plan {
    let mesh: Mesh = mesh.parse().unwrap();
    let parse = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
    Planner::new().plan(&parse(from), &parse(to), DType::F32).unwrap()
}

/// Returns the number of heap allocations while eight ranks run this fifty times, after the first time.
fn calls_of_runs(world: &mut World, compile: impl Fn(usize) -> CompiledPlan + Sync) -> u64 {
    let results = world.run(|comm| {
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        COUNTED.set(true);
        let compiled = compile(comm.rank());
        let mut scratch = compiled.scratch(comm)?;
        let (source, mut target) = (vec![1; compiled.source_bytes()], vec![0; compiled.target_bytes()]);
        for _ in 0..3 {
            compiled.run(comm, &source, &mut target, &mut scratch)?;
        }
        comm.barrier(&all)?;
        let before = CALLS.load(Ordering::Relaxed);
        // No rank begins before all have read the count.
        comm.barrier(&all)?;
        for _ in 0..50 {
            compiled.run(comm, &source, &mut target, &mut scratch)?;
            compiled.start(comm, &source, &mut target, &mut scratch)?.finish(comm)?;
        }
        comm.barrier(&all)?;
        let after = CALLS.load(Ordering::Relaxed);
        COUNTED.set(false);
        comm.barrier(&all)?;
        Ok::<_, Error>(after - before)
    });
    results.into_iter().map(Result::unwrap).max().unwrap()
}

#[test]
fn the_allocator_counts() {
    let _alone = ALONE.lock();
    COUNTED.set(true);
    let (calls, live) = (CALLS.load(Ordering::Relaxed), LIVE.load(Ordering::Relaxed));
    let kept = std::hint::black_box(vec![0u8; 1 << 20]);
    assert!(CALLS.load(Ordering::Relaxed) > calls && LIVE.load(Ordering::Relaxed) >= live + (1 << 19));
    drop(kept);
}

#[test]
fn runs_do_not_allocate() {
    let _alone = ALONE.lock();
    let mut world = World::new(8).unwrap();
    let shape = [64, 48];
    for (from, to) in [
        ("S(0),S(1)", "S(1),S(0)"),
        ("S(0),S(0)", "R,R"),
        ("R,R", "S(0),S(1)"),
        ("P,P", "R,R"),
        ("P(avg),P(avg)", "S(0),R"),
        ("P,S(1)", "S(1),R"),
        ("S(0),R", "P,R"),
        ("SS(0,4),S(0)", "S(1),S(0)"),
        ("S(0),S(1)", "S(0),S(1)"),
    ] {
        for shape in [shape, [7, 5]] {
            let plan = plan("x=2,y=4", &shape, from, to);
            let calls = calls_of_runs(&mut world, |rank| CompiledPlan::new(&plan, rank).unwrap());
            assert_eq!(calls, 0, "{from} -> {to} of {shape:?}");
        }
    }
    let reduction = plan("x=2,y=4", &shape, "P,P", "R,R");
    let moved = plan("x=2,y=4", &shape, "S(0),S(1)", "S(1),S(0)");
    let mut batch = Batch::new();
    for plan in [&reduction, &moved, &reduction] {
        batch.add(plan).unwrap();
    }
    assert_eq!(calls_of_runs(&mut world, |rank| batch.compile(rank).unwrap()), 0, "a batch");
    let transposed = BufferLayout::Order(vec![1, 0]);
    let compile = |rank| CompiledPlan::with_layouts(&moved, rank, &transposed, &transposed).unwrap();
    assert_eq!(calls_of_runs(&mut world, compile), 0, "transposed buffers");
}

#[test]
fn large_runs_do_not_allocate() {
    let _alone = ALONE.lock();
    // Large enough that ranks read from each other as they arrive.
    let plan = plan("x=2,y=4", &[2048, 1024], "S(0),S(1)", "S(1),S(0)");
    let calls = calls_of_runs(&mut World::new(8).unwrap(), |rank| CompiledPlan::new(&plan, rank).unwrap());
    assert_eq!(calls, 0);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn a_thousand_plans_leave_nothing_behind() {
    let _alone = ALONE.lock();
    let shards = |plan: &Plan| -> Vec<Vec<u8>> {
        let mesh = plan.from().mesh();
        mesh.ranks().map(|rank| vec![rank as u8; plan.from().local_numel(rank) * 4]).collect()
    };
    let pairs = [("S(0),S(1)", "S(1),S(0)"), ("P,S(0)", "S(0),S(0)"), ("P,P", "R,R"), ("R,S(1)", "S(0),R")];
    let run = |world: &mut World, turns: usize| {
        for turn in 0..turns {
            let (from, to) = pairs[turn % pairs.len()];
            let plan = plan("x=2,y=2", &[8 + turn % 5, 12], from, to);
            world.redistribute(&plan, &shards(&plan)).unwrap();
        }
    };
    let mut world = World::new(4).unwrap();
    run(&mut world, 100);
    let (live, files) = (LIVE.load(Ordering::Relaxed), open_files());
    run(&mut world, 1000);
    let grown = LIVE.load(Ordering::Relaxed) - live;
    assert!(grown < 4096, "{grown} bytes more are in use after a thousand plans");
    assert_eq!(open_files(), files);
    // The same with a world for each, and with one that fails in between.
    let begin = LIVE.load(Ordering::Relaxed);
    for _ in 0..50 {
        run(&mut World::new(4).unwrap(), 2);
    }
    let grown = LIVE.load(Ordering::Relaxed) - begin;
    assert!(grown < 4096, "{grown} bytes more are in use after fifty worlds");
    assert_eq!(open_files(), files);
}
