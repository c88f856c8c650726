"""Tokens as people read them, in place of the symbols of a vocabulary."""

import re
from typing import Any

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""How sentence-piece vocabularies write a byte of a character that they do not have."""

MARKS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})
"""Visible marks of white space."""

LONGEST = 4
"""Bytes of a character in UTF-8."""


def token_names(tokenizer: Any, numbers: list[int]) -> list[str]:
    """The text of each of some consecutive tokens; "é 1/2" for the first of two tokens that hold one character.

    White space has a visible mark. Bytes that are no part of a character remain bytes.
    """
    # the table of embeddings may have rows beyond the vocabulary
    tokens = [token or "(unused)" for token in tokenizer.convert_ids_to_tokens(numbers)]
    # of byte-level vocabularies Ġ is a space, of others a letter
    byte_level = tokenizer.convert_tokens_to_string(["Ġ"]) == " "
    parts = [_bytes(token, byte_level) for token in tokens]
    names: list[str] = []
    while len(names) < len(parts):
        at = len(names)
        whole = (
            (text, count)
            for count in range(1, LONGEST + 1)
            if (text := _decoded(b"".join(parts[at : at + count]))) is not None
        )
        text, count = next(whole, (parts[at].decode(errors="backslashreplace"), 1))
        text = text.translate(MARKS)
        names += [text] if count == 1 else [f"{text} {k + 1}/{count}" for k in range(count)]
    return names[: len(parts)]


def _decoded(part: bytes) -> str | None:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return None


def _bytes(token: str, byte_level: bool) -> bytes:
    """The text of a token in UTF-8, of which it may hold a part."""
    if byte_level:
        return (
            bytes(ALPHABET[symbol] for symbol in token)
            if all(symbol in ALPHABET for symbol in token)
            else token.encode()
        )
    if match := BYTE.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("▁", " ").encode()


def _alphabet() -> dict[str, int]:
    """The bytes by the symbols of byte-level vocabularies: printable ones are themselves, the others follow."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + k): byte for k, byte in enumerate(others)}


ALPHABET = _alphabet()


def special_numbers(tokenizer: Any) -> set[int]:
    """The tokens that mark something and are no text: also markers of a chat, and without unknown words."""
    added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    marks = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.cls_token, tokenizer.sep_token)
    unknown = set() if tokenizer.unk_token in marks else {tokenizer.unk_token_id}
    return (added | {*tokenizer.all_special_ids}) - unknown
