"""Meshes, groups, recipes."""

import pytest
import reshard
from hypothesis import given
from hypothesis import strategies as st
from reshard import GroupPattern, GroupRegistry, Layout, Mesh, ProcessGroup, ProcessGroups, Recipe
from values import MESHES, round_trips


@pytest.mark.parametrize("text", MESHES)
def test_meshes_are_values(text: str) -> None:
    mesh = Mesh(text)
    round_trips(mesh)
    assert Mesh.from_json(mesh.to_json()) == mesh
    assert Mesh.from_ranks(mesh.axes, mesh.ranks).ranks == mesh.ranks
    assert mesh.same_ranks(mesh.reorder(*reversed(mesh.names)))
    round_trips(mesh.groups(mesh.names[0]))
    round_trips(mesh.group(mesh.names[0]))
    round_trips(mesh.members(mesh.ranks[0], mesh.names[0]))


@pytest.mark.parametrize("text", MESHES)
def test_coordinates_and_ranks_are_inverse(text: str) -> None:
    mesh = Mesh(text)
    assert len(mesh) == len(mesh.ranks) == mesh.size
    for index, rank in enumerate(mesh.ranks):
        place = mesh.coordinate(rank)
        assert mesh.rank_at(place) == rank
        assert mesh.coordinate_at(index) == place
        assert mesh.position(rank) == index
        assert rank in mesh


@pytest.mark.parametrize("text", MESHES)
def test_groups_are_the_ranks_that_differ_in_their_axes_only(text: str) -> None:
    mesh = Mesh(text)
    for at, name in enumerate(mesh.names):
        by_definition: dict[tuple[int, ...], list[int]] = {}
        for rank in mesh.ranks:
            place = mesh.coordinate(rank)
            by_definition.setdefault(place[:at] + place[at + 1 :], []).append(rank)
        expected = sorted(sorted(group) for group in by_definition.values())
        groups = mesh.groups(name)
        assert sorted(groups.members()) == expected
        for rank in mesh.ranks:
            group = groups.group_of(rank)
            assert group is not None and rank in group and group == mesh.members(rank, name)
        assert ProcessGroups.from_replica_groups(groups.replica_groups_v1()).same_members(groups)


def test_transforms() -> None:
    mesh = Mesh({"dp": 2, "pp": 2, "tp": 4})
    assert mesh.slice("dp", "tp") == Mesh("dp=2:8,tp=4:1")
    assert mesh.at({"pp": 1}) == Mesh("dp=2:8,tp=4:1@4")
    assert mesh.slice_of(6, "tp") == Mesh("tp=4@4")
    assert mesh.flatten(["dp", "pp"], "both") == Mesh("both=4,tp=4")
    assert mesh.split("tp", {"a": 2, "b": 2}) == Mesh("dp=2,pp=2,a=2,b=2")
    assert mesh.reinterpret([("x", 16)]) == Mesh("x=16") == mesh.flatten(["dp", "pp", "tp"], "x")
    assert mesh.rename("pp", "stage").names == ("dp", "stage", "tp")
    assert Mesh.concatenate([mesh.slice("dp"), mesh.slice("tp")]) == mesh.slice("dp", "tp")
    assert Mesh.from_nested(["x", "y"], [[1, 0], [2, 3]]).ranks == [1, 0, 2, 3]
    assert Mesh.with_layouts([("x", Layout("2:4"))], 1).ranks == [1, 5]
    assert mesh.flat_layout() == Layout("16:1")
    assert mesh.replica_groups_v3("tp:(1)2") == "mesh['dp'=2,'pp'=2,'tp'=4] {'tp':(1)2}"
    assert mesh.group("tp:(2)2") == GroupPattern("2:1")
    assert mesh.rank_table is None and Mesh("x=3@[2,0,1]").rank_table == [2, 0, 1]


@given(st.sets(st.integers(0, 40), min_size=1, max_size=8))
def test_a_group_is_its_members(ranks: set[int]) -> None:
    group = ProcessGroup(list(ranks))
    round_trips(group)
    assert group.ranks == sorted(ranks)
    assert [group.rank_at(number) for number in range(len(group))] == sorted(ranks)
    assert all(group.group_rank(rank) == number for number, rank in enumerate(sorted(ranks)))


def test_a_registry_knows_which_groups_serve() -> None:
    mesh = Mesh("dp=2,tp=4")
    registry = GroupRegistry(mesh, world=8, groups={"halves": mesh.groups("tp:(1)2")})
    assert registry.find(mesh.groups("tp")) == "tp"
    assert registry.find(mesh.groups("tp:(1)2")) == "halves"
    assert registry.find(mesh.groups("tp:(2)2")) is None
    assert {name for name, _ in registry.items()} >= {"dp", "tp", "halves"}


def test_recipes() -> None:
    assert set(Recipe.kinds()) >= {"fsdp", "hsdp", "ep"}
    recipe = Recipe("hsdp", {"dp_replicate": 2, "dp_shard": 4})
    round_trips(recipe)
    assert recipe.mesh.axes == {"dp_replicate": 2, "dp_shard": 4}
    assert "dp_shard" in recipe.roles["parameters"]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: Mesh("dp=2,dp=4"), "mesh"),
        (lambda: Mesh("dp=2,tp"), "parse"),
        (lambda: Mesh("dp=2").axis("tp"), "no_such_axis"),
        (lambda: Mesh("dp=2").coordinate(2), "no_such_rank"),
        (lambda: Mesh({"dp": 1 << 40}).ranks, "too_many_ranks"),
        (lambda: ProcessGroup([1, 1]), "not_a_layout"),
    ],
)
def test_refusals_say_their_kind(wrong: object, kind: str) -> None:
    with pytest.raises(reshard.ReshardError) as refused:
        wrong()  # type: ignore[operator]
    assert refused.value.kind == kind
    assert "\n" not in str(refused.value)


def test_what_is_no_mesh_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a Mesh"):
        Mesh(3)  # type: ignore[arg-type]
    with pytest.raises(reshard.ReshardError, match="-1 is out of range"):
        Mesh({"dp": -1})
