"""Round trips of meshes, shardings and types between JAX and this library."""

import itertools
import subprocess
import sys

import jax
import numpy as np
import pytest
from cases import device_mesh, specs
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import reshard
import reshard.jax as rj

SHAPE = (24, 48)
MESHES = [{"dp": 2, "tp": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 3, "c": 4}]


@pytest.mark.parametrize("sizes", MESHES)
def test_every_spec_is_a_sharding_and_back(sizes: dict[str, int]) -> None:
    mesh = device_mesh(sizes)
    for spec in specs(tuple(sizes), 2):
        named = NamedSharding(mesh, spec)
        ours = rj.sharding(named, SHAPE)
        assert rj.named(ours, mesh).is_equivalent_to(named, 2)
        # Each device has the indices that JAX reports.
        for rank, (device, index) in enumerate(named.devices_indices_map(SHAPE).items()):
            assert mesh.devices.flat[rank] == device
            held = tuple((range(*one.indices(n)),) for one, n in zip(index, SHAPE, strict=True))
            assert ours.region(rank).intervals == held


def test_reduced_and_unreduced_are_types() -> None:
    mesh = device_mesh({"dp": 2, "tp": 4})
    for cut, unreduced, reduced in itertools.product([None, "dp"], [(), ("tp",)], [(), ("tp",)]):
        if unreduced and reduced:
            continue
        named = NamedSharding(mesh, P(None, cut, unreduced=frozenset(unreduced), reduced=frozenset(reduced)))
        made = rj.typed(named, SHAPE)
        assert made.value.partial == dict.fromkeys(unreduced, "sum")
        assert made.gradient is not None and made.gradient.partial == dict.fromkeys(reduced, "sum")
        assert rj.named(made, mesh) == named
        back = made.gradient_type()
        assert back is not None and rj.named(back, mesh).spec == P(None, cut, unreduced=frozenset(reduced), reduced=frozenset(unreduced))


def test_meshes_both_ways() -> None:
    mesh = device_mesh({"dp": 2, "tp": 4})
    assert rj.mesh(mesh) == rj.mesh(mesh.abstract_mesh) == reshard.Mesh("dp=2,tp=4")
    turned = Mesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("a", "b"))
    assert rj.mesh(turned, jax.devices()).ranks == [7, 6, 5, 4, 3, 2, 1, 0]
    assert rj.device_mesh(rj.mesh(turned, jax.devices())).devices.tolist() == turned.devices.tolist()
    with pytest.raises(reshard.ReshardError, match="there are only 24 devices"):
        rj.device_mesh("x=25")
    with pytest.raises(TypeError, match="expected a mesh of JAX"):
        rj.mesh("dp=2")


def test_what_jax_cannot_say_is_refused() -> None:
    mesh = device_mesh({"dp": 2, "tp": 4})
    for placements, word in [("P(max),R", "only sums"), ("Z(0),R", "Z"), ("SS(0,2),R", "SS")]:
        with pytest.raises(reshard.ReshardError, match=word):
            rj.named(reshard.Sharding("dp=2,tp=4", SHAPE, placements), mesh)
    with pytest.raises(reshard.ReshardError, match="has the axes"):
        rj.named(reshard.Sharding("x=8", SHAPE, "R"), mesh)
    with pytest.raises(reshard.ReshardError, match="leaves dim 0 unconstrained"):
        rj.sharding(NamedSharding(device_mesh({"dp": 2, "tp": 4}, AxisType.Auto), P(P.UNCONSTRAINED)), SHAPE)
    with pytest.raises(reshard.ReshardError, match="unevenly"):
        rj.sharding(NamedSharding(mesh, P("tp")), (6, 6))


def test_importing_the_package_loads_no_jax() -> None:
    code = "import sys, reshard; assert 'jax' not in sys.modules; import reshard.jax; assert 'jax' in sys.modules; print(reshard.jax.__all__)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reshard_fn" in answer.stdout
