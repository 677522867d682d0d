"""Runs a notebook without a browser: every cell must run, and the drawings must exist and be short.

    python run_notebook.py NOTEBOOK
"""

import sys

import nbclient
import nbformat

MOST_BYTES = 65_536


def main(path: str) -> None:
    """Executes the notebook and checks its drawings."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    drawn = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for kind, content in output.get("data", {}).items():
                if kind in ("text/html", "image/svg+xml"):
                    drawn += 1
                    assert len(content.encode()) <= MOST_BYTES, f"{path}: {len(content)} bytes of {kind}"
                    assert "<script" not in content.lower(), f"{path}: a script in {kind}"
    assert drawn >= 3, f"{path}: {drawn} values drew themselves"
    print(f"{path}: {len(notebook.cells)} cells, {drawn} drawings")


if __name__ == "__main__":
    main(*sys.argv[1:])
