"""Files of many kinds give the same rows as a plain CSV file of the same table."""

import bz2
import gzip
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.cli import main
from partirvm.data import ZarrSource, ingest
from partirvm.errors import DataError, MemoryLimitError, MissingDataError
from partirvm.process import settled_memory

N = 60
RNG = default_rng(4)
TABLE = pd.DataFrame(
    {
        "width": RNG.normal(size=N).round(3),
        "town": np.array(["Bern", "Ulm", "Genf"])[np.arange(N) % 3],
        "level": RNG.integers(-400, 4000, size=N),
        "fare": RNG.normal(size=N).round(2),
    }
)
NUMBERS = TABLE.drop(columns="town")
ROWS = TABLE.to_csv(index=False)
VALUES = TABLE.to_csv(index=False, header=False)
WIDE = TABLE.to_csv(index=False, sep=";", decimal=",")
LINES = ROWS.splitlines()


def packed(name, pack):
    """Return a writer of a text in a compressed file."""

    def write(folder, text):
        (folder / name).write_bytes(pack(text.encode()))
        return folder / name

    return write


def zipped(folder, text):
    with zipfile.ZipFile(folder / "t.csv.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", "x")
        archive.writestr("t.csv", text)
    return folder / "t.csv.zip"


def aligned(table):
    """Return a table in columns that are filled up with blanks."""
    return table.to_string(index=False)


def quoted_names(table):
    """Return rows as in auto-mpg.data: blanks between numbers, and a tab before a quoted name."""
    return "".join(
        f'{row.width:<10.3f}{row.level:<8d}{row.fare:<10.2f}\t"{row.town} am See"\n'
        for row in table.itertuples()
    )


def ragged(*lines):
    """Return the table with some more lines in the middle."""
    return "\n".join([*LINES[:20], *lines, *LINES[20:]]) + "\n"


TEXTS = {
    "semicolons": ("t.csv", WIDE, TABLE),
    "tabs": ("t.tsv", TABLE.to_csv(index=False, sep="\t"), TABLE),
    "bars": ("t.txt", TABLE.to_csv(index=False, sep="|"), TABLE),
    "blanks": ("t.txt", TABLE.to_csv(index=False, sep=" "), TABLE),
    "aligned": ("t.dat", aligned(TABLE), TABLE),
    "aligned with tabs": ("t.txt", aligned(TABLE).replace("  ", " \t "), TABLE),
    "blank after comma": ("t.csv", ROWS.replace(",", ", "), TABLE),
    "carriage returns": ("t.csv", ROWS.replace("\n", "\r"), TABLE),
    "Windows lines": ("t.csv", "\ufeff" + ROWS.replace("\n", "\r\n"), TABLE),
    "no line end": ("t.csv", ROWS.rstrip("\n"), TABLE),
    "title lines": ("t.csv", f"Fares of 2023\n\nregion: all, quarter: 1\n{ROWS}", TABLE),
    "title with separators": ("t.csv", f"Fares of 2023,,,\n,,,\n{ROWS}", TABLE),
    "title and semicolons": ("t.csv", f"Fares of 2023\nRegion: Bern, Ulm\n{WIDE}", TABLE),
    "title with the target": ("t.csv", f"means of,fare\n{ROWS}", TABLE),
    "comments": ("t.csv", f"# fares, of 2023\n# all regions\n{ROWS}", TABLE),
    "comments of equal width": ("t.txt", "# in dry air\n# # width level fare\n".replace("# #", "#") + NUMBERS.to_csv(index=False, header=False, sep=" "), NUMBERS),
    "comment as header": ("t.txt", "# " + NUMBERS.to_csv(index=False, sep=" "), NUMBERS),
    "comment as CSV header": ("t.csv", f"# {ROWS}", TABLE),
    "totals": ("t.csv", f"{ROWS}Total,,3,2.5\n", TABLE),
    "totals and source": ("t.csv", f"Fares\n{ROWS}\nGrand total,,,12\nSource: own survey\n\n", TABLE),
    "bad rows": ("t.csv", ragged("1,Ulm,3,4,5", "2,Ulm"), TABLE),
    "blank rows": ("t.csv", f"{ROWS},,,\n,,,\n", TABLE),
    "trailing separator": ("t.csv", ROWS.replace("\n", ",\n"), TABLE),
    "trailing separator in rows": ("t.csv", ROWS.replace("\n", ",\n").replace(",\n", "\n", 1), TABLE),
    "years as names": (
        "t.csv",
        TABLE.set_axis(["town", "2001", "2002", "fare"], axis=1).to_csv(index=False),
        TABLE.set_axis(["town", "2001", "2002", "fare"], axis=1),
    ),
}  # fmt: skip


