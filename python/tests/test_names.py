"""What the library has, Python has: every public item of Rust has its name here, or a reason why not.

`rust_api.txt` lists Rust's items and is held against the sources by `cargo test -p reshard-python`. An item `crate::Type::method` is found at
`reshard.Type.method`, `crate::function` at `reshard.function`; what is called otherwise, or is not there, stands in `names.toml`.
The page `docs/python_names.md` is made of both: `RESHARD_WRITE=1 pytest tests/test_names.py` writes it.
"""

import fnmatch
import os
import pathlib
import tomllib
from typing import Any

import reshard

HERE = pathlib.Path(__file__).parent.parent
PAGE = HERE.parent / "docs" / "python_names.md"
ITEMS = (HERE / "rust_api.txt").read_text().split()
NAMES = tomllib.loads((HERE / "names.toml").read_text())
RENAMED: dict[str, str] = NAMES["renamed"]
WITHOUT: dict[str, str] = NAMES["without"]
# Types of which Python's namesake is another thing.
NAMESAKES: list[str] = NAMES["namesakes"]

# What Python says otherwise of every class.
SAID_OTHERWISE = {"new": "{}", "len": "{}.__len__", "is_empty": "{}.__len__", "iter": "{}.__iter__"}


def found(path: str) -> bool:
    """Whether `reshard.PATH` is there."""
    at: Any = reshard
    for part in path.split("."):
        if not hasattr(at, part):
            return False
        at = getattr(at, part)
    return True


def python_name(item: str) -> str | None:
    """Where Python has this item, if it has it."""
    if item in RENAMED:
        return RENAMED[item]
    crate, of, *method = item.split("::")
    if f"{crate}::{of}" in NAMESAKES:
        return None
    owner = RENAMED.get(f"{crate}::{of}", of)
    paths = [f"{owner}.{method[0]}", SAID_OTHERWISE.get(method[0], "").format(owner)] if method else [owner]
    return next((path for path in paths if path and found(path)), None)


def reason(item: str) -> str | None:
    """Why Python has no such item: that of the longest pattern that fits."""
    fitting = [pattern for pattern in WITHOUT if fnmatch.fnmatchcase(item, pattern)]
    return WITHOUT[max(fitting, key=len)] if fitting else None


def test_every_item_of_rust_is_there_or_says_why_not() -> None:
    missing = [item for item in ITEMS if python_name(item) is None and reason(item) is None]
    assert not missing, f"{len(missing)} items of Rust have neither a name nor a reason in names.toml: {missing}"


def test_renamed_items_are_where_the_table_says() -> None:
    wrong = {item: path for item, path in RENAMED.items() if item not in ITEMS or not found(path)}
    assert not wrong, wrong


def test_reasons_are_of_items_that_are_not_there() -> None:
    used = {max((p for p in WITHOUT if fnmatch.fnmatchcase(item, p)), key=len) for item in ITEMS if python_name(item) is None and reason(item)}
    assert not set(WITHOUT) - used, f"reasons for nothing: {sorted(set(WITHOUT) - used)}"


def row(first: str, second: str) -> str:
    return f"| {first} | {second} |"


def page() -> str:
    """The table: for every type of Rust its class, what it is called by, and what it is without."""
    lines = [
        "# Rust's names and Python's",
        "",
        "Classes, methods and functions of the package are called what they are called in Rust; this page lists what is called otherwise,",
        "and what is not there, with the reason. It is made by a test (`RESHARD_WRITE=1 pytest python/tests/test_names.py`), which fails",
        "where an item of the library has neither a name nor a reason.",
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
    assert PAGE.read_text() == page(), "RESHARD_WRITE=1 pytest python/tests/test_names.py writes docs/python_names.md"
