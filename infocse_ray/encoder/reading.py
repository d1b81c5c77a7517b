"""How whoever made an encoder reads documents with it, in its folder: it is copied and pushed, and its run is not.

sentence-transformers has no word for that, and passes over the file.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infocse_ray.settings.explain import explain
from infocse_ray.settings.section import Reading
from infocse_ray.storage.folder import Storage

FILE = "infocse.json"
_FIX = "mend it, remove it, or say all of reading, max_length, similarity and language"


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
    def of(cls, folder: Storage, setting: str = "model") -> ReadAs | None:
        """What an encoder's folder says; None: nothing.

        Args:
            folder: anywhere.
            setting: what error messages call what named it.

        Raises:
            ValueError: the file isn't as it was written.
        """
        try:
            content = (folder / FILE).read_json()
            if not isinstance(content, dict):
                raise ValueError("it has no object in braces")
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{setting}: {folder / FILE}: can't be read: {error}; {_FIX}") from None
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise ValueError(f"{setting}: {folder / FILE}: {explain(error, cls)}; {_FIX}") from None

    def write(self, folder: Storage) -> None:
        """Write the file into an encoder's folder."""
        (folder / FILE).write_json(self.model_dump())
