//! NCCL itself: its errors without a library, and the engine contract on a GPU, with one rank and with two
//! processes.

#![cfg(feature = "nccl")]

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use reshard_collectives::{Communicator, CompiledPlan};
use reshard_conformance::ContractOptions;
use reshard_kernels::DType;
use reshard_nccl::bootstrap::Rendezvous;
use reshard_nccl::{Comm, Real};
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

const TIME_OUT: Duration = Duration::from_mins(1);

/// Returns the reason why there is nothing to test here, if there is one.
fn missing() -> Option<String> {
    let driver = reshard_cuda::Device::open(0).map(drop);
    let error = driver.and_then(|()| Real::make_id().map(drop)).err()?;
    assert!(std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "{error}");
    Some(error.to_string())
}

fn keeps_the_contract(comm: &mut Comm<Real>, options: &ContractOptions) {
    let report = reshard_conformance::check_with(
        comm,
        options,
        &|comm, buffer, bytes| comm.write(buffer, bytes),
        &|comm, buffer, bytes| comm.read(buffer, bytes),
    );
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
}

/// Captures a sum and replays it on other numbers.
fn captures(comm: &mut Comm<Real>) {
    let (rank, size) = (comm.rank(), comm.size());
    let mesh = Mesh::new([("x", size)]).unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[size * 4, 6], text).unwrap();
    let plan = Planner::new().plan(&sharding("P"), &sharding("R"), DType::F32).unwrap();
    let compiled = CompiledPlan::new(&plan, rank).unwrap();
    let mut scratch = compiled.scratch(comm).unwrap();
    let mut source = comm.allocate(compiled.source_bytes()).unwrap();
    let mut target = comm.allocate(compiled.target_bytes()).unwrap();
    let graph = comm.capture(&compiled, &source, &mut target, &mut scratch).unwrap();
    for turn in 1..4_u8 {
        let number = f32::from(turn) * (rank as f32 + 1.0);
        let bytes = number.to_ne_bytes().repeat(compiled.source_bytes() / 4);
        comm.write(&mut source, &bytes).unwrap();
        comm.replay(&graph).unwrap();
        let mut sum = vec![0; compiled.target_bytes()];
        comm.read(&target, &mut sum).unwrap();
        let expected = f32::from(turn) * (size * (size + 1) / 2) as f32;
        assert!(sum.chunks(4).all(|item| item == expected.to_ne_bytes()), "turn {turn}");
    }
}

#[test]
fn what_is_missing_is_one_sentence_and_no_panic() {
    let Some(said) = missing() else { return };
    assert!(said.contains("was not found in the system's library paths"), "{said}");
    assert!(said.contains("LD_LIBRARY_PATH="), "{said}");
    assert_eq!(said.lines().count(), 1);
    // NCCL directly, and through the call that programs use.
    if let Err(e) = Real::make_id() {
        let said = e.to_string();
        assert!(said.starts_with("libnccl.so was not found") && said.contains("libnccl.so.2"), "{said}");
    }
    let id = reshard_nccl::UniqueId([0; 128]);
    assert_eq!(Real::open(0, &id, 0, 1).unwrap_err().code(), "library");
}

/// Needs the library, and neither a driver nor a GPU.
#[test]
fn the_library_is_found_and_answers() {
    match Real::make_id() {
        Ok(id) => {
            assert_ne!(id, Real::make_id().unwrap());
            assert!(Real::version().unwrap() >= 22400);
        }
        Err(e) => {
            assert!(std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "{e}");
            eprintln!("SKIPPED: {e}");
        }
    }
}

/// Prints the error for a library in which every symbol is missing; does nothing unless started by its test.
#[test]
fn a_caller_of_an_empty_library() {
    if std::env::var_os("RESHARD_EMPTY_LIBRARY").is_none() {
        return;
    }
    for _ in 0..2 {
        let e = Real::make_id().unwrap_err();
        assert_eq!(e.code(), "library");
        let said = e.to_string();
        assert!(said.starts_with("libnccl.so does not work: Missing symbol ncclGetUniqueId"), "{said}");
    }
}

#[test]
fn a_panic_in_the_binding_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(folder.path().join("libnccl.so"))
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("not tried: there is no C compiler to make an empty library with");
        return;
    }
    let caller = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_caller_of_an_empty_library", "--nocapture"])
        .env("RESHARD_EMPTY_LIBRARY", "1")
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    assert!(caller.status.success(), "{}", String::from_utf8_lossy(&caller.stdout));
    // The error has the whole message.
    assert!(!String::from_utf8_lossy(&caller.stderr).contains("panicked"));
}

#[test]
fn one_rank_keeps_the_contract() {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let id = Real::make_id().unwrap();
    let mut comm = Comm::with_time_out(Real::open(0, &id, 0, 1).unwrap(), TIME_OUT).unwrap();
    println!("NCCL {}", Real::version().unwrap());
    keeps_the_contract(&mut comm, &ContractOptions::default());
    captures(&mut comm);
}

/// Runs one process of several; does nothing unless started as one.
#[test]
fn a_rank_of_several() {
    if std::env::var_os("RESHARD_NCCL_RANK").is_none() {
        return;
    }
    assert!(Rendezvous::from_env().unwrap().size > 1);
    let mut comm = Comm::from_env(TIME_OUT).unwrap();
    keeps_the_contract(&mut comm, &ContractOptions::quick());
    captures(&mut comm);
}

/// Waits for a process, and ends it when it takes too long.
fn ended(mut child: Child, end: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[test]
fn two_processes_on_one_gpu_keep_the_contract() {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_rank_of_several", "--nocapture"])
            .envs([
                ("RESHARD_NCCL_RANK", rank.to_string()),
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", "2".to_string()),
                ("LOCAL_RANK", "0".to_string()),
                ("MASTER_ADDR", "127.0.0.1".to_string()),
                ("RESHARD_PORT", port.to_string()),
                // Two ranks of one host may not share a GPU, so they present themselves as two hosts.
                ("NCCL_HOSTID", format!("reshard-{rank}")),
                ("NCCL_SOCKET_IFNAME", "lo".to_string()),
                ("NCCL_MULTI_RANK_GPU_ENABLE", "1".to_string()),
            ])
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..2).map(start).collect();
    let end = Instant::now() + Duration::from_mins(5);
    let results: Vec<bool> = children.into_iter().map(|child| ended(child, end)).collect();
    assert_eq!(results, [true, true]);
}
