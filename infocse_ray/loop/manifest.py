"""A run's manifest: what it was started with and which stages it is made of, for people and for later commands.

It is data that anybody may read: JSON with a checksum of itself; folders are relative to the storage that runs share,
which may be moved, or be mounted elsewhere, and whose URI may hold what isn't for everybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.progress import say
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.checksums import OTHER, checked, digest, verified
from infocse_ray.storage.folder import Storage, is_remote
from infocse_ray.storage.redact import redacted_json

if TYPE_CHECKING:
    from infocse_ray.stages.stage import Stage
    from infocse_ray.tracking.tracking import Tracking

CARD = "model/README.md"
"""Of what a run exports, by its path below the run."""
_OURS = {"checksum", "job", "settings", "inputs", "stages", "finished", "exported", "earlier", "begun"}
"""Of the keys of a manifest some that no damage takes away all."""
_FORMAT = 2
"""1 had no checksum, and folders that began with the storage's."""


def folder_in(root: Storage, folder: str) -> Storage:
    """A stage's folder as manifests have it: relative to the storage that runs share, whole in format 1."""
    return Storage.open(folder) if folder.startswith("/") or is_remote(folder) else root / folder


class NoManifest(DamagedFile):
    """Other software's file of the same name, by all that it says."""


def read_manifest(run: Storage) -> dict[str, Any]:
    """The content of a run's `manifest.json`.

    Raises:
        FileNotFoundError: there is none.
        NoManifest: it is no run's.
        DamagedFile: it isn't as it was written.
    """
    file = run / "manifest.json"
    content = file.read_bytes()
    if (manifest := verified(content)) is not None:
        return manifest
    try:
        manifest = json.loads(content)
    except ValueError:
        manifest = {"checksum": None}
    if _is_of_format_1(manifest):
        return manifest
    if isinstance(manifest, dict) and manifest and not manifest.keys() & _OURS:
        raise NoManifest(f"{file} is no run's")
    raise DamagedFile(f"{file} is damaged ({OTHER})")


def _is_of_format_1(manifest: object) -> bool:
    if not isinstance(manifest, dict) or "format" in manifest or not isinstance(manifest.get("stages"), dict):
        return False
    return all(isinstance(entry, dict) and "folder" in entry for entry in manifest["stages"].values())


def folders_of(manifest: dict[str, Any]) -> set[str]:
    """The folders of the stages that a manifest refers to, as it has them (see `folder_in`)."""
    return {entry["folder"] for entry in manifest["stages"].values()} | set(manifest.get("earlier", ()))


