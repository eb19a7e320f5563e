"""The example `examples/notebook`, run from its first cell to its last by a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_support import DEADLINE_S, EXAMPLES

pytestmark = pytest.mark.slow
NOTEBOOK = EXAMPLES / "notebook" / "notebook.ipynb"


def test_notebook_runs_and_both_replicas_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=DEADLINE_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "at the bench: {'sample 0': 19.75, 'sample 1': 21.5, 'sample 2': 22.5}" in printed
    assert "at the desk:  {'sample 0': 20.5, 'sample 1': 21.5, 'sample 3': 30.0}" in printed
    assert "\n{'sample 0': 19.75, 'sample 1': 21.5, 'sample 3': 30.0}\nequal: True and True\n" in printed
    (drawn,) = [svg_of(output) for output in outputs if svg_of(output)]
    assert all(said in drawn for said in ("sample 0", "sample 2", "sample 3", "hello"))
    (tmp_path / "notebook.svg").write_text(drawn)


def svg_of(output: Any) -> str:
    return str(output.get("data", {}).get("image/svg+xml", ""))
