"""Groups of whole transformers: which update each parameter has, and how its matrices lie."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from torch import nn  # noqa: E402

from attsvm.torch import (  # noqa: E402
    ColumnDescent,
    MirrorDescent,
    RowDescent,
    SignDescent,
    SpectralDescent,
    param_groups_of,
)


class Block(nn.Module):
    """Attention with one weight each for queries, keys and values, and a gated layer."""

    def __init__(self, size=8, heads=4, groups=2):
        super().__init__()
        self.num_heads, head = heads, size // heads
        self.norm = nn.LayerNorm(size)
        self.q_proj, self.o_proj = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(size, groups * head) for _ in range(2))
        self.gate, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(torch.relu(self.gate(self.norm(x)))) + self.o_proj(self.q_proj(x))


class Model(nn.Module):
    def __init__(self, tied=False, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.randn(5, 8))
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        y = self.embedding(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return self.head(y)


def decided(groups):
    """Name of each parameter: name of its group and the layout of its matrices, or "adamw"."""
    names = ("heads", "flatten", "transposed")
    return {
        name: "adamw" if group.get("adamw") else (group["name"], *(f"{k}={group[k]}" for k in names if k in group))
        for group in groups
        for name, _ in group["params"]
    }


def test_a_transformer_with_grouped_queries():
    model = Model()
    found = decided(param_groups_of(model))
    assert {name for name, x in found.items() if x != "adamw"} == {
        f"blocks.{i}.{name}.weight" for i in (0, 1) for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate", "down")
    }
    assert found["blocks.1.q_proj.weight"] == ("attention", "heads=4")
    assert found["blocks.1.k_proj.weight"] == found["blocks.0.v_proj.weight"] == ("attention", "heads=2")
    assert found["blocks.0.o_proj.weight"] == ("matrices",)
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())


def test_tied_embeddings_frozen_parameters_and_wrappers():
    model = Model(tied=True)
    model.blocks[0].requires_grad_(False)
    groups = param_groups_of(model)
    assert "head.weight" not in decided(groups)
    assert decided(groups)["embedding.weight"] == "adamw"
    assert groups.left_out == [name for name, _ in model.named_parameters() if name.startswith("blocks.0.")]
    assert not any(x.requires_grad is False for group in groups for _, x in group["params"])
    plain = {name.split("blocks.1.")[-1]: x for name, x in decided(groups).items()}
    for wrapped in (
        torch.compile(model),
        nn.ModuleDict({"module": model}),
        nn.ModuleDict({"module": torch.compile(model)}),
    ):
        found = decided(param_groups_of(wrapped))
        assert {
            name.split("blocks.1.")[-1].split("_orig_mod.")[-1].removeprefix("module."): x for name, x in found.items()
        } == plain


class Conv1D(nn.Module):
    """GPT-2's, with the transposed weight."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.nf = outputs
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.zeros(outputs))


class Named(nn.Module):
    """Modules and parameters under given names, in a numbered block."""

    def __init__(self, about=None, **members):
        super().__init__()
        for name, value in {**(about or {}), **members}.items():
            setattr(self, name, value)


def in_block(**members):
    about = {"num_heads": members.pop("num_heads")} if "num_heads" in members else {}
    return nn.Sequential(nn.Embedding(9, 8), Named(about, **members), nn.Linear(8, 9))


FACTORS = {"A": nn.Parameter(torch.randn(2, 8)), "B": nn.Parameter(torch.zeros(6, 2))}


