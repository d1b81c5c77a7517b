from pathlib import Path

import pytest
from pydantic import ValidationError

from infocse_ray.settings import Corpus, Section, Settings, fingerprint
from infocse_ray.settings.command_line import parse
from infocse_ray.settings.explain import named_here

NEEDED = ["--name=run", "--encoder.model=model", "--corpus.source=documents.jsonl"]
# These are of other jobs: tests/unit/report/test_reproduce.py has those of tables.
_OF_OTHERS = ("sweep.yaml", "tables.yaml", "untuned.yaml")
CONFIGS = sorted(
    file
    for file in (Path(__file__).parents[3] / "infocse_ray" / "configs").glob("*.yaml")
    if file.name not in _OF_OTHERS
)


def settings(*argv: str) -> Settings:
    return parse(Settings, [*NEEDED, *argv], "job", "What it does.")


def refusal(capsys: pytest.CaptureFixture[str], *argv: str, needed: bool = True) -> str:
    """The one line on stderr that the arguments are refused with."""
    with pytest.raises(SystemExit) as stopped:
        parse(Settings, [*(NEEDED if needed else []), *argv], "job", "What it does.")
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.endswith(" (see --help)\n")
    return printed.err.removeprefix("job: error: ").removesuffix(" (see --help)\n")


@pytest.fixture
def config(tmp_path: Path):
    def write(text: str) -> str:
        (tmp_path / "config.yaml").write_text(text)
        return f"--config={tmp_path / 'config.yaml'}"

    return write


def test_the_paper_is_a_config():
    run = parse(Settings, ["--config=paper", *NEEDED], "job", "")
    assert run.annotate.k == 1
    assert run.encoder.max_length == 32
    assert run.train.batch_size == 3200
    assert (run.train.adam_beta1, run.train.adam_beta2, run.train.adam_epsilon) == (0.9, 0.999, 1e-8)
    assert run.train.learning_rate == 2e-5
    assert run.train.max_steps == 200_000
    assert run.validate.patience == 20_000  # pyright: ignore
    assert (run.validate.metric, run.validate.reading) == ("recall@5", "sentences")  # pyright: ignore
    assert (run.train.similarity, run.train.temperature, run.train.distillation) == ("dot", 1.0, 0.0)
    assert (run.loop.initialization, run.loop.max_iterations) == ("conpono", 5)
    # What goes past the paper is off.
    assert (run.encoder.whiten, run.train.never_worse, run.train.interpolation) == ("off", False, [])


def test_names_of_earlier_versions_still_work(config):
    assert settings("--train.strategy=simcse", "--annotate.method", "kmeans").train.method == "simcse"
    run = settings(config("train: {strategy: ict}\nannotate: {method: kmeans}\n"))
    assert (run.train.method, run.annotate.clustering) == ("ict", "kmeans")
    assert settings(config("train: {strategy: ict}\n"), "--train.method=cpc").train.method == "cpc"
    assert "strategy" not in run.model_dump()["train"]


def test_a_setting_that_is_gone_is_taken_where_it_changed_nothing(config, capsys):
    run = settings(config("annotate: {k: 2, mutual: false, min_edge_quantile: 0.0}\n"))
    gone = ("--annotate.mutual=false", "--annotate.min_edge_quantile=0", "--train.positive=sentence")
    assert run.annotate == settings("--annotate.k=2", *gone).annotate
    assert Settings.model_validate(run.model_dump() | {"annotate": {"min_edge_quantile": 0}}).annotate.k == 1
    for given in (config("annotate: {min_edge_quantile: 0.75}\n"), "--annotate.min_edge_quantile=0.75"):
        said = "annotate.min_edge_quantile = 0.75: is no setting any more; leave it out"
        assert refusal(capsys, given) == said


