//! Ranks that die, stall, leave or do something else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

use reshard_test_support::Sweep;
use reshard_test_support::jobs::{Job, Outcome};

/// Environment variable of the folder in which ranks store their process ids.
const FOLDER: &str = "RESHARD_MPI_FOLDER";
/// Timeout for other ranks in these jobs.
const TIME_OUT: Duration = Duration::from_secs(2);
/// Timeout for the start of other ranks, if one is killed before it has started.
pub(crate) const START: Duration = Duration::from_secs(5);
/// Extra time for starting, aborting and a busy machine.
const SLACK: Duration = Duration::from_secs(15);

pub(crate) fn plan(ranks: usize, shape: &[usize], from: &str, to: &str) -> Plan {
    plan_of(DType::F32, ranks, shape, from, to)
}

fn plan_of(dtype: DType, ranks: usize, shape: &[usize], from: &str, to: &str) -> Plan {
    let mesh = Mesh::new([("tp", ranks)]).unwrap();
    let [from, to] = [from, to].map(|text| Sharding::parse(&mesh, shape, text).unwrap());
    Planner::new().plan(&from, &to, dtype).unwrap()
}

/// Compiles, runs once with bytes that depend on the rank, and returns the target.
pub(crate) fn run(comm: &mut Comm, plan: &Plan, times: usize) -> Result<Vec<u8>, Error> {
    let compiled = CompiledPlan::new(plan, comm.rank())?;
    let mut scratch = compiled.scratch(comm)?;
    let source: Vec<u8> = (0..compiled.source_bytes()).map(|i| (i * 3 + comm.rank() * 101) as u8).collect();
    let mut target = vec![0; compiled.target_bytes()];
    for _ in 0..times {
        compiled.run(comm, &source, &mut target, &mut scratch)?;
    }
    Ok(target)
}

/// A rank of a job that never ends by itself: large all-to-alls and reductions, in sequence.
pub(crate) fn endless(comm: &mut Comm) {
    comm.set_time_out(TIME_OUT);
    let ranks = comm.size();
    let plans = [
        plan(ranks, &[ranks * 1024, 1024], "S(0)", "S(1)"),
        plan(ranks, &[ranks * 256, 1024], "P", "S(0)"),
        plan(ranks, &[ranks * 256, 1024], "S(0)", "R"),
    ];
    for round in 0.. {
        for plan in &plans {
            run(comm, plan, 3).unwrap();
        }
        if round == 0 {
            let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
            let (rank, id) = (comm.rank(), std::process::id().to_string());
            fs::write(folder.join(format!("{rank}.new")), id).unwrap();
            fs::rename(folder.join(format!("{rank}.new")), folder.join(rank.to_string())).unwrap();
        }
    }
}

/// A rank of a job in which rank 1 panics between two steps.
pub(crate) fn panicking(comm: &mut Comm) {
    comm.set_time_out(Duration::from_mins(5));
    let plan = plan(comm.size(), &[64, 64], "S(0)", "S(1)");
    run(comm, &plan, 1).unwrap();
    assert_ne!(comm.rank(), 1, "planted");
    run(comm, &plan, 1).unwrap();
    run(comm, &plan, 1).unwrap();
}

/// A rank of a job in which rank 1 leaves without notice.
pub(crate) fn leaving(comm: &mut Comm) {
    comm.set_time_out(TIME_OUT);
    let plan = plan(comm.size(), &[64, 64], "S(0)", "S(1)");
    run(comm, &plan, 1).unwrap();
    if comm.rank() == 1 {
        std::process::exit(0);
    }
    run(comm, &plan, 1).unwrap();
}

/// A rank of a job in which rank 1 never reaches a barrier.
pub(crate) fn missing(comm: &mut Comm) {
    comm.set_time_out(TIME_OUT);
    let all: Vec<usize> = (0..comm.size()).collect();
    comm.barrier(&all).unwrap();
    if comm.rank() == 1 {
        std::thread::sleep(TIME_OUT + SLACK);
    }
    comm.barrier(&all).unwrap();
}

/// A rank of a job in which rank 1 has another plan, then the common one, and then another dtype.
pub(crate) fn disagreeing(comm: &mut Comm) {
    let ranks = comm.size();
    let (usual, other) = (plan(ranks, &[64, 64], "S(0)", "S(1)"), plan(ranks, &[64, 128], "S(0)", "S(1)"));
    let odd = comm.rank() == 1;
    let refused = |result: Result<Vec<u8>, Error>| {
        let error = result.unwrap_err();
        let other = usize::from(!odd);
        assert_eq!((error.code(), error.failed_rank()), ("mismatch", Some(other)), "{error}");
    };
    refused(run(comm, if odd { &other } else { &usual }, 1));
    let target = run(comm, &usual, 1).unwrap();
    assert!(target.iter().any(|byte| *byte != target[0]));
    let dtype = if odd { DType::I32 } else { DType::F32 };
    let other = plan_of(dtype, ranks, &[64, 64], "S(0)", "S(1)");
    let compiled = CompiledPlan::new(&other, comm.rank()).unwrap();
    refused(compiled.scratch(comm).map(|_| Vec::new()));
    assert_eq!(run(comm, &usual, 1).unwrap(), target);
}

