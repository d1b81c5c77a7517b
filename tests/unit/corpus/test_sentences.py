import time

import pytest

from infocse_ray.corpus.sentences import as_text, split_sentences


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


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        (["One thing.", "Another."], "One thing. Another."),
        (["视足饭了吗？", "足量花了。", "iPhone很好！"], "视足饭了吗？足量花了。iPhone很好！"),
        (["今日は良い天気です。", "「雨」ですか？"], "今日は良い天気です。「雨」ですか？"),
        (["날씨가 좋다.", "내일은 비가 온다."], "날씨가 좋다. 내일은 비가 온다."),
        (["标题", "正文", "Title", "标题", "제목", "제목"], "标题正文 Title 标题 제목 제목"),
        (["One"], "One"),
        ([], ""),
    ],
)
def test_sentences_are_a_text_with_spaces_where_their_writing_has_them(sentences: list[str], text: str):
    assert as_text(sentences) == text
