#!/usr/bin/env python3
"""A table from the lines of compare_gpu.sh: medians over the rounds, and the ratios of what was measured in one round.

  python3 bench/peers/gpu/comparison_table.py FILE
"""
import json
import statistics
import sys


def read(path):
    """{row: {"ours": [result, ...], "torch": [...]}}, in the order of the file; a run that failed is {}."""
    rows = {}
    with open(path) as lines:
        for line in lines:
            entry = json.loads(line)
            rows.setdefault(entry["row"], {"ours": [], "torch": []})[entry["who"]].append(entry["result"])
    return rows


def middle(results, key):
    values = [r[key] for r in results if key in r]
    return statistics.median(values) if values else None


def cell(value, form):
    return format(value, form) if value is not None else "failed"


def gib(results, key):
    value = middle(results, key)
    return "" if value is None else f"{value / 2**30:.1f}"


def table(rows):
    lines = [f"{'row':<18} {'ours/s':>9} {'PyTorch/s':>9} {'ratio':>6} {'of rounds':>13} {'ms':>15} "
             f"{'peak GiB':>13} {'reserved GiB':>13} {'losses':>15}"]
    for name, row in rows.items():
        ours, theirs = row["ours"], row["torch"]
        ratios = [a["units_per_second"] / b["units_per_second"] for a, b in zip(ours, theirs) if a and b]
        ratio = f"{statistics.median(ratios):6.3f} {min(ratios):6.3f}-{max(ratios):.3f}" if ratios else f"{'':6} {'':13}"
        pair = lambda key, form: f"{cell(middle(ours, key), form)} {cell(middle(theirs, key), form)}"
        lines.append(f"{name:<18} {cell(middle(ours, 'units_per_second'), '.0f'):>9} "
                     f"{cell(middle(theirs, 'units_per_second'), '.0f'):>9} {ratio:>20} {pair('median_ms', '.1f'):>15} "
                     f"{gib(ours, 'peak_bytes') + ' ' + gib(theirs, 'peak_bytes'):>13} "
                     f"{gib(ours, 'reserved_bytes') + ' ' + gib(theirs, 'reserved_bytes'):>13} {pair('loss', '.4f'):>15}")
    one, two = rows.get("1.5b-zero1-one"), rows.get("1.5b-zero1-two")
    if one and two:
        for who, label in (("ours", "ours"), ("torch", "PyTorch")):
            single, double = middle(one[who], "units_per_second"), middle(two[who], "units_per_second")
            if single and double:
                lines.append(f"scaling from one GPU to two, {label}: {double / single:.3f} x, {50 * double / single:.1f} % of twice")
    return lines


def main():
    rows = read(sys.argv[1])
    print("\n".join(table(rows)))
    sys.exit(any(not r for row in rows.values() for results in row.values() for r in results))


if __name__ == "__main__":
    main()
