"""The package: its documentation, its stubs, its example."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cotenant
from cotenant import _cotenant

PYTHON = Path(__file__).parents[1]


def test_everything_public_is_documented():
    functions = [getattr(cotenant, name) for name in cotenant.__all__]
    methods = [value for name, value in vars(cotenant.Recording).items() if not name.startswith("_")]
    assert all(inspect.getdoc(thing) for thing in [cotenant, *functions, *methods])


def test_stubs_name_what_the_extension_has():
    stubs = (Path(cotenant.__file__).parent / "_cotenant.pyi").read_text()
    functions = {name for name in vars(_cotenant) if not name.startswith("_")}
    assert functions == set(re.findall(r"^(?:def |class )?(\w+)(?=\(|:)", stubs, re.M))
    methods = {name for name in vars(_cotenant.Recording) if not name.startswith("_")}
    assert methods == set(re.findall(r"^    def ([a-z]\w*)", stubs, re.M))


# Holds record/replay.
@pytest.mark.parametrize("example", sorted((PYTHON / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs_as_a_notebook(example, tmp_path):
    pytest.importorskip("jupytext")
    pytest.importorskip("nbconvert")
    notebook = tmp_path / f"{example.stem}.ipynb"
    execute = [sys.executable, "-m", "jupytext", "--to", "ipynb", "--execute", "--run-path", example.parent]
    ran = subprocess.run([*execute, "--output", notebook, example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    outputs = [output for cell in json.loads(notebook.read_text())["cells"] for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    tables = [output for output in outputs if "<table" in "".join(output.get("data", {}).get("text/html", []))]
    assert (len(pictures), len(tables)) == (3, 3), "each chart and each table is there"
