import itertools
import json
import sys

import pytest

from infocse_ray.demo.docstrings import docstring_documents, write_docstrings
from infocse_ray.demo.prose import docstring_prose, is_prose, plain_text

NUMPY_STYLE = '''
def solve(a, b):
    """
    Solve the linear system given by two arrays.

    The system must be square and of full rank. It is solved by a factorisation
    with partial pivoting, see :func:`~linear.factor` and ``pivot`` [1]_.

    .. versionadded:: 1.2
       This text about versions is dropped.

    .. note::
        The note on overwriting is kept.

    Parameters
    ----------
    a, b : array_like, shape (n, n)
        The matrix of the coefficients.
    overwrite : {True, False}, optional
        Whether the matrix may be overwritten.

    Returns
    -------
    out : ndarray
        The solution of the whole system.

    See Also
    --------
    other_function : This other function is dropped.

    Notes
    -----
    The cost grows with the cube of the size.

    .. math:: x = \\\\sum_i y_i

    ======  ==========================
    Method  What the method does here
    ======  ==========================
    lu      factorises without any symmetry
    ======  ==========================

    +------+---------------------------+
    | cell | another cell of the table |
    +------+---------------------------+

    A call looks like this::

        result = solve(the matrix, the side)
        print the dropped literal block

    References
    ----------
    .. [1] An author, The dropped title of the book.

    Examples
    --------
    The words of the examples are dropped.

    >>> solve(1, 2)
    some output of the doctest here
    """
'''

GOOGLE_STYLE = '''
class Reader:
    """Reads the rows of one table.

    The table is opened lazily and closed at the end. See `the guide <https://a.example/guide>`_ for more.

    Args:
        path (str, *optional*, defaults to `None`): Where the table lies on the disk,
            which may be remote.
        mode: How the file is opened for reading.
        size (`int`):
            The number of rows in a batch.

    Returns:
        dict[str, int]: The counts by name of column.

    Raises:
        ValueError: If the mode is not known at all.

    Example:
        The example section is dropped entirely.

    ```python
    reader = Reader("this code is dropped too")
    ```

    >>> Reader("x")
    output words of doctest

    The closing paragraph is kept again.
    """
'''

RST_STYLE = '''
async def fetch(url, retries):
    """Fetch the document behind an address.

    The connection is kept open afterwards.

    .. code-block:: python

        every word of this code is dropped

    .. warning:: Redirects are followed without asking.

    :param url: The address of the wanted document.
    :type url: the type is dropped here
    :param int retries: How often a failure is retried.
    :raises OSError: When the network cannot be reached.
    :rtype: another type is dropped
    :return: The bytes of the document.
    """
'''

ATTACHED = '''
import nothing_such
fft = _add_docstr(_c.fft, r"""
fft(input, n=None) -> Tensor

Computes the transform of a signal.

One sentence is here. Two sentences are here. Three sentences are here. Four sentences are here.
Five sentences are here.
""" + tail.format(**arguments))
add_docstr(attached.compiled, r"""
Compiled things have documentation too.

One more is here. Two more are here. Three more are here. Four more are here. The {name} is a placeholder.
Five more are here.
""".format(name=1))
add_newdoc("attached.core", "array", """
    array(a,
          b)

    Makes an array of numbers.

    The first of five. The second of five. The third of five. The fourth of five. The fifth of five.
    """)
add_newdoc("attached.core", "array", ("shape", """
    The shape of the array.

    A first of five. A second of five. A third of five. A fourth of five. A fifth of five.
    """))
add_newdoc("special", """
    The special function of numbers.

    Any first of five. Any second of five. Any third of five. Any fourth of five. Any fifth of five.
    """)
add_newdoc(computed, "name", """Not with a computed name.""")
compiled.__doc__ = """Assigned afterwards to the object.

    Some first of five. Some second of five. Some third of five. Some fourth of five. Some fifth of five.
"""
'''


def body(word, count=5):
    return " ".join(f"The {word} sentence {'x' * n} stands here." for n in range(1, count + 1))


