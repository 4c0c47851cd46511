"""What is drawn is what was computed: artists are read back, and compared with the numbers."""

import sys

import matplotlib

matplotlib.use("Agg")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from matplotlib import pyplot
from matplotlib.figure import Figure
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws, plots

WEIGHT = np.random.default_rng(1).integers(1, 4, 25).astype(float)
WEIGHT[7] = 0
ROWS = random_comparisons(8, 25, weight=WEIGHT)
LABELS = [
    "tea",
    "price_$5 or $6",
    "ünï",
    "a\nb",
    "e",
    "f",
    "g",
    "A title that is far too long to be shown",
]
# Items 0 to 3 and 4 to 6 are never compared with each other, item 7 with nobody.
APART = gbt.Comparisons(
    [0, 1, 2, 3, 4, 5, 6, 0],
    [1, 2, 3, 0, 5, 6, 4, 1],
    [0.3, 0.4, -0.2, 0.1, 0.8, 0.5, 0.2, 0.7],
    num_items=8,
)


@pytest.fixture(scope="module")
def fit():
    return gbt.fit(gbt.Model(laws.Uniform(), 1.5), ROWS)


def made_fit(rows, prior_std=1.0, seed=0):
    """A fit whose scores nobody has computed, for pictures of scores alone."""
    scores, zero = np.random.default_rng(seed).normal(size=rows.num_items), jnp.zeros(())
    model = gbt.Model(laws.Uniform(), prior_std)
    result = gbt.RESULTS.successful
    return gbt.Fit(jnp.asarray(scores), zero, zero, result, (zero, zero), model, rows)


@pytest.fixture(autouse=True)
def clean():
    """Settings stay as they are, and what is drawn can be rendered without a warning."""
    before = dict(matplotlib.rcParams)
    yield
    for number in pyplot.get_fignums():
        pyplot.figure(number).draw_without_rendering()
    assert dict(matplotlib.rcParams) == before
    pyplot.close("all")


@pytest.fixture
def ax():
    return Figure().add_subplot()


def names_of(ticks):
    return [tick.get_text() for tick in ticks]


def dots(ax):
    return ax.lines[0].get_xdata(), ax.lines[0].get_ydata()


def bars(collection):
    return np.array([segment.ravel() for segment in collection.get_segments()])


def test_ranking(fit, ax):
    assert plots.ranking(fit, labels=LABELS, level=0.8, ax=ax) is ax
    assert not pyplot.get_fignums()
    order = np.argsort(-np.asarray(fit.scores))
    x, y = dots(ax)
    np.testing.assert_array_equal(x, np.asarray(fit.scores)[order])
    np.testing.assert_array_equal(y, np.arange(8))
    _, lower, upper = (np.asarray(x)[order] for x in gbt.intervals(fit, level=0.8))
    np.testing.assert_array_equal(bars(ax.collections[0])[:, ::2], np.stack([lower, upper], 1))
    bottom, top = ax.get_ylim()
    assert bottom > top  # the first is on top
    shown = dict(zip(order, names_of(ax.get_yticklabels()), strict=True))
    assert [shown[i] for i in (0, 1, 2, 3)] == ["tea", r"price_\$5 or \$6", "ünï", "a b"]
    assert shown[7] == "A title that is fa…be shown"
    assert ax.get_title("left") == "scores and 80% intervals"


def test_labels_of_the_comparisons_are_the_default(ax):
    rows = gbt.Comparisons.from_labels(["tea", "tea"], ["milk", "juice"], [0.5, 0.9])
    plots.ranking(gbt.fit(gbt.Model(laws.Uniform(), 1.0), rows), ax=ax)
    assert names_of(ax.get_yticklabels()) == ["tea", "milk", "juice"]


def test_ranking_of_the_best(fit):
    ax = plots.ranking(fit, top=3)
    order = np.argsort(-np.asarray(fit.scores))[:3]
    assert names_of(ax.get_yticklabels()) == [str(item) for item in order]
    assert ax.get_title("left").endswith("the best 3 of 8 items")
    assert len(plots.ranking(fit, top=None).get_yticks()) == 8


