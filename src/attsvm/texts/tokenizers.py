"""Split texts into words: by Unicode's rules for words, into characters, or by a tokenizer that a user chooses."""

import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import regex

from attsvm._utils.callers import warn_caller
from attsvm._utils.extensions import import_object
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.pretrained import check_models, load_pretrained

_TAG_NAMES = (
    "a|abbr|article|b|big|blockquote|body|br|center|code|dd|del|div|dl|dt|em|font|footer|form|h[1-6]|head|header|hr|"
    "html|i|iframe|img|input|ins|label|li|link|meta|nav|ol|option|p|pre|q|s|script|section|select|small|span|strike|"
    "strong|style|sub|sup|table|tbody|td|tfoot|th|thead|title|tr|tt|u|ul|video"
)
# a tag of HTML, whose attributes have values: <ann@x.org>, <name> and "a <b and c> d" are words
_TAG = rf"""</?(?i:{_TAG_NAMES})(?:\s++[\w:-]++\s*+=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>]++))*+\s*+/?>"""

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Line_Break=Complex_Context}"
_LETTER = rf"[\w\p{{No}}--[{_UNSPACED}]]"  # \w has the marks of scripts, and the joiners of Persian and Hindi
_WORD = regex.compile(
    rf"(?V1w){_TAG}|("
    # letters and digits, and between them apostrophes and what Unicode joins, such as the soft hyphen and the point of
    # a decimal number; colon, comma, and other full stops separate words
    rf"{_LETTER}++(?:(?:['’]|\B[^\s.:,;]\B|(?<=\d)\.(?=\d)){_LETTER}++)*+"
    # scripts without spaces: up to the next boundary of Unicode's default rules, which is that of a character
    r"|\w(?:\B\w)*+"
    r"|\p{Regional_Indicator}{2}|(?=\p{Extended_Pictographic})\X)"
)
_CHARACTER = regex.compile(r"(?V1)(?!\s)\X")
_OF_UNSPACED = regex.compile(rf"(?V1)[{_UNSPACED}]")

_SAME = {ord("’"): "'", ord("＇"): "'", ord("ʼ"): "'", 0xAD: None, 0xFE0F: None}
"""Apostrophes, and what no reader sees: soft hyphens, and the mark that asks for a coloured emoji."""


@dataclass(frozen=True)
class Tokenizer:
    """A way to split texts into words."""

    name: str
    words: Callable[[str], list[str]]
    places: Callable[[str], list[tuple[int, int]]]  # where each word begins and ends in the text
    function: Any = None  # a function of a user; None for a tokenizer that is found by its name

    def saved(self) -> dict[str, str]:
        """What a model file holds of it: the name of one that needs nothing else."""
        if self.function is not None or self.name not in NAMED:
            raise ProblemError(
                f"tokenizer: expected {', '.join(NAMED)} in a model file, got {self.name}; joblib.dump can save "
                "functions"
            )
        return {"name": self.name}

    @staticmethod
    def restored(name: str) -> "Tokenizer":
        """The tokenizer of this name; raises KeyError for another one."""
        return NAMED[name]

    def __reduce__(self) -> Any:
        return find_tokenizer, (self.name if self.function is None else self.function,)


def words(text: str) -> list[str]:
    """The words of a text by Unicode's rules (UAX #29), lower-cased, in the normal form NFC, without HTML tags.

    An apostrophe joins what it stands between, and a full stop only digits. An emoji is a word. Of scripts without
    spaces between words, such as those of Chinese and Thai, each character is one.
    """
    return [_normal(word) for word in _WORD.findall(text) if word]


def _normal(word: str) -> str:
    lower = word.lower()
    return lower if lower.isascii() else unicodedata.normalize("NFC", lower).translate(_SAME)


WORDS = Tokenizer("words", words, lambda text: [match.span() for match in _WORD.finditer(text) if match[1]])

CHARACTERS = Tokenizer(
    "characters",
    lambda text: [_normal(character) for character in _CHARACTER.findall(text)],
    lambda text: [match.span() for match in _CHARACTER.finditer(text)],
)


