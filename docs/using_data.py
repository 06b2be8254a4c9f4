"""Write 2023.csv and 2024.csv, the releases that docs/using.md reads: a simulated register of firms in 500 towns.

The page is tested after this file has run, so it may use the true sums and the test bits. Test bits are the same on
every run, and so NOT PRIVATE: a real release uses secret bits.
"""

import numpy as np
import pandas as pd

import slowscale as ss
from slowscale.sampling import KnownBits


rng = np.random.default_rng(2024)
towns = [f"01{2 * i + 1:03}" for i in range(500)]
firms = pd.DataFrame({"town": np.repeat(towns, rng.geometric(0.05, 500) - 1)})
firms["emp"] = np.ceil(rng.lognormal(1.5, 1.2, len(firms))).astype(int)
firms["pay"] = np.round(firms["emp"] * rng.lognormal(3.5, 0.4, len(firms))).astype(int)
next_year = firms.assign(pay=np.round(firms["pay"] * rng.lognormal(0.05, 0.1, len(firms))).astype(int))

mechanisms: dict[str, ss.Mechanism] = {
    "emp": ss.ExponentialPolylog.calibrate(std=100),
    "pay": ss.Root(k=4, sigma=1),
}
keys = ss.Keys.from_frame({"town": towns})
for year, records in ((2023, firms), (2024, next_year)):
    session = ss.Session(records, bits=KnownBits(year))
    session.sum(mechanisms, keys=keys, count=ss.Gaussian(sigma=3)).to_csv(f"{year}.csv")

truth = firms.groupby("town")[["emp", "pay"]].sum().reindex(towns, fill_value=0)
truth["count"] = firms.groupby("town").size().reindex(towns, fill_value=0)
