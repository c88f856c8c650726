import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm._fit.texts.text import read_texts, split_texts
from attsvm.errors import ProblemError

ROWS = [("Good, very good.\nTruly", 1), ('A "bad" one, it\'s', 0), ("naïve, déjà vu\u2028good", 1), ("bad", 0)]


def write(path, rows=ROWS, text="text", label="label"):
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table({text: [row[0] for row in rows], label: [row[1] for row in rows]}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({text: a, label: b}) + "\n" for a, b in rows), encoding="utf-8")
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writerows([(text, label), *rows])
    else:
        for number, (a, b) in enumerate(rows):
            (path / str(b)).mkdir(parents=True, exist_ok=True)
            (path / str(b) / f"{number}.txt").write_text(a, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.tsv", "a.jsonl", "a"])
def test_every_kind_of_file_gives_the_same_texts(tmp_path, name):
    found = read_texts(write(tmp_path / name))
    assert sorted(zip(found.texts, found.labels, strict=True)) == sorted((a, str(b)) for a, b in ROWS)
    assert found.classes == ["0", "1"]


def test_columns_have_the_names_that_were_given(tmp_path):
    path = write(tmp_path / "a.csv", text="review", label="stars")
    assert read_texts(path, "review", "stars").texts == tuple(a for a, _ in ROWS)


def test_a_spreadsheets_file_and_a_text_of_100000_words_are_read(tmp_path):
    long = "word " * 100_000
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"text,label\r\n{long},x\r\nshort,y\r\n".encode())
    assert read_texts(path).texts == (long, "short")