@pytest.mark.parametrize(
    ("members", "heads", "name", "wanted"),
    [  # of a block, number of heads that is given, and what is decided of a parameter
        ({"attn": nn.MultiheadAttention(8, 4)}, None, "1.attn.in_proj_weight", ("attention", "heads=12")),
        ({"attn": nn.MultiheadAttention(8, 4)}, None, "1.attn.out_proj.weight", ("matrices",)),
        ({"attn": nn.MultiheadAttention(8, 2, kdim=6)}, None, "1.attn.k_proj_weight", ("attention", "heads=2")),
        ({"c_attn": Conv1D(24, 8), "num_heads": 2}, None, "1.c_attn.weight",
         ("attention", "heads=6", "transposed=True")),
        ({"c_fc": Conv1D(32, 8)}, None, "1.c_fc.weight", ("matrices", "transposed=True")),
        ({"qkv": nn.Linear(8, 24), "num_heads": 4}, None, "1.qkv.weight", ("attention", "heads=12")),
        ({"qkv": nn.Linear(8, 24)}, None, "1.qkv.weight", ("attention", "heads=3")),
        ({"qkv": nn.Linear(8, 24)}, 2, "1.qkv.weight", ("attention", "heads=6")),
        ({"qkv": nn.Linear(8, 16), "num_heads": 4}, None, "1.qkv.weight", ("attention", "heads=(4, 2, 2)")),
        ({"Wqkv": nn.Linear(8, 12)}, (4, 1), "1.Wqkv.weight", ("attention", "heads=(4, 1, 1)")),
        ({"in_proj": nn.Linear(8, 37), "num_heads": 4}, None, "1.in_proj.weight", ("matrices",)),
        ({"to_q": nn.Linear(8, 8), "to_kv": nn.Linear(8, 8)}, 4, "1.to_kv.weight", ("attention", "heads=4")),
        ({"W_Q": nn.Parameter(torch.ones(4, 8, 2)), "W_K": nn.Parameter(torch.ones(4, 8, 2))}, None, "1.W_Q",
         ("attention", "flatten=False")),
        ({"experts": Named(up_proj=nn.Parameter(torch.ones(3, 16, 8)))}, None, "1.experts.up_proj",
         ("matrices", "flatten=False")),
        ({"experts": Named(w1=nn.Parameter(torch.ones(2, 3, 16, 8)))}, None, "1.experts.w1",
         ("matrices", "flatten=False")),
        ({"conv": nn.Conv2d(4, 6, 3)}, None, "1.conv.weight", ("matrices", "flatten=True")),
        ({"conv": nn.Conv2d(4, 4, 3, groups=4)}, None, "1.conv.weight", "adamw"),
        ({"router": nn.Linear(8, 3)}, None, "1.router.weight", "adamw"),
        ({"relative": nn.Embedding(9, 4)}, None, "1.relative.weight", "adamw"),
        ({"layer": Named(FACTORS)}, None, "1.layer.B", ("lora",)),
        ({"q_proj": nn.ModuleDict({"lora_A": nn.ModuleDict({"default": nn.Linear(8, 2)})})}, None,
         "1.q_proj.lora_A.default.weight", ("lora",)),
    ],
)  # fmt: skip
def test_layers_of_a_block(members, heads, name, wanted):
    model = in_block(**{"other": nn.Linear(8, 8), **members})
    assert decided(param_groups_of(model, heads=heads))[name] == wanted


def test_a_patch_embedding_and_a_single_block_without_a_number():
    model = Named(
        patches=nn.Conv2d(3, 8, 4), attn=nn.MultiheadAttention(8, 2), up=nn.Linear(8, 16), head=nn.Linear(8, 3)
    )
    found = decided(param_groups_of(model))
    assert found["patches.weight"] == found["head.weight"] == "adamw"
    assert found["attn.in_proj_weight"] == ("attention", "heads=6")
    assert found["up.weight"] == ("matrices",)


def test_models_of_transformers():
    transformers = pytest.importorskip("transformers")
    small = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 12}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9))
    found = decided(param_groups_of(gpt2))
    assert found["transformer.h.0.attn.c_attn.weight"] == ("attention", "heads=6", "transposed=True")
    assert found["transformer.wte.weight"] == found["transformer.wpe.weight"] == "adamw"
    mixtral = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**small, num_key_value_heads=2, vocab_size=9, num_local_experts=3)
    )
    found = decided(param_groups_of(mixtral))
    assert found["model.layers.0.self_attn.k_proj.weight"] == ("attention", "heads=2")
    assert found["model.layers.0.mlp.gate.weight"] == "adamw"
    assert found["model.layers.0.mlp.experts.gate_up_proj"] == ("matrices", "flatten=False")


@pytest.mark.parametrize("optimizer", [SpectralDescent, RowDescent, ColumnDescent, SignDescent, MirrorDescent])
@pytest.mark.parametrize("where", ["matrices", "attention"])
def test_every_optimizer_takes_its_groups_and_trains_all_parameters(optimizer, where):
    model = Model()
    groups = param_groups_of(model, optimizer, lr=1e-2, where=where)
    kinds = {group["name"] for group in groups if not group.get("adamw")}
    assert kinds == ({"attention", "matrices"} if where == "matrices" else {"attention"})
    made = optimizer(groups, lr=1e-2, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(made, [group["lr"] for group in made.param_groups], total_steps=5)
    tokens = torch.randint(11, (4, 5))
    losses = []
    for _ in range(5):
        made.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        made.step()
        scheduler.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(group["weight_decay"] == 0.0 for group in made.param_groups if group["name"] == "vectors")


def test_steps_of_all_optimizers_are_about_as_long_as_those_of_adamw():
    torch.manual_seed(0)
    lengths = {}
    for optimizer in (None, SpectralDescent, RowDescent, ColumnDescent, SignDescent, MirrorDescent):
        weight = nn.Parameter(0.05 * torch.randn(64, 64))
        layer = nn.Linear(64, 64, bias=False)
        layer.weight = weight
        model = nn.Sequential(nn.Embedding(3, 64), Named(up=layer), nn.Linear(64, 3))
        if optimizer is None:
            made = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.0)
        else:
            made = optimizer(param_groups_of(model, optimizer, lr=1e-3), lr=1e-3)
        start, generator = weight.detach().clone(), torch.Generator().manual_seed(1)
        for _ in range(200):
            weight.grad = 1e-3 * torch.randn(64, 64, generator=generator)
            made.step()
        lengths[optimizer] = (weight.detach() - start).norm().item()
    for optimizer, length in lengths.items():
        assert length == pytest.approx(lengths[None], rel=0.5), optimizer


