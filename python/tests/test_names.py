"""Every public item of Rust has a name in Python, or a reason for its absence.

`rust_api.txt` lists Rust's items; `cargo test -p reshard-python` compares it with the sources. An item
`crate::Type::method` is found at `reshard.Type.method`, `crate::function` at `reshard.function`. `names.toml`
lists the items that have another name or are missing.
The page `docs/reference/python_names.md` is made of both: `RESHARD_WRITE=1 pytest tests/test_names.py` writes it.
"""

import fnmatch
import os
import pathlib
import tomllib
from typing import Any

import reshard

HERE = pathlib.Path(__file__).parent.parent
PAGE = HERE.parent / "docs" / "reference" / "python_names.md"
ITEMS = (HERE / "rust_api.txt").read_text().split()
NAMES = tomllib.loads((HERE / "names.toml").read_text())
RENAMED: dict[str, str] = NAMES["renamed"]
WITHOUT: dict[str, str] = NAMES["without"]
# Types whose namesake in Python is something else.
NAMESAKES: list[str] = NAMES["namesakes"]

# The names of Rust's standard methods in every Python class.
SAID_OTHERWISE = {"new": "{}", "len": "{}.__len__", "is_empty": "{}.__len__", "iter": "{}.__iter__"}


def found(path: str) -> bool:
    """Returns True if `reshard.PATH` exists."""
    at: Any = reshard
        # Exclude the ops, which are attributes of the module too.
    if path.split(".")[0] not in reshard.__all__:
        return False
    for part in path.split("."):
        if not hasattr(at, part):
            return False
        at = getattr(at, part)
    return True


def python_name(item: str) -> str | None:
    """Returns the Python name of an item, if it has one."""
    if item in RENAMED:
        return RENAMED[item]
    crate, of, *method = item.split("::")
    if f"{crate}::{of}" in NAMESAKES:
        return None
    owner = RENAMED.get(f"{crate}::{of}", of)
    paths = [f"{owner}.{method[0]}", SAID_OTHERWISE.get(method[0], "").format(owner)] if method else [owner]
    return next((path for path in paths if path and found(path)), None)


def reason(item: str) -> str | None:
    """Returns the reason why Python does not have an item: that of the longest pattern that fits."""
    fitting = [pattern for pattern in WITHOUT if fnmatch.fnmatchcase(item, pattern)]
    return WITHOUT[max(fitting, key=len)] if fitting else None


def test_every_item_of_rust_is_there_or_says_why_not() -> None:
    missing = [item for item in ITEMS if python_name(item) is None and reason(item) is None]
    assert not missing, f"{len(missing)} names of Rust have neither a Python name nor a reason in names.toml: {missing}"


def test_renamed_items_are_where_the_table_says() -> None:
    wrong = {item: path for item, path in RENAMED.items() if item not in ITEMS or not found(path)}
    assert not wrong, wrong


def test_reasons_are_of_items_that_are_not_there() -> None:
    used = {max((p for p in WITHOUT if fnmatch.fnmatchcase(item, p)), key=len) for item in ITEMS if python_name(item) is None and reason(item)}
    assert not set(WITHOUT) - used, f"reasons for nothing: {sorted(set(WITHOUT) - used)}"


def row(first: str, second: str) -> str:
    return f"| {first} | {second} |"


def page() -> str:
    """Returns the page: for every type of Rust its class, the names of its items, and the missing ones."""
    lines = [
        "# Rust's names and Python's",
        "",
        "Classes, methods and functions of the Python package have their names in Rust. This page lists those with another name,",
        "and those that the package lacks, with the reason. A test writes it (`RESHARD_WRITE=1 pytest",
        "python/tests/test_names.py`), and fails if a public name of the library has neither a name in Python nor a reason.",
    ]
    crates: dict[str, dict[str, list[str]]] = {}
    for item in ITEMS:
        crate, of, *method = item.split("::")
        crates.setdefault(crate, {}).setdefault(of, []).extend(method)
    for crate, types in crates.items():
        lines += ["", f"## {crate}", "", row("Rust", "Python"), row("---", "---")]
        for of, methods in types.items():
            item = f"{crate}::{of}"
            name = python_name(item)
            if name is None and not any(python_name(f"{item}::{method}") for method in methods):
                lines.append(row(f"`{of}`", f"none: {reason(item)}"))
                continue
            parts = [f"`reshard.{name}`" if name else f"none: {reason(item)}"]
            same, other, without = [], [], {}
            for method in methods:
                path = python_name(f"{item}::{method}")
                if path is None:
                    without.setdefault(reason(f"{item}::{method}") or "?", []).append(method)
                elif path.rsplit(".", 1)[-1] == method:
                    same.append(f"`{method}`")
                else:
                    other.append(f"`{method}` is `{path}`")
            if same:
                parts.append("with " + ", ".join(same))
            parts += other
            parts += ["without " + ", ".join(f"`{m}`" for m in missing) + f": {why}" for why, missing in without.items()]
            lines.append(row(f"`{of}`", "; ".join(parts)))
    return "\n".join(lines) + "\n"


def test_the_page_is_that_of_the_table() -> None:
    if os.environ.get("RESHARD_WRITE"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "RESHARD_WRITE=1 pytest python/tests/test_names.py writes docs/reference/python_names.md"