def test_what_comes_later_wins(config):
    file = config("name: from-file\ntrain:\n  batch_size: 64\n  learning_rate: 1e-3\ncorpus:\n  source: [a, b]\n")
    run = parse(Settings, [file, "--encoder.model=m", "--train.batch_size=128"], "job", "")
    assert run.name == "from-file"
    assert run.train.batch_size == 128
    assert run.train.learning_rate == 1e-3
    assert run.corpus.source == ["a", "b"]


def test_values_of_several_types():
    run = settings("--annotate.num_workers=3", "--train.use_gpu=false", "--corpus.source=[a, b]", "--corpus.id=null")
    assert run.annotate.num_workers == 3
    assert settings("--train.num_workers=[1, 4]").train.num_workers == [1, 4]
    assert run.train.use_gpu is False
    assert run.corpus.source == ["a", "b"]
    assert run.corpus.id is None


def test_on_is_a_key_like_others_in_yaml(config):
    assert settings(config("validate:\n  on: halves\n")).validate.on == "halves"  # pyright: ignore


def test_section_with_all_its_lines_commented_out_has_its_defaults(config):
    assert settings(config("seed: 3\ntrain:\n  # batch_size: 64\n")).train.batch_size == 128


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--name=../up", "it is no path: did you mean up?"),
        ("--name=a/b", "letters, digits, dot, dash"),
        ("--name=", "letters, digits, dot, dash"),
        ("--name=two words", "letters, digits, dot, dash"),
        ("--name=.hidden", "starting with a letter or digit"),
        ("--storage=", "at least 1 character"),
        ("--seed=-1", "greater than or equal to 0"),
        ("--seed=2147483648", "less than 2147483648"),
        ("--corpus.source=", "at least one path"),
        ("--corpus.source=[]", "at least one path"),
        ("--corpus.valid_fraction=1", "less than 1"),
        ("--corpus.test_fraction=-0.1", "greater than or equal to 0"),
        ("--corpus.unlabelled=some", "'all' or 'train'"),
        ("--corpus.text_files=page", "'document' or 'line'"),
        ("--corpus.min_sentences=1", "greater than or equal to 2"),
        ("--corpus.max_sentence_chars=0", "greater than or equal to 1"),
        ("--corpus.max_document_sentences=50001", "less than or equal to 50000"),
        ("--corpus.lanes=0", "greater than or equal to 1"),
        ("--corpus.lanes=4097", "less than or equal to 4096"),
        ("--encoder.max_length=3", "greater than or equal to 4"),
        ("--encoder.max_length=long", "valid integer"),
        (
            "--encoder.pooling=first",
            "'auto', 'mean', 'cls', 'lasttoken', 'max', 'weightedmean' or 'mean_sqrt_len_tokens'",
        ),
        ("--encoder.precision=fp16", "'auto', 'fp32' or 'bf16'"),
        ("--annotate.k=0", "greater than or equal to 1"),
        ("--annotate.clustering=ward", "'partition' or 'kmeans'"),
        ("--annotate.kmeans_clusters=0", "greater than or equal to 1"),
        ("--annotate.kmeans_sample=0", "greater than or equal to 1"),
        ("--annotate.num_workers=0", "whole number from 1, or auto"),
        ("--annotate.num_workers=many", "'auto'"),
        ("--annotate.use_gpu=maybe", "'auto'"),
        ("--train.num_workers=0", "whole number from 1, or auto"),
        ("--train.num_workers=-1", "whole number from 1, or auto"),
        ("--train.num_workers=1.5", "'auto'"),
        ("--train.num_workers=[1]", "train.num_workers = [1]: give two whole numbers, the fewest and the most"),
        ("--train.num_workers=[0, 2]", "give two whole numbers"),
        ("--train.num_workers=[2, 1]", "give two whole numbers"),
        ("--train.num_workers=[1, 2, 3]", "give two whole numbers"),
        ("--train.num_workers=[1, 2.5]", "'auto'"),
        ("--annotate.num_workers=[1, 2]", "'auto'"),
        ("--train.batch_size=1", "greater than or equal to 2"),
        ("--train.batch_size=1.5", "valid integer"),
        ("--train.batch_size=true", "valid integer"),
        ("--train.learning_rate=0", "greater than 0"),
        ("--train.learning_rate=nan", "finite number"),
        ("--train.learning_rate=inf", "finite"),
        ("--train.learning_rate=2e5", "less than 1"),
        ("--train.head_learning_rate=1", "less than 1"),
        ("--train.temperature=-1", "greater than 0"),
        ("--train.similarity=euclid", "'dot' or 'cosine'"),
        ("--train.chunk_tokens=63", "greater than or equal to 64"),
        ("--train.adam_beta1=1", "less than 1"),
        ("--train.adam_beta2=1", "less than 1"),
        ("--train.adam_epsilon=0", "greater than 0"),
        ("--train.max_steps=0", "greater than or equal to 1"),
        ("--train.checkpoint_every=0", "greater than or equal to 1"),
        ("--train.max_failures=-1", "greater than or equal to 0"),
        ("--validate.every=0", "greater than or equal to 1"),
        ("--validate.patience=0", "greater than or equal to 1"),
        ("--validate.metric=recall", "'recall@5'"),
        ("--validate.on=labels", "'counterpart', 'sentence', 'halves' or 'readings'"),
        ("--validate.max_documents=99", "greater than or equal to 100"),
        ("--loop.max_iterations=0", "greater than or equal to 1"),
    ],
)
def test_wrong_value_is_refused_by_name(capsys, argument: str, said: str):
    name, value = argument.removeprefix("--").split("=")
    message = refusal(capsys, argument)
    assert message.startswith(name)
    assert said in message
    assert value in message