def test_ranking_without_a_common_scale(ax, monkeypatch):
    """Components one below the other, divided by lines."""
    free = made_fit(APART, np.inf)
    ends = free.scores, free.scores - 1, free.scores + 1
    monkeypatch.setattr("gbt_jax.plots._ranking.intervals", lambda *_, **options: ends)
    plots.ranking(free, ax=ax)
    scores = np.asarray(free.scores)
    order = [
        *sorted(range(4), key=lambda i: -scores[i]),
        *sorted((4, 5, 6), key=lambda i: -scores[i]),
        7,
    ]
    assert names_of(ax.get_yticklabels()) == [str(item) for item in order]
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [3.5, 6.5]
    assert "3 components without a common scale" in ax.get_title("left")


def test_graph(fit):
    ax = plots.comparison_graph(fit, labels=LABELS)
    lines, nodes = ax.collections
    x, y = nodes.get_offsets().T
    order = np.argsort(-np.asarray(fit.scores))
    np.testing.assert_array_equal(y, np.asarray(fit.scores)[order])
    np.testing.assert_array_equal(nodes.get_array(), y)
    # The bar beside has the limits of the axis.
    for limits in (ax.figure.axes[1].get_ylim(), nodes.get_clim()):
        np.testing.assert_allclose(limits, ax.get_ylim(), rtol=1e-12)
    place = np.argsort(order)
    counts = {}
    for a, b, weight in zip(np.asarray(ROWS.a), np.asarray(ROWS.b), WEIGHT, strict=True):
        pair = frozenset((int(place[a]), int(place[b])))
        counts[pair] = counts.get(pair, 0) + weight
    counts = {pair: count for pair, count in counts.items() if count}
    drawn = {}
    for segment, width in zip(lines.get_segments(), lines.get_linewidths(), strict=True):
        ends = [int(np.flatnonzero((x == end[0]) & (y == end[1]))[0]) for end in segment]
        drawn[frozenset(ends)] = width
    assert drawn.keys() == counts.keys()
    pairs = sorted(counts, key=counts.__getitem__)
    widths = [drawn[pair] for pair in pairs]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert ax.get_title("left").endswith(f"1 to {max(counts.values()):g}")
    again = plots.comparison_graph(fit, labels=LABELS).collections[1].get_offsets()
    np.testing.assert_array_equal(again, nodes.get_offsets())


def test_names_in_the_graph_do_not_overlap():
    """Many items of about the same score, and long names."""
    fit = made_fit(random_comparisons(25, 60))
    ax = plots.comparison_graph(fit, labels=[f"a long name, no. {item}" for item in range(25)])
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len({text.get_text() for text in ax.texts}) == 25
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert ax.figure.bbox.containsx(box.x0)
        assert ax.figure.bbox.containsx(box.x1)


def test_graph_of_components_and_of_a_part(fit, ax):
    """Components do not mix from left to right; the most compared items are kept."""
    plots.comparison_graph(made_fit(APART), ax=ax)
    x = dict(zip(names_of(ax.texts), ax.collections[1].get_offsets()[:, 0], strict=True))
    four, three = ([x[str(i)] for i in part] for part in (range(4), (4, 5, 6)))
    assert max(four) < min(three) <= max(three) < x["7"]
    part = plots.comparison_graph(fit, top=3)
    degree = np.bincount(np.append(ROWS.a, ROWS.b), np.tile(WEIGHT, 2))
    kept = [int(name) for name in names_of(part.texts)]
    assert len(kept) == 3
    assert degree[kept].min() >= np.delete(degree, kept).max()
    assert "the most compared 3 of 8 items" in part.get_title("left")


def test_density_of_laws():
    ax = plots.law({"normal": laws.Gaussian(0.7), "slider": laws.Uniform()})
    normal, slider = ax.lines
    np.testing.assert_allclose(
        normal.get_ydata(), scipy.stats.norm.pdf(normal.get_xdata(), scale=0.7), rtol=1e-12
    )
    inside = np.abs(slider.get_xdata()) < 1
    np.testing.assert_allclose(slider.get_ydata()[inside], 0.5)
    assert not slider.get_ydata()[~inside].any()
    assert names_of(ax.get_legend().get_texts()) == ["normal", "slider"]
    assert ax.get_ylabel() == "density f(r)"


