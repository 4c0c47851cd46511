"""The page is read as a browser reads it, and its claims are checked on the table it came from."""

import csv
import dataclasses
import datetime
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import urllib.parse
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from gbt_jax import frames
from gbt_jax._inference._fit import select_groups
from gbt_jax.report import _held_out, _ranking_table, report_html, write_report

HOSTILE = [
    "<script>window.broken = 1</script>",
    '</script><img src="x" onerror="window.broken = 1">',
    'it\'s "quoted" & <b>bold</b> &amp;',
    "<!-- <script>",
    "\u202eturned around",
    "$title ${data} \\u003c",
    "🦊 fox",
    "Ünïcödé, ÉCOLE",
    "long " + "x" * 500,
    "plain",
]

OPTIONS = {"by": "who", "law": "binary", "draws": 200}
MADE = datetime.datetime(2024, 5, 31, 12, 30, tzinfo=datetime.UTC)


def votes(path):
    """350 comparisons of ten hostile labels, and 240 of fourteen tame ones."""
    random = np.random.default_rng(3)
    rows = []
    for who, names, size in (
        ("few </option>", HOSTILE, 350),
        ("many", [f"item {i}" for i in range(14)], 240),
    ):
        merit = np.linspace(-1, 1, len(names))
        for i in range(size):
            a = i % len(names)
            b = (a + random.integers(1, len(names))) % len(names)
            won = random.uniform() < 1 / (1 + np.exp(-2 * (merit[a] - merit[b])))
            rows.append((who, names[a if won else b], names[b if won else a]))
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("who", "winner", "loser"), *rows])
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    path = folder / "votes.csv"
    rows = votes(path)
    ranking = frames.fit_table(path, "pairs", **OPTIONS)
    findings = frames.check(ranking.votes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ranking_table, "FIRST", 10)  # rows at once, of ten and of fourteen
        options = {"preset": "pairs", "seed": 0, "made": MADE, "top_groups": 1}
        page = report_html(ranking, findings, **options)
        yield path, rows, ranking, findings, page


