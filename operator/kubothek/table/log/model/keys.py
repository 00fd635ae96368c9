"""Every key of the commit protocol, as a function of what it stands for.

Source: commit-protocol, "Objects"; the head, ``_common_metadata`` and data keys are Kartothek's
(Kartothek specification, "Filenames").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from kubothek.errors import InputError

SETTINGS: Final = ".kubothek/store.json"
"""Settings that all writers of a store obey."""
DEFAULT_TABLE: Final = "table"
DATA_SUFFIX: Final = ".parquet"
OWN_ID_PREFIX: Final = "kubothek:"
"""Ids of commits that Kubothek makes without a request; users cannot choose one."""

_UUID: Final = re.compile(r"[a-zA-Z0-9+_-]{1,200}")
_RECORD: Final = re.compile(r"(\d{20})-(.+)-([0-9a-f]{12})\.json")
_ICEBERG_TABLE: Final = re.compile(r"v([1-9]\d{0,18})\.metadata\.json")
_ID_BYTES: Final = 150
_ID_HEAD_BYTES: Final = 80


def check_uuid(uuid: str) -> str:
    """Return the uuid if Kartothek, a file system and Kubothek all accept it. Raises InputError."""
    if not _UUID.fullmatch(uuid):
        raise InputError(f"dataset uuid {uuid!r}: use 1 to 200 of the characters a-z A-Z 0-9 + - _ (kartothek's rule)")
    if uuid.startswith("++"):
        raise InputError(f"dataset uuid {uuid!r}: '++' at the start is reserved for cubes")
    return uuid


def check_table(table: str) -> str:
    """Return the name of a table if keys can contain it and Kartothek does not reserve it. Raises InputError."""
    if not _UUID.fullmatch(table) or table == "indices":
        raise InputError(f"table {table!r}: use 1 to 200 of the characters a-z A-Z 0-9 + - _, and not 'indices'")
    return table


def check_id(commit_id: str) -> str:
    """Return the commit id if a user may choose it. Raises InputError."""
    if not commit_id or commit_id.startswith(OWN_ID_PREFIX) or not _is_text(commit_id):
        raise InputError(
            f"commit id {commit_id!r}: it must be valid text, not empty, and not start with {OWN_ID_PREFIX!r}"
        )
    return commit_id


def encode_id(commit_id: str) -> str:
    """Return the id as keys contain it: percent-encoded, with a hash for the rest where a file name would be too long.

    Never decoded: records and markers carry the id in full.
    """
    quoted = quote(commit_id, safe="")
    if len(quoted) <= _ID_BYTES:
        return quoted
    return f"{quoted[:_ID_HEAD_BYTES]}~{sha256(commit_id.encode()).hexdigest()}"


def head(uuid: str) -> str:
    """Return the key of the head."""
    return f"{uuid}.by-dataset-metadata.json"


def packed_head(uuid: str) -> str:
    """Return the key of a packed head, which counts only while there is no JSON head."""
    return f"{uuid}.by-dataset-metadata.msgpack.zstd"


def dataset(uuid: str) -> str:
    """Return the prefix of all that Kartothek stores of a dataset except the head: data files, schemas, indices."""
    return f"{uuid}/"


def data_prefixes(uuid: str) -> tuple[str, ...]:
    """Return the prefixes that may hold data files of a dataset: its own, and for ``multi-helper`` ``multi/helper/``.

    The conversion of a dataset with several tables leaves files where they are.
    """
    splits = [index for index, letter in enumerate(uuid) if letter == "-" and 0 < index < len(uuid) - 1]
    return dataset(uuid), *(data_prefix(uuid[:index], uuid[index + 1 :]) for index in splits)


def data_prefix(uuid: str, table: str) -> str:
    """Return the prefix of a table's files and its ``_common_metadata``."""
    return f"{uuid}/{table}/"


def common_metadata(uuid: str, table: str) -> str:
    """Return the key of the schema's copy for foreign readers."""
    return f"{data_prefix(uuid, table)}_common_metadata"


def indices(uuid: str) -> str:
    """Return the prefix of Kartothek's secondary indices; a table cannot have this name."""
    return f"{uuid}/indices/"


def side(uuid: str) -> str:
    """Return the prefix of everything else of a dataset."""
    return f".kubothek/{uuid}/"


def owner(uuid: str) -> str:
    """Return the key of the claim."""
    return f"{side(uuid)}owner.json"


def schema(uuid: str, schema_hash: str) -> str:
    """Return the key of a schema object."""
    return f"{side(uuid)}schemas/{schema_hash}"


def markers(uuid: str) -> str:
    """Return the prefix of all markers."""
    return f"{side(uuid)}applied/"


def marker(uuid: str, commit_id: str) -> str:
    """Return the key of the marker of a commit id."""
    return f"{markers(uuid)}{encode_id(commit_id)}.json"


def intake(uuid: str, source: str) -> str:
    """Return the prefix of what a standing source has ingested."""
    return f"{intakes(uuid)}{quote(source, safe='')}/"


def iceberg(uuid: str) -> str:
    """Return the prefix of the Iceberg metadata, which derives from the log."""
    return f"{side(uuid)}iceberg/"