def test_masses_of_laws():
    ax = plots.law(
        {
            "count": laws.SymmetrizedPoisson(2.0),
            "ties": laws.Davidson(0.5),
            "slider": laws.Uniform(),
        }
    )
    counts, chances = dots(ax)
    # The variance is λ + λ² = 6, and four standard deviations are shown.
    np.testing.assert_allclose(counts, np.arange(-9, 10), atol=1e-9)
    expected = scipy.stats.poisson.pmf(np.abs(np.arange(-9, 10)), 2) / 2
    expected[9] *= 2
    np.testing.assert_allclose(chances, expected, rtol=1e-9)
    np.testing.assert_allclose(ax.lines[1].get_xdata(), [-1, 0, 1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.4, 0.2, 0.4])
    stems = bars(ax.collections[1])
    np.testing.assert_allclose(stems, [[-1, 0, -1, 0.4], [0, 0, 0, 0.2], [1, 0, 1, 0.4]])
    assert ax.get_ylabel() == "probability or density f(r)"


def test_infinite_density_leaves_the_picture():
    """Beta(½) is the arcsine law: 1/(π √(1 − r²))."""
    ax = plots.law(laws.Beta(0.5))
    assert 1.08 / np.pi < ax.get_ylim()[1] < 10
    assert max(ax.lines[0].get_ydata()) > 50
    assert ax.get_title("left") == "Beta(0.5): distribution at equal scores"


def test_moments_of_laws():
    named = {"Binary": laws.Binary(), "normal": laws.Gaussian(2.0)}
    mean, variance = (plots.law(named, what=w, max_difference=3.0) for w in ("mean", "variance"))
    t = mean.lines[0].get_xdata()
    assert (t[0], t[-1]) == (-3, 3)
    np.testing.assert_allclose(mean.lines[0].get_ydata(), np.tanh(t), atol=1e-14)
    np.testing.assert_allclose(mean.lines[1].get_ydata(), 4 * t, atol=1e-14)
    np.testing.assert_allclose(variance.lines[0].get_ydata(), 1 / np.cosh(t) ** 2, rtol=1e-12)
    # By default until 90% of the largest value, or three standard deviations.
    reach = plots.law(laws.Binary(), what="mean").lines[0].get_xdata()[-1]
    np.testing.assert_allclose(np.tanh(reach), 0.9)
    assert plots.law(named, what="mean").lines[0].get_xdata()[-1] == reach


def test_sensitivity(fit):
    ax = plots.sensitivity(fit, labels=LABELS)
    matrix = np.asarray(gbt.sensitivity(fit))
    columns = np.argsort(-np.linalg.norm(matrix, axis=0), kind="stable")
    columns = columns[WEIGHT[columns] > 0]
    order = np.argsort(-np.asarray(fit.scores))
    (image,) = ax.images
    np.testing.assert_allclose(image.get_array(), matrix[order][:, columns], atol=1e-12)
    low, high = image.get_clim()
    assert -low == high == np.abs(matrix).max()
    assert len(ax.get_xticks()) == 24
    pair = [(" ".join(LABELS[x[columns[0]]].split())) for x in (ROWS.a, ROWS.b)]
    assert ax.get_xticklabels()[0].get_text() == " – ".join(
        plots._axes.shorten(x, 20) for x in pair
    )


def test_part_of_a_sensitivity(fit, ax):
    """The strongest columns, the rows that they move, and numbers in the cells."""
    plots.sensitivity(fit, comparisons=np.arange(10), items=[0, 2, 4, 6], top=3, ax=ax)
    matrix = np.asarray(gbt.sensitivity(fit, comparisons=np.arange(10), items=[0, 2, 4, 6]))
    columns = np.argsort(-np.linalg.norm(matrix, axis=0))[:3]
    kept = np.sort(np.argsort(-np.linalg.norm(matrix[:, columns], axis=1))[:3])
    kept = kept[np.argsort(-np.asarray(fit.scores)[[0, 2, 4, 6]][kept])]
    expected = matrix[kept][:, columns]
    np.testing.assert_allclose(ax.images[0].get_array(), expected, atol=1e-12)
    assert names_of(ax.get_yticklabels()) == [str(2 * i) for i in kept]
    assert names_of(ax.texts) == [f"{x:+.2g}".replace("-", "−") for x in expected.ravel()]
    assert "the strongest 3 of 9 comparisons" in ax.get_title("left")
    assert "the most moved 3 of 4 items" in ax.get_title("left")


