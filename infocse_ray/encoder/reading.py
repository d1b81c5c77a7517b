"""How whoever made an encoder reads documents with it, in its folder: it is copied and pushed, and its run is not.

sentence-transformers has no word for that, and passes over the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infocse_ray.encoder.folder_config import read_object
from infocse_ray.encoder.modules import write_json
from infocse_ray.settings.explain import explain
from infocse_ray.settings.section import Reading

FILE = "infocse.json"


class ReadAs(BaseModel):
    """What the file says, under the names that `infocse embed` has for it."""

    model_config = ConfigDict(frozen=True)

    reading: Reading
    """Of documents."""
    max_length: int = Field(ge=4)
    """Tokens that a sentence, or a query, is cut to."""
    similarity: Literal["dot", "cosine"]
    """What vectors are compared by."""
    language: str
    """ISO 639-1, of the rules that texts are split into sentences by."""

    @classmethod
    def of(cls, folder: Path, setting: str = "model") -> ReadAs | None:
        """What an encoder's folder says; None: nothing.

        Args:
            folder: on this machine.
            setting: what error messages call what named it.

        Raises:
            ValueError: the file isn't as it was written.
        """
        if not (folder / FILE).exists():
            return None
        try:
            return cls.model_validate(read_object(folder / FILE, setting))
        except ValidationError as error:
            raise ValueError(f"{setting}: {folder / FILE}: {explain(error, cls)}; mend it, or remove it") from None

    def write(self, folder: Path) -> Path:
        """The file, in a folder of this machine."""
        write_json(folder / FILE, self.model_dump())
        return folder / FILE