def function(name, summary, text):
    return f'def {name}():\n    """{summary}\n\n    {text}\n    """\n\n'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes an importable package from {file: source}, under a name used once."""
    numbers = itertools.count()
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))

    def write(files, name=None):
        name = name or f"handmade_{next(numbers)}"
        for file, source in {"__init__.py": "", **files}.items():
            path = root / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        return name

    return write


def read(*names, **options):
    return list(docstring_documents(names, **options))


def test_numpy_style(package):
    name = package({"linear.py": NUMPY_STYLE})
    assert read(name) == [
        {
            "id": f"{name}.linear.solve",
            "package": name,
            "counterpart": "Solve the linear system given by two arrays.",
            "sentences": [
                "The system must be square and of full rank.",
                "It is solved by a factorisation with partial pivoting, see linear.factor and pivot.",
                "The note on overwriting is kept.",
                "The matrix of the coefficients.",
                "Whether the matrix may be overwritten.",
                "The solution of the whole system.",
                "The cost grows with the cube of the size.",
            ],
        }
    ]


def test_google_style(package):
    (document,) = read(package({"a.py": GOOGLE_STYLE}))
    assert document["counterpart"] == "Reads the rows of one table."
    assert document["sentences"] == [
        "The table is opened lazily and closed at the end.",
        "See the guide for more.",
        "Where the table lies on the disk, which may be remote.",
        "How the file is opened for reading.",
        "The number of rows in a batch.",
        "The counts by name of column.",
        "If the mode is not known at all.",
        "The closing paragraph is kept again.",
    ]


def test_rst_style_and_async_function(package):
    (document,) = read(package({"a.py": RST_STYLE}))
    assert document["sentences"] == [
        "The connection is kept open afterwards.",
        "Redirects are followed without asking.",
        "The address of the wanted document.",
        "How often a failure is retried.",
        "When the network cannot be reached.",
        "The bytes of the document.",
    ]


def test_attached_docstrings(package):
    package({"_docs.py": ATTACHED}, "attached")
    found = {document["id"]: document for document in read("attached")}
    assert set(found) == {
        "attached._docs.fft",
        "attached.compiled",
        "attached.core.array",
        "attached.core.array.shape",
        "attached.special",
        "attached._docs.compiled",
    }
    assert found["attached._docs.fft"]["counterpart"] == "Computes the transform of a signal."
    assert found["attached.core.array"]["counterpart"] == "Makes an array of numbers."
    assert len(found["attached.compiled"]["sentences"]) == 5


def test_modules_methods_and_conditional_definitions(package):
    source = (
        f'"""The module of many things.\n\n{body("module")}\n"""\n'
        f'class Outer:\n    class Inner:\n        def method(self):\n            """Does the inner thing.\n\n'
        f'            {body("method")}\n            """\n'
        "try:\n    import nothing_such\nexcept ImportError:\n    "
        + function("fallback", "Stands in for it.", body("fallback")).replace("\n", "\n    ")
    )
    name = package({"sub/__init__.py": source})
    assert [document["id"] for document in read(name)] == [
        f"{name}.sub",
        f"{name}.sub.Outer.Inner.method",
        f"{name}.sub.fallback",
    ]


def test_summary_and_repeated_sentences_are_not_in_the_body(package):
    text = f"count the rows of it. {body('kept')} The kept sentence x stands here. COUNT the rows of it"
    (document,) = read(package({"a.py": function("count", "Count the rows of it.", text)}))
    lowered = [sentence.lower().rstrip(".") for sentence in document["sentences"]]
    assert "count the rows of it" not in lowered
    assert len(lowered) == len(set(lowered)) == 5


def test_min_sentences(package):
    source = function("four", "Has four of them.", body("four", 4))
    source += function("six", "Has six of them.", body("six", 6))
    name = package({"a.py": source})
    assert [len(document["sentences"]) for document in read(name)] == [6]
    assert [len(document["sentences"]) for document in read(name, min_sentences=4)] == [4, 6]
    assert read(name, min_sentences=7) == []
    with pytest.raises(ValueError, match="min_sentences"):
        read(name, min_sentences=0)


@pytest.mark.parametrize("summary", ["Short.", "x = f(1, 2, 3) + g(4)", "Parameters\n    ----------", ">>> f()"])
def test_no_summary_no_document(package, summary):
    assert read(package({"a.py": function("f", summary, body("any"))})) == []


def test_repeated_bodies_and_summaries_are_kept_once_by_sorted_id(package):
    source = function("b", "The second of the names.", body("same"))
    source += function("a", "The first of the names.", body("same"))
    source += function("d", "The shared summary line.", body("one"))
    source += function("c", "the shared  summary line", body("two"))
    name = package({"z.py": source})
    assert [document["id"] for document in read(name)] == [f"{name}.z.a", f"{name}.z.c"]


