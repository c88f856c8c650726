"""Rows of text files: quotes, encodings, compression, shards, and labels as programs write them."""

import csv
import gzip
import io
import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm._fit import read_corpus, read_texts
from attsvm._fit.texts.readers import QUOTING, _quoting
from attsvm.errors import ProblemError

PLAIN = "text\tlabel\nfirst\tpos\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # a quote at the beginning, closed at the end of another row: both ways give a table
        ('"second is bad\tneg\nthird\tpos\nhe called it bad"\tneg\n', ['"second is bad', "third", 'he called it bad"']),
        ('"second is bad\tneg\nthird "good"\tpos\n', ['"second is bad', 'third "good"']),
        ('"third error\tneg\n', ['"third error']),
        # quotes that parse
        ('"second, bad"\tneg\n"a ""word"" in it"\tpos\n', ["second, bad", 'a "word" in it']),
        ('"two\nlines"\tneg\n', ["two\nlines"]),
        ('"a\ttab"\tneg\n', ["a\ttab"]),
        ('"all" of it "quoted"\tneg\n', ['"all" of it "quoted"']),
    ],
)
def test_quotes_of_tab_separated_files_are_letters_unless_they_parse(rows, expected, tmp_path, recwarn):
    (tmp_path / "a.tsv").write_text(PLAIN + rows, encoding="utf-8")
    assert read_texts(tmp_path / "a.tsv").texts == ("first", *expected)
    ambiguous = rows.startswith('"second is bad') and rows.endswith('bad"\tneg\n')
    said = "a.tsv: 4 rows with --quoting none, as read, but 2 with --quoting double"
    assert [str(one.message).rsplit("/", 1)[-1] for one in recwarn] == [said] * ambiguous


def test_a_csv_file_whose_quotes_may_swallow_rows_is_told(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\na,pos\n"b,neg\nc,pos\nd",neg\n')
    with pytest.warns(RuntimeWarning, match="2 rows with --quoting double, as read, but 4 with --quoting none"):
        assert len(read_texts(tmp_path / "a.csv")) == 2
    assert read_texts(tmp_path / "a.csv", quoting="none").texts == ("a", '"b', "c", 'd"')
    (tmp_path / "b.csv").write_text('text,label\n"say \\"good\\"",pos\nb,neg\n')
    with pytest.raises(ProblemError, match=r"line 2 cannot be read .*; --quoting none or backslash reads quotes"):
        read_texts(tmp_path / "b.csv")
    assert read_texts(tmp_path / "b.csv", quoting="backslash").texts == ('say "good"', "b")
    (tmp_path / "c.tsv").write_text('text\tlabel\n"open\t1\nb\t2\n')
    assert read_texts(tmp_path / "c.tsv").texts == ('"open', "b")
    with pytest.raises(ProblemError, match=r"cannot be read .*; --quoting none or backslash reads quotes"):
        read_texts(tmp_path / "c.tsv", quoting="double")
    with pytest.raises(ProblemError, match="quoting: expected double, backslash, none, got 'all'"):
        read_texts(tmp_path / "b.csv", quoting="all")


@given(st.lists(st.text('ab ",\t\n', min_size=1), min_size=1, max_size=5))
def test_what_csv_writes_in_quotes_is_read_back(texts):
    """Also with tabs, except where the lines without quotes are a table, too."""
    for delimiter in (",", "\t"):
        stream = io.StringIO(newline="")
        rows = [["text", "label"], *([text, "x"] for text in texts)]
        csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
        content = stream.getvalue()
        lines = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, quoting=csv.QUOTE_NONE)
        lengths = [len(fields) for fields in lines if fields]
        if delimiter == "," or set(lengths) != {2} or len(lengths) == len(rows):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of CSV whose lines are a table
                quoting = _quoting("here", content, delimiter)
            assert [*csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, **QUOTING[quoting])] == rows


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("compressed", [False, True])
def test_any_encoding_and_gzip_are_read(encoding, compressed, tmp_path):
    for ending, content in (
        ("csv", "text,label\ncafé,pos\nbad,neg\n"),
        ("jsonl", '{"text": "café", "label": "pos"}\n{"text": "bad", "label": "neg"}\n'),
        ("txt", "café\nbad\n"),
    ):
        data = content.encode(encoding)
        path = tmp_path / f"a.{ending}{'.gz' * compressed}"
        path.write_bytes(gzip.compress(data) if compressed else data)
        found = read_corpus(str(path), encoding=encoding)
        assert found == ["café", "bad"]
        if ending != "txt":
            assert list(read_texts(path, encoding=encoding).texts) == found


