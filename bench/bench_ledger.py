"""Time of a charge as the ledger grows, and time of the proof that a cap holds.

Targets: the 10,000th charge takes at most twice as long as the first ones, and the check of a cap against a ledger of
10,000 charges takes less than 50 ms. Charges are of three kinds with random parameters, so that no two are equal.
"""

import random
import tempfile
import time
from pathlib import Path
from statistics import median

import slowscale as ss
from slowscale.accounting import Charge
from slowscale.accounting.account import PRESENCE
from slowscale.accounting.caps import check

COUNT = 10_000
CAPS = {"payann": ss.Gaussian(sigma=1e-3).policy + ss.Root(k=4, sigma=1e-3).policy + ss.Log(sigma=1e-3).policy}


def charge(generator: random.Random) -> Charge:
    scale = generator.uniform(50, 100)
    kind = generator.randrange(3)
    mechanism = [
        ss.Gaussian(sigma=scale),
        ss.GeneralizedGaussian(sigma=scale, p=0.5),
        ss.ExponentialPolylog(d=scale / 300),
    ][kind]
    return Charge(ss.RecordPolicy((("payann", mechanism.policy),)))


def main(folder: Path) -> None:
    generator = random.Random(1)
    ledger = ss.Ledger(folder / "bench.ledger", CAPS)
    times = []
    for _ in range(COUNT):
        asked = charge(generator)
        start = time.perf_counter()
        ledger.charge(asked)
        times.append(time.perf_counter() - start)
    first, last = median(times[10:210]), median(times[-200:])
    verdict = "ok" if last <= 2 * first else "OVER 2"
    print(
        f"a charge: {first * 1e3:.2f} ms at first, {last * 1e3:.2f} ms at the 10,000th: {last / first:.2f} x  {verdict}"
    )

    times = []
    for _ in range(200):
        asked = charge(generator)
        start = time.perf_counter()
        ledger.check(asked)
        times.append(time.perf_counter() - start)
    print(f"a check without a charge, after 10,000 charges: {median(times) * 1e3:.2f} ms")

    start = time.perf_counter()
    again = ss.Ledger(folder / "bench.ledger")
    print(f"opening a ledger of 10,000 charges and checking its chain: {time.perf_counter() - start:.2f} s")

    account = again._file.state.account
    account.charge(Charge(ss.RecordPolicy((("payann", ss.Gaussian(sigma=70).policy),))))
    total = account._totals[PRESENCE][0][None, "payann"] + ss.Gaussian(sigma=70).policy
    start = time.perf_counter()
    check("payann", total, CAPS["payann"])
    easy = time.perf_counter() - start
    print(f"the proof that the cap holds: {easy * 1e3:.1f} ms  {'ok' if easy < 0.05 else 'OVER 50 ms'}")

    start = time.perf_counter()
    account.charge(Charge(ss.RecordPolicy((("payann", ss.Gaussian(sigma=70).policy),))))
    print(f"a whole charge in memory: {(time.perf_counter() - start) * 1e3:.1f} ms")

    close = 1.02 * float(total.losses[-1] / CAPS["payann"](1e100))
    tight = ss.Gaussian(sigma=1e-3 / close**0.5).policy + ss.Root(k=4, sigma=1e-3).policy + ss.Log(sigma=1e-3).policy
    start = time.perf_counter()
    try:
        check("payann", total, tight)
        words = "holds"
    except ss.CapError:
        words = "is refused"
    print(f"a cap 2 % above the total for the largest records {words}: {(time.perf_counter() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
