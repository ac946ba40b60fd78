"""Steelyard from Python: time a function here and now, or run an experiment as the command line does.

python library.py
"""

import numpy as np

import steelyard
from steelyard import Experiment, Matrix, Settings


def main() -> None:
    x = np.random.default_rng(0).standard_normal(4096)
    found = steelyard.measure(np.sort, x, budget="quick", items=x.size)
    print(f"np.sort: {found}")
    print(f"         {found.seconds:.3g} s a call, {found.figures['item_rate'].value:.3g} items a second")

    widths = Experiment(
        name="softmax widths",
        matrix=(Matrix(workload=("op/softmax",), backend=("numpy",), axes={"m": (64,), "n": (128, 256)}),),
        settings=Settings(budget=0.1, precision=0.02),
    )
    run = steelyard.run(widths)
    for record in run.records:
        time = record.metrics["time"]
        print(f"{record.id}  {record.status}  {time.value:.3g} s  [{time.low:.3g}, {time.high:.3g}]")
    print(f"saved {run.id}: steelyard show {run.id}")


if __name__ == "__main__":
    main()
