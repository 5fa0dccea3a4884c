"""The manifest of a snapshot: which files it consists of, and the stamp of the store partition.

A manifest is an object of two lines: the BLAKE2b digest of the second line, in 64 hexadecimal digits, and JSON with a
version::

    {"v":1,"created_at":1700000000000,"stamp":"{...}","files":{"000012.sst":[4096,"<64 hexadecimal digits>"],...}}

`stamp` is the text of `Stamp.encode`, with a version of its own. The name of a manifest begins with the changelog offset of
the stamp and the time of the snapshot in milliseconds, so names sort by the age of the state:
`00000000000000001234-001700000000000-<random>.manifest`.

A newer version is refused, because its meaning is unknown. Names of files come from outside, so only those that RocksDB gives
are accepted.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamrt.common.untrusted import LOWEST, malformed_as, read_field
from streamrt.errors import StateError, StoreCorruptedError, StoreVersionError
from streamrt.state.identity import Stamp, decode_versioned, encode_versioned

__all__ = ["NewerSnapshotError", "SnapshotManifest", "StoredFile", "UnusableSnapshotError", "offset_in_name"]

_VERSION: Final = 1
_NAME: Final = re.compile(r"(\d{20})-\d{15}-[0-9a-f]{16}\.manifest", re.ASCII)
_FILE: Final = re.compile(r"\d+\.sst|MANIFEST-\d+|CURRENT", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class UnusableSnapshotError(Exception):
    """A snapshot is damaged, incomplete or does not fit; the message says why. A restore passes it over."""


class NewerSnapshotError(UnusableSnapshotError):
    """A newer version of StreamRT has written the snapshot."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a snapshot.

    Attributes:
        size: its size in bytes.
        digest: BLAKE2b digest of its content, in 64 hexadecimal digits. The object has this name.
    """

    size: int
    digest: str


@dataclass(frozen=True)
class SnapshotManifest:
    """The description of a snapshot.

    Attributes:
        stamp: the stamp of the store partition.
        created_at: wall clock of the snapshot, in milliseconds.
        files: its files, by their names in the directory of the store.

    Example:
        >>> from streamrt.state import StoreIdentity
        >>> stamp = Stamp(StoreIdentity("shop", "orders", 0, "default", None, "id", 1), 12, 30, None, 0)
        >>> manifest = SnapshotManifest(stamp, 1_000, {"CURRENT": StoredFile(16, "0" * 64)})
        >>> SnapshotManifest.decode(manifest.encode()) == manifest
        True
    """

    stamp: Stamp
    created_at: int
    files: Mapping[str, StoredFile]

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.size for file in self.files.values())

    def new_name(self) -> str:
        """Return a unique name for the manifest."""
        return f"{self.stamp.changelog_offset or 0:020d}-{self.created_at:015d}-{secrets.token_hex(8)}.manifest"

    def encode(self) -> bytes:
        """Return the bytes of the manifest."""
        files = {name: [file.size, file.digest] for name, file in self.files.items()}
        fields = {"created_at": self.created_at, "stamp": self.stamp.encode().decode(), "files": files}
        text = encode_versioned(_VERSION, fields)
        return _digest(text) + b"\n" + text

    @classmethod
    def decode(cls, data: bytes) -> "SnapshotManifest":
        """Read what `encode` wrote.

        Raises:
            NewerSnapshotError: if a newer version of StreamRT wrote it.
            UnusableSnapshotError: if it is damaged.
        """
        digest, _, text = data.partition(b"\n")
        if digest != _digest(text):
            raise UnusableSnapshotError("the checksum of its manifest is wrong")
        try:
            fields = decode_versioned(text, _VERSION, "its manifest", StoreCorruptedError)
            with malformed_as(lambda wrong: StoreCorruptedError(f"its manifest is damaged: it {wrong}")):
                stamp = Stamp.decode(read_field(fields, "stamp", str).encode())
                created_at = read_field(fields, "created_at", int, LOWEST)
                files = {name: _read_file(name, entry) for name, entry in read_field(fields, "files", dict).items()}
        except StoreVersionError as error:
            raise NewerSnapshotError(str(error)) from None
        except StateError as error:
            raise UnusableSnapshotError(str(error)) from None
        if "CURRENT" not in files or stamp.changelog_offset is None:
            raise UnusableSnapshotError("its manifest does not describe a store with a changelog")
        return cls(stamp, created_at, files)


def offset_in_name(name: str) -> int | None:
    """Return the changelog offset in the name of a manifest; None if it is another name.

    Example:
        >>> offset_in_name("00000000000000000030-000000000001000-0123456789abcdef.manifest"), offset_in_name("other")
        (30, None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def _read_file(name: str, entry: object) -> StoredFile:
    """Return a file of a manifest; its name must be one that RocksDB gives, since a restore writes it."""
    if not _FILE.fullmatch(name) or not isinstance(entry, list) or len(entry) != 2:
        raise ValueError(f"names a file that no store has: {name[:80]!r}")
    size, digest = entry
    if type(size) is not int or size < 0 or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"has no size and digest for {name!r}")
    return StoredFile(size, digest)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=32).hexdigest().encode()