/// A rank of a job that lacks ranks that the plan needs.
pub(crate) fn too_few(comm: &mut Comm) {
    let error = run(comm, &plan(comm.size() + 1, &[12, 12], "S(0)", "S(1)"), 1).unwrap_err();
    assert_eq!(error.code(), "rank", "{error}");
}

/// The time at which a job is struck.
#[derive(Clone, Copy, Debug)]
enum When {
    /// This long after its processes exist, perhaps before MPI has started on them.
    Starting(Duration),
    /// This long after all ranks have completed a run.
    Running(Duration),
}

fn signal(signal: &str, process: &str) {
    assert!(
        Command::new("kill").args([signal, process]).status().unwrap().success(),
        "kill {signal} {process}"
    );
}

/// Returns the processes whose parent is this one.
fn children(parent: u32) -> Vec<String> {
    let is_child = |id: &String| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&parent.to_string())
    };
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_child).collect()
}

/// Strikes an endless job, and returns how it ended; no process of it may be left.
///
/// `blow` gets the launcher and the ranks.
fn struck(
    ranks: usize,
    when: When,
    folder: &Path,
    blow: impl FnOnce(&str, &[String]),
) -> (Outcome, Duration) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let job = Job::start(ranks, "endless", &[(FOLDER, folder.to_str().unwrap().to_string())]);
    let launcher = job.process();
    let begin = Instant::now();
    let of_rank = |rank: usize| fs::read_to_string(folder.join(rank.to_string())).ok();
    let (there, after): (&dyn Fn() -> Vec<String>, Duration) = match when {
        When::Starting(after) => (&|| children(launcher), after),
        When::Running(after) => (&|| (0..ranks).filter_map(of_rank).collect(), after),
    };
    let mut ids = there();
    while ids.len() < ranks {
        assert!(begin.elapsed() < Duration::from_mins(1), "the job does not start: {:?}", job.wait(SLACK));
        std::thread::sleep(Duration::from_millis(5));
        ids = there();
    }
    std::thread::sleep(after);
    blow(&launcher.to_string(), &ids);
    let struck = Instant::now();
    let outcome = job.wait(Duration::from_mins(2));
    let took = struck.elapsed();
    // A process that was stopped must be gone too.
    for id in ids {
        let begin = Instant::now();
        while Path::new("/proc").join(&id).exists() {
            assert!(begin.elapsed() < SLACK, "process {id} still exists");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    (outcome, took)
}

/// Strikes jobs at many moments, a third of them in a sample.
///
/// Each job must end in time and no rank may report success.
fn strikes(what: &str, when: impl Fn(Duration) -> When, blow: impl Fn(&str, &str)) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-struck-{what}"));
    // Time factor, number of ranks, and the rank to strike.
    let turns = [(0, 4, 1), (1, 4, 3), (2, 4, 2), (3, 3, 0), (4, 2, 1), (5, 5, 4)];
    for (turn, ranks, struck_rank) in
        turns.into_iter().filter(|turn| Sweep::asked().takes_one_in(3, turn.0 as usize))
    {
        let when = when(Duration::from_millis(turn * 7));
        let (outcome, took) = struck(ranks, when, &folder, |launcher, ids| blow(launcher, &ids[struck_rank]));
        assert!(outcome.status.is_some_and(|status| status != 0), "turn {turn}: {outcome:?}");
        assert!(took < START + SLACK, "turn {turn}: it took {took:?}: {outcome:?}");
        assert!(!outcome.text.contains("finished"), "turn {turn}: {outcome:?}");
        println!("{what} turn {turn}: the job ended {took:.2?} later with {:?}", outcome.status);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Strikes a rank with a signal while it works, and another while it starts.
pub(crate) fn strike(name: &str) {
    strikes(&format!("running{name}"), When::Running, |_, rank| signal(name, rank));
    strikes(&format!("starting{name}"), |after| When::Starting(after * 8), |_, rank| signal(name, rank));
}

pub(crate) fn strike_the_launcher() {
    strikes("launcher", When::Running, |launcher, _| signal("-KILL", launcher));
}

/// Strikes a launcher that does not end, as was observed: here it is stopped, then a rank is killed.
pub(crate) fn strike_with_a_stuck_launcher() {
    strikes("stuck", When::Running, |launcher, rank| {
        signal("-STOP", launcher);
        signal("-KILL", rank);
    });
}

/// Runs a job that must not succeed, and checks its message.
#[track_caller]
pub(crate) fn fails(ranks: usize, job: &str, said: &str) {
    let outcome = Job::start(ranks, job, &[]).wait(Duration::from_mins(1));
    assert!(outcome.status.is_some_and(|status| status != 0), "{outcome:?}");
    assert!(outcome.took < TIME_OUT + SLACK, "{outcome:?}");
    assert!(outcome.text.contains(said) && !outcome.text.contains("finished"), "{said:?}: {outcome:?}");
}