def test_influence(fit, ax):
    changes = np.asarray(gbt.influence.leave_out(fit))
    plots.influence(fit, labels=LABELS, top=5, ax=ax)
    lengths = np.linalg.norm(changes, axis=0)
    order = np.argsort(-lengths)[:5]
    drawn = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(drawn, lengths[order], rtol=1e-9)
    most = np.abs(changes[:, order[0]]).argmax()
    name = plots._axes.shorten(" ".join(LABELS[most].split()), 16)
    said = f"{name} {changes[most, order[0]]:+.2g}"
    assert ax.texts[0].get_text() == said.replace("-", "−")
    assert ax.get_title("left").endswith("the strongest 5 of 24 comparisons")
    signed = plots.influence(fit, item=2, top=24)
    order = np.argsort(-np.abs(changes[2]))[:24]
    np.testing.assert_allclose([bar.get_width() for bar in signed.patches], changes[2, order])
    assert {bar.get_width() > 0 for bar in signed.patches} == {True, False}


def test_influence_says_what_comparisons_say(ax, monkeypatch):
    """Bars by hand: of comparisons, of which one alone holds two parts together, and of judges."""
    changes = np.array([[0.1, 0, np.nan], [0.3, -0.6, np.nan], [0, 0.8, np.nan]])
    monkeypatch.setattr("gbt_jax.plots._influence.leave_out", lambda *_, **options: changes)
    rows = gbt.Comparisons([0, 0, 1], [1, 2, 2], [-0.5, 0, 0.25], [1, 3, 1], num_items=3)
    plots.influence(made_fit(rows), labels=["tea", "milk", "$1_000"], ax=ax)
    assert names_of(ax.get_yticklabels()) == [r"tea even with \$1_000 ×3", "milk over tea 0.5"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [1, 0.1**0.5])
    assert names_of(ax.texts) == [r"\$1_000 +0.8", "milk +0.3"]
    assert ax.get_title("left").endswith("1 without which there is no optimum")
    groups = plots.influence(made_fit(rows), groups=["bob", "carl", "ada"], item=1)
    assert names_of(groups.get_yticklabels()) == ["bob", "ada"]
    np.testing.assert_allclose([bar.get_width() for bar in groups.patches], [-0.6, 0.3])


def made_calibration():
    return gbt.prediction.Calibration(
        count=np.array([40.0, 41, 40]),
        predicted=np.array([0.1, 0.3, 0.6]),
        observed=np.array([0.15, 0.2, 0.65]),
        standard_error=np.array([0.05, 0.04, 0.03]),
        statistic=6.5,
        degrees_of_freedom=3,
        log_score=-0.6,
        log_score_error=0.1,
        root_log_score=-0.69,
        squared_error=0.3,
        expected_squared_error=0.31,
    )


def test_calibration(ax):
    made = made_calibration()
    plots.calibration(made, level=0.9, ax=ax)
    diagonal, observed = ax.lines
    assert diagonal.get_slope() == 1
    np.testing.assert_array_equal(observed.get_xdata(), made.predicted)
    np.testing.assert_array_equal(observed.get_ydata(), made.observed)
    half = scipy.stats.norm.ppf(0.95) * made.standard_error
    ends = np.stack([made.predicted - half, made.predicted + half], 1)
    np.testing.assert_allclose(bars(ax.collections[1])[:, 1::2], ends, rtol=1e-6)
    (outline,) = (path.vertices for path in ax.collections[0].get_paths())
    for x, (low, high) in zip(made.predicted, ends, strict=True):
        at = outline[np.isclose(outline[:, 0], x), 1]
        np.testing.assert_allclose((at.min(), at.max()), (low, high), rtol=1e-6)
    assert names_of(ax.texts) == ["40", "41", "40"]
    assert "χ²(3) = 6.5, p = 0.09" in ax.get_title("left")


