#!/usr/bin/env python3
"""Sets `vitrine plan` against the ledgers of `vitrine train`: peak memory by category, rank by rank.

    tools/plan_against_ledger.py [--vitrine build/bin/vitrine]

Both tiny models, 1, 2 and 4 CPU ranks, ZeRO stages 0 to 3, 1 and 2 micro-batches a step. Prints the worst rank of each
setting, and ends with 1 where a category or the sum is more than 3 % off. Data loading (staging) is left out of both.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

MODELS = {
    "decoder": {"family": "decoder", "size": "tiny", "sequence_length": 256},
    "world model": {"family": "world_model", "size": "tiny", "action_count": 5},
}
BOUND = 0.03


def run_file(model, stage, accumulation):
    return {
        "model": model,
        "data": {"kind": "random", "workers": 0},
        "train": {"steps": 3, "seed": 0},
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": stage},
    }


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def errors(vitrine, folder, ranks, settings):
    """(largest error of a category, error of the sum) of each rank."""
    file = folder / "run.json"
    file.write_text(json.dumps(settings))
    plan = json.loads(call([vitrine, "plan", file, "--ranks", str(ranks), "--json"]))
    run = folder / "run"
    call([vitrine, "train", file, "--ranks", str(ranks), "--run", run, "--quiet"])
    found = []
    for row in plan["by_rank"]:
        ledger = json.loads((run / "memory" / f"rank{row['rank']}.json").read_text())
        planned = row["memory_bytes"]
        categories = {c: b for c, b in ledger["peak_by_category"].items() if c != "staging" and b > 0}
        worst = max(abs(planned["by_category"].get(c, 0) / b - 1) for c, b in categories.items())
        held = ledger["peak_bytes"] - ledger["at_peak"].get("staging", 0)
        found.append((worst, planned["peak"] / held - 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vitrine", type=pathlib.Path, default="build/bin/vitrine")
    vitrine = parser.parse_args().vitrine.resolve()
    worst = 0
    print(f"{'model':12} {'ranks':>5} {'stage':>5} {'micro-batches':>13} {'worst category':>15} {'sum':>9}")
    for name, model in MODELS.items():
        for ranks in (1, 2, 4):
            for stage in (0,) if ranks == 1 else (0, 1, 2, 3):
                for accumulation in (1, 2):
                    with tempfile.TemporaryDirectory() as folder:
                        found = errors(vitrine, pathlib.Path(folder), ranks, run_file(model, stage, accumulation))
                    category = max(c for c, _ in found)
                    total = max((t for _, t in found), key=abs)
                    worst = max(worst, category, abs(total))
                    print(f"{name:12} {ranks:5} {stage:5} {accumulation:13} {category:15.3%} {total:+9.3%}", flush=True)
    print(f"worst: {worst:.3%}")
    return worst > BOUND


if __name__ == "__main__":
    sys.exit(main())
