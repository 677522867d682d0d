"""Layouts: values, and the algebra against its definitions."""

import itertools

import pytest
import reshard
from hypothesis import given
from hypothesis import strategies as st
from reshard import ComposedLayout, Layout, NamedLayout, PairsLayout, NamedPoint, Swizzle
from values import layouts, round_trips


@given(layouts())
def test_layouts_are_values(layout: Layout) -> None:
    round_trips(layout)
    assert Layout(str(layout)) == layout == Layout(layout.shape, layout.stride) == Layout.from_json(layout.to_json())


@pytest.mark.parametrize(
    "value",
    [
        NamedLayout("(4,2):(1@tp,8)"),
        PairsLayout("(3,4):((1,4),(3,1@tp))"),
        ComposedLayout("Sw<3,4,3> o 0 o (8,128):(128,1)"),
        Swizzle(3, 4, 3),
        NamedPoint("3+1@tp"),
        Layout.unit(),
    ],
)
def test_other_layouts_are_values(value: object) -> None:
    round_trips(value)


@given(layouts())
def test_a_layout_is_the_sum_of_its_digits_times_strides(layout: Layout) -> None:
    modes = layout.leaves()
    places = itertools.product(*(range(extent) for extent, _ in reversed(modes)))
    by_definition = [sum(digit * stride for digit, (_, stride) in zip(reversed(place), modes, strict=True)) for place in places]
    assert list(layout) == by_definition == [layout(index) for index in range(len(layout))]
    assert [layout(*([layout.coordinates(i)] if layout.is_scalar else layout.coordinates(i))) for i in range(len(layout))] == by_definition


@given(layouts(), layouts())
def test_a_composition_is_the_composition_of_functions(a: Layout, b: Layout) -> None:
    inside = all(value < len(a) for value in b)
    try:
        both = a @ b
    except reshard.ReshardError:
        return
    assert inside
    assert list(both) == [a(value) for value in b]


@given(layouts(), st.integers(1, 64))
def test_a_complement_fills_the_gaps(a: Layout, bound: int) -> None:
    try:
        gaps = a.complement(bound)
    except reshard.ReshardError:
        return
    sums = [x + y for x in set(a) for y in gaps]
    assert len(set(sums)) == len(sums)


@given(layouts())
def test_inverses_undo(a: Layout) -> None:
    right = a.right_inverse()
    assert [a(index) for index in right] == list(range(len(right)))
    if a.is_injective():
        try:
            left = a.left_inverse()
        except reshard.ReshardError:
            return
        assert [left(value) for value in a] == list(range(len(a)))


@given(layouts())
def test_answers_are_those_of_the_definitions(a: Layout) -> None:
    values = list(a)
    assert a.is_injective() in (None, len(set(values)) == len(values))
    assert a.is_compact() == (sorted(values) == list(range(len(values))))
    assert a.is_surjective_onto(a.cosize) == (set(values) == set(range(a.cosize)))
    assert list(a.coalesce()) == values
    assert a.is_equivalent(a.flatten())


def test_methods_are_the_functions_of_expressions() -> None:
    assert str(Layout("(6,2):(8,2)").compose("(4,3):(3,1)")) == "((2,2),3):((24,2),8)"
    assert reshard.evaluate("composition((6,2):(8,2), (4,3):(3,1))") == Layout("(6,2):(8,2)") @ "(4,3):(3,1)"
    assert Layout("(8,8):(8,1)").zipped_divide((2, 4)) == Layout("((2,4),(4,2)):((8,1),(16,4))")
    assert Layout("(8,8):(8,1)").slice((None, 3)).coalesce() == Layout("8:8")
    assert Layout("(8,8):(8,1)").slice_and_offset((None, 3))(2) == 19
    assert Layout("(4,2):(1,4)").mode(1) == Layout("2:4")
    assert Layout("4:1").concat("2:4", Layout("3:8")) == Layout("(4,2,3):(1,4,8)")
    assert reshard.apply("ceil_div", (7, 8), (2, 2)) == (4, 4)
    assert reshard.apply("idx2crd", 5, (3, 4)) == (2, 1)
    assert reshard.evaluate("<4,_,2:3>") == (Layout("4:1"), None, Layout("2:3"))
    seventh = NamedLayout("(4,2):(1@tp,8)")(7)
    assert isinstance(seventh, NamedPoint) and seventh == NamedPoint("8+3@tp")
    assert seventh.points() == [(8, {"tp": 3})]
    assert NamedLayout("(4,2):(1@tp,8)").mode(1) == Layout("2:8")
    swizzled = Swizzle(3, 4, 3) @ "(8,128):(128,1)"
    assert isinstance(swizzled, ComposedLayout)
    assert swizzled(3, 5) == Swizzle(3, 4, 3)(3 * 128 + 5)


def test_every_function_has_its_way_from_python() -> None:
    # The method of each function whose name differs from the function's.
    renamed = {
        "composition": "compose",
        "composition_at": "compose_from",
        "same_function": "is_equivalent",
        "composition_extended": "compose_extended",
        "make_ordered_layout": "make_ordered",
        "make_layout_like": "make_like",
    }
    tuples = {"crd2idx", "idx2crd", "crd2crd", "ceil_div", "shape_div", "elem_scale", "product", "product_each", "inner_product"}
    for name in reshard.functions():
        assert name in tuples | {"select"} or hasattr(Layout, renamed.get(name, name)), name


def test_what_is_no_layout_says_so() -> None:
    with pytest.raises(reshard.NotRepresentable) as refused:
        ComposedLayout("Sw<1,0,1> o 0 o (3,3):(3,1)").to_layout()
    assert refused.value.kind == "not_representable"
    with pytest.raises(reshard.ReshardError, match="byte") as unreadable:
        Layout("(4,2):(1,")
    assert unreadable.value.kind == "parse"
    with pytest.raises(reshard.ReshardError, match=r"of zip\("):
        NamedLayout("(4,2):(1@tp,8)").zip(3)
    with pytest.raises(TypeError, match="expected a layout"):
        Layout("4:1").compose(object())  # type: ignore[arg-type]
    deep: tuple[object, ...] = ()
    for _ in range(1000):
        deep = (deep,)
    with pytest.raises((ValueError, reshard.ReshardError)):
        Layout(deep)  # type: ignore[arg-type]
    with pytest.raises((ValueError, reshard.ReshardError)):
        Layout("4:1").slice(deep)  # type: ignore[arg-type]


def test_values_come_one_at_a_time() -> None:
    values = iter(Layout("4611686018427387904:1"))
    assert [next(values) for _ in range(3)] == [0, 1, 2]


def test_pictures_are_drawn_where_they_are_small() -> None:
    svg = Layout("(4,2):(1,4)")._repr_svg_()
    assert svg is not None and svg.startswith("<svg ") and "<script" not in svg
    assert Layout("1048576:1")._repr_svg_() is None