def test_fractions_that_add_up_to_more_than_one_are_refused(capsys):
    message = refusal(capsys, "--corpus.valid_fraction=0.6", "--corpus.test_fraction=0.5")
    assert message == "corpus.valid_fraction = 0.6 and corpus.test_fraction = 0.5 add up to more than 1: lower one"
    assert settings("--corpus.valid_fraction=0.5", "--corpus.test_fraction=0.5").corpus.test_fraction == 0.5


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("kmeans_sample=9", "annotate.kmeans_sample = 9: fewer sentences than annotate.kmeans_clusters = 10; raise"),
    ],
)
def test_what_kmeans_has_no_use_for_is_refused(capsys, argument: str, said: str):
    assert refusal(capsys, "--annotate.clustering=kmeans", f"--annotate.{argument}").startswith(said)
    assert settings(f"--annotate.{argument}").annotate.clustering == "partition"
    assert settings("--annotate.clustering=kmeans", "--annotate.k=3").annotate.kmeans_clusters == 10


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("train.method=simcse", "train.method = simcse: with recipe = auto it chooses that itself; leave one of them"),
        ("train.distillation=0.0", "train.distillation = 0.0: with recipe = auto it chooses that itself; leave one"),
        (
            "loop.initialization=cpc",
            "loop.initialization = cpc: with recipe = auto pilots start from the encoder as it",
        ),
    ],
)
def test_what_a_recipe_chooses_cant_be_given_as_well(capsys, argument: str, said: str):
    assert refusal(capsys, "--recipe=auto", f"--{argument}").startswith(said)
    assert settings("--recipe=auto", "--train.batch_size=64").recipe == "auto"
    assert settings().recipe is None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("train.batch_sise", "train.batch_sise is not a setting: did you mean train.batch_size?"),
        ("trian.batch_size", "trian.batch_size is not a setting: did you mean train.batch_size?"),
        ("corpus.lanse", "corpus.lanse is not a setting: did you mean corpus.lanes?"),
        ("sed", "sed is not a setting: did you mean seed?"),
        ("zzzzzz", "zzzzzz is not a setting"),
    ],
)
def test_unknown_key_is_refused_with_the_nearest_one(capsys, config, key: str, said: str):
    assert refusal(capsys, f"--{key}=3") == said
    section, _, name = key.rpartition(".")
    assert refusal(capsys, config(f"{section}:\n  {name}: 3\n" if section else f"{name}: 3\n")) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: {batch_size: many}", "train.batch_size = 'many': should be a valid integer"),
        ("train: {batch_size: [1]}", "train.batch_size = [1]: should be a valid integer"),
        ("annotate: {k: null}", "annotate.k = None: should be a valid integer"),
        ("annotate: {num_workers: 0}", "annotate.num_workers = 0: give a whole number from 1, or auto"),
        ("corpus: {valid_fraction: 0.7, test_fraction: 0.7}", "corpus.valid_fraction = 0.7 and corpus.test_fraction"),
        ("train: 3", "train = 3: is a section; give its settings by name, such as train.method"),
        ("annotate: {share: 2}", "annotate.share = 2: should be less than or equal to 1, or 'auto'"),
        ("train: {k: 3}", "train.k is not a setting: did you mean annotate.k?"),
        ("train: {max_steps: 5}\nseed: 1\ntrain: {batch_size: 16}", "--config = "),
        ("corpus: {id: 7}", "corpus.id = 7: "),
        ("annotate: {k: true}", "annotate.k"),
        ("train: {learning_rate: yes}", "train.learning_rate"),
        ("- a list", "--config = "),
        ("", "--config = "),
        ("# all of it commented out\n", "--config = "),
        ("train: [", "--config = "),
        ("train:\n\tbatch_size: 3", "--config = "),
    ],
)
def test_wrong_file_is_refused(capsys, config, text: str, said: str):
    assert refusal(capsys, config(text)).startswith(said)


