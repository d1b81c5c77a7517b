"""Turn one docstring into prose: a summary line and the paragraphs of its body.

The three common styles (NumPy, Google, reStructuredText fields) and the Markdown of some packages are read
line by line, by indentation, because real docstrings seldom pass a strict reStructuredText parser.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

MAX_SENTENCE_CHARACTERS = 1000
MIN_SENTENCE_WORDS = 3
# A shorter sentence that ends in a colon only announced the code or formula that was dropped after it.
MIN_LEAD_IN_WORDS = 6
MIN_LETTER_SHARE = 0.6
MAX_TYPE_WORDS = 4


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(","))


# Sections whose body is a list of items, each opening with a name and a type.
_ITEM_SECTIONS = _names(
    """
    args, arguments, parameters, params, kwargs, keyword args, keyword arguments, other parameters,
    optional args, optional arguments, optional parameters, additional parameters, required args, returns,
    return, yields, yield, receives, raises, raise, exceptions, warns, attributes, attribute,
    class attributes, fields, members, methods, inputs, input, outputs, output
    """
)
_PROSE_SECTIONS = _names(
    """
    note, notes, warning, warnings, tip, important, caution, attention, hint, todo, description, details,
    remarks, explanation, discussion, shape
    """
)
_DROPPED_SECTIONS = _names(
    """
    example, examples, usage, usage example, usage examples, example usage, sample usage, basic usage,
    examples of usage, code example, output example, see also, reference, references, bibliography, citation,
    index, source, sources, links
    """
)
_PROSE_DIRECTIVES = _names("note, warning, tip, important, hint, caution, attention")

_BLANK_OR_RULE = re.compile(r"^\s*([=\-~^\"*+#_.`'])\1{2,}\s*$")
_TABLE_BORDER = re.compile(r"^\s*(?:[=\-]{2,}(?:\s+[=\-]{2,})+|\+[=\-+]{3,}|\|?[:\-]+\|[:\-| ]+)\s*$")
_DIRECTIVE = re.compile(r"^\.\. *([\w:.-]+?) ?::(?:\s+(.*))?$")
_SECTION = re.compile(r"^(?:#+ |\*\*)?([A-Za-z][A-Za-z ]{1,30}?)(?:\*\*)? ?::?(?:\*\*)?$")
_FIELD = re.compile(r"^[:@](\w+)(?:\s+[^:`]*)?:(?:\s+(.*))?$")
_PROSE_FIELDS = _names("param, parameter, arg, argument, key, keyword, kwarg, return, returns, raise, raises")
_BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\)|#\.)\s+")
_ITEM_NAME = re.compile(
    r"^(?:[-*]\s+)?\[?[`*]*[A-Za-z_][\w.*\\\[\]'\"-]*[`*]*\]?(?:(?:\s*[,/|]\s*|\s+or\s+)[`*]*[\w.\\\[\]]+[`*]*)*"
)
# The colon of a URL, of a literal block and of a role does not end the name of an item.
_NOT_ITEM_END = re.compile(r":(?://|:|[\w+-]+:`)")
_NUMPY_ITEM = re.compile(r"^[\w*.\\`'\"()\[\], /{}-]+?\s+:(?:\s|$)")
_BARE_NAMES = re.compile(r"^[`*]*[\w.]+[`*]*(?: ?\([^()]*\))?$")
_CODE_LINE = re.compile(
    r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|@[\w.]+(?:\(.*)?$|return \S+\(|\$ |% "
    r"|pip install |python3? \S|for .+ in .+:$|while .+:$|if .+:$|with .+ as .+:$|else:$|try:$|assert "
    r"|print\(|In \[\d+\]:|#!|[\w.\[\]]+(?:, *[\w.\[\]]+)* [-+*/]?= ?[^=\s]|[\w.]+\(.*\)$|[{}\[\]()\"'],?$)"
)
_SIGNATURE = re.compile(r"^(?:class |def )?[A-Za-z_][\w.]*\(")
# Documentation completed by a decorator may open with the items themselves, without a header.
_OPENING_ITEM = re.compile(r"^[A-Za-z_]\w* \(.*\)\s*:(?:\s|$)")
_LITERAL_END = re.compile(r"\s*::$")

_ROLE_WITH_TARGET = re.compile(r":[\w:+-]+:`~?!?([^`<]+?)\s*<[^`>]*>`")
_ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`([~!]?)([^`]*)`")
_RST_LINK = re.compile(r"`([^`<>]+?)\s*<[^`>]+>`_{0,2}")
_MARKDOWN_LINK = re.compile(r"!?\[([^\]\[]+)\]\((?:[^()\s]|\([^()\s]*\))*\)")
_MARKDOWN_REFERENCE = re.compile(r"\[(`+[^`\]]+`+)\]")
_CITATION = re.compile(r"\s*\[(?:#?\w+|#)\]_")
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
_ESCAPED = re.compile(r"\\([*_`|<>\\ ]|s\b)")
_BACKTICKS = re.compile(r"(`{1,2})(?=\S)(.+?)(?<=\S)\1_{0,2}")
_BOLD = re.compile(r"(?<![\w*])\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?![\w*])")
_ITALIC = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?![\w*])")
# LaTeX, placeholders of string formatting, prompts and arrows: the marks of what is not prose.
_NOT_PROSE = re.compile(
    r"\\[a-zA-Z]{2,}|[_^]\{|\$\S+\$|\{\w*\}|\{\{|\{ ?[\"']|[=:] ?\{|%\(|>>>|->|=>|`{2,}|::|</\w"
    r"|(?:^|\s)@\w+\(|\w\($|^\W*$|(?:\w\s?==?\s?\w.*){3}"
)
_WORD = re.compile(r"[^\W\d_]{2,}|\b[aAI]\b")


class Prose(NamedTuple):
    """What a docstring says in prose: its summary line ("" where it has none) and its other paragraphs."""

    summary: str
    paragraphs: list[str]


def is_prose(sentence: str) -> bool:
    """Tell whether `sentence` reads as prose: three words or more, mostly letters, not overlong, no code."""
    if not sentence or len(sentence) > MAX_SENTENCE_CHARACTERS:
        return False
    tokens = sentence.split()
    if sentence.endswith(":") and len(tokens) < MIN_LEAD_IN_WORDS:
        return False
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
    return (
        letters >= MIN_LETTER_SHARE * len(sentence)
        and sum(1 for token in tokens if _WORD.search(token)) >= MIN_SENTENCE_WORDS
        and _NOT_PROSE.search(sentence) is None
    )


def plain_text(text: str) -> str:
    """Take the inline markup of reStructuredText and Markdown out of `text`, on one line."""
    text = " ".join(text.split())
    if "[" in text:
        text = _MARKDOWN_LINK.sub(r"\1", text)
        text = _CITATION.sub("", text)
    if "`" in text:
        text = _ROLE_WITH_TARGET.sub(r"\1", text)
        text = _ROLE.sub(lambda match: match[2].lstrip("."), text)
        text = _RST_LINK.sub(r"\1", text)
        text = _MARKDOWN_REFERENCE.sub(r"\1", text)
        text = _BACKTICKS.sub(lambda match: match[2].removeprefix("~"), text)
    if "*" in text:
        text = _BOLD.sub(r"\1", text)
        text = _ITALIC.sub(r"\1", text)
    if "<" in text:
        text = _TAG.sub("", text)
    if "\\" in text:
        text = _ESCAPED.sub(lambda match: match[1].strip(), text)
    return " ".join(text.split())


def docstring_prose(docstring: str) -> Prose:
    """Split a docstring into its summary line and the prose paragraphs that follow it.

    Args:
        docstring: the docstring as written in the source, indentation included.

    Returns:
        The first paragraph joined to one line (empty where the docstring opens with a section, a directive,
        code or nothing at all), and the other paragraphs without code, tables, headers, references and
        examples.
    """
    paragraphs = _Reader(inspect.cleandoc(docstring).splitlines()).read()
    if not paragraphs or not paragraphs[0][0]:
        return Prose("", [text for _, text in paragraphs])
    return Prose(paragraphs[0][1], [text for _, text in paragraphs[1:]])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _item_description(text: str) -> str | None:
    """Return the description of `name (type): description`, or None where `text` is not such an item."""
    name = _ITEM_NAME.match(text)
    if name is None:
        return None
    rest = text[name.end() :].lstrip()
    if rest.startswith(("(", "[")):
        depth = 0
        for position, character in enumerate(rest):
            depth += (character in "([") - (character in ")]")
            if depth == 0:
                rest = rest[position + 1 :].lstrip("`* ")
                break
        else:
            return None
    elif len(name[0].split()) > 3:
        return None
    if rest.startswith((":", "–", "--", "- ")) and not _NOT_ITEM_END.match(rest):
        return rest.lstrip(":–- ").strip()
    return None


class _Reader:
    """One pass over the lines of a docstring, collecting (opens the docstring?, paragraph)."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = [line.expandtabs().rstrip() for line in lines]
        self.paragraphs: list[tuple[bool, str]] = []
        self.current: list[str] = []
        self.opening = True
        self.item_indent: int | None = None
        self.numpy_items = False

    def read(self) -> list[tuple[bool, str]]:
        at = self._skip_signature()
        while at < len(self.lines):
            at = self._step(at)
        self._flush()
        return self.paragraphs

    def _flush(self) -> None:
        text = plain_text(" ".join(self.current))
        self.current = []
        if text:
            self.paragraphs.append((self.opening, text))
            self.opening = False

    def _next_text(self, at: int) -> int:
        while at < len(self.lines) and not self.lines[at]:
            at += 1
        return at

    def _skip_block(self, at: int, indent: int) -> int:
        """Return the first line from `at` on that is neither blank nor indented more than `indent`."""
        while at < len(self.lines) and (not self.lines[at] or _indent(self.lines[at]) > indent):
            at += 1
        return at

    def _skip_to_blank(self, at: int) -> int:
        while at < len(self.lines) and self.lines[at]:
            at += 1
        return at

    def _skip_signature(self) -> int:
        """Pass the signatures that docstrings of compiled functions open with, and their `--` mark."""
        at = self._next_text(0)
        while at < len(self.lines) and _SIGNATURE.match(self.lines[at]):
            end, depth = at, 0
            while end < len(self.lines):
                depth += self.lines[end].count("(") - self.lines[end].count(")")
                end += 1
                if depth <= 0:
                    break
            last = self.lines[end - 1].split("#")[0].rstrip()
            if depth > 0 or not re.search(r"\)(?:\s*->.*|:)?$", last):
                break
            at = self._next_text(end)
            if at < len(self.lines) and self.lines[at].strip() == "--":
                at = self._next_text(at + 1)
        return at

    def _deeper_below(self, at: int, indent: int) -> bool:
        below = self.lines[at + 1] if at + 1 < len(self.lines) else ""
        return bool(below) and _indent(below) > indent

    def _is_underline(self, at: int) -> bool:
        return at < len(self.lines) and _BLANK_OR_RULE.match(self.lines[at]) is not None

    def _step(self, at: int) -> int:
        line = self.lines[at]
        text, indent = line.strip(), _indent(line)
        if text.startswith("> "):
            text = text[2:].lstrip()
        if not text:
            self._flush()
            return at + 1
        skipped = self._not_prose(at, text, indent)
        if skipped is not None:
            return skipped
        if not self.current and self._is_underline(at + 1) and _indent(self.lines[at + 1]) <= indent + 1:
            return self._underlined(at, text)
        section = _SECTION.match(text)
        name = section[1].lower() if section else ""
        if name in _DROPPED_SECTIONS:
            self._flush()
            self._leave_items()
            return self._skip_block(at + 1, indent)
        if name in _ITEM_SECTIONS or name in _PROSE_SECTIONS:
            self._enter(name, at + 1, numpy=False)
            return at + 1
        return self._prose(at, text, indent)

    def _not_prose(self, at: int, text: str, indent: int) -> int | None:
        """Return the line after the code, table, directive or markup that starts at `at`; None for prose."""
        if text.startswith(("```", "~~~")):
            end = at + 1
            while end < len(self.lines) and not self.lines[end].strip().startswith(text[:3]):
                end += 1
            return self._drop(end + 1)
        if text.startswith((">>>", "$ ")) or (_CODE_LINE.match(text) and not self.current):
            return self._drop(self._skip_to_blank(at))
        if _TABLE_BORDER.match(text):
            return self._drop(self._table_end(at))
        if text.startswith("|"):
            return self._drop(at + 1)
        if text.startswith(".. ") or text == "..":
            directive = _DIRECTIVE.match(text)
            self._flush()
            self.opening = False
            if directive is None or directive[1] not in _PROSE_DIRECTIVES:
                return self._skip_block(at + 1, indent)
            if directive[2]:
                self.current.append(directive[2])
            return at + 1
        if _BLANK_OR_RULE.match(text) or (text.startswith("#") and re.match(r"#+ ", text)):
            return self._drop(at + 1)
        if not _TAG.sub("", text).strip() or text.startswith(("[!", "> [!")):
            return self._drop(at + 1)
        return None

    def _drop(self, following: int) -> int:
        self._flush()
        return following

    def _table_end(self, at: int) -> int:
        """Return the line after the last border of the table opened at `at` (or after its last row)."""
        end = at + 1
        while end < len(self.lines):
            blank_follows = end + 1 >= len(self.lines) or not self.lines[end + 1]
            if _TABLE_BORDER.match(self.lines[end]) and blank_follows:
                return end + 1
            if not self.lines[end] and not self.lines[end - 1]:
                break
            end += 1
        return self._skip_to_blank(at)

    def _underlined(self, at: int, text: str) -> int:
        name = text.rstrip(":").lower()
        if name in _DROPPED_SECTIONS:
            self._leave_items()
            end = at + 2
            while end < len(self.lines):
                if self.lines[end] and self._is_underline(end + 1) and not self._is_underline(end):
                    break
                end += 1
            return end
        if name in _ITEM_SECTIONS or name in _PROSE_SECTIONS or not self.opening:
            self._enter(name, at + 2, numpy=True)
        else:
            # The title of a module's docstring stands where a function's has its summary line.
            self.current.append(text)
            self._flush()
        return at + 2

    def _leave_items(self) -> None:
        self.opening = False
        self.item_indent = None

    def _enter(self, name: str, body: int, *, numpy: bool) -> None:
        self._flush()
        self._leave_items()
        following = self._next_text(body)
        if name in _ITEM_SECTIONS and following < len(self.lines):
            self.item_indent, self.numpy_items = _indent(self.lines[following]), numpy

    def _prose(self, at: int, text: str, indent: int) -> int:
        previous = _indent(self.lines[at - 1]) if at else indent
        if self.current and indent < previous:
            self._flush()
        if self.opening and not self.current and _OPENING_ITEM.match(text):
            self._leave_items()
            self.item_indent, self.numpy_items = indent, False
        field = _FIELD.match(text)
        if field:
            self._flush()
            self.opening = False
            text = (field[2] or "") if field[1] in _PROSE_FIELDS else ""
        elif self.item_indent is not None:
            if indent < self.item_indent and not self.numpy_items:
                self._flush()
                self.item_indent = None
            elif indent == self.item_indent:
                text = self._item(at, text, indent)
            elif _NUMPY_ITEM.match(text) and self._deeper_below(at, indent):
                self._flush()
                text = ""
        while bullet := _BULLET.match(text):
            self._flush()
            text = text[bullet.end() :]
            text = _item_description(text) or text
        following = self._next_text(at + 1)
        deeper = following < len(self.lines) and _indent(self.lines[following]) > indent
        if text.endswith("::") and (deeper or not text[:-2].strip()):
            self.current.append(_LITERAL_END.sub(":", text).removesuffix(" :"))
            self._flush()
            return self._skip_block(at + 1, indent)
        self.current.append(text)
        return at + 1

    def _item(self, at: int, text: str, indent: int) -> str:
        """Take the `name : type` or `name (type):` that opens an item off its line."""
        described_below = self._deeper_below(at, indent)
        if _NUMPY_ITEM.match(text) and (self.numpy_items or described_below):
            self._flush()
            return ""
        if _BARE_NAMES.match(text) and not self.current:
            return ""
        description = _item_description(text)
        if self.numpy_items and described_below and not text.endswith("."):
            # `name: type` and a bare type are told from `name: description` by their length.
            if description is None or len(description.split()) <= MAX_TYPE_WORDS:
                description = ""
        elif description is None:
            return text
        self._flush()
        return description
