import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from infocse_ray.corpus import prepare as prepare_module
from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.lengths import length_histogram
from infocse_ray.corpus.prepare import ShardWriter, prepare, rejected_rows, show_rejected
from infocse_ray.corpus.schema import SPLITS, stable_hash, store_schema
from infocse_ray.corpus.source import changed_since, find_source
from infocse_ray.corpus.store import TokenStore, counterparts_of, documents_of, row_groups, shard_name
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.embedding.texts import write_texts
from infocse_ray.errors import SourceChanged, UnreadableFile
from infocse_ray.settings import Corpus
from infocse_ray.settings.embed import EveryDocument
from infocse_ray.stages import shared
from infocse_ray.stages.stage import Stage, read_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster")

GOOD = 700
BAD = [
    (b'{"id": "bad-null", "sentences": null}', "bad-null", "null"),
    (b'{"id": "bad-empty", "sentences": ["", " "]}', "bad-empty", "empty"),
    (b'{"id": "bad-one", "sentences": ["One."]}', "bad-one", "fewer than 2 sentences"),
    (b'{"id": "bad-split", "sentences": ["a", "b"], "split": "?"}', "bad-split", "split is none of train, valid, test"),
    (b'{"id": "bad-bytes", "sentences": ["\xff", "b"]}', None, "not UTF-8"),
    (b'{"id": "bad-escape", "sentences": ["\\ud800", "b"]}', "bad-escape", "not UTF-8"),
    (b'{"sentences": ["a", "b"]}', None, "no id"),
    (b"{not JSON", None, "not JSON"),
    (b"[1, 2]", None, "not a JSON object"),
]


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder: Path) -> str:
    return (tiny_encoder / "tokenizer.json").read_text()


