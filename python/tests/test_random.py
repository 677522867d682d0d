"""Random numbers: those of the command line, and shards that are slices of the whole, for all draws."""

import inspect

import numpy as np
import pytest
from asked import ask
from hypothesis import given
from hypothesis import strategies as st

import reshard
from reshard import Key, ReshardError, Sharding
from values import round_trips

DRAWS = [
    ("bits", ["u8", "u16", "u32", "u64"]),
    ("uniform(-1,1)", ["f64", "f32", "bf16", "f16"]),
    ("normal(0,0.02)", ["f64", "f32", "bf16", "f16"]),
    ("truncated_normal(-2,2)", ["f64", "f32", "bf16", "f16"]),
    ("bernoulli(0.3)", ["bool", "i8", "u32", "f32", "bf16"]),
    ("randint(0,10)", ["i8", "u8", "i32", "u64", "i64"]),
    ("exponential", ["f64", "f32", "bf16", "f16"]),
    ("gumbel", ["f64", "f32", "bf16", "f16"]),
]
ALL = [(draw, dtype) for draw, dtypes in DRAWS for dtype in dtypes]
SHARDINGS = [("tp=3", "S(0)"), ("tp=3", "S(1)"), ("dp=2,tp=2", "S(1),S(1)"), ("dp=2,tp=2", "S(1),SS(0,2)"), ("tp=4", "R")]


@pytest.mark.parametrize("generator", ["threefry", "philox"])
@pytest.mark.parametrize(("draw", "dtype"), ALL)
def test_a_shard_is_the_slice_of_the_whole(draw, dtype, generator):
    key, shape = Key(11, generator).fold_in(5), (6, 7)
    whole = key.draw(draw, shape, dtype)
    assert whole.shape == shape and len(set(whole.reshape(-1).tolist())) > 1
    numbers = np.arange(42).reshape(shape)
    for mesh, placements in SHARDINGS:
        sharding = Sharding(mesh, shape, placements)
        seen = set()
        for rank in range(sharding.mesh.size):
            mine = key.draw(draw, dtype=dtype, sharding=sharding, rank=rank)
            assert mine.shape == sharding.local_shape(rank)
            # Find a rank's elements by 64-bit random numbers, which are all different.
            of = Key(1).bits(dtype="u64", sharding=sharding, rank=rank)
            all_ = Key(1).bits(shape, "u64")
            at = [int(numbers[all_ == b][0]) for b in of.reshape(-1)]
            seen.update(at)
            assert mine.tobytes() == whole.reshape(-1)[at].tobytes()
        assert seen == set(range(42))
    assert key.element(draw, 17, dtype).tobytes() == whole.reshape(-1)[17].tobytes()


@given(st.sampled_from(ALL), st.integers(0, 2**64 - 1), st.integers(0, 2), st.sampled_from(["threefry", "philox"]))
def test_numbers_are_those_of_the_command_line(what, seed, rank, generator):
    draw, dtype = what
    answer = ask("random", "--mesh", "tp=3", "--shape", "5,4", "--placements", "S(0)", "--rank", str(rank), "--draw", draw,
                 "--dtype", dtype, "--seed", str(seed), "--generator", generator)
    key = Key(seed, generator)
    mine = key.draw(draw, dtype=dtype, sharding=Sharding("tp=3", (5, 4), "S(0)"), rank=rank)
    assert answer["key"] == str(key) and answer["local_shape"] == list(mine.shape)
    values = np.array(answer["values"], dtype=object).astype(mine.dtype)
    assert values.tobytes() == mine.tobytes()


def test_methods_are_draws():
    key = Key(3)
    for method, draw in [
        (key.uniform((3, 4), low=-1, high=1), "uniform(-1,1)"),
        (key.normal((3, 4), std=0.5), "normal(0,0.5)"),
        (key.truncated_normal((3, 4)), "truncated_normal"),
        (key.exponential((3, 4)), "exponential"),
        (key.gumbel((3, 4)), "gumbel"),
    ]:
        assert method.dtype == np.float32 and (method == key.draw(draw, (3, 4))).all()
    assert (key.bernoulli((9,), p=0.2) == key.draw("bernoulli(0.2)", (9,), "bool")).all()
    assert (key.randint((9,), high=100) == key.draw("randint(0,100)", (9,), "i32")).all()
    assert (key.bits((9,)) == key.draw("bits", (9,), "u32")).all()
    assert {text.split("(")[0] for text in reshard.draws()} == {draw.split("(")[0] for draw, _ in DRAWS}


def test_keys():
    key = Key(42)
    round_trips(key)
    assert Key(str(key)) == key
    assert key.split(3) == [key.fold_in(n) for n in range(3)] and len(set(key.split(1000))) == 1000
    assert key.generator != Key(42, "philox").generator


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: Key(0).draw("normal", (3,), "i32"), None),
        (lambda: Key(0).draw("norml", (3,)), None),
        (lambda: Key(0).normal(), "usage"),
        (lambda: Key(0).normal(sharding=Sharding("tp=2", (4,), "P"), rank=0), "partial"),
        (lambda: Key(0).normal(sharding=Sharding("tp=2", (4,), "R"), rank=2), None),
        (lambda: Key(0).normal(sharding=Sharding("tp=2", (4,), "R")), "usage"),
        (lambda: Key(0).uniform((3,), low=2.0, high=1.0), None),
        (lambda: Key("threefry2x32:0"), None),
        (lambda: Key(0).normal((2**40, 2**40)), None),
        (lambda: Key(0).split(2**40), "too_many_elements"),
    ],
)
def test_what_is_refused_is_one_sentence_with_a_kind(call, kind):
    with pytest.raises(ReshardError) as refused:
        call()
    assert refused.value.kind and (kind is None or refused.value.kind == kind) and "\n" not in str(refused.value)


def test_signatures_say_the_numbers_of_draws():
    assert str(inspect.signature(Key.truncated_normal)) == "(self, /, shape=None, dtype=None, *, low=-2.0, high=2.0, sharding=None, rank=None)"
    for draw in reshard.draws():
        assert "..." not in str(inspect.signature(getattr(Key, draw.partition("(")[0])))
