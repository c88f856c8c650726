"""Small models of the types of transformers, with random weights, and a batch that each accepts."""

import copy
import inspect as signatures
import itertools
import re

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

MOST_WEIGHTS, VOCABULARY, HEAD = 40_000_000, 99, 16

LAYERS = re.compile(r"n_layers?|depth|num_blocks|(.+_)?(num_)?(encoder|decoder|hidden|query)?_?layers")
SIZES = [  # what the numbers of a configuration become, by the ends of their names
    (VOCABULARY, r"(.+_)?vocab_size(_per_layer_input)?|.+_group_vocab"),
    (4, r"(.+_)?(num_(attention_|key_|value_|mamba_)?|n_|attention_)heads?|n_mamba_heads"),
    (4, r"(num|n|moe_num)_(.+_)?experts"),
    (2, r"moe_k|moe_topk|(.+_)?experts_per_tok(en)?"),
    (2, r"top_k_experts|index_n_heads|num_conv_pos_embedding_groups"),
    (1, r"n_group|num_group|topk_group|(.+_)?shared_experts|(mamba_)?(n_|n)groups"),
    (4, r"sliding_window|local_attention|index_topk|expert_num"),
    (32, r"mamba_d_head|mamba_headdim|mamba_head_dim"),
    (HEAD, r"(.+_)?(head_dim|lora_rank|d_kv|kv_channels|attention_head_size)"),
    (48, r"(.+_)?(intermediate_size(_mlp)?|ffn_dim|d_ff|d_inner|n_inner|ffn_hidden_size|mlp_dim|dim_feedforward)"),
    (64, r"(.+_)?(hidden_size|d_model|n_embd|n_embed|embed_dim|embedding_size|emb_dim|model_dim|output_dim|proj_dim)"),
    (64, r"dim|d_embed|d_latents|hidden_size_global|(.+_)?projection_dim|lru_width|width"),
    (32, r"image_size|img_size"),
    (8, r"patch_size|hidden_size_per_layer_input|(.+_)?(d_state|state_size|chunk_size)|attention_window_size"),
    (8, r"num_conv_pos_embeddings|rotary_dim"),
    (128, r"mamba_d_ssm"),
    (16, r"num_mel_bins|n_mels|input_feat_per_channel"),
    (30, r"max_source_positions"),
    (6, r"num_queries|num_latents"),
]
GROUPS = re.compile(r"(.+_)?(num_key_value|num_kv|num_global_key_value)_heads")
IDS = re.compile(r".+_(token_id|token_index|id|index)")
POSITIONS = re.compile(r"max_position_embeddings|n_positions|max_seq_len|n_ctx|seq_length")
DROPPED = re.compile(r"_.*|transformers_version|architectures|(torch_)?dtype|out_features|out_indices|qk_head_dim")


