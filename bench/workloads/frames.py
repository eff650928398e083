"""Groups, merges and sorts pandas data frames."""

import numpy as np
import pandas as pd

rng = np.random.default_rng(3)
df = pd.DataFrame(
    {
        "k": rng.integers(0, 500, 200_000),
        "v": rng.random(200_000),
        "s": rng.integers(0, 50, 200_000).astype(str),
    }
)
for _ in range(12):
    grouped = df.groupby("k").v.agg(["mean", "sum"]).reset_index()
    merged = df.merge(grouped, on="k").sort_values("v")
    merged.groupby("s")["sum"].max()
