"""Cost of one fit, in gradient evaluations of its loss.

    python benchmarks/single.py [--quick]

Prints, for each problem, the time of a fit and of one VJP through it as multiples of one jitted
gradient evaluation of the same loss (best of several interleaved runs, after compilation), and the
share of the fit that its passes over the rows and its Hessian products take alone. Also prints the
time of the certificate, the scaling of time with the number of comparisons, memory per comparison,
and compilation time. Ratios are within one run, because absolute times are noisy. Tournesol
problems are skipped if the shared data are missing.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import peer_problems

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._inference._certify import certify
from gbt_jax._inference._gauge import find_gauge, is_regularised
from gbt_jax._inference._objective import evaluate, hessian_product


def best_times(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best time of each function in seconds, with interleaved calls."""
    for function in functions.values():
        jax.block_until_ready(function())
    best = dict.fromkeys(functions, np.inf)
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def simulated(num_items: int, num_rows: int, law: laws.AbstractRootLaw) -> gbt.Comparisons:
    """Random pairs, standard normal scores, comparisons drawn from the law."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, num_items, num_rows)
    b = (a + 1 + rng.integers(0, num_items - 1, num_rows)) % num_items
    scores = rng.normal(size=num_items)
    value = law.sample(jnp.asarray(scores[a] - scores[b]), key=jax.random.key(0))
    return gbt.Comparisons(a, b, value, num_items=num_items)


def erdos_renyi(num_items: int, chance: float, law: laws.AbstractRootLaw) -> gbt.Comparisons:
    rng = np.random.default_rng(0)
    a, b = np.triu_indices(num_items, 1)
    kept = rng.random(a.size) < chance
    a, b = a[kept], b[kept]
    scores = rng.normal(size=num_items)
    value = law.sample(jnp.asarray(scores[a] - scores[b]), key=jax.random.key(0))
    return gbt.Comparisons(a, b, value, num_items=num_items)


def tournesol() -> list[gbt.Comparisons]:
    """One problem per user and criterion."""
    if not peer_problems.TOURNESOL.exists():
        return []
    return [
        gbt.Comparisons(user.a, user.b, user.value, num_items=user.num_items)
        for user in peer_problems.tournesol().by_user()
    ]


gradient = jax.jit(jax.grad(gbt.negative_log_posterior, argnums=2))


@jax.jit
def vjp(model: gbt.Model, comparisons: gbt.Comparisons, start, cotangent):
    """Sensitivity of a linear function of the scores to every value, given a solved fit."""

    def scores(value):
        return gbt.map_scores(model, comparisons.with_values(value), initial=start)

    return jax.vjp(scores, comparisons.value)[1](cotangent)[0]


@functools.partial(jax.jit, static_argnames=("passes", "products"))
def steps(model: gbt.Model, comparisons: gbt.Comparisons, scores, *, passes: int, products: int):
    """Run the passes and products of a fit, and nothing else."""

    def one_pass(_, state):
        x, _ = state
        point = evaluate(model, comparisons, x)
        used = point.gradient / point.diagonal * (point.norm + point.size)
        return x + 1e-30 * used, point.curvature

    def one_product(_, state):
        x, curvature = state
        return 1e-3 * hessian_product(model, comparisons, curvature, x), curvature

    state = jax.lax.fori_loop(0, passes, one_pass, (scores, jnp.zeros_like(comparisons.value)))
    return jax.lax.fori_loop(0, products, one_product, state)[0]


def costs(model: gbt.Model, comparisons: gbt.Comparisons, repeats: int) -> dict[str, float]:
    fitted = gbt.fit(model, comparisons)
    cotangent = jnp.ones_like(fitted.scores)
    newton, cg = int(fitted.stats.newton_steps), int(fitted.stats.cg_steps)
    times = best_times(
        {
            "gradient": lambda: gradient(model, comparisons, fitted.scores),
            "fit": lambda: gbt.fit(model, comparisons).scores,
            "passes": lambda: steps(
                model, comparisons, fitted.scores, passes=newton + 1, products=0
            ),
            "products": lambda: steps(model, comparisons, fitted.scores, passes=0, products=cg),
            "fit+vjp": lambda: vjp(model, comparisons, None, cotangent),
        },
        repeats,
    )
    times["vjp"] = times["fit+vjp"] - times["fit"]
    return times | {"newton": newton, "cg": cg, "error": float(fitted.error_bound)}


def show(name: str, rows: list[dict[str, float]]) -> None:
    total = {key: sum(row[key] for row in rows) for key in rows[0]}
    print(
        f"{name:34} fit {1e3 * total['fit']:9.2f} ms = {total['fit'] / total['gradient']:6.1f} "
        f"gradients; vjp {total['vjp'] / total['fit']:5.2f} fits; {total['newton']:4.0f} Newton, "
        f"{total['cg']:5.0f} CG; error bound {max(row['error'] for row in rows):.0e}"
    )
    share = {name: f"{total[name] / total['fit']:.2f}" for name in ("passes", "products")}
    print(f"{'':34} passes alone take {share['passes']} of the fit, products {share['products']}")


def compiled(comparisons: gbt.Comparisons, model: gbt.Model):
    """The compiled fit, and the seconds that tracing and compiling took."""
    start = time.perf_counter()
    solver = gbt.solvers.NewtonCG() if comparisons.num_items > 48 else gbt.solvers.NewtonCholesky()
    run = jax.jit(functools.partial(gbt.fit, solver=solver, throw=False))
    program = run.lower(model, comparisons).compile()
    return program, time.perf_counter() - start


def show_scaling(sizes: list[int]) -> None:
    model = gbt.Model(laws.Binary())
    times, memory = [], []
    for size in sizes:
        comparisons = simulated(max(size // 100, 10), size, laws.Binary())
        program, _ = compiled(comparisons, model)
        used = program.memory_analysis()
        memory.append(np.nan if used is None else used.temp_size_in_bytes / size)
        fit = best_times({"fit": lambda c=comparisons: gbt.fit(model, c).scores}, 3)
        times.append(fit["fit"])
        print(f"{size:10,} comparisons: {1e3 * times[-1]:9.2f} ms, {memory[-1]:5.0f} bytes each")
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"time grows as comparisons^{exponent:.2f}; at most {max(memory):.0f} bytes each")


def show_refit(model: gbt.Model, problems: list[gbt.Comparisons]) -> None:
    """Time a warm refit after one added comparison, relative to a cold fit of the same shape."""
    ratios = []
    for rows in problems:
        before = gbt.fit(model, rows.with_weights(np.append(np.ones(len(rows) - 1), 0))).scores
        times = best_times(
            {
                "cold": lambda c=rows: gbt.fit(model, c).scores,
                "warm": lambda c=rows, x=before: gbt.fit(model, c, initial=x).scores,
            },
            10,
        )
        ratios.append(f"{times['warm'] / times['cold']:.2f}")
    print(f"a refit after one added comparison costs {', '.join(ratios)} cold fits")


def show_certificate(problems: dict[str, tuple[gbt.Model, gbt.Comparisons]]) -> None:
    """Time the certificate relative to a solver pass (gradient and curvature) and to the fit."""
    for name, (model, rows) in problems.items():
        scores = gbt.fit(model, rows).scores
        is_firm = is_regularised(model, rows)
        gauge = find_gauge(model, rows, is_regularised=is_firm, is_connected=not is_firm)
        certificate, one_pass = jax.jit(certify), jax.jit(evaluate)
        times = best_times(
            {
                "certificate": functools.partial(certificate, model, rows, scores, gauge),
                "pass": functools.partial(one_pass, model, rows, scores),
                "fit": lambda m=model, c=rows: gbt.fit(m, c).scores,
            },
            20,
        )
        passes, share = times["certificate"] / times["pass"], times["certificate"] / times["fit"]
        print(f"{name}: the certificate takes {passes:.2f} gradient passes, {share:.2f} of the fit")


def show_compilation() -> None:
    """Compilation time of fits of new shapes, minus that of a trivial function."""
    model = gbt.Model(laws.Uniform())
    for size in (20, 300, 5000):
        beyond = []
        for extra in range(5):
            comparisons = simulated(size, 5 * size + extra, laws.Uniform())
            start = time.perf_counter()
            jax.jit(lambda m, c: m.prior_std + jnp.sum(c.value)).lower(model, comparisons).compile()
            trivial = time.perf_counter() - start
            beyond.append(compiled(comparisons, model)[1] - trivial)
        print(
            f"compiling a fit of {size:5} items, beyond a trivial function: {min(beyond):.2f} s, "
            f"median of {len(beyond)} {np.median(beyond):.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of one fit.")
    parser.add_argument("--quick", action="store_true", help="small problems only")
    quick = parser.parse_args().quick
    jax.config.update("jax_enable_x64", True)
    uniform = gbt.Model(laws.Uniform(), 1.0)
    show("A=500, p=0.2, Uniform, σ=1", [costs(uniform, erdos_renyi(500, 0.2, laws.Uniform()), 20)])
    problems = tournesol()
    if problems:
        sigma7 = gbt.Model(laws.Uniform(), 7.0)
        show(
            f"{len(problems)} Tournesol, σ=7", [costs(sigma7, problem, 10) for problem in problems]
        )
        show_refit(sigma7, problems)
    if not quick:
        binary = gbt.Model(laws.Binary(), 1.0)
        large = simulated(10_000, 1_000_000, laws.Binary())
        show("10,000 items, 1,000,000 binary", [costs(binary, large, 5)])
    binary_rows = simulated(1_000, 100_000, laws.Binary())
    show_certificate(
        {
            "A=500, p=0.2, Uniform, σ=1": (uniform, erdos_renyi(500, 0.2, laws.Uniform())),
            "1,000 items, 100,000 binary, σ=1": (gbt.Model(laws.Binary()), binary_rows),
            "the same without a prior": (gbt.Model(laws.Binary(), np.inf), binary_rows),
        }
    )
    show_compilation()
    show_scaling([10_000, 100_000, 1_000_000] + ([] if quick else [10_000_000]))


if __name__ == "__main__":
    main()
