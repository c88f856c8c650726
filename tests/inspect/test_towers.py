"""Models whose layers do not all see the same: towers, windows, linear attention; masks and kernels of other kinds."""

import numpy as np
import pytest
import torch

import attsvm
import attsvm.torch
from attsvm.inspect.families.transformers import Transformers

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from small_models import like_bert, spread_out, words  # noqa: E402

CLOSE = 1e-5
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
OF_PICTURES = SIZES | {"image_size": 16, "patch_size": 8}


def llava():
    """Two layers of CLIP, whose pictures have a class token and four patches, and two of Llama."""
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(vocab_size=50, **SIZES).to_dict(),
        vision_config=transformers.CLIPVisionConfig(**OF_PICTURES).to_dict(),
        image_token_index=49,
    )
    return spread_out(transformers.LlavaModel(config))


def gemma3():
    config = transformers.Gemma3Config(
        text_config={"vocab_size": 50, "head_dim": 6, "num_key_value_heads": 2, "sliding_window": 3, **SIZES},
        vision_config={"model_type": "siglip_vision_model", "vision_use_head": False, **OF_PICTURES},
        mm_tokens_per_image=4,
        image_token_index=49,
    )
    return spread_out(transformers.Gemma3Model(config))


def two_pictures():
    """One prompt with two pictures, and three words behind each."""
    ids = torch.tensor([[49] * 4 + [5, 6, 7] + [49] * 4 + [8, 9, 7]])
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}


def attentions(model, **batch):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return [one.numpy() for one in model(**batch, output_attentions=True).attentions]


def assert_equal(inspection, layer, expected):
    captured = inspection.source.captured(layer)
    for head in range(captured.num_heads):
        difference = np.abs(captured.probabilities(head) - expected[:, head])[captured.positions >= 0]
        assert difference.max() < CLOSE


@pytest.mark.parametrize("make", [llava, gemma3])
def test_a_tower_that_the_text_does_not_run_is_left_out_and_named(make, tmp_path):
    model, batch = make(), words()
    found = attsvm.inspect.inspect(model, batch, margins=False)
    assert found.not_run == [name for name in found.layer_names if name.startswith("vision")]
    assert len(found.not_run) == 2
    assert not found.special_known  # the class token is one of pictures
    assert set(found.layer.tolist()) == {2, 3}
    assert not found.interrupted
    assert found.rebuilt_error.max() < CLOSE
    for layer, expected in zip((2, 3), attentions(model.language_model, **batch), strict=True):
        assert_equal(found, layer, expected)
    found.save(tmp_path / "found.npz")
    again = attsvm.inspect.Inspection.load(tmp_path / "found.npz")
    assert again.not_run == found.not_run
    assert again.groups[0].layers == [2, 3]
    for ask in (
        lambda: found.available(0),
        lambda: attsvm.inspect.inspect(model, batch, heads=[(0, 1), (2, 1)], margins=False),
        lambda: attsvm.inspect.inspect(model, batch, view=(1, 1), margins=False),
    ):
        with pytest.raises(attsvm.ProblemError, match=r"this batch does not run layer [01] \(vision_tower"):
            ask()


def test_pictures_of_long_prompts_remain_beside_their_texts(monkeypatch):
    """Of two prompts with two pictures each; the model does not accept one prompt with all four."""
    batch = {name: value.repeat(2, *[1] * (value.ndim - 1)) for name, value in two_pictures().items()}
    model = llava()
    whole = attsvm.inspect.inspect(model, batch, margins=False)
    monkeypatch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)
    assert (attsvm.inspect.inspect(model, batch, margins=False).selected == whole.selected).all()


def test_layers_are_grouped_by_the_sequences_that_they_see():
    """The tower of pictures sees two sequences, the language model one."""
    model, batch = llava(), two_pictures()
    found = attsvm.inspect.inspect(model, batch, margins=False)
    pictures, text = found.groups
    assert pictures[:4] == ([0, 1], 2, 10, 10)
    assert text[:4] == ([2, 3], 1, 14, 14)
    assert (found.num_sequences, found.num_tokens) == (2, 10)
    assert [head.selected.shape for head in found.heads[::4]] == [(2, 5), (2, 5), (1, 14), (1, 14)]
    of_pictures = attentions(model.vision_tower, pixel_values=batch["pixel_values"])
    of_text = attentions(model, **batch)
    for layer, expected in enumerate([*of_pictures, *of_text]):
        assert_equal(found, layer, expected)
    # the places of pictures are no copies of each other, and only 7 occurs twice
    assert np.nanmax(found.measure("duplicate_share")[2:]) < 1
    ids = found.source.tokens
    assert len(np.unique(ids)) == ids.size - 1
    assert attsvm.inspect.compare(found, found).heads[0].changed == 0
    others = batch | {"pixel_values": batch["pixel_values"].flip(0)}
    changed = attsvm.inspect.inspect(model, others, margins=False)
    assert len(attsvm.inspect.compare(found, changed).heads) == 16
    other = {name: value.repeat(2, *[1] * (value.ndim - 1)) for name, value in batch.items()}
    with pytest.raises(attsvm.ProblemError, match="with the same queries as the first"):
        attsvm.inspect.compare(found, attsvm.inspect.inspect(model, other, margins=False))


def test_windows_of_pictures_are_sequences_of_their_own():
    config = transformers.SwinConfig(
        image_size=16, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=2
    )
    model = spread_out(transformers.SwinModel(config))
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    found = attsvm.inspect.inspect(model, {"pixel_values": pixels}, margins=False)
    assert [group[:4] for group in found.groups] == [([0], 8, 32, 32), ([1], 2, 8, 8)]
    for layer, expected in enumerate(attentions(model, pixel_values=pixels)):
        assert_equal(found, layer, expected)