def resized(given, divisor, groups):
    """The entries of a configuration with small sizes, or those sizes divided that have the divisor."""
    found = {}
    if "depths" in given and len(given.get("out_features") or ()) > 1:  # a backbone that returns several stages
        found = {key: given[key] for key in ("num_layers", "embed_dim", "out_features") if key in given}
        found["depths"] = [1] * len(given["depths"])
    layers = {n for key, n in given.items() if type(n) is int and n > 2 and LAYERS.fullmatch(str(key))}
    layers -= {len(given["depths"])} if "depths" in found else set()
    for key, value in given.items():
        if DROPPED.fullmatch(str(key)) or key in found:
            continue
        value = list(value) if isinstance(value, tuple) else value
        if isinstance(value, dict) and key not in ("id2label", "label2id"):
            if key == "rope_parameters" and "rope_theta" in value:  # used by models of pictures alone
                value = {"mrope_section": [16, 24, 24], **value, "rope_theta": value["rope_theta"] or 1e4}
            is_of_layers = key == "per_layer_config"
            found[key] = (
                {k: v for k, v in value.items() if int(k) < 2} if is_of_layers else resized(value, divisor, groups)
            )
        elif isinstance(value, list) and str(key).endswith("section") and not divisor:
            half = int(HEAD * (given.get("partial_rotary_factor") or 1)) // 2
            found[key] = [half // len(value)] * (len(value) - 1) + [half - half // len(value) * (len(value) - 1)]
        elif isinstance(value, list) and len(value) in layers:
            kinds = list(dict.fromkeys(map(str, value)))
            found[key] = [next(v for v in value if str(v) == kind) for kind in (kinds * 2)[:2]]
        elif key == "head_dim" and value is None and not divisor:
            found[key] = HEAD
        elif isinstance(key, str) and GROUPS.fullmatch(key) and not divisor:
            found[key] = groups
        elif type(value) is int and isinstance(key, str):
            found[key] = _resized(key, value, divisor)
        elif divisor and isinstance(value, list) and all(type(v) is int and v % divisor == 0 for v in value):
            found[key] = [v // divisor for v in value]
        else:
            found[key] = value
    return found


def _resized(key, value, divisor):
    if LAYERS.fullmatch(key):
        return min(value, 2)
    if IDS.fullmatch(key) and value >= 90:
        return 3 + sum(key.encode()) % 20
    if POSITIONS.fullmatch(key):
        return min(value, 512)
    if divisor == 0 or key.endswith("vocab_size"):
        return next((size for size, names in SIZES if re.fullmatch(names, key)), value)
    is_count = re.match(r"(.+_)?(num|n)_|(.+_)?heads$|.*(topk|top_k|per_tok|stride|window|expand|ratio)", key)
    return value if is_count or value < 32 or value % divisor else value // divisor


# what a type needs besides
PICTURES = {"vocabulary_map": {"<image>": 5}}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
NO_ROTATION = {"index_kpool": 2, "num_key_value_heads": 4, "qk_rope_head_dim": 0}
INDEXED = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8}
INDEXED |= {"indexer_compress_ratio": 4}
PLACE = {"image_token_index": 5, "image_token_id": 5, "video_token_index": 6}
FULL = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}}
TIMES = {"prediction_length": 4, "context_length": 8}
SIDES = {"head_dim": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4}
SLIDING = SIDES | {"per_layer_config": {1: SIDES | {"num_attention_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16}}}
SPECIAL = {
    "autoformer": TIMES,
    "bailing_hybrid": {"n_group": 1, "num_expert_group": 1, "topk_group": 1},
    "bamba": {"attn_layer_indices": [1]},
    "blip-2": PLACE,
    "blt": {"num_hidden_layers": 2},
    "chameleon": PICTURES,
    "cohere_compass": {"text_config": FULL},
    "cohere_compass_text": FULL,
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 100.0}},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2}},
    "diffusion_gemma": {"text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48}},
    "dory": {"num_hidden_layers": 6, "n_input_layers": 2, "n_recurrent_layers": 2, "n_output_layers": 2}
    | {"layer_types": ["sliding_attention", "mlp", "full_attention", "mlp", "full_attention", "mlp"]},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1},
    "dots3_note": {"text_config": SLIDING},
    "dots3_note_text": SLIDING,
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "emu3": PICTURES,
    "esm": {"vocab_size": VOCABULARY, "position_embedding_type": "absolute", "pad_token_id": 1},
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"]},
    "glm5_next": {"text_config": NO_ROTATION},
    "glm5_next_text": NO_ROTATION,
    "granitemoehybrid": HYBRID,
    "hrm_text": {"num_layers_per_stack": 1, "H_cycles": 1, "L_cycles": 1, "num_hidden_layers": 2},
    "informer": TIMES,
    "instructblip": PLACE,
    "instructblipvideo": PLACE,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "janus": {"vq_config": {"base_channels": 32}},
    "kosmos-2": {"latent_query_num": 7},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"head_dim": 32},
    "mgp-str": {"image_size": [32, 32]},
    "mistral4": {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "nemotron_h": HYBRID,
    "qwen2_5_omni_thinker": {"vision_start_token_id": 7},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 7},
    "qwen4_exp": {"text_config": INDEXED},
    "qwen4_exp_text": INDEXED,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "time_series_transformer": TIMES,
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"], "hybrid_layer_ids": [1]}
    | {"attention_hidden_size": 128, "attention_head_dim": 32},
}


def configurations(kind):
    """The small configurations to try."""
    known = CONFIG_MAPPING[kind]
    given = known().to_dict()
    given.pop("model_type", None)
    own = SPECIAL.get(kind, {})
    for by, groups in ((0, 2), (0, 4), (8, 0), (1, 0)):
        yield lambda by=by, groups=groups: known(**joined(resized(given, by, groups), own))


