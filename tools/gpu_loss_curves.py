#!/usr/bin/env python3
"""Loss curves of the tiny decoder and the tiny world model on CPU and GPUs, compared step by step.

  tools/gpu_loss_curves.py [--vitrine PATH] [--gpus 1|2] [--steps 200] [--only decoder|world|untied] [--folder FOLDER]

Every run sees the same samples from the same starting values: f32 on the CPU, f32, bf16 and bf16 with fp8 products on one
GPU, and with --gpus 2 f32 at ZeRO stages 0 to 3, and a decoder with embeddings of its own for each end (untied) as a
pipeline of two stages. Fails when an f32 curve leaves the CPU's by more than 1e-4 of it, when bf16 or fp8 ends more than
2 % away, or when losses or gradient norms of the ZeRO stages differ in any digit. FOLDER keeps the runs and curves.json.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
F32_BAR, NARROW_BAR = 1e-4, 0.02
END_STEPS = 20  # its end is the mean of so many steps


def text(sentences):
    """Sentences of a small grammar: something that bytes can be learned from."""
    draw = random.Random(7)
    names, verbs = ["the ball", "a wall", "the box", "one player", "every frame"], ["hits", "sees", "leaves", "follows"]
    ends = ["at once", "from the left", "twice", "until it stops", "again and again"]
    return "".join(f"{draw.choice(names).capitalize()} {draw.choice(verbs)} {draw.choice(names)} {draw.choice(ends)}. "
                   f"{draw.randrange(1000)} {draw.choice('+-')} {draw.randrange(1000)}.\n" for _ in range(sentences))


def make_data(vitrine, folder):
    (folder / "text.txt").write_text(text(4000))
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([vitrine, "data", "tokens", folder / "text.txt", "-o", folder / "bytes" / "train-000.bin"], **quiet)
    subprocess.run([vitrine, "data", "balls", "-o", folder / "balls", "--height", "24", "--width", "24", "--episodes", "256"],
                   **quiet)


class Failed(Exception):
    """A run that did not come to its end."""


class Model:
    def __init__(self, name, folder, steps):
        train = {"steps": steps, "warmup_steps": 20, "final_lr_ratio": 0.1, "deterministic": True, "log_every": 50}
        if name != "world":
            self.file, data = "byte_lm.json", {"kind": "tokens", "path": str(folder / "bytes")}
        else:
            self.file, data = "tiny_world.json", {"kind": "frames", "path": str(folder / "balls")}
            train["rollout"] = [{"until": 1.0, "steps": 2}]
        self.name = name
        self.keys = {"data": data, "train": train, "optimizer.params.lr": 3e-4}
        if name == "untied":
            self.keys["model.tied_embeddings"] = False


def curve(vitrine, folder, model, label, device, ranks=1, stage=0, bf16=False, fp8=False, pipeline=1):
    """Trains and returns (losses, gradient norms)."""
    run = folder / f"{model.name}-{label}"
    keys = {**model.keys, "zero_optimization.stage": stage, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 8 // ranks}
    if pipeline > 1:
        keys["gradient_accumulation_steps"] = pipeline
        keys["mesh"] = {"data": ranks // pipeline, "pipeline": pipeline}
    if bf16:
        keys["bf16"] = {"enabled": True}
    if fp8:
        keys["fp8"] = {"enabled": True}
    command = [vitrine, "train", ROOT / "examples" / model.file, "--device", device, "--run", run, "--json", "--quiet"]
    for key, value in keys.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    if ranks > 1:
        command += ["--ranks", str(ranks)]
    # One file of choices for all processes; no multicast, which not every host allows.
    environment = {"VITRINE_GEMM_CACHE": str(folder / "gemm.txt"), "NCCL_NVLS_ENABLE": "0", **os.environ}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{model.name} {label}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if len(rows) != model.keys["train"]["steps"] or any(row["loss"] is None for row in rows):
        raise Failed(f"{model.name} {label}: {len(rows)} steps, or losses that are not finite")
    return [row["loss"] for row in rows], [row["grad_norm"] for row in rows]


def largest_difference(a, b):
    """(relative difference, step) of two curves where they are furthest apart."""
    return max((abs(x - y) / abs(y), step) for step, (x, y) in enumerate(zip(a, b)))


def end(losses):
    return sum(losses[-END_STEPS:]) / len(losses[-END_STEPS:])


def check(name, curves):
    """Prints what was found; returns how many bars were missed."""
    missed = 0
    cpu = curves["cpu-f32"][0]

    def verdict(good):
        nonlocal missed
        missed += not good
        return "ok" if good else "FAILED"

    print(f"{name}: loss {cpu[0]:.6g} -> {end(cpu):.6g} in {len(cpu)} steps on the CPU")
    for label, (losses, _) in curves.items():
        if label == "cpu-f32":
            continue
        if label.endswith(("bf16", "fp8")):
            difference = abs(end(losses) / end(cpu) - 1)
            print(f"  {label:<12} ends at {end(losses):.6g}, {100 * difference:.3f} % away   {verdict(difference <= NARROW_BAR)}")
        else:
            difference, step = largest_difference(losses, cpu)
            print(f"  {label:<12} at most {difference:.2e} away, at step {step}   {verdict(difference <= F32_BAR)}")
    stages = {label: both for label, both in curves.items() if "zero" in label}
    for label, both in list(stages.items())[1:]:
        equal = both == stages["gpu2-zero0"]
        print(f"  {label:<12} {'equals' if equal else 'differs from'} gpu2-zero0 in every digit   {verdict(equal)}")
    learned = end(cpu) < 0.9 * cpu[0]
    print(f"  the curve {'falls' if learned else 'does not fall'}   {verdict(learned)}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vitrine", default=str(ROOT / "build/bin/vitrine"))
    parser.add_argument("--gpus", type=int, choices=[0, 1, 2], default=1, help="0: the CPU in all places, to check this script")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", choices=["decoder", "world", "untied"])
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    folder = (args.folder or pathlib.Path(tempfile.mkdtemp(prefix="loss-curves-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make_data(args.vitrine, folder)
    gpu = "gpu" if args.gpus else "cpu"
    missed, everything = 0, {}
    models = [Model(name, folder, args.steps) for name in ("decoder", "world", "untied")
              if args.only in (None, name) and (name != "untied" or args.gpus != 1)]
    # The CPU's runs go on beside the GPUs'.
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        slow = {m.name: beside.submit(curve, args.vitrine, folder, m, "cpu-f32", "cpu") for m in models}
        for model in models:
            runs = [("gpu-f32", {}), ("gpu-bf16", {"bf16": True}), ("gpu-fp8", {"bf16": True, "fp8": True})]
            if args.gpus != 1:
                runs += [(f"gpu2-zero{stage}", {"ranks": 2, "stage": stage}) for stage in range(4)]
            if model.name == "untied":
                runs = [("gpu2-pipeline", {"ranks": 2, "pipeline": 2})]
            curves = {label: curve(args.vitrine, folder, model, label, gpu, **how) for label, how in runs}
            curves = {"cpu-f32": slow[model.name].result(), **curves}
            missed += check(model.name, curves)
            everything[model.name] = {label: losses for label, (losses, _) in curves.items()}
    (folder / "curves.json").write_text(json.dumps(everything))
    print(f"{missed} bars missed; runs and curves.json are in {folder}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"error: {failure}")
