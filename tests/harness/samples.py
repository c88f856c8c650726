"""Small inputs of commands that several campaigns run."""

from pathlib import Path

GOOD, BAD = ("wonderful", "great", "perfect"), ("awful", "boring", "terrible")


def write_reviews(folder: Path, train: int, test: int) -> None:
    """Reviews in ``train.parquet`` and ``test.parquet``, and a vocabulary that has their words."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, rows in (("train", train), ("test", test)):
        labels = [row % 2 for row in range(rows)]
        words = [(GOOD if label else BAD)[row % 3] for row, label in enumerate(labels)]
        texts = [f"the story was {word} and the film was {word}" for word in words]
        pq.write_table(pa.table({"text": texts, "label": labels}), folder / f"{name}.parquet")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, "and", "film", "story", "the", "was"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
