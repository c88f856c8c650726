"""A transformer family defined outside the package: inspected from Python and by the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

# docs: begin
import torch  # noqa: E402

from attsvm.inspect.families import AttentionCall, Family  # noqa: E402


class OpenAIGPT(Family):
    """The first GPT, whose attention modules compute their attention themselves."""

    name = "GPT"

    def matches(self, name, module):
        return name.endswith("attn") and hasattr(module, "c_attn")

    def prepared(self, arguments, keywords):
        return arguments, {**keywords, "output_attentions": True}

    def call(self, module, arguments, output, seen):
        query, key, _ = (
            part.unflatten(-1, (module.n_head, -1)).transpose(1, 2)
            for part in module.c_attn(arguments["x"]).chunk(3, dim=-1)
        )
        T = key.shape[-2]
        mask = torch.ones(T, T, dtype=torch.bool).tril()
        if arguments["attention_mask"] is not None:
            mask = arguments["attention_mask"].masked_fill(~mask, -torch.inf)
        return AttentionCall(query, key, mask, scale=key.shape[-1] ** -0.5, own=output[-1])


# docs: end

import attsvm.torch  # noqa: E402
from attsvm.errors import ProblemError  # noqa: E402

HERE = "test_new_family:OpenAIGPT"
WORDS = "[PAD] [UNK] [CLS] [SEP] the a cat dog sat ran on mat road . and then home"


def small_model():
    torch.manual_seed(0)
    config = transformers.OpenAIGPTConfig(
        vocab_size=len(WORDS.split()), n_positions=16, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    return transformers.OpenAIGPTModel(config).eval()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "words.txt").write_text(WORDS.replace(" ", "\n"))
    transformers.BertTokenizer(str(tmp_path / "words.txt"), model_max_length=16).save_pretrained(tmp_path / "model")
    small_model().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\na dog ran home\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("family", [OpenAIGPT, OpenAIGPT(), HERE])
def test_its_attention_is_that_of_the_model(family):
    batch = {"input_ids": torch.tensor([[2, 4, 6, 8, 3], [2, 5, 7, 3, 0]])}
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    inspection = attsvm.inspect.inspect(small_model(), batch, family=family)
    assert inspection.family == "GPT"
    assert [(head.layer, head.head) for head in inspection.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in inspection.heads:
        assert head.rebuilt_error < 1e-5
        assert 0 < head.margin.lower <= head.margin.upper <= 1
        assert head.numbers["effective_rank"] > 1


def test_its_numbers_are_those_of_a_softmax_that_is_followed():
    batch = {"input_ids": torch.tensor([[2, 4, 6, 8, 3]])}
    ours, followed = (attsvm.inspect.inspect(small_model(), batch, family=one) for one in (OpenAIGPT, "softmax"))
    assert (ours.selected == followed.selected).all()
    for name, values in ours.numbers.items():
        np.testing.assert_allclose(values, followed.numbers[name], rtol=1e-6)


def test_a_family_that_matches_nothing_by_itself_is_refused_by_name():
    class Incomplete(Family):
        name = "Incomplete"

    with pytest.raises(ProblemError, match=r"^family: Incomplete cannot be created .*matches"):
        attsvm.inspect.inspect(small_model(), {"input_ids": torch.tensor([[2, 4, 3]])}, family=Incomplete)


def test_the_command_line_inspects_it_and_writes_the_page(command, folder):
    options = (
        "--text",
        "text.txt",
        "--family",
        HERE,
        "--no-twin",
        "--json",
        "--head",
        "1.0",
        "--head",
        "all",
        "--out",
        "page",
    )
    code, out, error = command("inspect", "model", *options)
    assert code == 0, error
    result = json.loads(out)
    assert result["model"]["family"] == "GPT"
    assert len(result["heads"]) == 4
    assert np.all(np.diff([head["margin_ratio"] for head in result["heads"]], axis=1) >= 0)
    assert "GPT" in (folder / "page" / "index.html").read_text()
