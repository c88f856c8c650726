"""Sounds as the input of a model, by the feature extractor saved with it, and the times of its tokens."""

from math import gcd, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from attsvm._utils.files import reading, regular_file
from attsvm.errors import ProblemError
from attsvm.pretrained.loading import load_pretrained, quiet_transformers

if TYPE_CHECKING:
    from torch import Tensor


def read_sounds(name: str, folder: str | Path, model: Any) -> "tuple[dict[str, Tensor], list[list[str]]]":
    """The .wav files of a folder as the input of a model, and the times of the tokens of each.

    They are made mono and resampled to the rate of the feature extractor.

    Raises ProblemError if there are none or one cannot be read, there is no feature extractor, or the model is not one
    of sounds whose tokens have known times.
    """
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() == ".wav")
    if not paths:
        raise ProblemError(f"{folder}: no sounds (.wav)")
    kind = getattr(model, "main_input_name", "")
    sizes = {"input_features": "max_source_positions", "input_values": "conv_stride"}
    size: Any = getattr(model.config, sizes.get(kind, ""), None)  # tokens of Whisper; strides of Wav2Vec2
    if size is None:
        raise ProblemError(f"{name}: expected a model of sounds, as Whisper or Wav2Vec2, got {type(model).__name__}")
    extractor = load_pretrained("AutoFeatureExtractor", name, "the feature extractor")
    rate = extractor.sampling_rate
    sounds = [_read(path, rate) for path in paths]
    lengths = [len(sound) for sound in sounds]
    longest, options = getattr(extractor, "chunk_length", None), dict[str, Any]()
    if kind == "input_values":  # Whisper hears its padding as silence
        longest, options = None, {"padding": True}
        if not extractor.return_attention_mask and len(set(lengths)) > 1:
            raise ProblemError(f"{folder}: expected sounds of equal length for a model without a mask, got others")
    for path, length in zip(paths, lengths, strict=True):
        if longest is not None and length > longest * rate:
            raise ProblemError(f"{path}: expected at most {longest} s for {name}, got {length / rate:.1f} s")
    with quiet_transformers(), reading(name, "the feature extractor cannot be used"):
        batch = dict(extractor(sounds, sampling_rate=rate, return_tensors="pt", **options))
    if kind == "input_features":
        count = size
        step = batch[kind].shape[-1] / size * extractor.hop_length / rate
    else:
        count = int(model._get_feat_extract_output_lengths(max(lengths)))
        step = prod(size) / rate
    names = [f"{step * k:.2f}-{step * (k + 1):.2f} s" for k in range(count)]
    return batch, [names] * len(sounds)


def _read(path: Path, rate: int) -> np.ndarray:
    """The samples of a file between −1 and 1, at a rate."""
    with reading(path, "not a readable sound"):
        own, samples = scipy.io.wavfile.read(regular_file(path))
        if samples.dtype == np.uint8:
            samples = (samples - 128.0) / 128
        elif samples.dtype.kind == "i":
            samples = samples / -float(np.iinfo(samples.dtype).min)
        mono = samples.reshape(len(samples), -1).mean(axis=1)
        if not len(mono) or not np.isfinite(mono).all():
            raise ValueError("expected finite samples")
        common = gcd(rate, own)
        found: np.ndarray = scipy.signal.resample_poly(mono, rate // common, own // common).astype(np.float32)
    return found
