"""Words of texts in all scripts, against words that stand between spaces."""

import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm._fit import fit_text, read_texts
from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.texts.tokenizers import NAMED, WORDS, find_tokenizer, split_words, words
from attsvm.texts.words import learn_word_vectors

SPACED = {
    "Hindi": "आधुनिक मानक हिन्दी दिन दान क्‍ष",
    "Telugu": "ప్రధానమంత్రిని కలుసుకున్నారు",
    "Bengali": "ভৌতিক গল্প পড়তে",
    "Tamil": "தமிழ் மொழி",
    "Arabic with vowels": "كِتَابٌ جَدِيدٌ",
    "Persian with joiners": "می‌خواهم خانه‌ها",
    "Hebrew with points": "שָׁלוֹם עוֹלָם צה״ל",
    "Korean": "이 영화는 정말 좋아요",
    "Vietnamese": "tiếng việt rất hay",
    "Catalan, French, Ukrainian": "col·legi l'été п'ять",
    "numbers": "3.5 80's 2nd ½ v2.0",
    "emoji": "great 👍 👍🏽 👨‍👩‍👧 🇫🇷 1⃣",
}


@pytest.mark.parametrize("script", SPACED)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_between_spaces_are_whole_in_all_scripts_and_normal_forms(script, form):
    expected = unicodedata.normalize("NFC", SPACED[script]).split()
    text = unicodedata.normalize(form, SPACED[script])
    assert words(text) == expected
    assert [text[begin:end] for begin, end in WORDS.places(text)] == text.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # HTML tags are no words; what only has angle brackets is
        ("It's GOOD!<br />Miss <a href='x'>café</a> 10/10", "it's good miss café 10 10"),
        ("From: Ann <ann@x.org>", "from ann ann x org"),
        ("x <y z> if a<b and c>d <unk>", "x y z if a b and c d unk"),
        # one word whatever the apostrophe, and with a soft hyphen or without
        ("don't don’t donʼt rock'n'roll 'quoted' so\xadft", "don't don't don't rock'n'roll quoted soft"),
        ("the end.Begin U.S.A. x:y 10:30 1,000", "the end begin u s a x y 10 30 1 000"),
        ("love ❤️ love ❤", "love ❤ love ❤"),
        ("state-of-the-art snake_case #tag @user", "state of the art snake_case tag user"),
        # scripts without spaces: characters, with their marks
        ("这部电影 good的", "这 部 电 影 good 的"),
        ("この映画はテスト", "こ の 映 画 は テスト"),
        ("ไม่มี", "ไ ม่ มี"),
        (" \n.,;!?—", ""),
    ],
)
def test_words_are_lower_case_and_leave_out_marks_and_tags(text, expected):
    assert words(text) == expected.split()


@given(
    st.text(st.sampled_from("aÉe\u0301ßक्‍िไม่好の👍🏽\u200d\ufe0f🇫'’.:,<br/> 1½_\xad"), max_size=30),
    st.sampled_from(list(NAMED)),
)
def test_every_tokenizer_places_its_words_in_the_text(text, name):
    tokenizer = find_tokenizer(name)
    found, places = tokenizer.words(text), tokenizer.places(text)
    assert len(found) == len(places)
    assert all(begin < end for begin, end in places)
    assert all(one[1] <= other[0] for one, other in pairwise(places))


def test_a_function_splits_texts_and_words_that_it_changed_have_no_place():
    tokenizer = find_tokenizer(lambda text: re.findall(r"\S+?s?\b", text.replace("films", "film")))
    assert tokenizer.words("Good films here") == ["Good", "film", "here"]
    assert tokenizer.places("Good films here") == [(0, 4), (5, 9), (11, 15)]
    lemmas = find_tokenizer(lambda text: ["be", " ", "good"])
    assert lemmas.words("is good") == ["be", "good"]
    assert lemmas.places("is good") == [(0, 0), (3, 7)]
    assert find_tokenizer("builtins:str.split").words("A b, c") == ["A", "b,", "c"]
    assert find_tokenizer("characters").words("ab 好e\u0301") == ["a", "b", "好", "é"]


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        (3, "tokenizer: expected 'words', 'spaces', 'characters', a function"),
        ("os:path", "tokenizer: expected a function, got module os:path"),
        ("no_such_module:f", "tokenizer: no_such_module:f cannot be imported"),
        (str.lower, "tokenizer: expected a list of words from str.lower, got 'good day' for 'Good day'"),
        (lambda text: [1], r"tokenizer: expected a list of words from .*, got \[1\]"),
        (lambda text: None, "tokenizer: expected a list of words from .*, got None"),
    ],
)
def test_what_is_no_tokenizer_is_named(tokenizer, said):
    with pytest.raises(ProblemError, match=said):
        find_tokenizer(tokenizer).words("Good day")


def pairs(path, words, filler, between=" "):
    """240 texts of eight words; one of two more words decides the label."""
    generator = np.random.default_rng(0)
    rows = ["text,label"]
    for label in np.arange(240) % 2:
        text = generator.choice(filler.split(), 8).tolist()
        text.insert(generator.integers(8), words[label])
        rows.append(f"{between.join(text)},{label}")
    path.write_text("\n".join(rows), encoding="utf-8")
    return read_texts(path)


@pytest.mark.parametrize(
    ("words", "filler", "between", "unspaced"),
    [
        # they differ in the sign of a vowel
        (("दान", "दिन"), "मानक आधुनिक हिन्दी पुस्तक नगर मित्र कथा समय विचार भाषा", " ", False),
        (("难看", "好看"), "电影 剧情 演员 音乐 导演 故事 画面 结局 今天 我们", "", True),
        (("👎", "👍"), "film plot actor music director story picture end today we", " ", False),
    ],
)
def test_attention_and_its_baseline_tell_texts_apart_by_one_word(words, filler, between, unspaced, recwarn, tmp_path):
    done = fit_text(pairs(tmp_path / "texts.csv", words, filler, between), parts="both", max_steps=200)
    for part in (done.test.report.combined, done.test.report.attention, done.test.report.ngrams):
        assert part.accuracy >= 0.95
    said = [str(one.message) for one in recwarn if "scripts without spaces" in str(one.message)]
    assert [text.split(" are ")[0] for text in said] == ["180 of 180 texts"] * unspaced


def test_texts_of_one_word_are_told_of_the_tokenizer_of_characters():
    with pytest.raises(ProblemError, match="use the tokenizer 'characters', because most texts are one word"):
        learn_word_vectors(split_words(["ACGT", "GGCA", "ACCA"]), min_documents=2)
    letters = split_words(["ACGT", "GGCA", "ACCA"], find_tokenizer("characters"))
    assert learn_word_vectors(letters, min_documents=2, dim=2).vocabulary == ("a", "c", "g")


def test_letters_without_glyphs_are_one_warning(recwarn):
    style._warn_of_boxes.cache_clear()
    figure, _ = style.panel("दिन", "好看", 2.0)
    style.to_png(figure)
    style.to_svg(figure, "a")
    assert [str(one.message) for one in recwarn] == ["letters that the fonts of Matplotlib lack are boxes in PNG files"]
