"""The output of notebooks is valid, escaped, without scripts, and at most 64 KiB."""

import re
from html.parser import HTMLParser

import pytest
import reshard
from hypothesis import given
from reshard import Mesh, Planner, Sharding
from values import shardings

MOST = 64 << 10
TAGS = {"div", "p", "code", "svg", "title", "desc", "style", "rect", "line", "path", "text", "g"}


class Checker(HTMLParser):
    """Checks that all elements are closed in order, and that only allowed, passive elements occur."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert not any(name.startswith("on") or name in {"href", "src", "xlink:href"} for name, _ in attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def checked(page: str) -> str:
    assert len(page.encode()) <= MOST
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker.text


@given(shardings())
def test_pages_are_valid(sharding: Sharding) -> None:
    assert str(sharding) in checked(sharding._repr_html_())
    checked(sharding.mesh._repr_html_())
    plan = reshard.plan(sharding, Sharding.replicated(sharding.mesh, sharding.shape), "f32")
    text = checked(plan._repr_html_())
    assert all(step.op in text for step in plan.steps)


@given(shardings())
def test_pictures_are_there_in_every_form(sharding: Sharding) -> None:
    for value in (sharding, sharding.mesh, reshard.plan(sharding, sharding, "f32")):
        assert value.draw().endswith("\n") and "\x1b" not in value.draw()
        checked(value._repr_html_())
        assert value.svg().startswith("<svg ") and value.svg().endswith("</svg>\n")


@pytest.mark.parametrize("mesh", ["x=100000", "a=3,b=50000", "a=50000,b=3", "x=1099511627776", "a=64,b=64"])
def test_large_ones_stay_small(mesh: str) -> None:
    assert "left out" in checked(Mesh(mesh)._repr_html_())
    axes = len(Mesh(mesh).axes)
    checked(Sharding(mesh, (1 << 20, 1 << 20), ",".join(f"S({axis})" for axis in range(axes)))._repr_html_())
    if len(Mesh(mesh)) <= 1 << 20:
        checked(Sharding(mesh, (1 << 20, 64), ",".join(["Z(0)"] + ["R"] * (axes - 1)))._repr_html_())


def test_colours_tell_ranks_apart() -> None:
    page = Sharding("x=4", (8, 8), "S(0)")._repr_html_()
    assert len(set(re.findall(r'fill="(#\w+)"', page))) == 4


def test_group_notation_is_escaped() -> None:
    mesh = Mesh("x=2,y=2@[3,1,0,2]")
    plan = Planner().plan(Sharding(mesh, (4, 4), "S(0),S(1)"), Sharding(mesh, (4, 4), "R,R"))
    assert "->" not in plan._repr_html_().replace("-&gt;", "")
    checked(plan._repr_html_())
