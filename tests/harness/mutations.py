"""Damage to files: of bytes, and of the structure of archives, JSON, tables and weights. All of it is seeded."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Mutation = Callable[[bytes, np.random.Generator], bytes]

DEEP = "[" * 100_000
LONG = "1" * 5001
WORDS = ["", "x", "\0", "\ud800", "a\nb", "../../x", "x:y", "é" * 300, LONG, "None", "NaN"]
NUMBERS = [0, -1, 1, 3, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e-300, 1e300, float("nan"), float("inf")]
VALUES: list[Any] = [None, True, False, [], {}, [[]], [1, "x"], {"x": 1}, *NUMBERS, *WORDS]
TYPES = ["<f8", ">f8", "<f4", "<f2", "<f16", "<i8", "<u1", "<c16", "|b1"]
DESCRIPTIONS = [*TYPES, "|O", "<U3", "|S8", "|V8", "<M8[s]", "x"]
SHAPES: list[Any] = [(), (0,), (1,), (2,), (2, 3), (2**40,), (2**62, 4), (-1,), (0, 2**62), (3.0,), "x", None]


def pick(choices: Any, rng: np.random.Generator) -> Any:
    """One of several objects."""
    return choices[int(rng.integers(len(choices)))]


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Change, remove, insert or move some bytes."""
    data, size = bytearray(content), len(content)
    first, second = sorted(int(x) for x in rng.integers(size + 1, size=2))
    span = slice(first, min(second, first + int(rng.integers(1, 65))))
    kind = rng.integers(10)
    if kind <= 2:
        for place in rng.integers(max(size, 1), size=int(rng.integers(1, 9))) if size else ():
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 3:
        del data[first:]
    elif kind == 4:
        data[span] = rng.bytes(span.stop - span.start)
    elif kind == 5:
        data[span] = pick((b"\0", b"\xff"), rng) * (span.stop - span.start)
    elif kind == 6:
        data[first:first] = rng.bytes(int(rng.integers(1, 65)))
    elif kind == 7:
        del data[span]
    elif kind == 8:
        data[first:first] = data[span]
    else:
        data = pick((bytearray(), data + data, data[second:] + data[:second], data + bytearray(rng.bytes(9))), rng)
    return bytes(data)


def mutate_value(value: Any, rng: np.random.Generator) -> Any:
    """Change something inside of a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = pick(list(value), rng)
        rest = {name: x for name, x in value.items() if name != key}
        if rng.random() < 0.1:
            return rest
        if rng.random() < 0.1:
            return {**rest, pick(WORDS, rng): value[key]}
        return {**value, key: mutate_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        changed = pick(([], [mutate_value(value[place], rng)], [mutate_value(value[place], rng)] * 2), rng)
        return value[:place] + changed + value[place + 1 :]
    return pick(VALUES, rng)


def mutate_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a value of a JSON text, or its text."""
    if rng.random() < 0.2:
        return mutate_bytes(content, rng)
    text = json.dumps(mutate_value(json.loads(content), rng))
    if rng.random() < 0.1:
        place = int(rng.integers(len(text) + 1))
        text = text[:place] + pick((DEEP, LONG, "NaN", '"\\ud800"', ","), rng) + text[place:]
    return text.encode()


def mutate_lines(content: bytes, rng: np.random.Generator) -> bytes:
    """Change one line of JSON lines."""
    lines = content.splitlines()
    place = int(rng.integers(len(lines)))
    lines[place] = mutate_json(lines[place], rng)
    return b"\n".join(lines)


def mutate_table(content: bytes, rng: np.random.Generator) -> bytes:
    """Insert what matters to readers of separated values, or change the encoding."""
    if rng.random() < 0.15:
        encoding = pick(("utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7"), rng)
        return content.decode().encode(encoding)
    signs = [bytes([byte]) for byte in b',"\n\r\t\0\xff']
    pieces = [*signs, b'""', b"\xef\xbb\xbf", b"\x1b[2J", b"x" * 200_000, LONG.encode()]
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(content) + 1))
        content = content[:place] + pick(pieces, rng) + content[place:]
    return content