def plain(folder, table):
    """Return the path of a plain CSV file with a table."""
    folder.mkdir()
    table.to_csv(folder / "plain.csv", index=False)
    return folder / "plain.csv"


@pytest.fixture(scope="module")
def twin_of_table(tmp_path_factory):
    """Return the DATA of a plain CSV file with the table."""
    folder = tmp_path_factory.mktemp("plain")
    TABLE.to_csv(folder / "t.csv", index=False)
    return ingest(folder / "t.csv", folder / "t.zarr", target="fare", auto=True)


def both(source, twin, folder, target="fare"):
    """Return the DATA of a file and of its plain twin."""
    data = ingest(source, folder / "d.zarr", target=target, auto=True)
    return data, ingest(twin, folder / "e.zarr", target=target, auto=True)


def require_equal(data, twin):
    """Check that two DATA have the same columns, rows and targets."""
    assert data.columns.given == twin.columns.given
    assert data.columns.categories == twin.columns.categories
    assert data.n_rows == twin.n_rows
    assert_array_equal(data.tile(0).X, twin.tile(0).X)
    assert_array_equal(data.tile(0).t, twin.tile(0).t)


OFTEN = {
    "semicolons",
    "aligned with tabs",
    "carriage returns",
    "Windows lines",
    "title and semicolons",
    "title with the target",
    "comments",
    "comment as header",
    "totals and source",
    "bad rows",
    "trailing separator in rows",
    "years as names",
}
"""Cases that run by default."""


@pytest.mark.parametrize("kind", some(TEXTS, OFTEN))
def test_a_text_file_gives_the_rows_of_its_plain_twin(kind, tmp_path, twin_of_table):
    name, text, table = TEXTS[kind]
    (tmp_path / name).write_text(text, newline="")
    if table is TABLE:
        data = ingest(tmp_path / name, tmp_path / "d.zarr", target="fare", auto=True)
        require_equal(data, twin_of_table)
    else:
        require_equal(*both(tmp_path / name, plain(tmp_path / "plain", table), tmp_path))


