"""Finished pieces are used again only where nothing that made them has changed, and where their file is whole."""

import numpy as np
import pytest

from attsvm.papers import pieces
from attsvm.papers.pieces import PieceStore

CALLS: list[float] = []


def squares(number: int, scale: float) -> dict[str, np.ndarray]:
    CALLS.append(scale)
    return {"squares": scale * np.arange(number) ** 2}


@pytest.fixture
def seen(tmp_path):
    CALLS.clear()
    told: list[tuple[str, bool]] = []
    return PieceStore(tmp_path / "pieces", lambda name, reused: told.append((name, reused))), told


def test_a_finished_piece_is_used_again(seen):
    store, told = seen
    first, again = (store("a", squares, 4, 0.1) for _ in range(2))
    assert len(CALLS) == 1
    assert told == [("a", False), ("a", True)]
    assert first["squares"].tobytes() == again["squares"].tobytes()


@pytest.mark.parametrize("changed", ["arguments", "source", "threads", "versions"])
def test_a_piece_of_another_origin_is_made_anew(seen, monkeypatch, changed):
    store, _ = seen
    store("a", squares, 4, 1.0)
    if changed == "source":
        monkeypatch.setattr(pieces, "source_hash", lambda: "another")
    elif changed == "threads":
        monkeypatch.setattr(pieces, "num_threads", lambda: 99)
    elif changed == "versions":
        monkeypatch.setattr(pieces, "version", lambda name: "0")
    store("a", squares, 4, 2.0 if changed == "arguments" else 1.0)
    assert len(CALLS) == 2


def test_a_damaged_piece_is_made_anew(seen):
    store, _ = seen
    whole = store("a", squares, 4, 1.0)["squares"]
    (path,) = store.folder.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert store("a", squares, 4, 1.0)["squares"].tolist() == whole.tolist()
    path.write_bytes(path.read_bytes()[:-40])
    store("a", squares, 4, 1.0)
    assert len(CALLS) == 3