class Parsed(html.parser.HTMLParser):
    """Tags, attributes, the text of each section, and rows of cells of each table."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.tables = Counter(), [], []
        self.sections, self.scripts, self.labels = {}, [], []
        self._section, self._open = "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.tags[tag] += 1
        self.attributes += attributes
        self._open.append(tag)
        if tag == "section":
            self._section = known["id"]
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th") and "hidden" not in known:
            self.tables[-1][-1].append("")
        elif tag == "script":
            self.scripts.append("")
        elif tag == "bdi":
            self.labels.append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        self.sections[self._section] = self.sections.get(self._section, "") + data
        if "script" in self._open:
            self.scripts[-1] += data
        if "bdi" in self._open:
            self.labels[-1] += data
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data


def test_sections(data):
    path, rows, ranking, findings, page = data
    parsed = Parsed(page)
    said = parsed.sections
    for fact in ("590 comparisons of 24 items in 2 groups by who", "binary", "σ = 1", "95%"):
        assert fact in said["summary"]
    assert "All 2 fits converged" in said["summary"]
    assert "Findings on the data: 1 warning and 1 note." in said["summary"]
    assert parsed.tags["noscript"] == 1
    best = [row for row in ranking.arrow.to_pylist() if row["who"] == rows[0][0]]
    shown = parsed.tables[0][1:]
    assert [row[1] for row in shown] == [row["item"] for row in best]
    decimals = len(shown[0][2].split(".")[1])
    for row, expected in zip(shown, best, strict=True):
        numbers = [float(cell.replace("−", "-")) for cell in (row[2], *row[4:7])]
        wanted = [expected[name] for name in ("score", "lower", "upper", "std")]
        np.testing.assert_allclose(numbers, wanted, atol=0.51 * 10**-decimals)
        ends = expected["rank_lower"], expected["rank_upper"]
        assert row[7] == "–".join(str(end) for end in sorted(set(ends)))
        assert row[8:] == [str(expected["comparisons"]), str(expected["component"])]
    places = [said["findings"].lower().index(finding.what.lower()) for finding in findings]
    assert places
    assert places == sorted(places)
    for finding in findings:
        assert finding.advice.replace("`", "") in said["findings"]
        assert all(example in said["findings"] for example in finding.examples)
    facts = ("votes.csv", "pairs", "binary", "gbt_jax ", "jax ", "numpy ", "pyarrow ", "Python ")
    assert all(fact in said["provenance"] for fact in (*facts, "2024-05-31 12:30 UTC"))
    assert str(path.parent) not in page


def test_labels_stay_text(data):
    *_, page = data
    parsed = Parsed(page)
    assert parsed.tags["script"] == 2
    assert not {"img", "b"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert set(HOSTILE) <= set(parsed.labels)
    embedded = json.loads(parsed.scripts[0])
    assert set(HOSTILE) <= set(embedded["columns"]["item"])
    assert embedded["groups"] == ["few </option>", "many"]
    assert "<" not in parsed.scripts[0]


def test_nothing_is_loaded(data):
    *_, page = data
    assert set(re.findall(r"https?://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    parsed = Parsed(page)
    assert not {"link", "iframe", "object", "base"} & set(parsed.tags)
    references = [x for name, x in parsed.attributes if name in ("src", "href", "xlink:href")]
    assert all(x.startswith("#") for x in references)
    assert not re.search(r"url\(|@import", page)
    policy = next(x for name, x in parsed.attributes if name == "content" and "src" in x)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_same_page_again(data):
    _, _, ranking, findings, page = data
    options = {"preset": "pairs", "seed": 0, "top_groups": 1}
    assert report_html(ranking, findings, made=MADE, **options) == page
    later = report_html(ranking, findings, made=MADE.replace(year=2025), **options)
    assert later == page.replace("2024-05-31", "2025-05-31")


def test_hash(data):
    path, rows, ranking, findings, page = data
    assert hashlib.sha256(path.read_bytes()).hexdigest() in page
    columns = dict(zip(("who", "winner", "loser"), map(list, zip(*rows, strict=True)), strict=True))
    table = frames.read_votes(pa.table(columns), "pairs", by="who")
    lines = (json.dumps([*row, 1.0, 1.0]) + "\n" for row in rows)
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    from_table = frames.Ranking(ranking.arrow, table, ranking.fit, ranking.level)
    said = Parsed(report_html(from_table, findings, top_groups=0)).sections["provenance"]
    assert expected in said
    assert "the rows read" in said
    assert "Created" not in said


def test_failures_are_shown():
    """Somebody who never lost has no finite score without a prior."""
    names = {"who": ["<i>", "<i>", "good", "good"], "winner": list("abcd"), "loser": list("cddc")}
    both = frames.fit_table(pa.table(names), "pairs", by="who", prior_std=np.inf, draws=10)
    votes = dataclasses.replace(both.votes.select(both.votes.group == 0), group_labels={})
    alone = frames.Ranking(both.arrow.slice(0, 4), votes, select_groups(both.fit, 0, 1), both.level)
    findings = frames.check(both.votes)
    for ranking, what, predicted in (
        (both, "1 of 2 fits failed", "Too few comparisons to hold some out: 2"),
        (alone, "The fit failed", "No fit succeeded"),
    ):
        parsed = Parsed(report_html(ranking, findings, title="A & B", top_groups=0))
        said = parsed.sections
        assert ("role", "alert") in parsed.attributes
        assert what in said["summary"]
        assert "without a prior these data have no finite optimum" in said["summary"]
        assert "converged" not in said["summary"]
        assert ("<i>" in said["summary"]) == (ranking is both)
        assert parsed.tables[0][1][2:7] == ["–", "", "–", "–", "–"]
        assert predicted in said["calibration"]
        assert "A & B" in parsed.labels


def test_calibration_is_of_what_was_not_seen(data):
    """Held-out answers change what is observed, not what is expected."""
    _, rows, ranking, _, page = data
    held = np.random.default_rng(0).choice(len(rows), len(rows) // 10, replace=False)
    turned = [(w, b, a) if i in held else (w, a, b) for i, (w, a, b) in enumerate(rows)]
    columns = zip(("who", "winner", "loser"), map(list, zip(*turned, strict=True)), strict=True)
    other = frames.fit_table(pa.table(dict(columns)), "pairs", **OPTIONS)
    before, after = map(_held_out.held_out_calibration, (ranking, other))
    np.testing.assert_allclose(after.calibration.predicted, before.calibration.predicted, atol=1e-9)
    np.testing.assert_allclose(after.calibration.observed, -before.calibration.observed, atol=1e-9)
    assert (before.num_held, before.num_fitted, before.num_groups) == (59, 531, 2)
    parsed = Parsed(page)
    said = parsed.sections["calibration"]
    assert "59 comparisons of all 2 groups" in said
    assert "The other 531 were refitted" in said
    bins = next(table for table in parsed.tables if table[0][0] == "Comparisons")[1:]
    assert sum(int(row[0]) for row in bins) == 59
    shown = [[float(x.replace("−", "-")) for x in row[1:3]] for row in bins]
    found = np.stack([before.calibration.predicted, before.calibration.observed], axis=1)
    np.testing.assert_allclose(shown, found, atol=6e-4)
    assert parsed.tags["circle"] == len(bins)


def test_comparisons_that_decide_the_first_place(data):
    """The rows inline_label, taken out of the table, do what the page says they do."""
    _, rows, ranking, _, page = data
    parsed = Parsed(page)
    flips, moves = (table for table in parsed.tables if table[0][0] == "Row")
    first = ranking.arrow.to_pylist()[0]

    def refitted(numbers):
        left = [row for i, row in enumerate(rows, 1) if i not in numbers]
        columns = zip(("who", "winner", "loser"), map(list, zip(*left, strict=True)), strict=True)
        table = frames.fit_table(pa.table(dict(columns)), "pairs", **OPTIONS).arrow
        return {row["item"]: row["score"] for row in table.to_pylist() if row["who"] == rows[0][0]}

    for row in flips[1:] + moves[1:]:
        assert tuple(row[1:3]) == rows[int(row[0]) - 1][1:]
    scores = refitted({int(row[0]) for row in flips[1:]})
    other = max(scores, key=scores.__getitem__)
    assert other != first["item"]
    named = other[:80] + "…" * (len(other) > 80)
    assert f"{named} is first; a refit confirms it" in parsed.sections["top"]
    assert f"{first['item']} is first" in parsed.sections["top"]
    change = refitted({int(moves[1][0])})[first["item"]] - first["score"]
    assert float(moves[1][-2].replace("−", "-")) == pytest.approx(change, abs=1e-3)
    assert "1 smaller group is not analysed" in parsed.sections["top"]


def test_elo(data):
    _, _, ranking, findings, _ = data
    page = report_html(ranking, findings, elo=True, top_groups=0)
    shown = json.loads(Parsed(page).scripts[0])
    wanted = ranking.to_elo().arrow
    for name in ("score", "std", "lower", "upper"):
        np.testing.assert_allclose(shown["columns"][name], wanted[name].to_numpy(), atol=1e-3)
    assert shown["zero"] == 1000
    assert "Elo" in Parsed(page).tables[0][0]


def test_more_rows_than_a_page_holds(data, monkeypatch):
    """The best of every group stay."""
    _, _, ranking, findings, _ = data
    monkeypatch.setattr(_ranking_table, "_MOST_ROWS", 12)
    page = report_html(ranking, findings, top_groups=0)
    shown = json.loads(Parsed(page).scripts[0])["columns"]
    assert shown["group"] == [0] * 6 + [1] * 6
    assert shown["item"][:6] == ranking.arrow["item"].to_pylist()[:6]
    assert "12 items of the lowest ranks are not on this page" in page


def test_written_whole_or_not_at_all(data, tmp_path, monkeypatch):
    _, _, ranking, findings, _ = data
    target = tmp_path / "page.html"
    write_report(target, ranking, findings, made=MADE, top_groups=0)
    written = target.read_bytes()
    assert written.decode() == report_html(ranking, findings, made=MADE, top_groups=0)

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(frames.TableError, match="No space left"):
        write_report(target, ranking, findings, title="another", top_groups=0)
    assert target.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(frames.TableError, match="cannot write the file"):
        write_report(tmp_path / "none" / "page.html", ranking, findings, top_groups=0)


def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no Chromium, and CI has to have one")
    if found is None:
        pytest.skip("there is no Chromium")
    return found


# The page stands unchanged in two frames, one as narrow as a telephone; this script uses it.
DRIVER = """
<!DOCTYPE html><meta charset="utf-8"><body><pre id="outcome"></pre><script>
const page = PAGE;
const open = (width) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  Object.assign(frame, { width, height: 900, srcdoc: page });
  frame.onload = () => resolve(frame.contentWindow);
  document.body.append(frame);
});
(async () => {
  const outcome = {};
  console.log("the console is heard");
  try {
    const win = await open(1100), doc = win.document;
    const table = () => doc.getElementById("ranking-table");
    const column = (k) => [...table().tBodies[0].rows].map((row) => row.cells[k].textContent);
    const head = (key) => table().querySelector(`th[data-key=${key}]`);
    const sorted = () => [...table().querySelectorAll("th")].filter((th) => th.ariaSort !== null
      && th.ariaSort !== "none").map((th) => [th.dataset.key, th.ariaSort]);
    const click = (key) => head(key).querySelector("button").click();
    const put = (id, value, kind) => {
      const control = doc.getElementById(id);
      control.value = value;
      control.dispatchEvent(new win.Event(kind, { bubbles: true }));
    };
    outcome.drawn = table().tBodies[0].innerHTML;
    outcome.start = sorted();
    outcome.sorts = {};
    for (const th of table().querySelectorAll("thead th:not([hidden])")) {
      if (th.dataset.key === "rank") continue;
      click(th.dataset.key);
      outcome.sorts[th.dataset.key] = [sorted(), column(1)];
    }
    click("score");
    const down = column(1);
    click("score");
    outcome.turned = [down, column(1)];
    put("search", "école", "input");
    outcome.searched = [column(1), doc.getElementById("status").textContent];
    put("search", "<SCRIPT>", "input");
    outcome.script = column(1);
    put("search", "nobody", "input");
    outcome.nobody = column(1);
    put("search", "", "input");
    put("group", "1", "change");
    const more = doc.getElementById("more");
    outcome.many = [column(1).length, more.hidden, doc.getElementById("status").textContent];
    more.click();
    outcome.all = [column(1).length, more.hidden];
    put("group", "-1", "change");
    outcome.together = [doc.getElementById("status").textContent, [...new Set(column(2))].sort()];
    outcome.broken = win.broken ?? null;
    const narrow = await open(390);
    const root = narrow.document.documentElement;
    outcome.widths = [root.scrollWidth, root.clientWidth];
  } catch (error) {
    outcome.error = String(error.stack);
  }
  document.getElementById("outcome").textContent = encodeURIComponent(JSON.stringify(outcome));
})();
</script>
"""


@pytest.fixture(scope="module")
def used(data, tmp_path_factory):
    """What happened in the browser, and what it wrote to its console."""
    *_, page = data
    folder = tmp_path_factory.mktemp("browser")
    embedded = json.dumps(page).replace("<", "\\u003c")
    (folder / "driver.html").write_text(DRIVER.replace("PAGE", embedded), encoding="utf-8")
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=10000", "--dump-dom", (folder / "driver.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    outcome = re.search(r'<pre id="outcome">([^<]+)</pre>', done.stdout)
    assert outcome, done.stdout[:2000] + done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(urllib.parse.unquote(outcome[1])), console


def test_browser_sorts(data, used):
    _, rows, ranking, _, page = data
    outcome, console = used
    assert len(console) == 1, console
    assert "the console is heard" in console[0]
    assert "error" not in outcome, outcome["error"]
    assert outcome["broken"] is None
    assert outcome["start"] == [["rank", "ascending"]]
    table = [row for row in ranking.arrow.to_pylist() if row["who"] == rows[0][0]]
    directions = {"score": -1, "lower": -1, "upper": -1, "comparisons": -1}
    keys = {"width": "std", "item": None}
    for key, (sorts, items) in outcome["sorts"].items():
        way = directions.get(key, 1)
        assert sorts == [[key, "ascending" if way > 0 else "descending"]]
        assert sorted(items) == sorted(HOSTILE)
        name = keys.get(key, key)
        if name is not None:
            value = {row["item"]: row[name] for row in table}
            found = [way * value[item] for item in items]
            assert np.all(np.diff(found) >= -1e-4), key
    names = outcome["sorts"]["item"][1]
    assert names.index("long " + "x" * 500) < names.index("plain") < names.index(HOSTILE[7])
    down, up = outcome["turned"]
    assert down == [row["item"] for row in table]
    assert up == down[::-1]
    # What the script draws is what stood there for those without one.
    assert Parsed(f"<table>{outcome['drawn']}</table>").tables[0] == Parsed(page).tables[0][1:]


def test_browser_searches(used):
    outcome, _ = used
    assert outcome["searched"] == [["Ünïcödé, ÉCOLE"], "1 of 10 items"]
    assert sorted(outcome["script"]) == sorted([HOSTILE[0], HOSTILE[3]])
    assert outcome["nobody"] == []
    assert outcome["many"] == [10, False, "14 items"]
    assert outcome["all"] == [14, True]
    assert outcome["together"] == ["24 items", ["few </option>", "many"]]


def test_narrow_screens_do_not_scroll_sideways(used):
    outcome, _ = used
    scrolled, seen = outcome["widths"]
    assert seen <= 390
    assert scrolled <= seen
