"""The columns of files as people write them: how they are read, and that it is said."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars
import pytest

from node2seq.data import read_graph
from node2seq.data.encoding import decimal_comma

TRAIN = ("train", "--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind", "--out", "run")
QUICK = ("--epochs", "30", "--set", "hidden_channels=8", "--set", "num_layers=1", "--set", "dropout=0.0")
COUNT = 300
CHECK = ("data", "check", "--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind", "--fill", "0")


@pytest.fixture
def files(cli) -> list[int]:
    """Two files of a shop: amounts with thousands, dates, gaps, names and categories; the date decides."""
    rng = np.random.default_rng(0)
    days = rng.permutation(COUNT)
    kinds = [int(day > 150) for day in days]
    rows = ["id;amount;since;town;name;kind"]
    for i, day in enumerate(days):
        amount = f"{rng.integers(1, 9)},{rng.integers(0, 999):03d}" if i % 7 else "NA"
        since = (date(2020, 1, 1) + timedelta(days=int(day))).isoformat()
        town = ("Rome", "Oslo", "null")[i % 3]
        kind = "nan" if i % 50 == 0 else ("old", "new")[kinds[i]]
        rows.append(f"{i};{amount};{since};{town};customer {i};{kind}")
    Path("nodes.csv").write_text("\n".join(rows) + "\n")
    ends = [f"{i}\t{(i + step) % COUNT}\t{step}" for i in range(COUNT) for step in (1, 2)]
    Path("edges.csv").write_text("\n".join(["source\ttarget\tstep", *ends]) + "\n")
    return kinds


def test_a_file_of_people_is_read_as_people_mean_it(cli, files):
    done = cli(*TRAIN, "--fill", "mean", *QUICK)
    assert done.status == 0, done.err
    assert "column 'name' has 300 different texts" in done.out
    assert "it is left out; to use it, give --categorical name" in done.out
    assert "'nan' is read as no label (6 nodes)" in done.out
    assert "columns of" in done.out
    assert "that are not used: 'step'" in done.out
    config = json.loads(Path("run/config.json").read_text())
    amount, since, town = config["graph"]["schema"]["features"]
    assert [column["kind"] for column in (amount, since, town)] == ["number", "time", "category"]
    assert 1000 < amount["fill"] < 9999
    assert town["categories"] == ["Oslo", "Rome"]
    assert config["graph"]["class_names"] == ["new", "old"]
    # The date alone tells the class.
    assert cli("evaluate", "run", "--json").json["test"]["accuracy"] > 0.9
    report = Path("run/report.html").read_text()
    for words in (
        "How the columns of the nodes were read",
        "date or time",
        "not used",
        "to predict, as a class",
    ):
        assert words in report


def test_data_check_lists_the_columns_the_split_and_what_is_predicted(cli, files):
    shown = cli(*CHECK).out
    for line in (
        "columns            id: id of the node",
        "kind: to predict, as a class",
        "amount: number, standardised (",
        "since: date or time, standardised (20",
        " days)",
        "town: category, 2 values: 'Oslo', 'Rome'; missing cells get no category",
        "name: not used",
        "split              175 nodes to train, 59 to validate, 60 to test",
    ):
        assert line in shown, (line, shown)
    found = cli(*CHECK, "--json").json
    assert sum(found["split"].values()) == found["labelled"] == 294
    assert found["columns"]["name"] == "not used"


def test_amounts_and_dates_have_the_values_that_they_say(files):
    data = read_graph("edges.csv", "nodes.csv", "kind", fill=0.0, features=["amount", "since"])
    frame = polars.read_csv("nodes.csv", separator=";")
    amounts = [0.0 if cell == "NA" else float(cell.replace(",", "")) for cell in frame["amount"]]
    assert data.x is not None
    assert data.x[:, 0].tolist() == amounts
    days = np.array([date.fromisoformat(cell).toordinal() for cell in frame["since"]])
    expected = (days - days.mean()) / days.std()
    assert np.allclose(data.x[:, 1].numpy(), expected, atol=1e-4)


def test_decimal_commas_are_numbers_and_said(cli, files):
    rows = Path("nodes.csv").read_text().splitlines()
    amounts = ["3,14", "1.234,5", "-0,5", "1,234", "2.000", "7", "NA"]
    cells = [row.split(";") for row in rows]
    for i, row in enumerate(cells[1:]):
        row[1] = amounts[i % 7]
    Path("nodes.csv").write_text("\n".join(";".join(row) for row in cells) + "\n")
    shown = cli(*CHECK)
    assert "amount: number" in shown.out
    assert "column 'amount': a comma precedes the decimals, '3,14' is read as 3.14" in shown.out + shown.err
    data = read_graph("edges.csv", "nodes.csv", "kind", fill=0.0, features=["amount"])
    assert data.x is not None
    expected = np.array([3.14, 1234.5, -0.5, 1.234, 2000.0, 7.0, 0.0], np.float32)
    assert (data.x[:7, 0].numpy() == expected).all()
    # A new file whose cells alone would say thousands is read as the trained one was.
    Path("new.csv").write_text("id;amount\n0;1,234\n1;2,000\n")
    Path("new_edges.csv").write_text("source,target\n0,1\n")
    new = read_graph("new_edges.csv", "new.csv", schema=data.schema)
    assert new.x is not None
    assert new.x[:, 0].tolist() == [np.float32(1.234), 2.0]


@pytest.mark.parametrize("cells", [["1,2,3", "4,5"], ["1,000", "2,000"], ["a,b", "3,1"]])
def test_other_commas_are_not_decimals(cells):
    frame = polars.DataFrame({"x": cells})
    assert decimal_comma(frame["x"], "the table") is None


def test_categories_that_training_did_not_have_are_told_when_predicting(cli, files):
    assert cli(*TRAIN, "--fill", "mean", *QUICK).status == 0
    text = Path("nodes.csv").read_text().replace(";Rome;", ";Bergen;", 2)
    Path("new.csv").write_text(text)
    new = ("predict", "run", "--edges", "edges.csv", "--nodes", "new.csv", "--out", "p.csv")
    done = cli(*new)
    assert done.status == 0, done.err
    assert "note: column 'town': category 'Bergen' is not known from training" in done.out
    assert any("Bergen" in note for note in cli(*new, "--force", "--json").json["notes"])


def test_words_for_a_missing_cell_are_missing_in_every_column(cli, files):
    done = cli(*TRAIN)
    assert done.status == 2
    assert "column 'amount': 43 cells are missing" in done.err
    done = cli(*TRAIN, "--ignore", "amount")
    assert done.status == 2
    assert "column 'town': 100 cells are missing, the first in row 3" in done.err
    data = read_graph(
        "edges.csv", "nodes.csv", "kind", features=["town"], categorical=["town"]
    )  # named, they are categories
    assert data.schema["features"][0]["categories"] == ["Oslo", "Rome", "null"]


def test_each_file_has_its_own_separator(cli, files):
    assert cli(*CHECK).status == 0
    assert cli(*CHECK, "--delimiter", ";").status == 0
    Path("edges.csv").write_text(Path("edges.csv").read_text().replace("\t", "|"))
    assert cli(*CHECK, "--json").json["edges"] == 2 * COUNT


def test_dates_of_a_parquet_file_are_dates(cli, files):
    frame = polars.read_csv("nodes.csv", separator=";").with_columns(polars.col("since").str.to_date())
    frame.write_parquet("nodes.parquet")
    for column in ("since",):
        one = read_graph("edges.csv", "nodes.csv", "kind", features=[column])
        other = read_graph("edges.csv", "nodes.parquet", "kind", features=[column])
        assert one.x is not None
        assert other.x is not None
        assert (one.x == other.x).all()


def test_a_word_that_was_a_category_in_a_run_stays_one(cli, files):
    # As in runs of before, where NA and null were categories like any other.
    assert cli(*TRAIN, "--ignore", "amount", "--categorical", "town", *QUICK).status == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["run"]["source"]["reading"].pop("categorical") == ["town"]
    Path("run/config.json").write_text(json.dumps(config))
    done = cli("evaluate", "run", "--json")
    assert done.status == 0, done.err


def test_a_column_of_the_parts_of_a_split_is_not_a_feature_in_silence(cli, files):
    frame = polars.read_csv("nodes.csv", separator=";")
    parts = polars.Series("part", [("Train", "valid", "test", None)[i % 4] for i in range(COUNT)])
    frame.with_columns(parts).write_csv("nodes.csv")
    note = "column 'part' holds the parts of a split and is read as a feature; to split by it, give --split"
    assert note in cli(*CHECK).out
    split = cli(*CHECK, "--split", "part")
    assert note not in split.out
    assert "part: split" in split.out
    frame.with_columns(part=polars.lit("train")).write_csv("nodes.csv")
    assert "parts of a split" not in cli(*CHECK).out


def test_data_check_fits_a_terminal_with_long_names_of_classes(cli, files):
    frame = polars.read_csv("nodes.csv", separator=";")
    names = [
        f"Department of Agricultural Affairs and the Forests, section {i % 20:02d}" for i in range(COUNT)
    ]
    frame.with_columns(kind=polars.Series(names)).write_csv("nodes.csv")
    lines = cli(*CHECK).out.splitlines()
    assert "  Department of A…ests, section 00 15 (5.0 %)" in lines
    assert "  and 8 more" in lines


def write_special(since: list[str], share: list[str], name: str = "nodes.csv") -> None:
    """The nodes with a date and a percentage each, as people write them; their number decides the class."""
    cells = enumerate(zip(since, share, strict=True))
    rows = [f'{i};{day};"{part}";{"xy"[i % 2]}' for i, (day, part) in cells]
    Path(name).write_text("\n".join(["id;since;share;kind", *rows]) + "\n")
    ends = [f"{i},{(i + 1) % len(rows)}" for i in range(len(rows))]
    Path("edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")


DAYS = [date(2024, 1, 1) + timedelta(days=7 * i) for i in range(40)]
SHARES = [f"{i}.5 %" if i % 3 else f"{i}%" for i in range(40)]
VALUES = [i + 0.5 if i % 3 else i for i in range(40)]
SPLIT = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")


def features_of(**options) -> tuple[np.ndarray, dict[str, dict]]:
    """The features that are read, and how each column is encoded."""
    data = read_graph("edges.csv", "nodes.csv", "kind", **options)
    assert data.x is not None
    return data.x.numpy(), {column["name"]: column for column in data.schema["features"]}


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d/%m/%Y", "%d.%m.%Y 00:00"])
def test_dates_that_start_with_the_day_and_percentages_have_their_values(cli, form: str):
    write_special([day.isoformat() for day in DAYS], [str(value) for value in VALUES])
    plain, _ = features_of()
    write_special([day.strftime(form) for day in DAYS], SHARES)
    x, columns = features_of()
    assert (columns["since"]["kind"], columns["since"]["first"]) == ("time", "day")
    assert (columns["share"]["kind"], columns["share"]["unit"]) == ("number", "%")
    assert (x == plain).all()
    said = cli("data", "check", *SPLIT).out
    assert f"the day comes first in its dates, '{DAYS[2].strftime(form)}' is read as 2024-01-15" in said
    assert "column 'share': '0%' is read as the number without '%'" in said
    assert "number, in %" in said


AMOUNTS = {
    "$": [f"-${i},000.50" if i % 2 else f"$ {i}" for i in range(40)],
    "€": [f"-{i}.000,50 €" if i % 2 else f"{i}€" for i in range(40)],
    "CHF": [f"CHF -{i}000.50" if i % 2 else f"{i}\u00a0CHF" for i in range(40)],
}


@pytest.mark.parametrize("unit", AMOUNTS)
def test_amounts_of_one_currency_have_their_values(cli, unit: str):
    values = [-(1000 * i + 0.5) if i % 2 else i for i in range(40)]
    write_special([day.isoformat() for day in DAYS], [str(value) for value in values])
    plain, _ = features_of()
    write_special([day.isoformat() for day in DAYS], AMOUNTS[unit])
    x, columns = features_of()
    assert (columns["share"]["kind"], columns["share"]["unit"]) == ("number", unit)
    assert (x == plain).all()
    said = cli("data", "check", *SPLIT).out
    assert f"share: number, in {unit}, standardised" in said
    assert f"column 'share': {AMOUNTS[unit][0]!r} is read as the number without {unit!r}" in said


def test_amounts_of_two_currencies_stay_categories(cli):
    write_special([day.isoformat() for day in DAYS], [f"{'$€'[i % 2]}{i}" for i in range(40)])
    _, columns = features_of()
    assert columns["share"]["kind"] == "category"
    assert "if it holds numbers or dates, write them as 12.5" in cli("data", "check", *SPLIT).out


@pytest.mark.parametrize(
    "since",
    [
        [f"{i % 12 + 1:02d}.{i % 11 + 1:02d}.2024" for i in range(40)],  # each could be either
        [day.strftime("%m/%d/%Y") for day in DAYS],
        [*(day.strftime("%d.%m.%Y") for day in DAYS[:-1]), "soon"],
        [*(day.strftime("%d.%m.%Y") for day in DAYS[:-1]), "31.02.2024"],
    ],
)
def test_dates_that_may_start_with_the_month_stay_what_they_are(cli, since: list[str]):
    write_special(since, [*SHARES[:30], *(f"{i} €" for i in range(10))])
    _, columns = features_of()
    assert [column["kind"] for column in columns.values()] == ["category", "category"]
    said = cli("data", "check", *SPLIT).out
    assert "if it holds numbers or dates, write them as 12.5 or 2024-03-31" in said


def test_new_files_are_read_as_dates_and_percentages_too(cli):
    write_special([day.strftime("%d.%m.%Y") for day in DAYS], SHARES)
    done = cli("train", *SPLIT, "--out", "run", "--epochs", "3", "--set", "hidden_channels=4")
    assert done.status == 0, done.err
    assert cli("predict", "run", "--out", "same.csv").status == 0
    new = ("--edges", "edges.csv", "--nodes", "new.csv")
    # Without the dates that tell, and with plain ones beside.
    few = [day.strftime("%d/%m/%Y") if day.day < 13 else day.isoformat() for day in DAYS]
    write_special(few, SHARES, "new.csv")
    done = cli("predict", "run", *new, "--out", "p.csv")
    assert done.status == 0, done.err
    assert Path("p.csv").read_text() == Path("same.csv").read_text()
    write_special(few, [*SHARES[:-1], "0.4"], "new.csv")
    done = cli("predict", "run", *new, "--out", "q.csv")
    assert "'0.4' in row 40 is no number with '%', as all cells of the column were in training" in done.err


def test_a_run_that_had_percentages_as_categories_keeps_them(cli):
    write_special([day.strftime("%d.%m.%Y") for day in DAYS], SHARES)
    as_before = ("--categorical", "share", "--ignore", "since")
    assert cli("train", *SPLIT, *as_before, "--out", "run", *QUICK).status == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["run"]["source"]["reading"].pop("categorical") == ["share"]
    assert config["run"]["source"]["reading"].pop("ignore") == ["since"]  # as of many different texts
    Path("run/config.json").write_text(json.dumps(config))
    done = cli("evaluate", "run", "--json")
    assert done.status == 0, done.err


@pytest.mark.parametrize("share", [SHARES, AMOUNTS["$"]])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_store_reads_dates_and_amounts_as_a_table_in_memory(cli, monkeypatch, chunk: int, share: list[str]):
    pytest.importorskip("duckdb")
    from node2seq.data.conversion import steps
    from node2seq.data.conversion.engine import chunks_of
    from node2seq.data.store import StoredGraph

    monkeypatch.setattr(steps, "chunks_of", lambda files, columns, *_: chunks_of(files, columns, chunk))
    write_special([day.strftime("%d.%m.%Y") for day in DAYS], share)
    done = cli("data", "convert", *SPLIT, "--dtype", "float32", "--out", "st")
    assert done.status == 0, done.err
    assert "the day comes first in its dates, '15.01.2024' is read as 2024-01-15" in done.out
    x, columns = features_of(standardize=True)
    stored = StoredGraph("st")
    found = {column["name"]: column for column in stored.manifest["schema"]["features"]}
    assert found["since"] == pytest.approx(columns["since"])
    assert found["share"] == pytest.approx(columns["share"])
    assert np.allclose(stored.x[:].float().numpy(), x, atol=1e-6)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_store_leaves_what_may_be_otherwise_as_it_is(cli, monkeypatch, chunk: int):
    pytest.importorskip("duckdb")
    from node2seq.data.conversion import steps
    from node2seq.data.conversion.engine import chunks_of

    monkeypatch.setattr(steps, "chunks_of", lambda files, columns, *_: chunks_of(files, columns, chunk))
    write_special([day.strftime("%m/%d/%Y") for day in DAYS], [*SHARES[:30], *(f"{i} €" for i in range(10))])
    assert cli("data", "convert", *SPLIT, "--out", "st").status == 0
    columns = json.loads(Path("st/manifest.json").read_text())["schema"]["features"]
    assert [column["kind"] for column in columns] == ["category", "category"]