def joined(given, more):
    """A nested dictionary with more entries, or others."""
    both = {key: joined(given[key], one) if isinstance(given.get(key), dict) else one for key, one in more.items()}
    return {**given, **both}


def model_of(config):
    """A model in float32 without dropout, whose weights are random and not small."""
    config.architectures = []
    with torch.device("meta"):
        count = sum(one.numel() for one in transformers.AutoModel.from_config(copy.deepcopy(config)).parameters())
    if count > MOST_WEIGHTS:
        raise ValueError(f"{count:,} weights")
    model = transformers.AutoModel.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        normed = "norm" in name.lower() or "ln" in name.lower()
        if weight.is_floating_point() and not normed and (weight.ndim >= 2 or name.endswith("bias")):
            size = 0.3 if weight.ndim == 1 else 1.6 / weight.shape[-1] ** 0.5
            weight.data = torch.randn(weight.shape, generator=generator) * size
    for module in model.modules():
        for key, value in list(vars(module).items()):
            if "drop" in key and isinstance(value, float):
                setattr(module, key, 0.0)
    return model


def number(config, *names, default):
    """The first of these numbers in a configuration or those inside it."""
    inside = [one for key, one in vars(config).items() if key.endswith("_config") and hasattr(one, "to_dict")]
    for name in names:
        for one in (config, *inside):
            value = getattr(one, name, None)
            value = value[0] if isinstance(value, list | tuple) and value else value
            if isinstance(value, int):
                return value
    return default


def tensors(name, config):
    """What an argument of a model may be."""
    generator = torch.Generator().manual_seed(1)
    side, patch = number(config, "image_size", "img_size", default=32), number(config, "patch_size", default=8)
    channels = number(config, "num_channels", "in_channels", "in_chans", default=3)
    width, mel = number(config, "hidden_size", "d_model", default=64), number(config, "num_mel_bins", default=16)
    frames = number(config, "num_frames", "frames_per_clip", default=2)
    flat = channels * patch * patch
    books, times = number(config, "num_codebooks", default=0), number(config, "context_length", default=25) + 7

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    if name.endswith("input_ids"):
        shapes = [(3, 5), (3, 5, 9)] if name == "decoder_input_ids" else [(3, 7)]
        shapes += [(3, 7, books + 1), (3, 7, books)] if books else []
        return [torch.randint(30, 90, shape, generator=generator) for shape in shapes]
    if name.startswith("past_"):
        more = number(config, "num_time_features", default=0)
        return {
            "past_values": [normal(2, times), normal(2, 32), normal(2, 32, 1)],
            "past_time_features": [normal(2, times, more)],
            "past_observed_mask": [torch.ones(2, times)],
        }.get(name, [])
    if name.endswith("_mask") or name == "pixel_position_ids":
        masks = [torch.ones(2, length, dtype=torch.long) for length in (16, 60, 7)]
        return [*masks, masks[1].bool(), torch.arange(16)[:, None].expand(2, 16, 2) % 4, torch.ones(2, 7, 1)]
    if (name.endswith(("embeds", "latents", "hidden_states")) and name != "hidden_states") or name == "inputs":
        return [normal(2, 7, width), normal(2, width, 7), normal(2, 7, 2 * width)]
    match name:
        case "hidden_states":  # of patches
            frames_of_patch = number(config, "temporal_patch_size", default=1)
            return [normal(16, n * flat) for n in (frames_of_patch, 2)] + [normal(16, channels, patch, patch)]
        case "pixel_values" | "pixel_values_videos":
            pictures, videos = normal(2, channels, side, side), normal(2, frames, channels, side, side)
            patches = [normal(2, 16, flat), *tensors("hidden_states", config)]
            first = [videos, pictures] if name.endswith("videos") else [pictures, videos]
            return [*first, pictures[:, None], *patches, pictures.repeat(1, 1, 4, 4)]
        case "grid_thw" | "image_grid_thw":
            return [torch.tensor([[1, 4, 4]])]
        case "grid_hws" | "spatial_shapes" | "target_sizes":
            return [torch.tensor([[4, 4]]), torch.tensor([[4, 4], [4, 4]])]
        case "bbox":
            return [torch.tensor([10, 20, 30, 40]).expand(3, 7, 4), torch.rand(3, 7, 4, generator=generator)]
        case "input_values" | "decoder_input_values":
            lengths = 64, number(config, "max_length", default=64)
            whole = [normal(2, 1920), normal(2, 1, 1920), normal(2, 7, width)]
            return [*whole, *(normal(2, length, mel) for length in lengths)]
        case "input_features" | "audio_mel":
            shapes = [(mel, 60), (60, mel), (80, 160), (160, 80), (128, 64), (1, 64, mel), (60, 7 * mel), (1, 1024, 64)]
            return [normal(2, *shape) for shape in shapes]
        case "states" | "actions":
            return [normal(2, 7, number(config, {"states": "state_dim", "actions": "act_dim"}[name], default=4))]
        case "rewards" | "returns_to_go":
            return [normal(2, 7, 1)]
        case "task_inputs":
            return [normal(2, number(config, "task_seq_len", default=77))]
        case "timesteps":
            return [torch.arange(7).expand(2, 7)]
        case "visual_feats":
            return [normal(3, 4, number(config, "visual_feat_dim", default=width))]
        case "visual_pos":
            return [torch.rand(3, 4, 4, generator=generator)]
        case "merge_sizes":
            return [torch.tensor([1])]
    return []


