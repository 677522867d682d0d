//! Facts of trainers and servers, executed on threads.

use reshard_collectives::threads::World;
use reshard_collectives::{BufferLayout, Error};
use reshard_conformance::{ContractCase, ContractOptions, check_one};
use reshard_kernels::DType;
use reshard_test_support::two_mesh_facts;

#[test]
fn facts_of_trainers_and_servers_on_threads() {
    let dense = BufferLayout::RowMajor;
    for fact in two_mesh_facts() {
        let plan = fact.small_plan(DType::I32);
        let case = ContractCase { plan: &plan, dtype: DType::I32, source: &dense, target: &dense };
        let mut world = World::new(fact.world()).unwrap();
        for result in world.run(|comm| Ok::<_, Error>(check_one(comm, &ContractOptions::default(), &case))) {
            result.unwrap().unwrap_or_else(|e| panic!("{}: {e}", fact.name));
        }
    }
}
