"""A two-layer model with an induction circuit written into its weights by hand."""

import torch

from oracles.attention_only import AttentionOnly, repeated_sequences

VOCABULARY, LENGTH = 16, 16


def induction_circuit(sharpness=20.0):
    """Head 0.1 copies the previous token into coordinates that head 1.1 compares with the present token.

    The states are one-hot positions, then one-hot tokens, then the copies. Heads 0.0 and 1.0 are random and small.
    """
    size = LENGTH + 2 * VOCABULARY
    model = AttentionOnly(VOCABULARY, LENGTH, size, heads=2).double()
    places = slice(0, LENGTH)
    tokens, copies = slice(LENGTH, LENGTH + VOCABULARY), slice(LENGTH + VOCABULARY, size)
    half, of_tokens = size // 2, slice(0, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.02)
        model.embedding.weight.zero_()[:, tokens] = torch.eye(VOCABULARY).double()
        model.position.weight.zero_()[:, places] = torch.eye(LENGTH).double()
        for layer in model.layers:
            for part in layer.qkv.weight.chunk(3):
                part[half:] = 0
            layer.out.weight[:, half:] = 0
        query, key, value = (part[half:] for part in model.layers[0].qkv.weight.chunk(3))
        query[:LENGTH, places] = sharpness * half**0.5 * torch.diag(torch.ones(LENGTH - 1), 1).double()
        key[:LENGTH, places] = torch.eye(LENGTH).double()
        value[of_tokens, tokens] = torch.eye(VOCABULARY).double()
        model.layers[0].out.weight[copies, half : half + VOCABULARY] = torch.eye(VOCABULARY).double()
        query, key, _ = (part[half:] for part in model.layers[1].qkv.weight.chunk(3))
        query[of_tokens, tokens] = sharpness * half**0.5 * torch.eye(VOCABULARY).double()
        key[of_tokens, copies] = torch.eye(VOCABULARY).double()
        model.layers[1].qkv.weight[2 * size + half :, tokens] = torch.eye(half, VOCABULARY).double()
        model.layers[1].out.weight[tokens, half : half + VOCABULARY] = torch.eye(VOCABULARY).double()
    return model


def repeated(count, seed):
    """Sequences with a random prefix and a repeated period."""
    return repeated_sequences(count, torch.Generator().manual_seed(seed), VOCABULARY, LENGTH)