def test_calibration_of_a_fit(fit, ax, monkeypatch):
    calls = []

    def calibrate(*arguments, **options):
        calls.append((*arguments, options))
        return made_calibration()

    monkeypatch.setattr("gbt_jax.plots._calibration.calibrate", calibrate)
    plots.calibration(fit, ROWS, bins=3, ax=ax)
    assert calls == [(fit, ROWS, {"bins": 3})]
    with pytest.raises(TypeError, match="together with held_out comparisons"):
        plots.calibration(fit)
    with pytest.raises(TypeError, match="need a Fit"):
        plots.calibration(made_calibration(), bins=3)


FUNCTIONS = ("ranking", "comparison_graph", "sensitivity", "influence")


@pytest.mark.parametrize("num_items", [0, 2])
def test_nothing_to_draw(num_items):
    fit = gbt.fit(gbt.Model(laws.Uniform(), 1.0), gbt.Comparisons([], [], [], num_items=num_items))
    for name in FUNCTIONS:
        ax = getattr(plots, name)(fit)
        ax.figure.draw_without_rendering()
        assert ax.get_title(loc="left") + ax.get_title()  # says what it would show


@pytest.mark.parametrize("name", [*FUNCTIONS, "calibration"])
def test_what_is_no_successful_fit_is_refused(name):
    draw = getattr(plots, name)
    rows = gbt.Comparisons([0], [1], [1.0], num_items=2)
    failed = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows, throw=False)
    with pytest.raises(ValueError, match="did not find the optimum"):
        draw(failed)
    rows = gbt.Comparisons.from_labels(["tea"], ["milk"], [1.0], group=["ada"])
    grouped = gbt.fit(gbt.Model(laws.Binary(), 1.0), rows)
    with pytest.raises(TypeError, match=rf"one group: call plots\.{name}\(fit\['ada'\]\)"):
        draw(grouped)
    with pytest.raises(TypeError, match="a Fit is needed, not int"):
        draw(3)
    assert not pyplot.get_fignums()


def test_arguments_are_checked(fit):
    for name in FUNCTIONS:
        draw = getattr(plots, name)
        with pytest.raises(ValueError, match=r"one name per item \(8\), not 2"):
            draw(fit, labels=["tea", "milk"])
        with pytest.raises(ValueError, match="not one string"):
            draw(fit, labels="12345678")
        with pytest.raises(ValueError, match="top must be an integer of at least 1"):
            draw(fit, top=0)
        with pytest.raises(TypeError, match="one matplotlib Axes, not ndarray"):
            draw(fit, ax=np.zeros(2))
    with pytest.raises(ValueError, match="item has 8, and there are 8 of them"):
        plots.influence(fit, item=8)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        plots.calibration(made_calibration(), level=95)


class Undecided(laws.AbstractRootLaw):
    def cgf(self, t):
        return jnp.logaddexp(0.0, t * t / 2) - jnp.log(2.0)


def test_laws_are_checked():
    with pytest.raises(NotImplementedError, match="Undecided has no log_prob"):
        plots.law(Undecided())
    assert not pyplot.get_fignums()
    assert plots.law(Undecided(), what="variance").get_title("left").startswith("Undecided()")
    with pytest.raises(ValueError, match="what must be one of density, mean, variance"):
        plots.law(laws.Binary(), what="cgf")
    with pytest.raises(ValueError, match="max_difference must be positive"):
        plots.law(laws.Binary(), what="mean", max_difference=0)
    for wrong in (laws.Binary, {}, {"Binary": laws.Binary}):
        with pytest.raises(TypeError, match="law"):
            plots.law(wrong)


def test_without_matplotlib(fit, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ImportError, match=r'pip install "gbt-jax\[plots\]"'):
        plots.ranking(fit)


def test_single_precision():
    """The values of a law without end are found up to rounding, and are in its support."""
    with jax.enable_x64(False):
        ax = plots.law(laws.Scaled(laws.SymmetrizedPoisson(1.0), 0.1))
        np.testing.assert_allclose(dots(ax)[0], np.arange(-5, 6) / 10, atol=1e-6)
        expected = scipy.stats.poisson.pmf(np.abs(np.arange(-5, 6)), 1) / 2
        np.testing.assert_allclose(np.delete(dots(ax)[1], 5), np.delete(expected, 5), rtol=1e-5)
