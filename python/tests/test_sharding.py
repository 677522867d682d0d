"""Shardings, placements, regions and types: the owner of each element."""

import numpy as np
import pytest
import reshard
from hypothesis import given
from hypothesis import strategies as st
from reshard import Counts, Mesh, P, Placement, R, Region, S, SS, Sharding, ShardingType
from values import round_trips, shardings


@given(shardings())
def test_shardings_are_values(sharding: Sharding) -> None:
    round_trips(sharding)
    assert Sharding.from_json(sharding.to_json()) == sharding
    for rank in sharding.mesh.ranks:
        round_trips(sharding.region(rank))


@pytest.mark.parametrize(
    "placement",
    [R(), S(1), SS(0, 2), P(), P("max"), P("norm2"), Placement.ragged(0, [3, 0, 5]), Placement.zigzag(1), Placement.block(0, 4), Placement.rolled(0, 1)],
)
def test_placements_are_values(placement: Placement) -> None:
    round_trips(placement)
    assert Placement(str(placement)) == placement == Placement(placement)


@given(shardings())
def test_every_notation_is_read_back(sharding: Sharding) -> None:
    for write in (Sharding.to_dims_notation, Sharding.to_shardy, Sharding.to_partition_spec, Sharding.to_hlo):
        try:
            text = write(sharding)
        except reshard.ReshardError as refused:
            assert refused.kind in ("not_expressible", "uneven", "not_a_layout"), text
            continue
        again = Sharding(sharding.mesh, sharding.shape, text)
        for rank in sharding.mesh.ranks:
            assert again.region(rank) == sharding.region(rank)


