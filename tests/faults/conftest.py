from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl
from tests.faults.drivers import finish, start


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documents of `drivers.start`'s jobs; storages may be in it, too."""
    folder = tmp_path_factory.mktemp("faults")
    write_jsonl(folder / "corpus.jsonl", make_documents(200))
    return folder


@pytest.fixture(scope="session")
def undisturbed(corpus: Path, tiny_encoder: Path) -> Path:
    """The folder of a run of the job that others are compared with."""
    finish(start(corpus, "whole", tiny_encoder))
    return corpus / "whole" / "whole"
