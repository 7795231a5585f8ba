#!/usr/bin/env bash
# Training steps on GPUs against PyTorch: the same shapes and precision, ours and the peer in turn, so that a drift of the
# machine hits both. Prints a table of medians; --out keeps every measurement, a JSON line each.
#   bench/peers/gpu/compare_gpu.sh [--vitrine PATH] [--gpus 1|2] [--rows a,b] [--rounds N] [--gradients f32|bf16] [--out FILE]
# Rows on one GPU:  0.5b (micro-batch 32 x 1024 tokens), 1.5b (16), 1.5b-accumulate4, world (size small, 32 clips of
#                   16 frames of 128 x 128: 131 072 tokens of a step fill the card)
# Rows on two GPUs: 1.5b-zero2, 1.5b-zero3, 7b-zero3 (micro-batch 8), 1.5b-zero1-one and 1.5b-zero1-two (stage 1,
#                   accumulation 4, on one and on two: how it scales)
set -euo pipefail
cd "$(dirname "$0")/../../.."
vitrine=build/bin/vitrine gpus=1 rows='' rounds='' gradients=f32 out='' micro_world=32
while [ $# -gt 0 ]; do
  case $1 in
    --vitrine) vitrine=$2; shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --rows) rows=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --gradients) gradients=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
case $gpus in
  1) all=0.5b,1.5b,1.5b-accumulate4,world rounds=${rounds:-3} ;;
  2) all=1.5b-zero2,1.5b-zero3,7b-zero3,1.5b-zero1-one,1.5b-zero1-two rounds=${rounds:-2} ;;
  *) echo "error: --gpus is 1 or 2" >&2; exit 2 ;;
esac
rows=${rows:-$all}
python=${PYTHON:-python3}
log=$(mktemp) lines=$(mktemp)
trap 'rm -f "$log" "$lines"' EXIT
# Multicast over NVLink is not to be had on every host: neither side uses it.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

record() {  # row, who, command...
  local row=$1 who=$2 line
  shift 2
  "$@" >"$log" 2>"$log.err" || true
  line=$(grep '^{' "$log" | tail -1 || true)
  if [ -z "$line" ]; then
    echo "$row, $who failed: $*" >&2
    tail -q -n 6 "$log" "$log.err" >&2
    line='{}'
  fi
  rm -f "$log.err"
  printf '{"row": "%s", "who": "%s", "result": %s}\n' "$row" "$who" "$line" | tee -a ${out:+"$out"} >>"$lines"
}

ours() {  # row, ranks, options of both
  local row=$1 ranks=$2
  shift 2
  local more=()
  [ "$ranks" -eq 1 ] || more=(--ranks "$ranks")
  record "$row" ours "$vitrine" bench step --device gpu --dtype bf16 --gradient-dtype "$gradients" --json "${more[@]}" "$@"
}

theirs() {  # row, ranks, script, options
  local row=$1 ranks=$2 script=bench/peers/gpu/$3
  shift 3
  local launch=("$python")
  [ "$ranks" -eq 1 ] || launch=("$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks")
  record "$row" torch "${launch[@]}" "$script" --reduce-dtype "$gradients" "$@"
}

decoder() {  # row, size, ranks, stage, micro-batch, accumulation, steps, warm-up
  local common=(--micro-batch "$5" --sequence 1024 --accumulate "$6" --stage "$4" --steps "$7" --warmup "$8")
  ours "$1" "$3" --model decoder --size "qwen2.5-$2" "${common[@]}"
  theirs "$1" "$3" torch_decoder.py --size "$2" "${common[@]}"
}

measure() {
  case $1 in
    0.5b) decoder "$1" 0.5b 1 0 32 1 8 2 ;;
    1.5b) decoder "$1" 1.5b 1 0 16 1 8 2 ;;
    1.5b-accumulate4) decoder "$1" 1.5b 1 0 16 4 3 1 ;;
    1.5b-zero2) decoder "$1" 1.5b 2 2 16 1 8 2 ;;
    1.5b-zero3) decoder "$1" 1.5b 2 3 16 1 8 2 ;;
    7b-zero3) decoder "$1" 7b 2 3 8 1 5 2 ;;
    1.5b-zero1-one) decoder "$1" 1.5b 1 1 16 4 3 1 ;;
    1.5b-zero1-two) decoder "$1" 1.5b 2 1 16 4 3 1 ;;
    world)
      ours "$1" 1 --model world --size small --micro-batch "$micro_world" --steps 8 --warmup 2
      theirs "$1" 1 torch_world.py --size small --micro-batch "$micro_world" --steps 8 --warmup 2 ;;
    *) echo "error: no row $1; there are $all" >&2; exit 2 ;;
  esac
}

for round in $(seq "$rounds"); do
  for row in ${rows//,/ }; do
    echo "round $round of $rounds: $row" >&2
    measure "$row"
  done
done
"$python" bench/peers/gpu/comparison_table.py "$lines"