def _of_function(name: str, function: Callable[[str], Iterable[str]]) -> Tokenizer:
    def split(text: str) -> list[str]:
        given: Any = function(text)
        found: list[Any] = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [None]
        if not all(isinstance(word, str) for word in found):
            got = reprlib.repr(given)
            raise ProblemError(f"tokenizer: expected a list of words from {name}, got {got} for {reprlib.repr(text)}")
        return [word for word in found if word.strip()]

    def places(text: str) -> list[tuple[int, int]]:
        # a word that the function changed is not in the text: its place is empty
        found, at = [], 0
        for word in split(text):
            begin = text.find(word, at)
            at = at if begin < 0 else begin + len(word)
            found.append((at if begin < 0 else begin, at))
        return found

    return Tokenizer(name, split, places)


def _of_hugging_face(name: str) -> Tokenizer:
    try:
        check_models([name], pictures=False)
        loaded = load_pretrained("AutoTokenizer", name, "the tokenizer")
    except ProblemError as error:
        raise ProblemError(f"tokenizer: expected {EXPECTED} ({error})") from error
    if not loaded.is_fast:
        raise ProblemError(f"tokenizer: expected a fast one, which reports the positions of tokens, got that of {name}")

    def encoded(text: str) -> Any:
        return loaded.backend_tokenizer.encode(text, add_special_tokens=False)

    return Tokenizer(name, lambda text: list(encoded(text).tokens), lambda text: list(encoded(text).offsets))


NAMED = {one.name: one for one in (WORDS, _of_function("spaces", str.split), CHARACTERS)}

EXPECTED = f"{', '.join(map(repr, NAMED))}, a function, package.module:name or a tokenizer of Hugging Face"


def find_tokenizer(given: Any = None) -> Tokenizer:
    """The tokenizer that an argument means.

    ``given``: "words", the default; "spaces", for texts whose words are split by spaces already; "characters", those
    that are not blank; a function from a text to a list of words, which are taken as they are, or its import path
    ``package.module:name``; or a fast tokenizer of Hugging Face, by its folder or its name on the hub.

    Raises ProblemError if it is none of them, or needs a package that is not installed.
    """
    if isinstance(given, Tokenizer):
        return given
    if callable(given):
        return replace(_of_function(getattr(given, "__qualname__", type(given).__name__), given), function=given)
    if given is None:
        return WORDS
    if not isinstance(given, str):
        raise ProblemError(f"tokenizer: expected {EXPECTED}, got {given!r}")
    if given in NAMED:
        return NAMED[given]
    if ":" not in given:
        return _of_hugging_face(given)
    try:
        function = import_object(given)
    except Exception as error:
        raise ProblemError(f"tokenizer: {given} cannot be imported ({reason(error)})") from error
    if not callable(function):
        raise ProblemError(f"tokenizer: expected a function, got {type(function).__name__} {given}")
    return _of_function(given, function)


def split_words(texts: Iterable[str], tokenizer: Tokenizer = WORDS) -> list[list[str]]:
    """The words of each text; equal words are one object, which saves memory."""
    same: dict[str, str] = {}
    return [[same.setdefault(word, word) for word in tokenizer.words(text)] for text in texts]


def warn_of_unspaced(documents: Sequence[Sequence[str]], tokenizer: Tokenizer) -> None:
    """Warn of texts that are mostly in scripts without spaces, of which each character is a word."""
    unspaced = {word for word in set().union(*documents) if _OF_UNSPACED.match(word)} if tokenizer is WORDS else set()
    if found := sum(2 * len(unspaced.intersection(text)) > len(set(text)) for text in documents) if unspaced else 0:
        warn_caller(
            f"{found:,} of {len(documents):,} texts are mostly in scripts without spaces between words, so each "
            "character counts as a word; other tokenizers are 'spaces', if the texts have spaces, and a function "
            "package.module:name",
            RuntimeWarning,
        )