class Manifest:
    """`manifest.json` of a run; an entry is written when its stage is finished."""

    def __init__(self, run: Storage, lease: Lease | None = None, tracking: Tracking | None = None) -> None:
        """Read it, if it is there and whole.

        Args:
            run: the run's folder.
            lease: of the run, for whoever writes.
            tracking: what shows the run's stages; None: nothing does.
        """
        self._run, self._lease, self._tracking = run, lease, tracking
        self._content = self._read()
        self._before: dict[str, Any] | None = None

    def _read(self) -> dict[str, Any]:
        try:
            return read_manifest(self._run)
        except FileNotFoundError:
            return {"stages": {}}
        except DamagedFile as error:
            say(f"{error}; it is written anew from the stages")
            return {"stages": {}}

    def _write(self) -> None:
        self.check()
        (self._run / "manifest.json").write_json(checked(self._content))

    def check(self) -> None:
        """Go on only if this driver has the run.

        Raises:
            LeaseLost: another took it over.
        """
        if self._lease is not None:
            self._lease.check()

    def finished(self, fingerprint: str) -> bool:
        """Whether the whole run was finished with these inputs and settings, and what it exported is whole."""
        return self._content.get("finished") == fingerprint and self._whole()

    @property
    def exported(self) -> dict[str, str]:
        """Digests of what the last finished run of this name exported, by its path below the run; none if none did."""
        return self._content.get("files") or self._content.get("exported", {})

    def _whole(self) -> bool:
        for name, expected in self._content.get("files", {}).items():
            if name == CARD and (self._run / name).exists():
                continue  # people write into it, their licence say
            try:
                actual = digest((self._run / name).read_bytes()).hex()
            except FileNotFoundError:
                actual = "missing"
            if actual != expected:
                why = "it is missing" if actual == "missing" else OTHER
                say(f"{self._run / name} is damaged ({why}); it is made again")
                return False
        return True

    @property
    def job(self) -> str | None:
        """What ran last under this name, such as `pretrain`; None if nothing did."""
        return self._content.get("job", "pretrain" if "settings" in self._content else None)

    @property
    def before(self) -> dict[str, Any]:
        """What it said when it was read: `settings`, `inputs` (fingerprints by name) and `stages` (by name), if any."""
        return {name: self._content.get(name, {}) for name in ("settings", "inputs", "stages")}

    @property
    def stages(self) -> dict[str, Any]:
        """By name in the run: `kind`, `fingerprint`, `folder` (see `folder_in`), `seconds` and `starting`."""
        return self._content["stages"]

    def folder(self, root: Storage, name: str) -> Storage:
        """The folder of a stage.

        Args:
            root: the storage that runs share.
            name: of the stage in the run.

        Raises:
            KeyError: there is no such stage.
        """
        return folder_in(root, self.stages[name]["folder"])

    def begin(self, job: str, settings: dict[str, Any], inputs: dict[str, str | None]) -> None:
        """A run (again) at work; till it is finished it keeps naming the folders of the stages that it had.

        Args:
            job: what runs.
            settings: of the run; where its storage is goes without saying.
            inputs: fingerprints of what the paths in the settings lead to.
        """
        settings = {name: value for name, value in settings.items() if name != "storage"}
        earlier = sorted(folders_of(self._content))
        same = [self._content.get(name) for name in ("settings", "inputs")] == redacted_json([settings, inputs])
        # With other settings a training of the same name is another.
        begun = self._content.get("begun", {}) if same else {}
        exported = self.exported
        self._before = self._content if "settings" in self._content else None
        self._content = {"format": _FORMAT, "job": job, "settings": settings, "inputs": inputs, "stages": {}}
        self._content["begun"] = begun
        if earlier:
            self._content["earlier"] = earlier
        if exported:
            self._content["exported"] = exported
        self._write()

    def take_back(self) -> None:
        """Leave what ran before under this name as it was: what has begun is refused."""
        if self._before is not None:
            self._content = self._before
            self._write()

    def begin_training(self, name: str, stage: Stage) -> None:
        """Note whose steps a training of this name, such as `iteration_1`, shows before it is finished."""
        self._content["begun"][name] = {"folder": stage.folder.relative, "fingerprint": stage.fingerprint}
        self._write()

    def add(self, name: str, stage: Stage) -> None:
        """Commit a finished stage under its name in the run."""
        # It loads Ray, which a manifest is read without.
        from infocse_ray.stages.metrics import count_stage

        self._content["stages"][name] = {
            "kind": stage.kind,
            "fingerprint": stage.fingerprint,
            "folder": stage.folder.relative,
            "seconds": stage.seconds,
            "starting": stage.starting,
        }
        self._write()
        count_stage(self._run, name, stage)
        if self._tracking is not None:
            self._tracking.stage(name, stage)

    def finish(self, fingerprint: str, model: Iterable[str]) -> None:
        """Commit the run, with the digests of what it exported.

        Args:
            fingerprint: of its inputs and settings.
            model: what it wrote into its folder `model`; what else is there is a user's own.
        """
        exported = ["metrics.json", *(f"model/{name}" for name in sorted(model))]
        self._content["files"] = {name: digest((self._run / name).read_bytes()).hex() for name in exported}
        self._content["finished"] = fingerprint
        for name in ("earlier", "begun", "exported"):
            self._content.pop(name, None)
        self._write()
