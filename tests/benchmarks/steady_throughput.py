"""Steady throughput of every run in a data folder, as the analyses see it: one JSON document {run id: examples/s}.

python -m tests.benchmarks.steady_throughput
"""

import json

from experiments import results
from experiments.analysis.evidence import gather
from experiments.settings import Settings


def main() -> None:
    """Prints the figures; a run without a steady state is missing."""
    settings = Settings.from_environment()
    runs = results.Results(settings).runs()
    steady = gather(runs, results.histories(settings, list(runs["run_id"]))).steady
    steady = steady[steady["steady"]]
    print(json.dumps(dict(zip(steady["run_id"], steady["throughput"], strict=True))))


if __name__ == "__main__":
    main()
