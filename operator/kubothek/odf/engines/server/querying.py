"""ExecuteRawQuery: SQL over rows of files, without a state (EN-18, PP-02)."""

from __future__ import annotations

from functools import partial
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import QueryInvalid
from kubothek.odf.engines.server import files
from kubothek.odf.engines.server.volume import PathRefused, Volume
from kubothek.odf.sources.readers.preprocess import preprocess
from kubothek.odf.spec import engine_messages as messages

_ROWS: Final = 1 << 20


def raw_query(volume: Volume, request: messages.RawQueryRequest) -> messages.RawQueryResponseSuccess:
    """Run the query over ``input``, the rows of all files, and write its rows to the output path.

    Raises QueryInvalid, InputError for a transformation of a later version, PathRefused.
    """
    volume.check(request.output_data_path)
    if not request.input_data_paths:
        raise QueryInvalid("the query is given no file: the columns of its input are not known")
    schema = files.schema_of(volume, request.input_data_paths[0])
    for path in request.input_data_paths[1:]:
        if not files.schema_of(volume, path).equals(schema):
            raise PathRefused(f"{path} has other columns than {request.input_data_paths[0]}")
    rows = pa.RecordBatchReader.from_batches(schema, files.records(volume, request.input_data_paths, schema))
    answer = preprocess(request.transform, rows)
    written = _Written(answer)
    volume.write(request.output_data_path, partial(written.fill))
    if not written.rows:
        volume.remove(request.output_data_path)
    return messages.RawQueryResponseSuccess(num_records=written.rows)


class _Written:
    """Writer of rows to a file, which counts them."""

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._rows = rows
        self.rows = 0

    def fill(self, file: BinaryIO) -> None:
        make: Any = pq.ParquetWriter
        with make(file, self._rows.schema, compression="snappy", store_schema=False) as writer:
            for batch in self._rows:
                writer.write_batch(batch, row_group_size=_ROWS)
                self.rows += batch.num_rows