PACKED = {
    "gz": packed("t.csv.gz", gzip.compress),
    "bz2": packed("t.tsv.bz2", bz2.compress),
    "zst": packed("t.txt.zst", lambda text: pa.compress(text, "zstd", asbytes=True)),
    "zip": zipped,
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_packed_file_gives_the_rows_of_its_plain_twin(kind, tmp_path, twin_of_table):
    source = PACKED[kind](tmp_path, f"Fares of 2023\n{ROWS}Sum,,1,2\n")
    data = ingest(source, tmp_path / "d.zarr", target="fare", auto=True)
    require_equal(data, twin_of_table)


SHEETS = {"xlsx": "openpyxl", "ods": "odf", "xls": "xlwt"}
DAYS = TABLE.assign(day=pd.date_range("2023-01-01", periods=N, freq="D"), open=TABLE["level"] > 0)


def write_sheet(path, table, **options):
    """Write a table to the second sheet of a workbook; pandas cannot write .xls files."""
    pytest.importorskip(SHEETS[path.suffix[1:]])
    if path.suffix == ".xls":
        import xlwt

        workbook = xlwt.Workbook()
        workbook.add_sheet("About").write(0, 0, "Fares of 2023")
        sheet = workbook.add_sheet("Rows")
        style = xlwt.easyxf(num_format_str="YYYY-MM-DD")
        for place, name in enumerate(table):
            sheet.write(0, place, name)
            for row, value in enumerate(table[name].tolist(), 1):
                is_day = isinstance(value, pd.Timestamp)
                sheet.write(
                    row, place, value.to_pydatetime() if is_day else value, *[style] * is_day
                )
        workbook.save(path)
        return
    with pd.ExcelWriter(path) as writer:
        pd.DataFrame({"Fares of 2023": []}).to_excel(writer, sheet_name="About", index=False)
        table.to_excel(writer, sheet_name="Rows", index=False, **options)


@pytest.mark.parametrize("ending", SHEETS)
def test_a_sheet_gives_the_rows_of_its_plain_twin(ending, tmp_path):
    pytest.importorskip("python_calamine")
    write_sheet(tmp_path / f"t.{ending}", DAYS)
    data, twin = both(tmp_path / f"t.{ending}", plain(tmp_path / "plain", DAYS), tmp_path)
    require_equal(data, twin)
    assert data.columns.dates == {"day": ("week",)}


def test_a_sheet_may_begin_further_down_and_end_with_a_total(tmp_path, twin_of_table):
    pytest.importorskip("python_calamine")
    total = pd.DataFrame([["Total", None, 1.0, 2.0]], columns=TABLE.columns)
    rows = pd.concat([TABLE.astype({"width": object}), total])
    write_sheet(tmp_path / "t.xlsx", rows, startrow=3, startcol=2)
    data = ingest(tmp_path / "t.xlsx", tmp_path / "d.zarr", target="fare", auto=True)
    require_equal(data, twin_of_table)
    assert "1 row at the end left out: 'Total" in data.notes[str(tmp_path / "t.xlsx")]


def padded(path, mebibytes):
    """Add zeros to a workbook, which are small in the file and count when it is unpacked."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(f"zeros of {mebibytes} MiB", bytes(mebibytes << 20))


def test_a_sheet_that_does_not_fit_into_the_memory_limit_is_refused(tmp_path):
    """Its cells take four times the unpacked size; at most 256 MiB are unpacked."""
    pytest.importorskip("python_calamine")
    write_sheet(tmp_path / "t.xlsx", TABLE)
    padded(tmp_path / "t.xlsx", 100)
    limit = settled_memory() + (390 << 20)
    with pytest.raises(MemoryLimitError, match=r"t\.xlsx: ingesting 4 columns needs"):
        ingest(tmp_path / "t.xlsx", tmp_path / "d.zarr", target="fare", memory_limit=limit)
    padded(tmp_path / "t.xlsx", 157)
    with pytest.raises(MemoryLimitError, match=r"unpacked and would be read whole.*save it as CSV"):
        ingest(tmp_path / "t.xlsx", tmp_path / "d.zarr", target="fare")


HEADLESS = {
    "values": (VALUES, TABLE),
    "blanks": (quoted_names(TABLE), TABLE[["width", "level", "fare", "town"]].assign(town=TABLE["town"] + " am See")),
    "letters": (TABLE[["town", "town"]].assign(y=TABLE["fare"]).to_csv(index=False, header=False),
                TABLE[["town", "town"]].set_axis(["a", "b"], axis=1).assign(y=TABLE["fare"])),
    "numbers": (NUMBERS.to_csv(index=False, header=False, sep="\t"), NUMBERS),
    "gaps": (f"?,Ulm,7,1.5\n{VALUES}", pd.concat([TABLE.head(1).assign(width=np.nan, town="Ulm", level=7, fare=1.5), TABLE])),
}  # fmt: skip


@pytest.mark.parametrize("kind", some(HEADLESS, {"blanks", "letters", "gaps"}))
def test_a_file_without_a_header_gets_numbers_as_names(kind, tmp_path):
    text, table = HEADLESS[kind]
    (tmp_path / "t.data").write_text(text)
    numbered = table.set_axis([f"x{k + 1}" for k in range(table.shape[1])], axis=1)
    target = f"x{list(table).index('fare' if 'fare' in table else 'y') + 1}"
    twin = plain(tmp_path / "plain", numbered)
    data, twin = both(tmp_path / "t.data", twin, tmp_path, target=target)
    require_equal(data, twin)
    assert "the columns are named x1 to" in data.notes[str(tmp_path / "t.data")]


@pytest.mark.parametrize("ending", some(["csv", "parquet"], {"csv"}))
def test_folder_names_are_columns(ending, tmp_path):
    parts = []
    for (town, year), rows in TABLE.assign(year=2020 + np.arange(N) % 2).groupby(["town", "year"]):
        folder = tmp_path / "parts" / f"town={town} %2F Ä" / f"year={year}"
        folder.mkdir(parents=True)
        inner = rows.drop(columns=["town", "year"])
        getattr(inner, f"to_{ending}")(folder / f"rows.{ending}", index=False)
        parts.append(inner.assign(town=f"{town} / Ä", year=year))
    twin = plain(tmp_path / "plain", pd.concat(parts))
    expected = ingest(twin, tmp_path / "e.zarr", target="fare")
    for source in (tmp_path / "parts", f"{tmp_path}/parts/*/*/rows.{ending}"):
        data = ingest(source, tmp_path / "d.zarr", target="fare", overwrite=True)
        require_equal(data, expected)
    assert data.columns.categories["town"] == ("Bern / Ä", "Genf / Ä", "Ulm / Ä")


def test_numbers_in_folder_names_are_read_as_in_a_table(tmp_path):
    for code in ("007", "10"):
        (tmp_path / f"zone={code}").mkdir()
        TABLE.to_parquet(tmp_path / f"zone={code}" / "a.parquet", index=False)
    data = ingest(tmp_path, tmp_path / "d.zarr", target="fare", features=["zone", "width"])
    assert data.columns.categories == {}
    assert set(data.tile(0).X[:, 0]) == {7.0, 10.0}


def test_equal_and_empty_names_are_made_unique_and_said(tmp_path):
    rows = "w,w,,y\n" + "".join(f"{k},{k * k % 7},{k % 5}.5,{k % 3}\n" for k in range(30))
    (tmp_path / "t.csv").write_text(rows)
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="y")
    assert data.columns.features == ("w", "w.1", "x3")
    said = data.notes[str(tmp_path / "t.csv")]
    assert said == (
        "2 columns are named 'w': they are read as w, w.1; 1 column without a name: read as x3"
    )
    new = "x3,w,w\n2.5,9,4\n".replace("x3,", ",")
    (tmp_path / "new.csv").write_text(new)
    with pytest.raises(DataError, match="no column 'x3'"):
        ingest(tmp_path / "new.csv", tmp_path / "e.zarr", like=data)


def test_row_names_as_R_writes_them_are_a_column(tmp_path):
    text = 'a b y\n"r1" 1.5 2 3\n"r2" 2.5 3 1\n"r3" 0.5 1 0\n'
    (tmp_path / "t.txt").write_text(text)
    data = ingest(tmp_path / "t.txt", tmp_path / "d.zarr", target="y", features=["a", "b"])
    rows = data.tile(0).X[np.argsort(data.original_rows(0))]
    assert_array_equal(rows, [[1.5, 2], [2.5, 3], [0.5, 1]])


REFUSED = {
    "totals": (f"{ROWS}Total,,3,2.5\n", ["--skip-rows 0,1"]),
    "bad rows": (ragged("1,Ulm,3,4,5"), ["--skip-bad-rows"]),
    "all": (f"Fares\n{ragged('1,Ulm')}Sum:,,,1\n", ["--skip-rows 1,1", "--skip-bad-rows"]),
    "no header": (VALUES, ["--no-header", "--target x4"]),
    "target twice": (TABLE.assign(copy=TABLE["fare"]).set_axis([*TABLE, "fare"], axis=1).to_csv(index=False),
                     ["--exclude fare.1"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", some(REFUSED, {"all", "no header", "target twice"}))
def test_the_command_in_an_error_can_be_pasted(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, expected = REFUSED[kind]
    (tmp_path / "my fares.csv").write_text(text)
    (tmp_path / "plain.csv").write_text(ROWS)
    command = ["ingest", "my fares.csv", "d.zarr", "--target", "fare", "--quiet"]
    assert main(command) == 2
    error = capsys.readouterr().err
    pasted = error[error.index("partirvm ingest") :].split("`")[0].strip()
    assert all(flag in pasted for flag in expected)
    assert main(shlex.split(pasted)[1:]) == 0
    data = ZarrSource("d.zarr")
    twin = ingest("plain.csv", "e.zarr", target="fare")
    assert_array_equal(data.tile(0).X, twin.tile(0).X)
    assert_array_equal(data.tile(0).t, twin.tile(0).t)


def test_options_overrule_what_is_found(tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n3,4\n5,6\nTotal,9\n")
    options = {"target": "x2", "categorical": "none", "missing": ["Total"]}
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", skip_rows=0, header=False, **options)
    assert data.n_rows == 4
    data = ingest(
        tmp_path / "t.csv", tmp_path / "e.zarr", skip_rows=(1, 1), header=False, target="x2"
    )
    assert sorted(data.tile(0).X[:, 0].tolist()) == [3, 5]
    data = ingest(
        tmp_path / "t.csv", tmp_path / "f.zarr", skip_rows=(0, 1), header=True, target="2"
    )
    assert (data.n_rows, data.columns.features) == (2, ("1",))


def test_bad_rows_are_counted_and_listed_by_line(tmp_path):
    (tmp_path / "t.csv").write_text("Fares\n" + ragged("1,Ulm,3,4,5", "", "2,Ulm"))
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="fare", skip_bad_rows=True)
    said = data.notes[str(tmp_path / "t.csv")]
    assert "2 bad rows left out: line 22 (5 fields), line 24 (2 fields)" in said


def test_later_files_are_read_with_the_options_of_the_first(tmp_path):
    """Titles that no rule finds, and bad rows: the options are stored in DATA."""
    titles = "a,b,c,d\n1,2,3,4\n"
    (tmp_path / "t.csv").write_text(f"{titles}{ragged('1,Ulm')}")
    data = ingest(
        tmp_path / "t.csv",
        tmp_path / "d.zarr",
        target="fare",
        skip_rows=2,
        skip_bad_rows=True,
        shuffle=None,
    )
    assert data.columns.reading == {"skip_rows": "2", "skip_bad_rows": True}
    (tmp_path / "new.csv").write_text(f"{titles}{ragged('3,Bern')}")
    new = ingest(tmp_path / "new.csv", tmp_path / "new.zarr", like=data, shuffle=None)
    assert_array_equal(new.tile(0).X, data.tile(0).X)
    longer = ingest(tmp_path / "new.csv", tmp_path / "d.zarr", append=True, again=True)
    assert longer.n_rows == 2 * N


def test_bad_rows_to_predict_are_refused_unless_requested(tmp_path):
    """A row left out would shift the predictions of all rows after it."""
    (tmp_path / "t.csv").write_text(ROWS)
    (tmp_path / "new.csv").write_text(ragged("1,Ulm"))
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="fare")
    options = {"like": data, "exclude": ["fare"], "auto": True}
    with pytest.raises(DataError, match=r"line 21 \(2 fields\) +--skip-bad-rows"):
        ingest(tmp_path / "new.csv", tmp_path / "new.zarr", **options)
    new = ingest(tmp_path / "new.csv", tmp_path / "new.zarr", skip_bad_rows=True, **options)
    assert new.n_rows == N


NEAR = {
    "fare.csv": "fares.csv",
    "Fares.CSV": "fares.csv",
    "trip.xlsx": "trips.xlsx",
}


@pytest.mark.parametrize("name", NEAR)
def test_similar_names_of_a_missing_file_are_suggested(name, tmp_path):
    for other in ("fares.csv", "trips.xlsx", "unlike.parquet"):
        (tmp_path / other).write_text(ROWS)
    with pytest.raises(MissingDataError, match=f"does not exist.*{NEAR[name]}"):
        ingest(tmp_path / name, tmp_path / "d.zarr", target="fare")


def test_missing_folders_and_patterns_say_so(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, message in [
        ("no/t.csv", "nor does its folder"),
        ("empty", "this folder holds no files"),
        ("*.csv", "no file matches this pattern"),
    ]:
        with pytest.raises(MissingDataError, match=message):
            ingest(f"{tmp_path}/{name}", tmp_path / "d.zarr", target="fare")


def test_values_with_line_breaks_are_read_in_blocks_of_any_size(tmp_path):
    text = "note,x,y\n" + "".join(f'"a ""b""\n{k % 3}",{k},{k % 7}\n' for k in range(40_000))
    (tmp_path / "t.csv").write_text(text)
    data = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", target="y", shuffle=None)
    assert data.n_rows == 40_000
    assert data.columns.categories == {"note": ('a "b"\n0', 'a "b"\n1', 'a "b"\n2')}
    assert_array_equal(data.tile(0).X[:, 1], np.arange(data.tile_rows))


@pytest.mark.parametrize("ending", some(["csv", "data", "xlsx"], {"csv"}))
def test_a_second_file_of_the_kind_is_predicted_scored_and_appended(
    ending, tmp_path, monkeypatch, capsys
):
    """The second file has other titles, and its columns in another order where they have names."""
    monkeypatch.chdir(tmp_path)
    order = ["level", "fare", "town", "width"]
    later = TABLE.sample(frac=0.5, random_state=1)
    target = "x4" if ending == "data" else "fare"
    if ending == "csv":
        Path("t.csv").write_text(f"Fares\n{ROWS}Total,,,1\n")
        Path("new.csv").write_text(
            f"Later fares, of May\n\n{later[order].to_csv(index=False)}Total,1,,\n"
        )
    elif ending == "data":
        Path("t.data").write_text(VALUES.replace(",", "  "))
        Path("new.data").write_text(later.to_csv(index=False, header=False, sep="\t"))
    else:
        write_sheet(Path("t.xlsx"), TABLE, startrow=2)
        write_sheet(Path("new.xlsx"), later[order])
    TABLE.to_csv("plain.csv", index=False)
    later.to_csv("plain_new.csv", index=False)
    scores = []
    for source, new, name in [
        (f"t.{ending}", f"new.{ending}", target),
        ("plain.csv", "plain_new.csv", "fare"),
    ]:
        assert (
            main(["ingest", source, f"{source}.zarr", "--target", name, "--auto", "--quiet"]) == 0
        )
        options = "--gamma scale --max-rounds 1 --residual none --noise constant --quiet"
        assert main(["fit", f"{source}.zarr", f"{source}.job", *options.split()]) == 0
        assert main(["predict", f"{source}.job", new, f"{source}.out.csv", "--quiet"]) == 0
        capsys.readouterr()
        assert main(["evaluate", f"{source}.job", new, "--quiet"]) == 0
        scores.append(capsys.readouterr().out)
        assert main(["ingest", new, f"{source}.zarr", "--append", "--auto", "--quiet"]) == 0
    assert scores[0] == scores[1]
    assert Path(f"t.{ending}.out.csv").read_bytes() == Path("plain.csv.out.csv").read_bytes()
    assert_array_equal(
        ZarrSource(f"t.{ending}.zarr").tile(0).X, ZarrSource("plain.csv.zarr").tile(0).X
    )


def test_a_label_with_the_name_of_the_target_is_no_header(tmp_path):
    """The header lacks the name of the row names."""
    path = tmp_path / "r.csv"
    rows = [f'"{k + 1}",{7 * k % 11}.5,{"xyz"[k % 3]},{k * k}' for k in range(30)]
    path.write_text("\n".join(["a,kind,y", *rows]) + "\n")
    data = ingest(path, tmp_path / "d.zarr", target="y", auto=True)
    assert data.n_rows == 30
    assert data.columns.given == ("a", "kind")