def test_the_patches_of_a_picture_in_one_row_are_no_sequences(monkeypatch):
    """The row is not cut, and the number of patches does not limit that of the queries."""
    sizes = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 2, "mlp_ratio": 2}
    vision = transformers.models.qwen2_vl
    config = vision.configuration_qwen2_vl.Qwen2VLVisionConfig(**sizes)
    model = spread_out(vision.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel(config))
    patches = torch.randn(16, 3 * 2 * 2 * 2, generator=torch.Generator().manual_seed(2))
    batch = {"hidden_states": patches, "grid_thw": torch.tensor([[1, 4, 4]])}
    monkeypatch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)  # a sequence in each call
    found = attsvm.inspect.inspect(model, batch, queries=10, margins=False)
    assert found.groups[0][:4] == ([0], 1, 16, 10)
    assert found.selected.shape == (2, 1, 10)
    assert found.rebuilt_error.max() < CLOSE


def test_sequences_of_a_batch_that_run_different_layers_are_refused(monkeypatch):
    """One sequence alone runs a layer, or does not, whether it comes first or last."""

    class Sometimes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layers = (torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))
            self.first, self.second, self.third = layers

        def forward(self, x):
            if x[0, 0, 0] > 0:
                self.first(x, x, x)
            self.second(x, x, x)
            if x[0, 0, 1] > 0:
                self.third(x, x, x)

    monkeypatch.setattr("attsvm.inspect.model_calls.CHUNK_LOGITS", 1)  # a sequence in each call
    x = torch.ones(3, 4, 8)
    assert attsvm.inspect.inspect(Sometimes(), {"x": -x}, margins=False).not_run == ["first", "third"]
    for coordinate, layer in enumerate(("first", "third")):
        for sequence in (0, 2):  # the one that runs the layer, or does not
            for sign in (1, -1):
                y = x.clone()
                y[:, :, coordinate], y[sequence, :, coordinate] = sign, -sign
                with pytest.raises(attsvm.ProblemError, match=f"run the same layers, but only some run {layer}"):
                    attsvm.inspect.inspect(Sometimes(), {"x": y}, margins=False)
    with pytest.raises(attsvm.ProblemError, match="batch: expected one that runs an attention layer, such as"):
        attsvm.inspect.inspect(
            torch.nn.ModuleDict({"idle": Sometimes(), "run": Idle()})["run"], {"x": x}, margins=False
        )


class Idle(torch.nn.Module):
    """Attention that no batch runs."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return x


def test_a_boolean_mask_of_pairs_is_that_of_the_same_additive_one():
    """Eager attention of transformers would add it to the logits."""
    model, ids = spread_out(like_bert("Llama")), words()["input_ids"][:1]
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])  # two packed sequences
    mask = torch.block_diag(torch.ones(3, 3).tril(), torch.ones(4, 4).tril()).bool()[None, None]
    batch = {"input_ids": ids, "position_ids": positions, "attention_mask": mask}
    found = attsvm.inspect.inspect(model, batch, margins=False)
    alone = attsvm.inspect.inspect(model, {"input_ids": ids[:, 3:]}, margins=False)
    assert found.rebuilt_error.max() < CLOSE
    assert not found.biased
    assert (found.selected[:, 0, 3:] == alone.selected[:, 0] + 3).all()


def test_linear_attention_has_no_softmax_and_is_left_out():
    config = transformers.MiniMaxConfig(
        vocab_size=50, num_key_value_heads=2, layer_types=["linear_attention", "full_attention"], num_local_experts=2,
        num_experts_per_tok=1, head_dim=6, **SIZES,
    )  # fmt: skip
    model = spread_out(transformers.MiniMaxModel(config))
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert found.layer_names == ["layers.1.self_attn"]
    assert found.rebuilt_error.max() < CLOSE


def test_a_sink_that_the_returned_attention_leaves_out_is_in_what_is_made_of_the_values():
    model = spread_out(like_bert("GraniteSWA", num_key_value_heads=2))
    found = attsvm.inspect.inspect(model, words(), margins=False)
    assert found.rebuilt_error.max() < CLOSE
    rows = found.source.captured(0).probabilities(1)
    assert rows.sum(axis=-1).min() < 0.99
    model.set_attn_implementation("eager")
    model.train()
    with attsvm.inspect.AttentionMonitor(model, every=1) as monitor:
        model(**words())
        monitor.step()
    assert len(monitor.records) == 1


class Doubled(Transformers):
    """A family that reads another attention than that of its model."""

    def call(self, module, arguments, output, seen):
        return seen._replace(scale=2 * seen.scale)


@pytest.mark.parametrize("family", [None, Doubled()], ids=["as it is", "read as another one"])
def test_a_fused_kernel_with_dropout_is_compared_without_it(family):
    """Dropout hides the attention of the model, so that its function is called once more without dropout."""
    model = spread_out(like_bert("Llama", attention_dropout=0.5)).train()
    model.set_attn_implementation("sdpa")
    undisturbed = torch.manual_seed(3) and model(**words()).last_hidden_state
    with attsvm.inspect.AttentionMonitor(model, family=family) as monitor:
        torch.manual_seed(3)
        assert torch.equal(model(**words()).last_hidden_state, undisturbed)
        if family is None:
            monitor.step()
            assert len(monitor.records) == 1
            return
        with pytest.warns(RuntimeWarning, match="did not attend as their queries, keys and mask imply"):
            monitor.step()
        assert not monitor.records
