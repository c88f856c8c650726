"""Adapters of PEFT: LoRA is linear, so that W = (W_K + B_K A_K)(W_Q + B_Q A_Q)'/√d_h is known; folders are loaded."""

import json

import numpy as np
import pytest
import torch

import attsvm
import attsvm.torch
from attsvm.pretrained import load_model, read_input

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")
peft = pytest.importorskip("peft", reason="peft is not installed")

from small_models import gpt2, like_bert, spread_out, words  # noqa: E402


def adapted(model, *names, **options):
    """The model with LoRA on some layers, whose weights are not zero."""
    config = peft.LoraConfig(target_modules=list(names), r=2, init_lora_weights=False, **options)
    return peft.get_peft_model(model, config).eval()


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
def test_w_with_lora_is_that_of_the_merged_weights(name):
    torch.manual_seed(0)
    if name == "Llama":
        model = adapted(spread_out(like_bert("Llama")), "q_proj", "k_proj")
    else:
        model = adapted(spread_out(gpt2()), "c_attn", fan_in_fan_out=True)
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert found.rebuilt_error.max() < 1e-5
    weights = found.source.layers[1].projections()
    with pytest.raises(attsvm.ProblemError, match="merge it first"):
        found.edit(1, 0, [(0, 3, 1)]).apply()
    with attsvm.inspect.AttentionMonitor(model.train()) as monitor:
        model(**words())
        monitor.step()
    norms = monitor.records[0][1]["frobenius_norm"][4:]
    for head in range(4):
        product = weights.scale * weights.key[head] @ weights.query[head].T
        assert norms[head] == pytest.approx(np.linalg.norm(product), rel=1e-4)
    with model.disable_adapter():
        plain = attsvm.inspect.inspect(model.eval(), words(), margins=False).source.layers[1].projections()
    assert not np.allclose(plain.key, weights.key, atol=1e-3)
    merged = model.merge_and_unload()
    expected = attsvm.inspect.inspect(merged, words(), margins=False).source.layers[1].projections()
    for one, other in zip(weights[:4], expected[:4], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_folder_with_an_adapter_is_a_model_with_the_tokenizer_of_its_base(tmp_path):
    torch.manual_seed(0)
    base, folder = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    model = spread_out(like_bert("Bert"))
    model.save_pretrained(base)
    (base / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]))
    transformers.BertTokenizer(str(base / "vocab.txt")).save_pretrained(base)
    whole = adapted(transformers.AutoModel.from_pretrained(base), "query", "key")
    whole.save_pretrained(folder)
    loaded = load_model(str(folder))
    given = read_input(str(folder), loaded, ["a cat"], None)
    assert given.tokens == [["[CLS]", "a", "cat", "[SEP]"]]
    batch = {name: given.batch[name] for name in ("input_ids", "attention_mask")}
    one, other = (attsvm.inspect.inspect(each, batch, margins=False) for each in (loaded, whole))
    np.testing.assert_allclose(one.numbers["effective_rank"], other.numbers["effective_rank"], rtol=1e-6)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": None}))
    with pytest.raises(
        attsvm.ProblemError, match="expected an adapter that names its base_model_name_or_path, got None"
    ):
        load_model(str(folder))
