"""Small models with random weights, of every kind of attention that is read, and their input."""

import torch
import transformers

SMALL = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32}


def small(name, kind="Model", **options):
    """A model without its head, from the name of its classes."""
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(vocab_size=50, **options)
    return getattr(transformers, f"{name}{kind}")(config)


def like_bert(name, **options):
    return small(name, **SMALL, **options)


def bert():
    return like_bert("Bert")


def gpt2():
    return small("GPT2", n_embd=24, n_head=4, n_layer=2, scale_attn_by_inverse_layer_idx=True)


def llama():
    return like_bert("Llama", num_key_value_heads=2, attention_bias=True)


def qwen3():
    return like_bert("Qwen3", num_key_value_heads=2, head_dim=6)


def gemma3():
    config = transformers.Gemma3TextConfig(
        vocab_size=50, num_key_value_heads=2, head_dim=6, sliding_window=3, query_pre_attn_scalar=6, **SMALL
    )
    return transformers.Gemma3TextModel(config)


def mpt(clip=None):
    config = transformers.MptConfig(vocab_size=50, d_model=24, n_heads=4, n_layers=2, max_seq_len=16)
    config.attn_config.clip_qkv = clip
    return transformers.MptModel(config)


def falcon(attention="eager", **options):  # its implementation of attention cannot be changed
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    return small("Falcon", attn_implementation=attention, **sizes, **options)


def t5(name="T5"):
    return small(name, d_model=24, d_kv=5, d_ff=32, num_heads=4, num_layers=2)


def clip_text():
    return transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=50, eos_token_id=2, **SMALL))


def clip_vision():
    return transformers.CLIPVisionModel(transformers.CLIPVisionConfig(image_size=16, patch_size=4, **SMALL))


def of_pictures(name, **options):
    config = getattr(transformers, f"{name}Config")(image_size=16, patch_size=4, **(SMALL | options))
    return getattr(transformers, f"{name}Model")(config)


def deepseek(rank=6):
    ranks = {"q_lora_rank": rank, "kv_lora_rank": 6, "qk_rope_head_dim": 4, "qk_nope_head_dim": 2, "v_head_dim": 6}
    experts = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1}
    return like_bert(
        "DeepseekV3", num_key_value_heads=4, moe_intermediate_size=16, first_k_dense_replace=1, **ranks, **experts
    )


def whisper():
    sides = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
             (("layers", 2), ("attention_heads", 4), ("ffn_dim", 32))}  # fmt: skip
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return small("Whisper", d_model=24, num_mel_bins=8, max_source_positions=9, **sides, **special)


def spread_out(model, seed=0):
    """Weights large enough for attention to be far from even, biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower() and "ln_" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model.eval()


def words(padding="right", seed=1):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([3 + torch.randperm(47, generator=generator)[:7] for _ in range(3)])
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[2, 2:] = 0
    if padding == "left":
        mask = mask.flip(1)
    return {"input_ids": ids, "attention_mask": mask}


def pictures():
    return {"pixel_values": torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))}


SHARED = {"num_key_value_heads": 2, "pad_token_id": 0}
GROUPED = SHARED | {"head_dim": 6}
EXPERTS = {"num_experts_per_tok": 1}
NEOX = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.67}  # rotates 4 of 6 coordinates
OPT = {"hidden_size": 24, "word_embed_proj_dim": 24, "ffn_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GEMMA2 = GROUPED | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 1}
SOUNDS = torch.randn(3, 8, 18, generator=torch.Generator().manual_seed(2))

CASES = {
    "bert": (bert, words()),
    "roberta": (lambda: like_bert("Roberta"), words()),
    "gpt2": (gpt2, words()),
    "llama": (llama, words()),
    "llama, padded on the left": (llama, words("left")),
    "vit": (lambda: of_pictures("ViT"), pictures()),
    "mistral, with a sliding window": (lambda: like_bert("Mistral", sliding_window=3, **SHARED), words()),
    "qwen2": (lambda: like_bert("Qwen2", **SHARED), words()),
    "qwen3": (qwen3, words()),
    "gemma": (lambda: like_bert("Gemma", num_key_value_heads=1, head_dim=6), words()),
    "gemma 3, with a sliding window": (gemma3, words()),
    "gpt-neox, partly rotary": (lambda: like_bert("GPTNeoX", rope_parameters=NEOX), words()),
    "bloom, with ALiBi": (lambda: small("Bloom", hidden_size=24, n_head=4, n_layer=2), words()),
    "mpt, with ALiBi": (mpt, words("left")),
    "mpt, with clipped queries and keys": (lambda: mpt(clip=1.0), words()),
    "falcon": (lambda: falcon(alibi=False), words()),
    "falcon, with ALiBi": (lambda: falcon(alibi=True, multi_query=False), words()),
    "falcon, grouped": (lambda: falcon(alibi=False, new_decoder_architecture=True, num_kv_heads=2), words("left")),
    "distilbert": (lambda: small("DistilBert", dim=24, n_heads=4, n_layers=2, hidden_dim=32), words()),
    "t5, encoder": (lambda: t5("T5Encoder"), words()),
    "t5": (t5, words() | {"decoder_input_ids": words()["input_ids"][:, :5]}),
    "clip, texts": (clip_text, words()),
    "clip, pictures": (clip_vision, pictures()),
    "dinov2": (lambda: of_pictures("Dinov2", intermediate_size=24), pictures()),
    "dinov3": (lambda: of_pictures("DINOv3ViT", hidden_size=16), pictures()),
    "phi 3": (lambda: like_bert("Phi3", **SHARED), words()),
    "olmo 2": (lambda: like_bert("Olmo2", **SHARED), words()),
    "gemma 2, with a soft cap": (lambda: like_bert("Gemma2", **GEMMA2), words()),
    "gpt-oss, with sinks": (lambda: like_bert("GptOss", num_local_experts=2, **GROUPED, **EXPERTS), words()),
    "qwen3, with experts": (lambda: like_bert("Qwen3Moe", moe_intermediate_size=16, **GROUPED, **EXPERTS), words()),
    "mixtral": (lambda: like_bert("Mixtral", num_local_experts=2, **SHARED, **EXPERTS), words()),
    "opt": (lambda: small("OPT", **OPT), words()),
    "gpt-j": (lambda: small("GPTJ", n_embd=24, n_layer=2, n_head=4, rotary_dim=4), words()),
    "modernbert": (lambda: like_bert("ModernBert", pad_token_id=0), words()),
    "deepseek v3": (deepseek, words()),
    "whisper": (whisper, {"input_features": SOUNDS, "decoder_input_ids": words()["input_ids"]}),
    "cohere": (lambda: like_bert("Cohere", **SHARED), words()),
    "smollm 3": (lambda: like_bert("SmolLM3", no_rope_layers=[1, 0], **SHARED), words()),
}