def test_the_table_says_what_was_decided():
    model = Model()
    model.head.requires_grad_(False)
    lines = repr(param_groups_of(model)).splitlines()
    assert lines[0].split() == ["group", "entries", "options", "parameters", "because"]
    assert "blocks.*.q_proj.weight  2 × (8, 8)" in lines[1]
    assert lines[1].endswith("q, heads: 4")
    assert "1 frozen parameters" in lines[-1]


def test_every_group_has_its_number_of_entries_in_the_table():
    groups = param_groups_of(Model(), MirrorDescent, lr=1e-3)
    rows = [line.split() for line in repr(groups).splitlines()[1:]]
    shown = [row[1] for row in rows if row[0] in {group["name"] for group in groups}]
    assert shown == [f"{sum(x.numel() for _, x in group['params']):,}" for group in groups]


def test_a_rate_of_adamw_is_that_of_matrices_only_at_its_length():
    rates = {group["name"]: group["lr"] for group in param_groups_of(Model(), lr=3.333e-3)}
    assert set(rates.values()) == {3.333e-3}
    for scale in (None, "muon"):
        groups = param_groups_of(Model(), lr=3.333e-3, scale=scale, coefficients=[2, -1.5, 0.5])
        assert all(group.get("lr") == (3.333e-3 if "adamw" in group else None) for group in groups)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((torch.optim.AdamW,), ValueError, "optimizer: expected a class of attsvm.torch"),
        ((MirrorDescent,), ValueError, "lr: expected the rate of AdamW, from which that of MirrorDescent"),
        ((SpectralDescent, {"lr": -1.0}), ValueError, "lr: expected a number > 0"),
        ((SpectralDescent, {"where": "mlp"}), ValueError, "where: expected 'matrices' or 'attention'"),
        ((SpectralDescent, {"heads": 3}), ValueError, "heads: expected a number of heads that divides the 8 rows"),
        ((SpectralDescent, {"heads": [4, 4]}), ValueError, r"heads: expected an integer >= 1, .* got \[4, 4\]"),
        ((SpectralDescent, {"heads": 0}), ValueError, "heads: expected an integer >= 1, or two"),
        (([SpectralDescent],), ValueError, "optimizer: expected a class of attsvm.torch"),
        ((SpectralDescent, {"adamw": True}), TypeError, "param_groups_of: expected options among .*, got adamw"),
        ((SpectralDescent, {"iterations": 0}), ValueError, "iterations: expected None or an integer"),
        ((MirrorDescent, {"lr": 1e-3, "normalize": False}), ValueError, "normalize: expected True"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, error, says):
    optimizer, options = (*arguments, {})[:2]
    with pytest.raises(error, match=says):
        param_groups_of(Model(), optimizer, **options)
    with pytest.raises(TypeError, match=r"got heads, an .*; param_groups_of\(model, MirrorDescent, lr=\.\.\.\) makes"):
        MirrorDescent(param_groups_of(Model()), lr=3e-3)  # made for SpectralDescent
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, got generator"):
        param_groups_of(Model().parameters(), SpectralDescent)
    with pytest.raises(ValueError, match="model: expected trainable matrices in hidden layers"):
        param_groups_of(nn.Linear(3, 2))


def test_heads_along_the_second_axis_are_one_matrix():
    sides = {name: nn.Parameter(torch.randn(8, 2, 4)) for name in "qkvor"}
    found = decided(param_groups_of(in_block(num_heads=2, **sides)))
    kinds = {name.split(".")[-1]: x for name, x in found.items()}
    assert {kinds[name] for name in "qkv"} == {("attention", "flatten=True")}
    assert {kinds[name] for name in "or"} == {("matrices", "flatten=True")}