BAD = {
    "b.csv": (b"text,label\ncaf\xe9,1\n", "expected UTF-8, got byte 0xe9 at position 14"),
    "c.csv": (
        b"review,label\na,1\nb,0\n",
        "expected a column 'text', got 'review', 'label'; choose the columns by --text",
    ),
    "semicolons.csv": (
        b"text;label\na;1\nb;0\n",
        "separated by ',', got ';' in the header; convert the file, for example by pandas",
    ),
    "d.csv": (b"text,label\na,1\nb\n", "line 3: expected 2 fields, as in the header, got 1"),
    "e.csv": (b"text,label\na,1\n ,0\n", "row 1, counted from 0, text: expected a text, got an empty cell"),
    "f.csv": (b"text,label\na,1\nb,\n", "row 1, counted from 0, label: expected a label, got an empty cell"),
    "g.csv": (b"text,label\na,1\nb,1\n", "expected at least two labels, got only '1'"),
    "h.csv": (b"text,label\n", "got no text"),
    "i.csv": (b"", "expected a column 'text', got none"),
    "twice.csv": (b"text,label,text\na,1,b\nc,0,d\n", "expected one column 'text', got 2"),
    "twice.jsonl": (b'{"text": "a", "text": "b", "label": 1}\n', "an object has several values with the same name"),
    "j.csv": (b'text,label\n"a,1\n', "line 2 cannot be read"),
    "k.jsonl": (b'{"text": "a", "label": 1}\n{"text": \n', "line 2 is not JSON"),
    "l.jsonl": (b'["a", 1]\n', "line 1: expected an object, got list"),
    "m.jsonl": (b'{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2: expected a column 'label'"),
    "n.jsonl": (b'{"text": 3, "label": 1}\n', "row 0, counted from 0, text: expected a text, got int"),
    "o.jsonl": (
        b'{"text": "a", "label": [1]}\n',
        "row 0, counted from 0, label: expected a word or a whole number, got [1]",
    ),
    "p.jsonl": (b'{"text": "a", "label": NaN}\n', "row 0, counted from 0, label: expected a label, got an empty cell"),
    "s.jsonl": (b'{"text": "a", "label": ' + b"1" * 5001 + b"}\n", "line 1 is not JSON"),
    "t.jsonl": (b'{"text": "a", "label": ' + b"1" * 300 + b"}\n", "expected a whole number of at most 200 digits"),
    "u.csv": (b"text,label\na," + b"1" * 5001 + b"\n", "expected a label of at most 200 characters, got 5,001"),
    "v.jsonl": (b'{"text": "a", "label": "\\ud800"}\n', "without control characters and surrogates, got '\\ud800'"),
    "w.csv": (b"text,label\na,x\0\nb,x\n", "without control characters and surrogates, got 'x\\x00'"),
    "x.jsonl": (b"[" * 100_000, "line 1 is not JSON"),
    "y.csv": ("text,label\na,1\n".encode("utf-16"), "expected UTF-8, got byte 0xff at position 0"),
    "z.jsonl": (b'{"text": "a", "label": 1e300}\n', "expected a whole number of at most 200 digits"),
    "q.docx": (b"a", "expected a file .parquet, .csv"),
    "r.parquet": (b"not parquet", "cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, name):
    content, message = BAD[name]
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ProblemError) as raised:
        read_texts(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_fifo_is_refused_and_does_not_block(tmp_path, ending):
    os.mkfifo(tmp_path / f"texts.{ending}")
    with pytest.raises(ProblemError, match="expected a file, got a FIFO"):
        read_texts(tmp_path / f"texts.{ending}")


def test_missing_files_columns_and_folders_are_named(tmp_path):
    with pytest.raises(ProblemError, match="no such file or folder"):
        read_texts(tmp_path / "none.csv")
    with pytest.raises(ProblemError, match=r"expected a column 'stars', got 'text', 'label'; choose .* --label"):
        read_texts(write(tmp_path / "a.parquet"), label="stars")
    (tmp_path / "one" / "pos").mkdir(parents=True)
    with pytest.raises(ProblemError, match="expected at least two folders in it, one per label, got 1"):
        read_texts(tmp_path / "one")
    (tmp_path / "one" / "neg").mkdir()
    (tmp_path / "one" / "neg" / "a.txt").write_text(" \n")
    with pytest.raises(ProblemError, match=r"a\.txt: expected a text, got an empty file"):
        read_texts(tmp_path / "one")


def test_labels_of_parquet_that_are_lists_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a", "b"], "label": [[1], [2]]}), tmp_path / "a.parquet")
    with pytest.raises(
        ProblemError, match=r"row 0, counted from 0, label: expected a word or a whole number, got \[1\]"
    ):
        read_texts(tmp_path / "a.parquet")


def test_without_pyarrow_a_parquet_file_names_what_to_install(tmp_path):
    path = write(tmp_path / "a.parquet")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from attsvm._fit.texts.text import read_texts\n"
        f"read_texts({str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith("Parquet needs pyarrow: pip install 'attsvm[text]'")


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=40), st.floats(0.05, 0.95), st.integers(0, 3))
def test_a_split_holds_every_text_once_and_trains_on_every_label(labels, fraction, seed):
    rows = np.array(labels)
    texts = texts_of([f"text {i}" for i in range(len(rows))], rows)
    try:
        train, test = split_texts(texts, fraction, seed)
    except ProblemError:
        assert all(fraction * (rows == label).sum() <= 0.5 or (rows == label).sum() == 1 for label in set(labels))
        return
    assert sorted([*train, *test]) == list(range(len(rows)))
    assert set(rows[train]) == set(labels)
    for label in set(labels):
        assert abs((rows[test] == label).sum() - fraction * (rows == label).sum()) <= 1


def texts_of(texts, labels):
    from attsvm._fit.texts.text import Texts

    return Texts(tuple(texts), np.array(labels), "here")


def test_a_label_of_each_text_leaves_nothing_to_test_on(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("text,label\ngood,1\nbad,2\nfine,3\n", encoding="utf-8")
    with pytest.raises(ProblemError, match=r"got 3 texts of 3 labels$"):
        split_texts(read_texts(path), 0.25)
