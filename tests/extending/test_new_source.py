"""A data source of ``attsvm fit`` defined outside the package: loaded in Python, fitted by the command, on its page."""

import json

# docs: begin
from dataclasses import dataclass

import numpy as np

from attsvm import Problem
from attsvm.datasets import Source, option


@dataclass(frozen=True)
class Spikes(Source):
    """Noisy sensors: the label is the sign of the one reading that stands out."""

    name = "spikes"
    summary = "readings of a noisy sensor, one of which stands out"

    number: int = option(60, read=int, help="number of sequences")
    seed: int = option(0, read=int, help="seed of the noise")

    def load(self):
        rng = np.random.default_rng(self.seed)
        tokens = 0.3 * rng.standard_normal((self.number, 6, 5))
        labels = rng.choice([-1.0, 1.0], self.number)
        places = rng.integers(6, size=self.number)
        tokens[np.arange(self.number), places, 0] += labels
        tokens[np.arange(self.number), places, 1] += 1
        return Problem(tokens, labels=labels)

    def title(self):
        return f"Spikes in {self.number} readings"

    def label_names(self):
        return "up", "down"


# docs: end

import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.datasets import find_source  # noqa: E402

HERE = "test_new_source:Spikes"


def test_it_is_found_by_its_import_path_with_options_from_text():
    source = find_source(HERE, {"number": "12", "seed": "3"})
    assert source == Spikes(number=12, seed=3)
    assert find_source(source) is source
    np.testing.assert_array_equal(source.load().tokens, Spikes(12, 3).load().tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "5"}, "spikes: expected one of the options number, seed, got 'rate'"),
        ({"number": "many"}, "number: expected number of sequences, got 'many'"),
    ],
)
def test_an_option_that_it_lacks_or_cannot_read_is_named(options, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        find_source(HERE, options)


def test_what_is_no_source_is_refused():
    with pytest.raises(attsvm.ProblemError, match="expected a Source or a subclass of it"):
        find_source("test_new_source:np")


def test_the_command_line_fits_it_and_writes_the_page(command, tmp_path):
    options = ("--option", "number=40", "--steps", 300, "--json", "--out", tmp_path / "page")
    code, out, error = command("fit", HERE, *options)
    assert code == 0, error
    result = json.loads(out)
    assert result["data"]["source"] == HERE
    assert result["data"]["sequences"] == 40
    assert result["data"]["classes"] == ["up", "down"]
    assert "<title>Spikes in 40 readings" in (tmp_path / "page" / "index.html").read_text()
