//! Random numbers independent of the mesh: the draws of all ranks form one tensor, for every sharding.

use reshard_kernels::DType;
use reshard_kernels::random::{Draw, Generator, IndexRun, Key, fill};
use reshard_test_support::{Random, random_mesh, random_shape, random_sharding};

const DRAWS: [(&str, DType); 8] = [
    ("uniform", DType::F32),
    ("uniform(-1,3)", DType::F64),
    ("normal", DType::BF16),
    ("normal(1,2)", DType::F32),
    ("bernoulli(0.3)", DType::Bool),
    ("randint(-5,100)", DType::I16),
    ("bits", DType::U64),
    ("gumbel", DType::F16),
];

#[test]
fn ranks_draw_their_shards_of_one_tensor() {
    let mut random = Random(2026);
    let (mut shards, mut uneven) = (0, 0);
    for case in 0..600 {
        let mesh = random_mesh(&mut random);
        let shape = random_shape(&mut random);
        let sharding = random_sharding(&mut random, &mesh, &shape).reduced();
        let key = Key::with(Generator::ALL[case % 2], random.next_u64());
        let (draw, dtype) = *random.pick(&DRAWS);
        let (draw, item): (Draw, usize) = (draw.parse().unwrap(), dtype.element_bytes().unwrap());
        let numel: usize = shape.iter().product();
        let mut whole = vec![0; numel * item];
        fill(&key, draw, dtype, &mut whole, &shape, [IndexRun::all(numel as u64)]).unwrap();
        let elements: Vec<&[u8]> = whole.chunks_exact(item).collect();
        let want = sharding.shard_all(&elements, &[][..]).unwrap();
        for (rank, want) in mesh.ranks().zip(want) {
            let region = sharding.region(rank).unwrap();
            let mut shard = vec![0; region.numel() * item];
            fill(&key, draw, dtype, &mut shard, &shape, region.runs(&shape).unwrap()).unwrap();
            assert_eq!(shard, want.concat(), "{mesh} {shape:?} {sharding} {rank} {draw} {dtype}");
            shards += 1;
            uneven += usize::from(sharding.layout().is_none());
        }
    }
    assert!(shards > 1000 && uneven > 100, "{shards} {uneven}");
}