EXTRAS = (
    "input_ids pixel_values input_features_mask bbox input_values input_features grid_thw image_attention_mask"
    " visual_feats visual_pos encoder_hidden_states target_sizes image_embeds_position_mask states actions rewards"
    " returns_to_go timesteps pixel_attention_mask spatial_shapes decoder_input_values"
)


def batches(model):
    """The batches to try: of the main input and what is required, with more arguments one after the other."""
    parameters = signatures.signature(model.forward).parameters
    main = model.main_input_name
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind == p.POSITIONAL_OR_KEYWORD]
    first = [main] if isinstance(main, str) else [*main]
    needed = list(dict.fromkeys([*(n for n in first if n in parameters or not required), *required]))
    if "decoder_input_ids" in parameters and getattr(model.config, "is_encoder_decoder", False):
        needed.append("decoder_input_ids")
    extras = [name for name in EXTRAS.split() if name in parameters and name not in needed]
    for more in [[], *([one] for one in extras), extras[:2], extras]:
        names = [*needed, *more]
        for values in itertools.islice(itertools.product(*(tensors(name, model.config) for name in names)), 40):
            batch = dict(zip(names, values, strict=True))
            n = min(len(one) for one in values)  # as many texts as pictures
            batch = {key: one[:n] if key.endswith("ids") else one for key, one in batch.items()}
            if "input_ids" in batch and ("attention_mask" in parameters or "kwargs" in parameters):
                batch["attention_mask"] = mask = torch.ones(batch["input_ids"].shape[:2], dtype=torch.long)
                mask[1:2, 5:] = 0  # of padding
                mask[2:, 3:] = 0
            yield batch


def made(kind):
    """A model of a type and a batch that it accepts."""
    first = None
    for make in configurations(kind):
        torch.manual_seed(0)
        try:
            model = model_of(make())
        except Exception as error:
            first = first or error
            continue
        for batch in batches(model):
            for _ in range(2):
                try:
                    with torch.no_grad():
                        model(**batch)
                    return model, batch
                except Exception as error:
                    first = first or error
                    batch = with_places(batch, model.config, str(error))
                if batch is None:
                    break
    raise first or ValueError("no batch is known")


def with_places(batch, config, error):
    """A batch whose texts have the places for pictures that an error asks for; None if it asks for none."""
    count = re.search(r"features:? (\d+)", error)
    if count is None or "input_ids" not in batch:
        return None
    token = number(config, "image_token_id", "image_token_index", "video_token_index", "audio_token_id", default=None)
    ids = batch["input_ids"]
    places = torch.full((len(ids), int(count[1]) // len(ids)), token)
    more = {"input_ids": torch.cat([places, ids], 1)}
    if "attention_mask" in batch:
        more["attention_mask"] = torch.cat([torch.ones_like(places), batch["attention_mask"]], 1)
    return batch | more
