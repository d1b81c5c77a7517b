import time

import pytest

from infocse_ray.corpus.sentences import split_sentences


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\n\n \r\n "])
def test_nothing_to_split(text):
    assert split_sentences(text) == []


def test_white_space_inside_a_sentence_is_collapsed():
    assert split_sentences("One\n  line\tbroken. \n Two  here.") == ["One line broken.", "Two here."]


def test_blank_line_ends_a_sentence_and_a_line_break_does_not():
    assert split_sentences("A title\n\n\n\nThe text\ngoes on") == ["A title", "The text goes on"]


def test_abbreviations_decimals_urls_and_quotations_do_not_end_a_sentence():
    text = (
        'Dr. Smith paid 3.50 dollars, e.g. in coins. See https://a.example/b?c=1.5 for it. "It works. Truly." she said.'
    )
    assert split_sentences(text) == [
        "Dr. Smith paid 3.50 dollars, e.g. in coins.",
        "See https://a.example/b?c=1.5 for it.",
        '"It works. Truly." she said.',
    ]


def test_emoji_and_other_marks():
    assert split_sentences("Well done 🎉! Is it? Yes 😀.") == ["Well done 🎉!", "Is it?", "Yes 😀."]


def test_other_languages_and_unknown_codes():
    assert split_sentences("これはペンです。あれは本です。", "ja") == ["これはペンです。", "あれは本です。"]
    assert split_sentences("Er kam z. B. gestern an. Dann ging er.", "de") == [
        "Er kam z. B. gestern an.",
        "Dann ging er.",
    ]
    assert split_sentences("One here. Two here.", "no-such-language") == ["One here.", "Two here."]


def test_no_text_is_lost_or_invented():
    text = 'A b (c. d) "e. f. G h.\n\nI j... K l?! m.n.O p; q: r'
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("unit", ["x", "word ", "\n", ".", " ", "(a. ", '"a. ', "Dr. ", "!?", "😀", "A b.\n\n"])
def test_a_million_characters_take_no_more_than_linear_time(unit):
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    sentences = split_sentences(text)
    # It takes some tenths of a second; quadratic time would be hours, so the wide margin loses nothing.
    assert time.perf_counter() - started < 10
    assert all(sentences)