def iceberg_problem(uuid: str) -> str:
    """Return the key of why the last export of Iceberg metadata failed."""
    return f"{iceberg(uuid)}problem.json"


def iceberg_metadata(uuid: str) -> str:
    """Return the prefix of the files of the Iceberg metadata."""
    return f"{iceberg(uuid)}metadata/"


def iceberg_table(uuid: str, version: int) -> str:
    """Return the key of the table metadata at a version."""
    return f"{iceberg_metadata(uuid)}v{version}.metadata.json"


def iceberg_version(key: str) -> int | None:
    """Return the version of table metadata, given its key or location; None for another object."""
    match = _ICEBERG_TABLE.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None


def iceberg_hint(uuid: str) -> str:
    """Return the key of the version of the last export of Iceberg metadata."""
    return f"{iceberg_metadata(uuid)}version-hint.text"


def jobs(uuid: str) -> str:
    """Return the prefix of the results of jobs."""
    return f"{side(uuid)}jobs/"


def collections(uuid: str) -> str:
    """Return the prefix of the plans and results of garbage collections."""
    return f"{side(uuid)}gc/"


def parts(uuid: str) -> str:
    """Return the prefix of files that the processes of one run exchange; no commit names them."""
    return f"{side(uuid)}parts/"


def native_indices(uuid: str) -> str:
    """Return the prefix of native indices: manifests, and the sorted files that they name."""
    return f"{side(uuid)}index/"


def intakes(uuid: str) -> str:
    """Return the prefix of what all standing sources have ingested: pages, and the sorted runs that they name."""
    return f"{side(uuid)}intake/"


def chain(uuid: str) -> str:
    """Return the prefix of a ledger's chain, in the layout of the simple transfer protocol."""
    return f"{side(uuid)}odf/"


def chain_ref(uuid: str) -> str:
    """Return the key that names the chain's last block to programs that do not read heads."""
    return f"{chain(uuid)}refs/head"


def block(uuid: str, block_hash: str) -> str:
    """Return the key of a block of the chain."""
    return f"{chain(uuid)}blocks/{block_hash}"


def data_slice(uuid: str, physical_hash: str) -> str:
    """Return the key of a slice of the chain."""
    return f"{chain(uuid)}data/{physical_hash}"


def engine_state(uuid: str, physical_hash: str) -> str:
    """Return the key of a checkpoint of the chain."""
    return f"{chain(uuid)}checkpoints/{physical_hash}"


def definitions(uuid: str) -> str:
    """Return the prefix of the definitions of a chain, gathered from its blocks."""
    return f"{side(uuid)}chain/"


def definition(uuid: str, sha256_hex: str) -> str:
    """Return the key of the object that gathers the blocks that still define a chain."""
    return f"{definitions(uuid)}{sha256_hex}"


def job(uuid: str, job_uid: str) -> str:
    """Return the key of the full result of a job."""
    return f"{jobs(uuid)}{quote(job_uid, safe='')}.json"


def lost(uuid: str) -> str:
    """Return the key of the note on lost data files, which exists while some are known to be lost."""
    return f"{side(uuid)}lost.json"


def damage(uuid: str) -> str:
    """Return the key of the note on damage, which exists until a verification no longer finds it."""
    return f"{side(uuid)}damage.json"


def inventory(uuid: str) -> str:
    """Return the key of the last inventory of file sizes."""
    return f"{side(uuid)}inventory.parquet"


def checkpoints(uuid: str) -> str:
    """Return the prefix of all checkpoints."""
    return f"{side(uuid)}checkpoints/"


def checkpoint(uuid: str, version: int) -> str:
    """Return the key of the checkpoint of a version."""
    return f"{checkpoints(uuid)}{version:020d}.json.zst"


def checkpoint_version(key: str) -> int | None:
    """Return the version in a checkpoint's key; None for any other key."""
    name = key.rpartition("/")[2].removesuffix(".json.zst")
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


def records(uuid: str) -> str:
    """Return the prefix of all records."""
    return f"{side(uuid)}commits/"


def records_of(uuid: str, version: int) -> str:
    """Return the prefix of all attempts at a version; as ``start_after`` of a listing, it includes later versions."""
    return f"{records(uuid)}{version:020d}-"


def record(uuid: str, version: int, commit_id: str, nonce: str) -> str:
    """Return the key of a record; ``nonce`` is 12 hexadecimal digits, new for each attempt."""
    return f"{records_of(uuid, version)}{encode_id(commit_id)}-{nonce}.json"


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The information in the key of a record."""

    key: str
    version: int
    marker: str


def parse_record(uuid: str, key: object) -> RecordKey | None:
    """Parse the key of a record; None if it is not one of this dataset, as foreign writers write heads too."""
    prefix = records(uuid)
    if not isinstance(key, str) or not key.startswith(prefix):
        return None
    match = _RECORD.fullmatch(key.removeprefix(prefix))
    if match is None or "/" in match[2]:
        return None
    return RecordKey(key, int(match[1]), f"{markers(uuid)}{match[2]}.json")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
