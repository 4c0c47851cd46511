"""Check `successful` and `error_bound` on adversarial problems.

    python benchmarks/torture.py                            # 2,000 problems
    python benchmarks/torture.py --problems 20000 --markdown
    python benchmarks/torture.py --replay 1234              # one problem in detail

Problems come from `adversarial.py`, reference optima from `reference_optimum.py`, and verdicts from
`verdicts.py`. Every problem is solved by `fit` with the default solver and with the
other Newton solver (a few with L-BFGS too), to a tolerance, from four warm starts, by `map_scores`
under jit and under vmap, and as one of many groups. The exit code is 1 if an answer was wrong: a
false success, a bound below the true distance, a wrong claim that no finite optimum exists, or an
exception.
"""

import argparse
import collections
import csv
import dataclasses
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator

if __name__ == "__main__" or multiprocessing.parent_process() is not None:
    # One thread per worker: workers share the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import adversarial
import jax
import numpy as np
from adversarial import Problem, Setting
from verdicts import SUCCESS, Answer, Judge, Kind, Method, Verdict

import gbt_jax as gbt

_CONFIRMATIONS = 10  # checks with 50 digits, per block
_LBFGS_BLOCKS, _LBFGS_PROBLEMS = 5, 5  # one block in five, five problems of it
_SHOWN = 25
_RTOL = 1e-4


@dataclasses.dataclass(frozen=True)
class Row:
    """One problem, solved in one way."""

    seed: int
    mode: str
    result: str
    kind: Kind
    reason: str
    excess: float
    graph: str
    law: str
    sigma: str
    dtype: str
    items: int
    problem: str
    answer: str = ""


def fit_answer(problem: Problem, **options) -> Answer:
    """The answer of `fit`."""
    blank = np.full(problem.num_items, np.nan)
    try:
        fit = gbt.fit(problem.model(), problem.comparisons(), throw=False, **options)
        bound, rtol = float(fit.error_bound), options.get("rtol", 0.0)
        return Answer(fit.result.name, np.asarray(fit.scores), bound, rtol)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return Answer("exception", blank, detail=message[:150])


_traced_scores = jax.jit(gbt.map_scores)
_stacked_scores = jax.jit(jax.vmap(gbt.map_scores))


def traced_answer(problem: Problem) -> Answer:
    """The answer of `map_scores` under jit."""
    blank = np.full(problem.num_items, np.nan)
    try:
        return _scores_answer(_traced_scores(problem.model(), problem.comparisons()))
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return Answer("exception", blank, detail=message[:150])


def stacked_answers(problems: list[Problem]) -> list[Answer]:
    """The answers of `map_scores` under vmap over all problems."""
    pairs = [(problem.model(), problem.comparisons()) for problem in problems]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)
    return [_scores_answer(scores) for scores in np.asarray(_stacked_scores(*stacked))]


def _scores_answer(scores) -> Answer:
    scores = np.asarray(scores)
    return Answer("NaN" if np.isnan(scores).any() else SUCCESS, scores)


def group_answers(judge: Judge) -> list[Answer | None]:
    """The answers of one call of `fit` with each problem as a group."""
    problems = judge.problems
    a, b = (np.concatenate([getattr(p, name) for p in problems]) for name in ("a", "b"))
    group = np.repeat(np.arange(len(problems)), [p.a.size for p in problems])
    value = np.concatenate([p.value for p in problems])
    weight = np.concatenate([p.weight for p in problems])
    size = problems[0].num_items
    rows = gbt.Comparisons(a, b, value, weight, num_items=size, group=group)
    std, mean = (np.stack([getattr(p, x) for p in problems]) for x in ("prior_std", "prior_mean"))
    fit = gbt.fit(gbt.Model(problems[0].law.build(), std, mean), rows)
    answers: list[Answer | None] = []
    for i, problem in enumerate(problems):
        own = fit[i]
        # Items without rows are not in the group: their optimum is the prior mean.
        at_rest = 0 if np.isinf(problem.prior_std) else problem.prior_mean
        scores = np.full(problem.num_items, at_rest, value.dtype)
        scores[own.item] = np.asarray(own.scores)
        answers.append(Answer(own.result.name, scores, float(own.error_bound)))
    return answers


def warm_starts(judge: Judge) -> Iterator[tuple[str, list]]:
    """Names of warm starts and their initial scores; None if no optimum exists or none is known."""
    rng = np.random.default_rng(judge.problems[0].seed)
    n, dtype = judge.problems[0].num_items, judge.problems[0].setting.dtype
    found = [x.scores for x in judge.optima]
    best = [None if x is None or not np.isfinite(x).all() else x.astype(dtype) for x in found]
    noise = rng.normal(size=n).astype(dtype)
    shift = np.asarray(1e8 if dtype == "float64" else 1e4, dtype)
    yield "optimum", best
    yield "optimum + noise", [None if x is None else x + noise for x in best]
    yield "optimum + constant", [None if x is None else x + shift for x in best]
    yield "wild", [(1000 * noise).astype(dtype) for _ in best]