@pytest.fixture(scope="module")
def documents() -> list[dict]:
    first, *others = make_documents(GOOD)
    return [{**first, "sentences": [*first["sentences"], "\u4e00 is unknown."]}, *others]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[dict]) -> Corpus:
    """Good rows in two files, bad rows among them, and two documents that come back with other sentences."""
    folder = tmp_path_factory.mktemp("corpus")
    again = [{**documents[i], "sentences": ["Late one.", "Late two."]} for i in (3, 4)]
    good = write_jsonl(folder / "a.jsonl", documents[: GOOD // 2] + again[:1])
    # The columns are settled by the first rows of the first file.
    good.write_bytes(b"".join(line + b"\n" for line, _, _ in BAD) + good.read_bytes())
    write_jsonl(folder / "b.jsonl", again[1:] + documents[GOOD // 2 :])
    return Corpus(source=str(folder), lanes=4)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return Storage.open(str(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def store(root: Storage, corpus: Corpus, tokenizer: str, ray_cluster: None) -> TokenStore:
    return prepare(root, corpus, find_source(corpus), CorpusTokenizer(tokenizer))


def contents(store: TokenStore) -> dict[str, bytes]:
    return {name: (store.folder / name).read_bytes() for name in store.folder.files() if name.endswith(".parquet")}


def test_every_good_row_is_there_once(store, documents, tokenizer):
    ready = Tokenizer.from_str(tokenizer)

    def ids(text: str) -> list[int]:
        return ready.encode(text, add_special_tokens=False).ids

    rows = [row for shard in range(store.shards) for table in store.read(shard, SPLITS) for row in table.to_pylist()]
    assert sorted(row["doc_id"] for row in rows) == [d["id"] for d in documents]
    by_id = {d["id"]: d for d in documents}
    for row in rows:
        document = by_id[row["doc_id"]]
        # Also the two that come back later with other sentences: the first by file and row is kept.
        assert row["sentences"] == [ids(sentence) for sentence in document["sentences"]]
        assert row["counterparts"] == [ids(document["counterpart"])]
        assert row["counterpart_keys"] == [stable_hash(document["counterpart"])]
        assert row["key"] == stable_hash(document["id"])


def test_lengths_are_counted_over_all_shards(store, documents, tokenizer):
    lengths = store.summary["lengths"]
    assert sum(lengths["sentences_a_document"].values()) == len(documents)
    assert lengths["sentences_a_document"] == length_histogram(np.array([len(d["sentences"]) for d in documents]))
    assert sum(lengths["tokens_a_sentence"].values()) == store.summary["sentences"]
    unknown = Tokenizer.from_str(tokenizer).token_to_id("[UNK]")
    rows = [documents_of(table) for shard in range(store.shards) for table in store.read(shard, SPLITS)]
    assert store.summary["unknown"] == sum(int((one.sentences.values == unknown).sum()) for one in rows) > 0


def test_order_is_that_of_the_hash_inside_a_split(store):
    for split in SPLITS:
        keys = [
            key
            for shard in range(store.shards)
            for table in store.read(shard, [split], ["key"])
            for key in table["key"].to_pylist()
        ]
        assert keys == sorted(keys)
        assert len(keys) == store.summary["documents"][split] > 0


def test_row_groups_are_of_one_split(store):
    assert store.shards == 4
    for shard in range(store.shards):
        with open_parquet(store.shard(shard)) as file:
            assert file.schema_arrow == store_schema(pa.uint8())
            found = [set(file.read_row_group(g)["split"].to_pylist()) for g in range(file.num_row_groups)]
            for split in SPLITS:
                assert [found[group] for group in row_groups(file, [split])] == [{split}] * found.count({split})
            assert sum(found.count({split}) for split in SPLITS) == len(found)


def test_row_groups_are_small(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(prepare_module, "ROW_GROUP_DOCUMENTS", 3)
    rows = pa.table(
        {
            "shard": [0] * 8,
            "order": [0] * 8,
            "file": ["f"] * 8,
            "row": list(range(8)),
            "line": list(range(1, 9)),
            "reason": pa.nulls(8, pa.string()),
            "label": [False] * 8,
            "doc_id": [str(i) for i in range(8)],
            "key": list(range(8)),
            "split": ["train"] * 7 + ["test"],
            "sentences": pa.array([[[1], [2]]] * 8, pa.list_(pa.list_(pa.uint8()))),
            "counterparts": pa.array([[]] * 8, pa.list_(pa.list_(pa.uint8()))),
            "counterpart_keys": pa.array([[]] * 8, pa.list_(pa.int64())),
        }
    )
    folder = Storage.open(str(tmp_path))
    ShardWriter(folder, folder / "lines")(0, rows)
    (file,) = (tmp_path / "documents").iterdir()
    metadata = pq.ParquetFile(file).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3, 3, 1, 1]


def test_rows_set_aside_are_listed_and_counted(store, corpus):
    listed = list(rejected_rows(store))
    wanted = [(doc_id, reason) for _, doc_id, reason in BAD]
    wanted += [("doc-00003", "duplicate id"), ("doc-00004", "duplicate id")]
    assert sorted((str(row["doc_id"]), row["reason"]) for row in listed) == sorted((str(i), r) for i, r in wanted)
    reasons = [reason for _, reason in wanted]
    assert store.summary["rejected"] == {reason: reasons.count(reason) for reason in reasons}
    for row in listed:
        line = Path(row["file"]).read_bytes().split(b"\n")[row["row"] - 1]
        if row["reason"] == "duplicate id":
            assert json.loads(line)["sentences"] == ["Late one.", "Late two."]
        else:
            assert (line, row["doc_id"], row["reason"]) in BAD
    assert show_rejected(store).startswith("11 rows set aside (")
    assert "2 duplicate id" in show_rejected(store)
    assert "most of all" not in show_rejected(store)
    few = store._replace(summary=store.summary | {"documents": dict.fromkeys(SPLITS, 3)})
    assert "; these are most of all: look whether" in show_rejected(few)


def test_counts_are_those_of_the_store(store, documents):
    tables = [table for shard in range(store.shards) for table in store.read(shard, SPLITS)]
    assert store.documents(SPLITS) == sum(store.summary["labelled"].values()) == GOOD
    assert store.summary["sentences"] == sum(len(d["sentences"]) for d in documents)
    assert store.summary["tokens"] == sum(len(documents_of(t).sentences.values) for t in tables)
    assert sum(len(counterparts_of(t).document) for t in tables) == GOOD


def test_second_call_does_nothing(store, root, corpus, tokenizer, monkeypatch):
    def files() -> dict[Path, int]:
        return {f: f.stat().st_mtime_ns for f in Path(root.path).rglob("*")}

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a job was started")

    before = files()
    monkeypatch.setattr(prepare_module, "_prepare", fail)
    again = prepare(root, corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    assert (again.folder.path, again.summary) == (store.folder.path, store.summary)
    assert files() == before
    assert TokenStore.open(store.folder).summary == store.summary
    # What can't change the store does not make another; what can does.
    prepare(root, corpus.model_copy(update={"unlabelled": "train"}), find_source(corpus), CorpusTokenizer(tokenizer))
    for changed in ({"max_sentence_chars": 99}, {"valid_fraction": 0.2}, {"lanes": 2}, {"kind": "browsing"}):
        with pytest.raises(AssertionError, match="a job was started"):
            prepare(root, corpus.model_copy(update=changed), find_source(corpus), CorpusTokenizer(tokenizer))
    with pytest.raises(AssertionError, match="a job was started"):
        prepare(root, corpus, find_source(corpus), CorpusTokenizer(tokenizer.replace('"wave"', '"wive"')))


def test_interruption_and_number_of_pieces_change_no_byte(store, corpus, tokenizer, tmp_path, monkeypatch):
    def crash(stage: Stage, **_: object) -> None:
        (stage.folder / "documents" / shard_name(1)).write_bytes(b"of an interrupted call")
        raise KeyboardInterrupt

    root = Storage.open(str(tmp_path))
    with monkeypatch.context() as crashing:
        crashing.setattr(prepare_module, "_prepare", crash)
        with pytest.raises(KeyboardInterrupt):
            prepare(root, corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 40_000)
    source = find_source(corpus)
    assert len(source.pieces) > 4
    other = prepare(root, corpus, source, CorpusTokenizer(tokenizer))
    assert contents(other) == contents(store)
    seconds = {"seconds": 0}
    assert other.summary | seconds == store.summary | seconds


def test_what_the_store_holds_names_it(store, root, corpus, documents, tokenizer, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus.source, folder)
    copied = corpus.model_copy(update={"source": str(folder)})
    for file in folder.iterdir():
        os.utime(file, ns=(1, 1))
    again = prepare(root, copied, find_source(copied), CorpusTokenizer(tokenizer))
    assert again.folder.path != store.folder.path
    assert again.fingerprint == store.fingerprint
    assert read_stage(again.folder).fingerprint != read_stage(store.folder).fingerprint

    changed = documents[0] | {"counterpart": "something else"}
    write_jsonl(folder / "a.jsonl", [changed, *documents[1 : GOOD // 2]])
    other = prepare(root, copied, find_source(copied), CorpusTokenizer(tokenizer))
    assert other.fingerprint != store.fingerprint
    assert other.summary["questions"] != store.summary["questions"]
    fewer = corpus.model_copy(update={"lanes": 2})
    laned = prepare(root, fewer, find_source(fewer), CorpusTokenizer(tokenizer))
    assert laned.fingerprint != store.fingerprint
    assert laned.summary["questions"] == store.summary["questions"], "what may be asked for is what it was"


def truncated_gzip(file: Path) -> Path:
    lines = b"".join(b'{"text": "%s. Two."}\n' % os.urandom(500).hex().encode() for _ in range(3000))
    file = file.with_suffix(".jsonl.gz")
    file.write_bytes(gzip.compress(lines)[:-1000])
    return file


def corrupt_parquet(file: Path) -> Path:
    file = file.with_suffix(".parquet")
    pq.write_table(pa.table({"text": [f"One {i}. Two." for i in range(1000)]}), file)
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + bytes(100) + whole[104:])
    return file


@pytest.mark.parametrize("broken", [truncated_gzip, corrupt_parquet])
def test_file_that_can_not_be_read_is_named(tmp_path, tokenizer, broken):
    file = broken(tmp_path / "broken")
    corpus = Corpus(source=str(file), lanes=2)
    # The checks before the run look at the beginning only, so that the workers find it.
    source = find_source(corpus)
    with pytest.raises(UnreadableFile) as error:
        prepare(Storage.open(str(tmp_path / "runs")), corpus, source, CorpusTokenizer(tokenizer))
    assert str(error.value).startswith(f"corpus.source: {file}: can't be read: ")
    assert "\n" not in str(error.value)


def test_no_document_left_is_an_error_with_the_reasons(tmp_path, tokenizer):
    pq.write_table(pa.table({"text": ["One.", None]}), tmp_path / "a.parquet")
    pq.ParquetWriter(tmp_path / "b.parquet", pa.schema([("text", pa.string())])).close()
    corpus, runs = Corpus(source=f"{tmp_path}/*.parquet", lanes=2), Storage.open(str(tmp_path / "runs"))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"corpus\.source = .*no document is left.*fewer than 2.*\"null\": 1"):
            prepare(runs, corpus, find_source(corpus), CorpusTokenizer(tokenizer))


@pytest.mark.parametrize(
    ("column", "value", "way"),
    [
        ("text", ["A one.", "A two."], "or one of lists of sentences with corpus.sentences"),
        ("sentences", "A one. A two.", "name a column of texts with corpus.text"),
        ("text", "Only one.", "texts are split by the rules of corpus.language = 'en'"),
    ],
)
def test_no_document_left_says_what_to_do(tmp_path, tokenizer, column: str, value: object, way: str):
    pq.write_table(pa.table({column: [value] * 3}), tmp_path / "a.parquet")
    corpus = Corpus(source=str(tmp_path / "a.parquet"), lanes=2)
    with pytest.raises(ValueError, match=f"no document is left; rows set aside: .*: 3}}; .*{way}$"):
        prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))


def test_no_row_at_all_is_an_error(tmp_path, tokenizer):
    pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("text", pa.string())])).close()
    corpus = Corpus(source=str(tmp_path), lanes=2)
    with pytest.raises(ValueError, match=r"corpus\.source = .*no document is left: there are no rows; give"):
        prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    # Also a shard that no row fell into is there to be read.
    assert sorted(f.name for f in tmp_path.rglob("shard-*")) == [shard_name(0), shard_name(1)]


def test_a_storage_that_each_process_has_for_itself_is_refused(
    tmp_path: Path, tokenizer: str, documents: list[dict], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared, "_PATIENCE_SECONDS", 0.0)
    write_jsonl(tmp_path / "corpus.jsonl", documents[:20])
    corpus = Corpus(source=str(tmp_path / "corpus.jsonl"), lanes=4)
    root = Storage.open("memory://of-one-process")
    for _ in range(2):  # it isn't taken for finished later
        with pytest.raises(
            ValueError, match=r"storage: workers wrote 4 files, such as memory://of-one.*mount one folder"
        ):
            prepare(root, corpus, find_source(corpus), CorpusTokenizer(tokenizer))


def test_a_file_that_changes_while_it_is_read_is_no_corpus(tmp_path: Path, tokenizer: str, monkeypatch):
    file = write_jsonl(tmp_path / "a.jsonl", make_documents(40))
    corpus = Corpus(source=str(tmp_path / "*.jsonl"), id="id", sentences="sentences")
    source = find_source(corpus)
    plain, root = prepare_module.check_shared, Storage.open(str(tmp_path / "runs"))

    def meanwhile(*given: object, **how: object) -> None:
        plain(*given, **how)  # pyright: ignore[reportArgumentType]
        write_jsonl(tmp_path / "new.jsonl", make_documents(3))
        write_jsonl(file, make_documents(41))

    with monkeypatch.context() as patched:
        patched.setattr(prepare_module, "check_shared", meanwhile)
        with pytest.raises(SourceChanged, match=r"corpus.source: .*a.jsonl changed while the corpus was read; run "):
            prepare(root, corpus, source, CorpusTokenizer(tokenizer))
    assert not list((tmp_path / "runs").glob("corpora/*/stage.json"))
    file.unlink()
    assert changed_since(corpus, source) == [str(file)], "and what is gone"
    source = find_source(corpus)
    write_jsonl(tmp_path / "newer.jsonl", make_documents(5))
    assert prepare(root, corpus, source, CorpusTokenizer(tokenizer)).documents(SPLITS) == 3, (
        "what came since is no matter"
    )


def test_nothing_is_kept_of_another_version_of_a_file(tmp_path: Path, tokenizer: str):
    file = write_jsonl(tmp_path / "a.jsonl", make_documents(40))
    corpus = EveryDocument(source=str(file), id="id", sentences="sentences")
    source, first, written = find_source(corpus), file.read_bytes(), file.stat().st_mtime_ns
    file.write_bytes(b"?" + first.replace(b'"doc-', b'"new-')[1:])  # whose first row is no JSON
    os.utime(file, ns=(written + 10**9, written + 10**9))
    root, texts = Storage.open(str(tmp_path / "runs")), Storage.open(str(tmp_path / "texts"))
    with pytest.raises(SourceChanged):
        prepare(root, corpus, source, CorpusTokenizer(tokenizer))
    with pytest.raises(SourceChanged):
        write_texts(texts, corpus, source, 4)
    assert not texts.files()
    file.write_bytes(first)  # as from a backup
    os.utime(file, ns=(written, written))
    assert find_source(corpus).fingerprint == source.fingerprint
    store = prepare(root, corpus, source, CorpusTokenizer(tokenizer))
    tables = [table for shard in range(store.shards) for table in store.read(shard, SPLITS)]
    ids = [one for table in tables for one in table["doc_id"].to_pylist()]
    assert {one[:4] for one in ids} == {"doc-"}
    assert not list(rejected_rows(store)), "that row is the other version's"
