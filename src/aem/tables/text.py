"""Delimited text: what separates its fields, its decimal sign, encoding and header, from its head."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import csv as arrow_csv

from aem.base.frames import is_number
from aem.errors import AemError

# By name, in the order in which they are preferred.
DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}
OLD = "cp1252"  # the usual encoding of text that is not Unicode
HEAD = 2**17  # bytes from which the layout of a text is found
# Smallest share of lines with the most frequent number of fields.
REGULAR = 0.5
LETTERS = 0.1  # weight of a field that is not a number, relative to one that is
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # characters that no text has
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
# A comma that may also separate thousands.
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")

Records = list[list[str]]


@dataclass(frozen=True)
class TextTable:
    """What a text holds.

    Parameters
    ----------
    columns
        the columns, by position.
    names
        the fields of its first line; None where that is a row.
    remarks
        what was assumed, as sentences about the text.
    """

    columns: list[pa.ChunkedArray]
    names: list[str] | None
    remarks: tuple[str, ...] = ()


def delimiter_of(given: str) -> str:
    """Return the character that a user means, who may have given its name.

    Parameters
    ----------
    given
        a character, or one of the names in `DELIMITERS`.
    """
    known = {**DELIMITERS, "\\t": "\t"}
    character = known.get(given.lower(), given)
    if len(character) != 1 or character in '"\r\n' or character.isalnum():
        raise AemError(
            f"'{given}' is no delimiter: give a character that is neither a letter, a digit nor a "
            f"quote, or one of {', '.join(DELIMITERS)}"
        )
    return character


def read_text(
    path: Path,
    packing: str | None,
    delimiter: str | None,
    usual: str,
    known: Sequence[str] = (),
) -> TextTable:
    """Read a text, and find out how it is written from its head.

    A first line of numbers is a row, unless it has names of columns that are known.

    Parameters
    ----------
    path
        the file.
    packing
        how it is compressed, in pyarrow's words.
    delimiter
        what separates its fields; found without any.
    usual
        what separates the fields of files of such a name, where the head does not tell.
    known
        names of the columns of a model.
    """
    with pa.input_stream(str(path), compression=packing) as stream:
        layout = _layout(*_head(stream), path, delimiter, usual, known)
    with pa.input_stream(str(path), compression=packing) as stream:
        source = _respaced(stream, layout.encoding) if layout.delimiter == " " else stream
        try:
            columns = arrow_csv.read_csv(source, *layout.options()).columns
        except pa.ArrowInvalid as error:
            reason = str(error).strip().splitlines()[0]
            divided = f"fields were divided by {layout.delimiter!r}: --delimiter names another"
            raise ValueError(f"{reason}; {divided}") from error
    if len(columns) == 1 and pa.types.is_string(columns[0].type):
        raise AemError(
            f"{path} has a single column, of text: give what separates its fields with --delimiter"
        )
    remarks = []
    if layout.decimal == ",":
        remarks.append("its decimal commas were read as points")
    if layout.encoding == OLD:
        remarks.append("it is not UTF-8 and was read as Windows-1252")
    if layout.headless:
        _refuse_doubtful(layout.header, columns, path)
        return TextTable(list(columns), None, tuple(remarks))
    return TextTable(list(columns), layout.header, tuple(remarks))


@dataclass(frozen=True)
class _Layout:
    """How a text is written.

    Parameters
    ----------
    encoding, delimiter, decimal
        its encoding, what separates fields, and the decimal sign.
    header
        the fields of its first line.
    headless
        whether that is a row.
    renamed
        whether the header has a name more than the first line, above names of rows.
    announced
        whether a line before it says what the delimiter is.
    lines_in_fields
        whether fields in quotes have several lines.
    """

    encoding: str
    delimiter: str
    decimal: str
    header: list[str]
    headless: bool
    renamed: bool
    announced: bool
    lines_in_fields: bool

    def options(
        self,
    ) -> tuple[arrow_csv.ReadOptions, arrow_csv.ParseOptions, arrow_csv.ConvertOptions]:
        """Return the same in pyarrow's words."""
        spaced = self.delimiter == " "  # such texts are written anew
        read = arrow_csv.ReadOptions(
            autogenerate_column_names=self.headless,
            column_names=self.header if self.renamed else None,
            skip_rows=self.announced + self.renamed,
            encoding="utf-8" if spaced else self.encoding.removesuffix("-sig"),
        )
        parse = arrow_csv.ParseOptions(
            delimiter="," if spaced else self.delimiter, newlines_in_values=self.lines_in_fields
        )
        return read, parse, arrow_csv.ConvertOptions(decimal_point=self.decimal)


def _layout(
    head: bytes, whole: bool, path: Path, given: str | None, usual: str, known: Sequence[str]
) -> _Layout:
    encoding = _encoding(head, path, whole=whole)
    text = codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
    first, _, rest = text.partition("\n")
    announced = re.fullmatch("sep=(.)", first.strip())  # as spreadsheets do
    if announced:
        given, text = given or announced[1], rest
    if not text.strip():
        raise AemError(f"{path} is empty")
    delimiter = given or _find_delimiter(text, usual, whole=whole)
    records = _records(text, delimiter, whole=whole)
    if not records:
        raise ValueError(f"{delimiter!r} does not divide its lines: --delimiter names another")
    header = records[0]
    renamed = _lacks_a_name(records)
    if renamed:
        header = ["", *header]
    (width, _), *_ = Counter(map(len, records)).most_common(1)
    if len(header) < width:
        raise AemError(
            f"the first line of {path} has fewer fields ({len(header)}) than most others ({width}): "
            "remove what stands above the names of the columns, name those that have no name, or "
            "give another delimiter with --delimiter"
        )
    headless = _is_row(header, known)
    return _Layout(
        encoding=encoding,
        delimiter=delimiter,
        decimal=_decimal(records if headless else records[1:]),
        header=header,
        headless=headless,
        renamed=renamed,
        announced=bool(announced),
        lines_in_fields=any("\n" in field for record in records for field in record),
    )


