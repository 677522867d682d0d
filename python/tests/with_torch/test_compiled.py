"""Functions that were compiled before `planned` was entered: one warning, whose advice works."""

import warnings
from collections.abc import Callable

import torch
from torch.distributed.tensor import DTensor, Shard

from definition import device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard.torch import planned


def compiled_before(rank: int) -> str:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    whole = whole_of((16, 8))
    x = dtensor(whole, [Shard(0), Shard(1)], mesh)
    torch.compiler.reset()

    def change(x: DTensor) -> DTensor:
        return (x * 2).redistribute(placements=[Shard(1), Shard(0)])

    def other(x: DTensor) -> DTensor:
        return (x * 3).redistribute(placements=[Shard(1), Shard(0)])

    function = torch.compile(change, backend="aot_eager", fullgraph=True)
    second = torch.compile(other, backend="aot_eager", fullgraph=True)

    def runs(of: Callable[[DTensor], DTensor]) -> tuple[int, list[str]]:
        """Returns the plans of a run under `planned`, and the warnings of entering it, twice and within itself."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with planned(strict=True) as plans, planned():
                pass
            with planned(strict=True) as plans:
                made = of(x)
                with planned():
                    pass
        assert torch.equal(made.to_local(), shard(whole * (2 if of is function else 3), [Shard(1), Shard(0)], mesh))
        return plans.report().plans, [str(one.message) for one in caught if "planned()" in str(one.message)]

    function(x)
    done, texts = runs(function)
    assert done == 0 and len(texts) == 1, (done, texts)
    # A function that is compiled under plans is not listed later.
    assert runs(second)[0] > 0
    assert runs(second)[1] == []
    # The warning recommends this.
    torch.compiler.reset()
    done, others = runs(function)
    assert done > 0 and others == []
    torch.compiler.reset()
    return texts[0]


def test_a_function_that_was_compiled_before_is_noticed(eight: Ranks) -> None:
    for text in eight.run(compiled_before):
        assert text.startswith("1 function compiled before planned() was entered: change (") and "test_compiled.py:" in text
        assert "call torch.compiler.reset() now" in text
