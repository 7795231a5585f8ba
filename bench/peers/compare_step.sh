#!/usr/bin/env bash
# Step time of one process against PyTorch, the two in turn, so that a drift of the machine hits both.
#   bench/peers/compare_step.sh [vitrine binary] [rounds]
# Needs python3-torch and libopenblas0-pthread. The settings are PyTorch's fastest of those tried: with active
# waits OpenMP's and OpenBLAS's threads spin against each other.
set -euo pipefail
cd "$(dirname "$0")/../.."
vitrine=${1:-build/bin/vitrine}
rounds=${2:-5}
python=${PYTHON:-/usr/bin/python3}
for model in decoder world; do
  size=tiny; [ $model = world ] && size=demo
  for round in $(seq "$rounds"); do
    OMP_NUM_THREADS=2 "$vitrine" bench step --model $model --size $size --steps 15 --json | sed 's/^/ours /'
    OPENBLAS_CORETYPE=SkylakeX OPENBLAS_THREAD_TIMEOUT=4 OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 "$python" bench/peers/torch_step.py $model --threads 2 --steps 15 | sed 's/^/torch /'
  done | "$python" -c "
import json, sys, statistics
ms = {'ours': [], 'torch': []}
for line in sys.stdin:
    who, text = line.split(' ', 1)
    row = json.loads(text); ms[who].append(row['median_ms']); last = {who: row}
ratios = [t / o for o, t in zip(ms['ours'], ms['torch'])]
print('$model: ours %.1f ms, PyTorch %.1f ms (medians of %d rounds); ratio %.2f (%.2f to %.2f)' % (
    statistics.median(ms['ours']), statistics.median(ms['torch']), len(ratios), statistics.median(ratios), min(ratios), max(ratios)))
"
done