def test_placements_in_many_forms() -> None:
    mesh = Mesh("dp=2,tp=4")
    expected = Sharding(mesh, (64, 32), "S(0),R")

    class PartitionSpec:
        def __str__(self) -> str:
            return "PartitionSpec('dp', None)"

    for form in ([S(0), R()], ["S(0)", "R"], (S(0), "R"), "[{dp},{}]", "PartitionSpec('dp', None)", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", PartitionSpec()):
        assert Sharding(mesh, (64, 32), form) == expected  # type: ignore[arg-type]
        assert Sharding({"dp": 2, "tp": 4}, [64, 32], form) == expected  # type: ignore[arg-type]
    inlined = Sharding(None, (4, 6), '#sdy.sharding<mesh<["x"=2, "y"=3]>, [{"x"}, {}]>')
    assert inlined == Sharding("x=2,y=3", (4, 6), "S(0),R")
    assert expected.placements == (S(0), R())


@given(shardings(), st.data())
def test_scatter_is_what_each_rank_holds(sharding: Sharding, data: st.DataObject) -> None:
    whole = np.arange(1, 1 + sharding.numel, dtype=np.int32).reshape(sharding.shape)
    shards = sharding.shard_all(whole)
    assert len(shards) == len(sharding.mesh)
    for rank, shard in zip(sharding.mesh.ranks, shards, strict=True):
        held = whole.reshape(-1)[sharding.global_indices(rank)].reshape(sharding.local_shape(rank))
        first = sharding.reduced() == sharding or shard.any() or not held.size
        np.testing.assert_array_equal(shard, held if first else np.zeros_like(held))
        region = sharding.region(rank)
        assert region.local_shape == sharding.local_shape(rank)
        np.testing.assert_array_equal(held, whole[np.ix_(*(region.indices(dim) for dim in range(whole.ndim)))])
        if region.slices is not None:
            np.testing.assert_array_equal(held, whole[region.slices])
    np.testing.assert_array_equal(sharding.assemble(shards), whole)
    rank = data.draw(st.sampled_from(sharding.mesh.ranks))
    np.testing.assert_array_equal(sharding.shard_all(whole, rank), shards[sharding.mesh.ranks.index(rank)])


def test_terms_combine() -> None:
    sharding = Sharding("x=3", (4,), "P")
    terms = [np.array([1.5, 2, 3, 4]), np.array([10.0, 20, 30, 40]), np.array([0.25, 0, 0, 1])]
    np.testing.assert_array_equal(sharding.assemble(terms), terms[0] + terms[1] + terms[2])
    np.testing.assert_array_equal(Sharding("x=3", (4,), "P(max)").assemble(terms), terms[1])
    np.testing.assert_allclose(Sharding("x=3", (4,), "P(avg)").assemble(terms), sum(terms) / 3)
    with pytest.raises(reshard.ReshardError, match="replicas differ"):
        Sharding("x=2", (4,), "R").assemble(terms[:2])


@pytest.mark.parametrize("terms", ["P", "P(avg)", "P(min)", "P(max)", "P(prod)", "P(norm2)", "P,P(avg)", "P(avg),P", "P(avg),S(0)"])
def test_terms_of_a_tensor_mean_it(terms: str) -> None:
    sharding = Sharding("x=2" if "," not in terms else "x=2,y=3", (4,), terms)
    whole = np.array([1.5, 2, 3, 4])
    np.testing.assert_allclose(sharding.assemble(sharding.shard_all(whole)), whole)


def test_views() -> None:
    sharding = Sharding("dp=2,tp=4", (64, 32), "S(0),S(1)")
    assert sharding.view((2, 32, 32)) == Sharding("dp=2,tp=4", (2, 32, 32), "S(0),S(2)")
    assert sharding.unsqueeze(0).squeeze(0) == sharding
    assert sharding.permute((1, 0)) == Sharding("dp=2,tp=4", (32, 64), "S(1),S(0)")
    assert sharding.split(0, (2, 32)).flatten(0, 2) == sharding
    assert sharding.unsqueeze(0).expand(0, 3).shape == (3, 64, 32)
    uneven = Sharding("x=4", (6, 4), "S(0)")
    assert uneven.try_view((4, 6)) is None
    with pytest.raises(reshard.NeedsRedistribution) as refused:
        uneven.view((4, 6))
    again = Sharding(uneven.mesh, uneven.shape, refused.value.sharding)
    assert again.view((4, 6)).shape == (4, 6) and refused.value.elements == 24
    assert refused.value.kind == "needs_redistribute"


@given(shardings())
def test_runs_are_what_is_held(sharding: Sharding) -> None:
    for rank in sharding.mesh.ranks:
        runs = sharding.region(rank).runs(sharding.shape)
        assert [index for run in runs for index in run] == sharding.global_indices(rank)


def test_counts_are_placements_of_what_is_sent_and_received() -> None:
    counts = Counts([[3, 1], [0, 2]])
    assert (counts.sources, counts.ranks, counts.total, counts.receives(1)) == (2, 2, 6, 3)
    sent, received = (Sharding("x=2", (6,), [placement]) for placement in (counts.source_placement(0), counts.target_placement(0)))
    assert [sent.local_numel(rank) for rank in (0, 1)] == [4, 2]
    assert [received.local_numel(rank) for rank in (0, 1)] == [3, 3]
    with pytest.raises(reshard.ReshardError):
        counts.receives(2)


def test_types() -> None:
    weight = ShardingType.from_value(Sharding("dp=2,tp=4", (64, 32), "R,S(1)"))
    assert weight.gradient == Sharding("dp=2,tp=4", (64, 32), "P,S(1)")
    zero2 = ShardingType("dp=2,tp=4", (64, 32), "R|S(0),S(1)")
    round_trips(zero2)
    turned = zero2.gradient_type()
    assert turned is not None and str(turned) == "S(0)|R,S(1)" and turned.gradient_type() == zero2
    assert ShardingType.invariant_along(Sharding.replicated("dp=2,tp=4", (64, 32)), "tp") == ShardingType("dp=2,tp=4", (64, 32), "R,I")
    assert ShardingType.of(weight.value).gradient is None
    # Along an axis of one rank a type has its text, and its sharding has not.
    alone = ShardingType("dp=1,tp=4", (64, 32), "S(0),R")
    round_trips(alone)
    assert (str(alone), str(alone.value), alone.to_dims_notation()) == ("S(0),R", "R,R", "[{dp},{}] reduced={tp}")


def test_digits_and_ownership() -> None:
    sharding = Sharding("dp=2,tp=4", (64, 32), "S(0),R")
    digits, ownership = sharding.digits, sharding.ownership()
    assert digits is not None and digits.names == ["dp"]
    assert ownership is not None
    for rank in sharding.mesh.ranks:
        held = sharding.global_indices(rank)
        at = sorted(ownership(rank + 8 * local) for local in range(len(held)))
        assert at == sorted(held)
    assert Sharding("x=2", (3,), "S(0)").ownership() is None
    assert sharding.replicated_axes == ["tp"]
    assert Sharding("dp=2,tp=4", (4,), "P,R").partial == {"dp": "sum"}
    assert sharding.with_partial({"tp": "sum"}) == Sharding("dp=2,tp=4", (64, 32), "S(0),P")


def test_regions_are_checked() -> None:
    with pytest.raises(ValueError, match="do not touch"):
        Region([[range(0, 2), range(2, 4)]])
    with pytest.raises(ValueError, match="not empty"):
        Region([[range(2, 2)]])


@pytest.mark.parametrize(
    ("dtype", "bits", "text"),
    [
        ("f32", b"\0\0\xc0\x3f", "1.5"), ("f32", b"\0\0\xc0\x7f", "NaN (0x7fc00000)"), ("f32", b"\0\0\x80\xff", "-inf"), ("f64", b"\0" * 6 + b"\xf8\x3f", "1.5"),
        ("i8", b"\xfe", "-2"), ("i16", b"\xfe\xff", "-2"), ("i32", b"\xfe\xff\xff\xff", "-2"), ("i64", b"\xfe" + b"\xff" * 7, "-2"), ("u8", b"\xfe", "254"),
        ("u16", b"\xfe\xff", "65534"), ("u64", b"\xff" * 8, "18446744073709551615"), ("bool", b"\1", "true"), ("c64", b"\0\0\x80\x3f\0\0\0\x40", "1 + 2i"),
        ("f16", b"\0\x3e", "1.5"), ("f16", b"\1\0", "0.00000005960464477539063"), ("f16", b"\0\xfc", "-inf"), ("bf16", b"\xc0\xbf", "-1.5"), ("bf16", b"\xc1\x7f", "NaN (0x7fc1)"),
        ("f8_e4m3", b"\x3c", "1.5"), ("f8_e4m3", b"\x7e", "448"), ("f8_e4m3", b"\x7f", "NaN (0x7f)"), ("f8_e5m2", b"\x3e", "1.5"), ("f8_e5m2", b"\x7b", "57344"),
        ("f8_e4m3fnuz", b"\x44", "1.5"), ("f8_e4m3fnuz", b"\x80", "NaN (0x80)"), ("f8_e5m2fnuz", b"\x42", "1.5"), ("f8_e8m0", b"\x80", "2"), ("f8_e8m0", b"\xff", "NaN (0xff)"),
    ],
)  # fmt: skip
def test_replicas_that_differ_are_named_by_their_numbers(dtype: str, bits: bytes, text: str) -> None:
    both = reshard.Sharding("x=2", (1,), "R")
    with pytest.raises(reshard.ReshardError) as error:
        both.assemble([bytes(len(bits)), bits], dtype=dtype)
    assert f"element 0 is {text} on rank 1" in str(error.value)
