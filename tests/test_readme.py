"""The code at the top of the README runs as it stands, prints what it says, and takes a torch model as well."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
YOURS, OURS, LABELS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PRINTED, FROM_LABELS = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
TORCH = """\
import torch

draws = torch.Generator().manual_seed(1)
x = torch.randn(2000, 400, generator=draws)
y = (x[:, 0] + torch.randn(2000, generator=draws) > 0).long()

def losses(members):
    inputs, labels = x[members], y[members].double() * 2 - 1
    weight = torch.linalg.lstsq(inputs.double(), labels).solution
    return torch.nn.functional.softplus(-(x.double() @ weight) * (2 * y - 1))
"""


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d\.\d+", text)]


def printed(capsys: pytest.CaptureFixture[str], *sources: str) -> str:
    names: dict = {}
    for source in sources:
        exec(source, names)
    return capsys.readouterr().out


def test_the_code_comes_first_and_has_ten_lines():
    assert TEXT.index(OURS) < TEXT.index("\n## ")
    assert len([line for line in OURS.splitlines() if line]) <= 10


def test_the_code_prints_what_the_readme_says(capsys):
    found, said = printed(capsys, YOURS, OURS, LABELS), PRINTED + FROM_LABELS
    assert re.sub(r"\d\.\d+", "0", found) == re.sub(r"\d\.\d+", "0", said)
    # Another processor may round the drawn records, and a tree splits elsewhere: far less than the intervals.
    assert numbers(found) == pytest.approx(numbers(said), abs=0.01)


def test_the_same_ten_lines_take_a_torch_model(capsys):
    auc, low, *_ = numbers(printed(capsys, TORCH, OURS))
    assert auc > low > 0.5, "400 weights for 1000 records leak"
