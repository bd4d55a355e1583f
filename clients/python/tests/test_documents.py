"""The examples of the guides, the notebook and the wheel work as users get them."""

import ast
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from server import Server

CLIENT = Path(__file__).parents[1]
ROOT = CLIENT.parents[1]
GUIDES = [CLIENT / "README.md", ROOT / "docs/python.md"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_examples_of_a_guide_run_in_their_order(guide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The ports of the examples, on a loopback address that no other process has.
    own = "127.{}.{}.{}".format(*(os.getpid() | 0x800000).to_bytes(3))
    server = Server(addresses={"applications": f"{own}:8000", "devices-http": f"{own}:8080"})
    try:
        names: dict[str, Any] = {"__name__": "__main__"}
        text = guide.read_text()
        blocks = [block.partition("\n")[2] for block in text.split("\n```")[1::2] if block.startswith("python\n")]
        assert blocks
        # An example that runs a loop of its own would take this thread's loop from the other tests.
        with ThreadPoolExecutor(1) as thread:
            for block in blocks:
                # Lines count as in the document.
                source = "\n" * text.partition(block)[0].count("\n") + block.replace("127.0.0.1", own)
                thread.submit(exec, compile(source, guide, "exec"), names).result()
                printed = capsys.readouterr().out
                expected = [line.partition("# prints ")[2] for line in block.splitlines() if "# prints " in line]
                assert [line for line in expected if line not in printed.splitlines()] == [], printed
    finally:
        server.stop()


def test_the_cells_of_the_notebook_run(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setenv("MILLSTREAM_SERVER", server.url)
    monkeypatch.setenv("MILLSTREAM_DEVICES", server.devices_url)
    try:
        notebook = json.loads((ROOT / "examples/python.ipynb").read_text())
        cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        names: dict[str, Any] = {}
        shown = [shown for cell in cells if (shown := _run_cell(cell, names)) is not None]
        registered, warm, live, by_device, aggregated, history = shown
        assert registered["id"].tolist() == ["thermo-1", "thermo-2", "thermo-3"]
        assert warm["room"].tolist() == ["cellar", "attic"]
        assert len(live) == 9
        assert live["temperature"].min() > 20
        assert by_device["count"].to_dict() == {"thermo-1": 1, "thermo-2": 3, "thermo-3": 5}
        assert aggregated["sent"].tolist() == [6, 6, 6]
        assert len(history) == 9
    finally:
        server.stop()


def _run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell as a notebook does and returns the value of its last expression, which is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_wheel_has_the_package_its_types_and_its_licence(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", tmp_path, CLIENT], check=True)
    [wheel] = tmp_path.glob("millstream-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in files if name.endswith(".dist-info/METADATA")]
    modules = {f"millstream/{file.name}" for file in (CLIENT / "src/millstream").glob("*.py")}
    assert {name for name in files if name.startswith("millstream/")} == modules | {"millstream/py.typed"}
    assert any(name.endswith("/licenses/LICENSE") for name in files)
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.11", "Provides-Extra: pandas"):
        assert line in metadata.splitlines()
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    # It works by itself, and without pandas until a frame is made.
    program = (
        "import sys; sys.modules['pandas'] = None; import millstream;"
        "assert '.whl' in millstream.__file__;"
        "frame = millstream.Answer([], {}).to_frame"
        "\ntry: frame()\nexcept ImportError as missing: print(missing)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(wheel)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "frames need pandas; install it with: pip install 'millstream[pandas]'\n"