def runs(judge: Judge) -> Iterator[tuple[str, list[Answer | None]]]:
    """All modes of solving the judge's problems, with their answers."""
    problems, setting = judge.problems, judge.problems[0].setting
    items = setting.shape[0]
    yield "default solver", [fit_answer(p) for p in problems]
    if items <= 48:
        yield "NewtonCG", [fit_answer(p, solver=gbt.solvers.NewtonCG()) for p in problems]
    elif items <= 300:
        yield (
            "NewtonCholesky",
            [fit_answer(p, solver=gbt.solvers.NewtonCholesky()) for p in problems],
        )
    yield f"rtol {_RTOL:g}", [fit_answer(p, rtol=_RTOL) for p in problems]
    for name, starts in warm_starts(judge):
        pairs = zip(problems, starts, strict=True)
        yield f"from {name}", [None if x is None else fit_answer(p, initial=x) for p, x in pairs]
    if setting.block % _LBFGS_BLOCKS == 0 and items <= 60:
        few = problems[:_LBFGS_PROBLEMS]
        answers = [fit_answer(p, solver=gbt.solvers.LBFGS()) for p in few]
        yield "LBFGS", [*answers, *[None] * (len(problems) - len(few))]
    yield "map_scores, jit", [traced_answer(p) for p in problems]
    if items <= 300:
        yield "map_scores, vmap", _guarded(lambda: stacked_answers(problems), problems)
    if not setting.has_item_prior and "per row" not in setting.law:
        yield "groups", _guarded(lambda: group_answers(judge), problems)


def _guarded(call: Callable[[], list], problems: list[Problem]) -> list[Answer | None]:
    """The answers of one call for all problems, or its exception for each."""
    try:
        return call()
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        return [Answer("exception", np.full(p.num_items, np.nan), detail=message) for p in problems]


def judged_rows(problems: list[Problem]) -> list[Row]:
    """All verdicts about problems of one setting."""
    judge, rows, confirmed = Judge(problems), [], 0
    for mode, answers in runs(judge):
        verdicts = judge.verdicts(answers, _method(mode, problems[0].num_items))
        for i, (answer, verdict) in enumerate(zip(answers, verdicts, strict=True)):
            if answer is None:
                continue
            if verdict.kind is Kind.BOUND_BELOW and confirmed < _CONFIRMATIONS:
                verdict, confirmed = judge.confirm(i, answer, verdict), confirmed + 1
            rows.append(_row(problems[i], mode, answer, verdict))
    return rows


def _method(mode: str, num_items: int) -> Method:
    if mode == "LBFGS":
        return "first order"
    is_direct = mode == "NewtonCholesky" or (num_items <= 48 and mode not in ("NewtonCG", "groups"))
    return "direct" if is_direct else "conjugate gradients"


def _row(problem: Problem, mode: str, answer: Answer, verdict: Verdict) -> Row:
    bound = "" if answer.error_bound is None else f", error_bound {answer.error_bound:.3e}"
    return Row(
        problem.seed,
        mode,
        answer.result,
        verdict.kind,
        verdict.reason,
        verdict.excess,
        problem.graph,
        problem.setting.law,
        problem.prior_kind,
        problem.setting.dtype,
        problem.num_items,
        str(problem),
        f"scores {np.array2string(answer.scores[:8], precision=6)}{bound}",
    )


def run_group(blocks: list[list[int]]) -> list[Row]:
    """Rows of blocks of seeds that share compiled programs."""
    jax.config.update("jax_enable_x64", True)
    rows = []
    for seeds in blocks:
        rows += judged_rows([adversarial.problem(seed) for seed in seeds])
    jax.clear_caches()
    return rows


def groups(seeds: Iterable[int]) -> list[list[list[int]]]:
    """Blocks of seeds grouped by what determines most programs, largest groups first.

    `fit` pads problems of different shapes to the same programs.
    """
    blocks: dict[Setting, list[int]] = {}
    for seed in seeds:
        blocks.setdefault(adversarial.setting_of(seed), []).append(seed)
    together: dict[tuple, list[list[int]]] = {}
    for setting, block in sorted(blocks.items(), key=lambda pair: pair[0].shape):
        key = setting.law, setting.dtype, setting.has_item_prior
        together.setdefault(key, []).append(block)
    return sorted(together.values(), key=lambda group: -sum(map(len, group)))