def test_missing_file_is_refused(capsys, tmp_path):
    assert str(tmp_path / "none.yaml") in refusal(capsys, f"--config={tmp_path / 'none.yaml'}")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("annotate.num_workers=2.5", "annotate.num_workers = '2.5': should be a valid integer, or 'auto'"),
        ("encoder.whiten=3", "encoder.whiten = '3': should be 'auto' or 'off', or less than or equal to 2"),
        ("train.use_gpu=maybe", "train.use_gpu = 'maybe': should be a valid boolean, or 'auto'"),
        ("storage=", "storage = '': should have at least 1 character"),
    ],
)
def test_a_value_of_no_kind_is_told_what_it_may_be(capsys, argument: str, said: str):
    assert refusal(capsys, f"--{argument}") == said


@pytest.mark.parametrize("name", ["sweep", "tables"])
def test_a_configuration_of_another_command_is_refused_as_such(capsys, name: str):
    said = f"--config = '{name}': is for another command, with settings ("
    assert refusal(capsys, f"--config={name}").startswith(said)


def test_what_is_required_is_named(capsys):
    message = refusal(capsys, needed=False)
    assert message == "name, corpus.source, encoder.model are required"


def test_stray_argument_is_refused(capsys):
    assert "stray" in refusal(capsys, "stray")