def _head(stream: pa.NativeFile) -> tuple[bytes, bool]:
    """Return the beginning of a text, with two complete lines at least, and whether it is all."""
    head = b""
    while len(head) < HEAD or head.count(b"\n") <= 2:
        more = stream.read(HEAD)
        if not more:
            return head, True
        head += more
    return head, False


def _encoding(head: bytes, path: Path, *, whole: bool) -> str:
    """Name the encoding of a text: Unicode, or else what older spreadsheets write."""
    marked = (encoding for mark, encoding in BYTE_ORDER_MARKS if head.startswith(mark))
    for encoding in (*marked, "utf-8", OLD):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
        except UnicodeDecodeError:
            continue
        if not CONTROL.search(text):
            return encoding
    raise AemError(f"{path} is not a text: if it is a table, save it as CSV in UTF-8")


def _records(text: str, delimiter: str, *, whole: bool) -> Records:
    """Return the fields of complete lines; none if they cannot be divided like this."""
    lines = io.StringIO(text, newline="")
    try:
        if delimiter == " ":
            records = _spaced(lines)
        else:
            records = [record for record in csv.reader(lines, delimiter=delimiter) if record]
    except csv.Error:
        return []
    return records if whole or len(records) == 1 else records[:-1]


def _spaced(lines: Iterable[str]) -> Records:
    """Return fields with any number of blanks between them."""
    trimmed = (line.replace("\t", " ").strip() for line in lines)
    reader = csv.reader(trimmed, delimiter=" ", skipinitialspace=True)
    return [record for record in reader if record]


def _respaced(stream: pa.NativeFile, encoding: str) -> pa.BufferReader:
    """Return a text with commas where it has any number of blanks, which pyarrow cannot read."""
    text = io.StringIO()
    csv.writer(text).writerows(_spaced(io.TextIOWrapper(stream, encoding)))
    return pa.BufferReader(text.getvalue().encode())


def _find_delimiter(text: str, usual: str, *, whole: bool) -> str:
    """Find what divides most lines into equally many fields, most of which are numbers."""
    best, found = 0.0, usual
    for delimiter in sorted(DELIMITERS.values(), key=lambda known: known != usual):
        records = _records(text, delimiter, whole=whole)
        if not records:
            continue
        (width, count), *_ = Counter(map(len, records)).most_common(1)
        share = count / len(records)
        if width < 2 or share < REGULAR:
            continue
        fields = [field for record in records[1:] or records for field in record]
        numbers = sum(is_number(f) or bool(DECIMAL_COMMA.fullmatch(f)) for f in fields)
        likely = share * (LETTERS + numbers / len(fields))
        if likely > best:
            best, found = likely, delimiter
    return found


def _decimal(rows: Records) -> str:
    """Return the decimal sign: a comma if some numbers have one that cannot separate thousands."""
    fields = {field.strip() for row in rows for field in row}
    commas = {field for field in fields if DECIMAL_COMMA.fullmatch(field)}
    points = any("." in field and is_number(field) for field in fields)
    sure = any(not THOUSANDS.fullmatch(field) for field in commas)
    grouped = any(THOUSANDS.fullmatch(field) for field in fields - commas)
    return "," if sure and not points and not grouped else "."


def _lacks_a_name(records: Records) -> bool:
    """Return whether rows begin with names or numbers of theirs, and the header has no name for that.

    R writes tables like this, and pandas prints them.
    """
    header, *rows = records
    if not rows or len(header) < 2 or any(len(row) != len(header) + 1 for row in rows):
        return False
    if not any(row[-1] for row in rows):
        return False  # a delimiter too many at the end of each line
    labels = [row[0] for row in rows]
    counted = any(labels == [str(i + first) for i in range(len(labels))] for first in (0, 1))
    return counted or not any(map(is_number, labels))


def _is_row(first: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether a first line is a row rather than a header.

    "0,1,2" is how a data frame without names is written: a header, but no names.
    """
    if not all(is_number(field) or DECIMAL_COMMA.fullmatch(field) for field in first):
        return False
    return not are_names(first, known) and not count_from_zero(first)


def are_names(numbers: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether some of the numbers are known as names and none stands there twice.

    Parameters
    ----------
    numbers
        fields of a first line.
    known
        names of the columns of a model.
    """
    return len(set(numbers)) == len(numbers) and not set(numbers).isdisjoint(known)


def count_from_zero(names: Sequence[str]) -> bool:
    """Return whether names are the numbers that a data frame gives to columns without names.

    Parameters
    ----------
    names
        fields of a first line.
    """
    return list(names) == [str(i) for i in range(len(names))]


def _refuse_doubtful(first: Sequence[str], columns: list[pa.ChunkedArray], path: Path) -> None:
    """Refuse a first line that counts, as years do, above rows with fractions: it is hardly a row."""
    if len(first) < 3 or not all(map(str.isdecimal, first)):
        return
    start, end = int(first[0]), int(first[-1])
    counts = list(map(int, first)) == list(range(start, start + len(first)))
    if counts and any(pa.types.is_floating(column.type) for column in columns):
        raise AemError(
            f"the first line of {path} counts from {start} to {end} and may be a header or a row: "
            f"write names with a letter (y{start}), or numbers with a point ({start}.0)"
        )