def table(rows: list[Row], field: str, *, markdown: bool) -> str:
    """Counts of verdicts by a field of the rows."""
    counts: dict = collections.defaultdict(collections.Counter)
    for row in rows:
        counts[getattr(row, field)][row.kind] += 1
    head = [field, *(kind.value for kind in Kind)]
    lines = [[str(name), *(f"{count[kind]:,}" for kind in Kind)] for name, count in counts.items()]
    lines = [head, *sorted(lines)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    edge = "| " if markdown else ""
    gap = " | " if markdown else "  "
    cells = [[x.ljust(w) for x, w in zip(line, widths, strict=True)] for line in lines]
    texts = [edge + gap.join(line) + edge[::-1] for line in cells]
    if markdown:
        texts.insert(1, "|" + " --- |" * len(head))
    return "\n".join(texts)


def report(rows: list[Row], *, markdown: bool) -> None:
    """Print tables, reasons for failures and the worst answers."""
    for field in ("mode", "graph", "law", "sigma", "dtype", "items", "result"):
        print(table(rows, field, markdown=markdown), end="\n\n")
    failures = collections.Counter(
        (row.kind.value, row.result, row.reason)
        for row in rows
        if row.kind in (Kind.EXPLAINED, Kind.UNEXPLAINED)
    )
    for (kind, result, reason), count in failures.most_common():
        print(f"{count:7,}  {kind}, {result}: {reason}")
    for kind in Kind:
        if kind.is_bad or kind is Kind.UNEXPLAINED:
            _print_worst(kind, [row for row in rows if row.kind is kind])


def _print_worst(kind: Kind, rows: list[Row]) -> None:
    if not rows:
        return
    seeds = len({row.seed for row in rows})
    print(f"\n{kind.value}: {len(rows):,} answers to {seeds:,} problems, worst first")
    by_seed: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: -row.excess):
        by_seed.setdefault(row.seed, []).append(row)
    for worst, *others in list(by_seed.values())[:_SHOWN]:
        more = f" (and {len(others)} more modes)" if others else ""
        print(f"  {worst.mode}{more}: {worst.reason}\n      {worst.problem}")


def replay(seed: int) -> list[Row]:
    """Run the block of one problem; print and return the rows of that problem."""
    size = adversarial.LARGE_BLOCK if seed >= adversarial.LARGE else adversarial.BLOCK
    start = seed // size * size
    rows = [row for row in run_group([list(range(start, start + size))]) if row.seed == seed]
    print(rows[0].problem)
    for row in rows:
        print(f"{row.mode}: {row.result}: {row.kind.value} {row.reason} (excess {row.excess:.3g})")
        print(f"    {row.answer}")
    return rows


def save(rows: list[Row], path: str) -> None:
    """Write the rows as CSV."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in dataclasses.fields(Row)][:-1]
        writer.writerow(names)
        for row in rows:
            values = (getattr(row, name) for name in names)
            writer.writerow([x.value if isinstance(x, Kind) else x for x in values])


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--large", type=int, help="number of large problems (default: 0.2%%)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--csv", help="write one row per answer to this file")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--replay", type=int, metavar="SEED")
    options = parser.parse_args()
    if options.replay is not None:
        return int(any(row.kind.is_bad for row in replay(options.replay)))
    started = time.perf_counter()
    seeds = list(range(options.seed, options.seed + options.problems))
    large = options.problems // 500 if options.large is None else options.large
    seeds += range(adversarial.LARGE + options.seed, adversarial.LARGE + options.seed + large)
    rows: list[Row] = []
    work = groups(seeds)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for done, part in enumerate(pool.imap_unordered(run_group, work), 1):
            rows += part
            for row in part:  # printed at once, since long runs may be stopped
                if row.kind.is_bad or row.kind is Kind.UNEXPLAINED:
                    text = f"\r{row.kind.value}, {row.mode}: {row.reason}, {row.problem}"
                    print(text, file=sys.stderr)
            bad = sum(row.kind.is_bad for row in rows)
            elapsed = time.perf_counter() - started
            line = f"\r{done}/{len(work)} groups, {bad:,} bad, {elapsed:.0f} s"
            print(line, end="", file=sys.stderr)
    print(file=sys.stderr)
    rows.sort(key=lambda row: (row.seed, row.mode))
    report(rows, markdown=options.markdown)
    if options.csv:
        save(rows, options.csv)
    elapsed = time.perf_counter() - started
    print(f"\n{len(seeds):,} problems, {len(rows):,} answers, {elapsed:.0f} s")
    return int(any(row.kind.is_bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