def helped(capsys: pytest.CaptureFixture[str], *argv: str, description: str = "What it does.") -> str:
    with pytest.raises(SystemExit) as stopped:
        parse(Settings, argv, "job", description, ["name", "encoder.model"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_all_of_the_help_describes_every_setting(capsys):
    text = " ".join(helped(capsys, "--help", "all").split())
    assert "What it does." in text
    assert "--print_config" in text
    for section, field in Settings.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        for name, one in inner.items() or [("", field)]:
            assert f"--{section}{name and '.'}{name} " in text
            assert one.description is not None
            assert " ".join(one.description.split()) in text
    for internal in ("Annotated", "Ge(", "Literal[", "MinLen", "Union", "FieldInfo", "NoneType"):
        assert internal not in text
    assert "(whole number, at least 1 and at most 4,096 | auto; default: 64)" in text
    assert "(auto | off | number, at least 0.0 and at most 2.0; default: auto)" in text
    assert "(whole number | auto | list of whole number; default: auto)" in text


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_first_help_is_short(capsys, flag: str):
    text = helped(capsys, flag)
    assert len(text.splitlines()) < 30
    assert "--encoder.model" in text
    assert "--help all" in text
    assert "--train.batch_size" not in text


def test_help_keeps_the_lines_of_its_description(capsys):
    text = helped(capsys, "--help", description="First.\n\nExample:\n  job --name x")
    assert "First.\n\nExample:\n  job --name x\n" in text


def test_a_shipped_config_goes_by_its_name(capsys, config, tmp_path, monkeypatch):
    assert parse(Settings, ["--config", "paper", *NEEDED], "job", "").train.batch_size == 3200
    assert refusal(capsys, "--config=papers").startswith("--config = 'papers': no such file; the shipped ones are ")
    assert "no such file" in refusal(capsys, f"--config={'a' * 300}"), "no file can have a name so long"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper").write_text("seed: 7\n")
    assert parse(Settings, ["--config", "paper", *NEEDED], "job", "").seed == 7, "a file of that name wins"


@pytest.mark.parametrize(
    ("text", "said"),
    [("train:\n\tbatch_size: 3", "line 2, column 1"), ("train: [", "line 1"), ("a\xff".encode("latin-1"), "UTF-8")],
)
def test_a_file_that_is_no_yaml_is_named_with_the_place(capsys, tmp_path, text: str | bytes, said: str):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refusal(capsys, f"--config={file}")
    assert message.startswith(f"--config = '{file}': ")
    assert said in message


def test_printed_config_read_back_gives_the_same_settings(capsys, config):
    changed = ["--train.batch_size=64", "--corpus.source=[a, b]", "--validate.on=halves", "--train.use_gpu=true"]
    with pytest.raises(SystemExit) as stopped:
        settings(*changed, "--print_config")
    assert stopped.value.code == 0
    file = config(capsys.readouterr().out)
    assert parse(Settings, [file], "job", "") == settings(*changed)


def test_a_message_calls_settings_as_the_job_does():
    class Flat(Section):
        model: str
        num_workers: int
        corpus: Corpus

    message = "encoder.model = 'corpus.text/train.num_workers': train.num_workers and corpus.text, not encoder.pooling"
    assert named_here(message, Flat) == (
        "model = 'corpus.text/train.num_workers': num_workers and corpus.text, not encoder.pooling"
    )
    assert named_here(message, Settings) == message


def test_settings_are_frozen():
    run = settings()
    with pytest.raises(ValidationError):
        run.seed = 1  # pyright: ignore
    with pytest.raises(ValidationError):
        run.train.batch_size = 8  # pyright: ignore


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_shipped_config_is_valid(file: Path):
    run = parse(Settings, [f"--config={file}", *NEEDED], "job", "")
    assert run.name == "run"


def test_the_config_adapt_says_the_defaults():
    assert parse(Settings, ["--config=adapt", *NEEDED], "job", "") == settings()


def test_the_config_paper_plus_is_adapt_for_a_language_model():
    longer = ("--train.max_steps=2000", "--validate.patience=500", "--loop.max_iterations=3")
    for_sentences = settings("--encoder.pooling=mean", "--train.learning_rate=5e-5", *longer)
    assert parse(Settings, ["--config=paper-plus", *NEEDED], "job", "") == for_sentences


def test_fingerprint_depends_on_values_and_not_on_the_order_of_keys():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint("a", "b") != fingerprint("b", "a")
    assert fingerprint(Corpus(source="a")) != fingerprint(Corpus(source="b"))
    assert fingerprint(Corpus(source="a")) == fingerprint(Corpus(source="a"))
    with pytest.raises(TypeError, match="set has no canonical JSON form"):
        fingerprint({1, 2})


def test_a_true_or_false_setting_needs_no_value():
    from infocse_ray.settings.commands import Clean

    assert parse(Clean, ["--yes"], "clean", "").yes
    assert parse(Clean, ["--yes", "--runs", "a,b"], "clean", "") == Clean(yes=True, runs=["a", "b"])
    assert not parse(Clean, ["--yes", "false"], "clean", "").yes
    assert Clean.model_validate({"runs": "a"}).runs == ["a"]


def test_an_option_wins_over_a_file_wherever_it_stands(config):
    file = config("train: {batch_size: 5}\nannotate: {k: 2}\n")
    for argv in ((file, "--train.batch_size=7"), ("--train.batch_size=7", file)):
        assert (settings(*argv).train.batch_size, settings(*argv).annotate.k) == (7, 2)


def test_what_is_twice_in_a_file_is_refused_with_its_line(capsys, config):
    assert "line 3, column 1: train is there twice" in refusal(
        capsys, config("train: {max_steps: 5}\nseed: 1\ntrain: {batch_size: 16}\n")
    )
    assert "k is there twice" in refusal(capsys, config("annotate: {k: 1, k: 2}\n"))


def test_dotted_names_are_names_in_a_file_too(config):
    assert settings(config("train.batch_size: 5\ntrain: {max_steps: 7}\n")).train.batch_size == 5


@pytest.mark.parametrize("word", ["no", "yes", "on", "off"])
def test_no_is_norwegian(config, word: str):
    file = config(f"corpus: {{language: {word}, id: {word}}}\nvalidate: {{on: halves}}\n")
    assert (settings(file).corpus.language, settings(file).corpus.id) == (word, word)
    assert settings(f"--corpus.language={word}").corpus.language == word


@pytest.mark.parametrize(("given", "code"), [("DE", "de"), ("pt-BR", "pt"), ("zh_CN", "zh"), ("arz", "arz")])
def test_a_language_is_known_however_its_code_is_written(given: str, code: str):
    assert settings(f"--corpus.language={given}").corpus.language == code


@pytest.mark.parametrize("given", ["german", "", "d", "1"])
def test_a_language_that_is_no_code_is_refused(capsys, given: str):
    said = refusal(capsys, f"--corpus.language={given}")
    assert said.startswith(f"corpus.language = {given!r}: give the language's ISO 639-1 code, such as en")


def test_truth_values_are_taken_by_all_their_names(config):
    assert not settings(config("loop: {early_stop: no}\nencoder: {whiten: off}\n")).loop.early_stop
    assert settings(config("encoder: {whiten: off}\n")).encoder.whiten == "off"
    assert settings(config("train: {whitened: on}\n")).train.whitened


def test_text_that_looks_like_a_list_is_text_where_text_is_taken(capsys):
    assert settings("--encoder.query_prompt=[Q] ").encoder.query_prompt == "[Q] "
    assert settings("--corpus.source=[ab]*.jsonl").corpus.source == "[ab]*.jsonl"
    assert settings("--corpus.source=[a.jsonl, b.jsonl]").corpus.source == ["a.jsonl", "b.jsonl"]
    assert "not a YAML value" in refusal(capsys, "--train.interpolation=[0.5")


def test_lists_are_given_as_names_with_commas_too():
    assert settings("--train.interpolation=0.25,0.5").train.interpolation == [0.25, 0.5]
    assert settings("--train.num_workers=[1,4]").train.num_workers == [1, 4]


def test_a_printed_file_with_names_of_before_reads_back_the_same(config, capsys):
    old = config("train: {strategy: simcse}\nannotate: {method: kmeans}\n")
    with pytest.raises(SystemExit):
        parse(Settings, [*NEEDED, old, "--print_config"], "job", "")
    again = settings(config(capsys.readouterr().out))
    assert again == settings(old)
    assert (again.train.method, again.annotate.clustering) == ("simcse", "kmeans")


def test_of_two_files_the_later_wins_by_whichever_name(config, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("train: {method: ict}\n")
    second.write_text("train: {strategy: simcse}\n")
    assert settings(f"--config={first}", f"--config={second}").train.method == "simcse"
    assert settings(f"--config={second}", f"--config={first}").train.method == "ict"


def test_a_name_that_no_folder_can_have_is_refused(capsys):
    assert "has 201 letters; use at most 200" in refusal(capsys, f"--name={'x' * 201}")