def test_tests_vendored_and_broken_files_are_skipped(package):
    kept = function("kept", "The one that is kept.", body("kept"))
    skipped = [
        "tests/a.py", "testing/a.py", "_vendor/a.py", "thirdparty_files/a.py", "_vendored/b/a.py",
        "test_a.py", "a_test.py", "conftest.py", "data.txt",
    ]  # fmt: skip
    files = {path: function(f"f{n}", f"Summary of number {n}.", body(f"n{n}")) for n, path in enumerate(skipped)}
    name = package({"kept.py": kept, **files, "broken.py": kept + "def (:\n", "nul.py": kept + "\0"})
    assert [document["id"] for document in read(name)] == [f"{name}.kept.kept"]


def test_nothing_is_imported(package):
    error = "raise RuntimeError('imported')\n"
    name = package({"__init__.py": error, "a.py": error + function("f", "Was read, not run.", body("any"))})
    assert len(read(name)) == 1
    assert name not in sys.modules


def test_absent_and_dotted_packages():
    assert read("no_such_package_at_all") == []
    with pytest.raises(ValueError, match="top-level"):
        read("json.decoder")


def test_write_is_stable_sorted_and_a_subset(package, tmp_path):
    source = "".join(function(f"f{n}", f"Summary of number {n}.", body(f"n{n}")) for n in range(40))
    name = package({"a.py": source})
    every, some, again, fewer = (tmp_path / file for file in ("all", "some", "again", "fewer"))
    assert write_docstrings(every, packages=[name]) == 40
    assert write_docstrings(some, 15, [name]) == write_docstrings(str(again), 15, [name]) == 15
    assert write_docstrings(fewer, 6, [name]) == 6
    assert some.read_bytes() == again.read_bytes()
    rows = {path: path.read_text(encoding="utf-8").splitlines() for path in (every, some, fewer)}
    assert set(rows[fewer]) < set(rows[some]) < set(rows[every])
    ids = [json.loads(line)["id"] for line in rows[some]]
    assert ids == sorted(ids)
    assert ids != [json.loads(line)["id"] for line in rows[every]][:15]
    assert [json.loads(line) for line in rows[every]] == read(name)
    assert write_docstrings(fewer, 100, [name]) == 40
    assert write_docstrings(fewer, 0, [name]) == 0
    with pytest.raises(ValueError, match="max_documents"):
        write_docstrings(fewer, -1, [name])


def test_a_failed_write_leaves_the_old_file_alone(package, tmp_path, monkeypatch):
    name = package({"a.py": function("f", "Summary of the function.", body("any"))})
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "rows").write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("infocse_ray.demo.docstrings.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_docstrings(folder / "rows", packages=[name])
    assert [path.name for path in folder.iterdir()] == ["rows"]
    assert (folder / "rows").read_text() == "old"


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("see :func:`~torch.abs` and :class:`the class <a.B>`", "see torch.abs and the class"),
        ("``x`` is **bold**, *italic* and `y`", "x is bold, italic and y"),
        ("[`Trainer`] and [a guide](https://a.example/b_(c)) [2]_", "Trainer and a guide"),
        ("passes *args and **kwargs on", "passes *args and **kwargs on"),
        ("two `links <https://a.example>`__ <br/> here", "two links here"),
    ],
)
def test_plain_text(marked, plain):
    assert plain_text(marked) == plain


def test_is_prose():
    assert is_prose("Returns the mean of x.")
    assert not is_prose("two words")
    assert not is_prose("scipy.optimize.minimize")
    assert not is_prose("[1, 2, 3] + [4, 5, 6] is it so")
    assert not is_prose("where \\alpha is the rate of decay")
    assert not is_prose("The value of {name} is given here")
    assert not is_prose("as follows here:")
    assert not is_prose("word " * 300)


@pytest.mark.parametrize("docstring", ["", "\n", "::", "```", "..", "Args:", "====", "a::\n\n    b", "f(", "- - -"])
def test_degenerate_docstrings(docstring):
    prose = docstring_prose(docstring)
    assert isinstance(prose.summary, str)
    assert isinstance(prose.paragraphs, list)


def test_items_without_a_header_give_no_summary():
    prose = docstring_prose("rows (`int`, *optional*):\n    The number of rows.\nname (`str`): The name of it.")
    assert prose.summary == ""
    assert prose.paragraphs == ["The number of rows.", "The name of it."]


def test_numpy_has_its_own():
    documents = read("numpy")
    assert len(documents) >= 100
    for document in documents:
        sentences = document["sentences"]
        assert len(sentences) >= 5
        assert document["counterpart"] not in sentences
        assert all(is_prose(sentence) for sentence in sentences)