def mutate_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """Write an .npz archive again with another member, header, meta data, compression or size."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = pick(list(members), rng)
    kind = rng.integers(9)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[pick(WORDS[1:3] + WORDS[4:], rng).replace("\0", "_") + ".npy"] = members[name]
    elif kind == 2 and "__meta__.npy" in members:
        _, data = _npy(members["__meta__.npy"])
        members["__meta__.npy"] = _written("|u1", mutate_json(data, rng))
    elif kind <= 4:
        header, data = _npy(members[name])
        changed = pick(("descr", "shape", "fortran_order", "more"), rng)
        choices = {"descr": DESCRIPTIONS, "shape": SHAPES, "fortran_order": VALUES, "more": VALUES}
        members[name] = _header({**header, changed: pick(choices[changed], rng)}) + data
    elif kind == 5:
        members[name] = mutate_bytes(members[name], rng)
    elif kind == 6:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, _odd_array(rng), allow_pickle=True)
        members[name] = stream.getvalue()
    stream = io.BytesIO()
    method = int(pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA), rng))
    with zipfile.ZipFile(stream, "w", method) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return _field(stream.getvalue(), rng) if kind == 7 else stream.getvalue()


def mutate_weights(content: bytes, rng: np.random.Generator) -> bytes:
    """Change the header of a safetensors file: its length, or an entry of it."""
    if rng.random() < 0.2:
        return mutate_bytes(content, rng)
    (length,) = struct.unpack("<Q", content[:8])
    if rng.random() < 0.2:
        return struct.pack("<Q", int(pick((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1), rng))) + content[8:]
    header = mutate_json(content[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def mutate_parquet(content: bytes, rng: np.random.Generator) -> bytes:
    """Give a column another type, or change the footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rng.random() < 0.5:
        (length,) = struct.unpack("<I", content[-8:-4])
        footer = content[-8 - length : -8]
        if rng.random() < 0.3:
            length = int(pick((0, 1, length - 1, length + 1, 2**31, 2**32 - 1), rng))
        return content[: -8 - len(footer)] + mutate_bytes(footer, rng) + struct.pack("<I", length) + content[-4:]
    table = pq.read_table(io.BytesIO(content))
    n, place = len(table), int(rng.integers(table.num_columns))
    columns: list[Any] = [
        pa.array([[1]] * n),
        pa.array([{"a": 1}] * n),
        pa.array([b"\xff"] * n),
        pa.array([2**62] * n, pa.timestamp("s")),
        pa.array([None] * n),
        pa.array([0.5] * n),
        pa.array([True, None] * n)[:n],
        pa.array(["a", "b"] * n)[:n].dictionary_encode(),
        pa.array([1] * n, pa.decimal128(5)),
        pa.array([float("nan"), 1.0] * n)[:n],
        pa.array([2**63] * n, pa.uint64()),
    ]
    table = table.set_column(place, table.column_names[place], pick(columns, rng))
    if rng.random() < 0.2:
        table = table.append_column(table.column_names[0], table[0])
    stream = io.BytesIO()
    pq.write_table(table.slice(0, int(pick((0, 1, n), rng))), stream)
    return stream.getvalue()


def mutate_pickle(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a pickle, or put a call into it. The call would make a file."""
    call = b"cbuiltins\nopen\n(S'called'\nS'w'\ntR."
    return call if rng.random() < 0.2 else mutate_bytes(content, rng)


def _odd_array(rng: np.random.Generator) -> np.ndarray:
    shape = tuple(int(x) for x in rng.integers(0, 4, size=int(rng.integers(0, 6))))
    array = rng.standard_normal(shape)
    kind = pick(
        ("float64", "float16", "longdouble", "int64", "uint8", "bool", "complex128", "U4", "S4", "O", "nan"), rng
    )
    return np.full(shape, pick((np.nan, np.inf, 1e308), rng)) if kind == "nan" else array.astype(kind)


def _npy(content: bytes) -> tuple[dict[str, Any], bytes]:
    stream = io.BytesIO(content)
    np.lib.format.read_magic(stream)
    shape, order, dtype = np.lib.format.read_array_header_1_0(stream)
    return {"descr": dtype.str, "fortran_order": order, "shape": shape}, stream.read()


def _header(entries: dict[str, Any]) -> bytes:
    text = repr(entries).encode() + b"\n"
    return np.lib.format.MAGIC_PREFIX + b"\x01\x00" + struct.pack("<H", len(text)) + text


def _written(description: str, data: bytes) -> bytes:
    return _header({"descr": description, "fortran_order": False, "shape": (len(data),)}) + data


def _field(content: bytes, rng: np.random.Generator) -> bytes:
    """Change a field of an entry in the directory of a zip file, and the same field before its data."""
    data = bytearray(content)
    offset = int(pick((6, 8, 14, 18, 22, 26, 28), rng))
    value = struct.pack("<H", int(pick((0, 1, 8, 9, 12, 97, 2**16 - 1), rng)))
    for signature, at in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
        places = [i for i in range(len(data)) if data[i : i + 4] == signature]
        place = places[-1] + at
        data[place : place + 2] = value
    return bytes(data)