def test_a_wrong_encoding_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\ncafé,pos\nbad,neg\n", encoding="utf-8")
    with pytest.warns(RuntimeWarning, match=r"a\.csv: read as latin-1, but it is UTF-8"):
        assert read_texts(tmp_path / "a.csv", encoding="latin-1").texts == ("cafÃ©", "bad")
    with pytest.raises(ProblemError, match="encoding: expected one that Python knows, such as latin-1, got 'utf9'"):
        read_texts(tmp_path / "a.csv", encoding="utf9")
    with pytest.raises(
        ProblemError,
        match=r"expected ASCII, got byte 0xc3 at position 14; .* give its encoding: "
        r"--encoding",
    ):
        read_texts(tmp_path / "a.csv", encoding="ascii")
    (tmp_path / "a.csv.gz").write_bytes(b"text,label\na,b\n")
    with pytest.raises(ProblemError, match=r"a\.csv\.gz: cannot be read \(Not a gzipped file"):
        read_texts(tmp_path / "a.csv.gz")


def test_labels_mean_the_same_in_every_format(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text("text,label\na,1.0\nb,1\nc,+1\nd,0\ne,-1.00\nf,007\ng,1.5x\n")
    expected = ["1", "1", "1", "0", "-1", "007", "1.5x"]
    assert read_texts(tmp_path / "a.csv").labels.tolist() == expected
    labels = [1, "1", 1.0, "0.", "-1.0", "007", "1.5x"]
    rows = [json.dumps({"text": "a", "label": label}) for label in labels]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert read_texts(tmp_path / "a.jsonl").labels.tolist() == expected
    for column in ([1.0, 0.0], [1, 0], ["1", "0"], ["1.0", "0.0"]):
        pq.write_table(pa.table({"text": ["a", "b"], "label": column}), tmp_path / "a.parquet")
        assert read_texts(tmp_path / "a.parquet", names={"1": "pos"}).labels.tolist() == ["pos", "0"]


def test_shards_in_a_folder_or_of_a_pattern_are_one_table(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number, name in enumerate(["train-00001-of-2", "train-00000-of-2"]):
        table = pa.table({"text": [f"{name[10]}a", f"{name[10]}b"], "label": [number, 1 - number]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / "README.md").write_text("# cards")
    expected = ("0a", "0b", "1a", "1b")
    assert read_texts(tmp_path).texts == read_texts(tmp_path / "*.parquet").texts == expected
    assert tuple(read_corpus(str(tmp_path))) == expected
    # the test texts of a data set do not become training texts
    (tmp_path / "test-00000.parquet").write_bytes((tmp_path / "train-00001-of-2.parquet").read_bytes())
    with pytest.raises(ProblemError, match=r"shards of one part of the data, got test, train; .*/train\*'"):
        read_texts(tmp_path)
    assert read_texts(f"{tmp_path}/train*").texts == expected
    with pytest.raises(ProblemError, match=r"none\*: no such file"):
        read_texts(f"{tmp_path}/none*")
    with pytest.raises(ProblemError, match=r"README\.md: expected a file \.parquet"):
        read_texts(f"{tmp_path}/*")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemError, match=r"empty: no file \.txt, \.parquet, .* in it"):
        read_corpus(str(tmp_path / "empty"))
