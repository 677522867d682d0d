//! The engine contract on a simulated device, and on a real one where there is one.

use std::time::{Duration, Instant};

use reshard_collectives::{Communicator, CompiledPlan, Error};
use reshard_conformance::{ContractOptions, Fault, FaultKind};
use reshard_device::{Backend, DeviceWorld, Simulated};
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

fn keeps_the_contract<B: Backend>(device: &B, ranks: usize, options: &ContractOptions) {
    let mut world = DeviceWorld::new(device.clone(), ranks).unwrap();
    let reports = world.run(|comm| {
        Ok::<_, Error>(reshard_conformance::check_with(
            comm,
            options,
            &|comm, buffer, bytes| comm.write(buffer, bytes),
            &|comm, buffer, bytes| comm.read(buffer, bytes),
        ))
    });
    for report in reports {
        let report = report.unwrap().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.redistributions > 0);
    }
}

#[test]
fn a_simulated_device_keeps_the_contract() {
    for ranks in [1, 2, 3, 5, 8] {
        let device = Simulated::new();
        let options = if ranks < 8 {
            ContractOptions::quick()
        } else {
            ContractOptions { every: 101, ..ContractOptions::default() }
        };
        keeps_the_contract(&device, ranks, &options);
        assert_eq!(device.allocations(), 0, "{ranks} ranks leak");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_real_device_keeps_the_contract() {
    match reshard_device::Cuda::open(0) {
        Ok(device) => {
            for ranks in [1, 2, 3, 5, 8] {
                keeps_the_contract(&device, ranks, &ContractOptions::default());
            }
        }
        Err(e) => {
            assert!(std::env::var_os("RESHARD_NEED_DEVICE").is_none(), "{e}");
            eprintln!("SKIPPED: {e}");
        }
    }
}

#[test]
fn a_rank_that_never_comes_to_a_barrier_is_named() {
    let mut world = DeviceWorld::new(Simulated::new(), 3).unwrap();
    world.set_time_out(Duration::from_millis(200));
    for missing in 0..3 {
        for checked in world.run(|comm| Ok::<_, Error>(reshard_conformance::check_missing(comm, missing))) {
            checked.unwrap().unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn a_rank_that_stalls_panics_or_fails_is_named_by_all_others() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let sharding = |text: &str| Sharding::parse(&mesh, &[16], text).unwrap();
    let plan = Planner::new().plan(&sharding("P"), &sharding("R"), DType::F32).unwrap();
    let mut world = DeviceWorld::new(Simulated::new(), 4).unwrap();
    world.set_time_out(Duration::from_millis(400));
    for kind in [FaultKind::Panic, FaultKind::Fail, FaultKind::Stall(Duration::from_millis(900))] {
        world.plant([Fault { rank: 2, step: 0, kind }]);
        let started = Instant::now();
        let results = world.run(|comm| {
            let compiled = CompiledPlan::new(&plan, comm.rank())?;
            let mut scratch = compiled.scratch(comm)?;
            let (source, mut target) = (comm.allocate(64)?, comm.allocate(64)?);
            compiled.run(comm, &source, &mut target, &mut scratch)
        });
        // What takes so long hangs.
        assert!(started.elapsed() < Duration::from_mins(1));
        for (rank, result) in results.iter().enumerate() {
            let error = result.as_ref().unwrap_err();
            if rank != 2 {
                assert_eq!(error.failed_rank(), Some(2), "{kind:?} {error}");
                let said = error.to_string();
                assert!(said.contains("step 0") && said.contains("[0,1,2,3]"), "{said}");
            }
        }
        world.plant([]);
    }
}

#[test]
fn memory_and_ranks_that_there_are_not_are_errors() {
    for ranks in [0, 1 << 40, usize::MAX] {
        assert_eq!(DeviceWorld::new(Simulated::new(), ranks).err().unwrap().code(), "threads");
    }
    let results = DeviceWorld::new(Simulated::new(), 1).unwrap().run(|comm| comm.allocate(1 << 62).map(drop));
    assert_eq!(results[0].as_ref().unwrap_err().code(), "engine");
}
