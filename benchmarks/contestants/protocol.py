"""Protocol of all contestants: a problem file in, a line of JSON and a file of scores out.

A contestant is a script that calls `serve` with its methods. A method takes a problem and
prepares the input of its library (data frames, design matrices, compiled functions), which is not
timed. It returns a function without arguments that computes the answer, which is timed.

    python with_scipy.py                            one request per line of stdin, as JSON
    python with_scipy.py METHOD PROBLEM ANSWER      one request, for cold starts and peak memory

A request names a method, a problem file and the file to write the answer to; the reply has the
seconds (best of at least one call, repeated until `fill` seconds have passed), the peak memory of
the process in megabytes, or the error. This file needs only NumPy, because every contestant runs in
its own environment.
"""

import contextlib
import io
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

Solve = Callable[[], np.ndarray]


class Problem(NamedTuple):
    """Comparisons of one or many users, and the model whose MAP is requested.

    L(θ) = Σ θ²/(2σ²) + Σ_rows (Φ(t) − r t), t = θ_a − θ_b. Laws: "uniform" on [−1, 1], Φ(t) =
    log(sinh(t)/t), and "bradley-terry" with r = ±½, Φ(t) = log cosh(t/2), whose P(a wins) is
    1/(1 + e^−t).
    """

    a: np.ndarray  # item of each row
    b: np.ndarray
    value: np.ndarray  # r, positive where a is better
    owner: np.ndarray  # user of each item, ascending from 0; users share no items
    law: str
    prior_std: float  # σ, may be inf

    @property
    def num_items(self) -> int:
        """Of all users."""
        return self.owner.size

    @property
    def num_users(self) -> int:
        """The number of users."""
        return int(self.owner[-1]) + 1

    def by_user(self) -> Iterator["Problem"]:
        """Each user alone, with items numbered from 0; concatenated scores are in order."""
        order = np.argsort(self.owner[self.a], kind="stable")
        users = np.arange(self.num_users + 1)
        rows = np.searchsorted(self.owner[self.a][order], users)
        items = np.searchsorted(self.owner, users)
        for user in users[:-1]:
            own = order[rows[user] : rows[user + 1]]
            yield self._replace(
                a=self.a[own] - items[user],
                b=self.b[own] - items[user],
                value=self.value[own],
                owner=np.zeros(items[user + 1] - items[user], int),
            )

    def save(self, path: str) -> None:
        """Write the problem file."""
        np.savez(path, **self._asdict())

    @classmethod
    def load(cls, path: str) -> "Problem":
        """Read a problem file."""
        with np.load(path) as file:
            a, b, value, owner, law, prior_std = (file[name] for name in cls._fields)
        return cls(a, b, value, owner, str(law), float(prior_std))


Method = Callable[[Problem], Solve]


def timed(solve: Solve, fill: float) -> tuple[np.ndarray, float]:
    """The answer, and the best time of calls repeated until `fill` seconds have passed."""
    best, spent, found = np.inf, 0.0, np.zeros(0)
    while not spent or spent < fill:
        start = time.perf_counter()
        found = np.asarray(solve())
        seconds = time.perf_counter() - start
        best, spent = min(best, seconds), spent + seconds
    return found, best


def serve(methods: dict[str, Method]) -> None:
    """Answer the request on the command line, or those on stdin until it ends."""
    prepared: dict[str, Solve] = {}
    now: list[str] = []  # the problem they were prepared for; one at a time in memory

    def answer(method: str, problem: str, to: str, fill: float = 0) -> dict[str, float | str]:
        # Output of a library must not mix with the replies.
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                if now != [problem]:
                    prepared.clear()
                    now[:] = [problem]
                if method not in prepared:
                    prepared[method] = methods[method](Problem.load(problem))
                found, seconds = timed(prepared[method], fill)
            except Exception as error:
                traceback.print_exc()
                last = (str(error).strip() or "no message").splitlines()[0]
                return {"error": f"{type(error).__name__}: {last}"[:200]}
        np.save(to, found)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"seconds": seconds, "peak_mb": peak}

    if len(sys.argv) > 1:
        method, problem, to = sys.argv[1:]
        print(json.dumps(answer(method, problem, to)))
        return
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
