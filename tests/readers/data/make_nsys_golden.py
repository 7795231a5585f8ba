#!/usr/bin/env python3
"""Exact totals of Nsight exports by plain SQL: make_nsys_golden.py FOLDER > nsys_golden.json"""
import json
import os
import sqlite3
import sys


def union(intervals):
    total, end = 0, None
    for a, b in sorted(intervals):
        if end is None or a > end:
            total += b - a
            end = b
        elif b > end:
            total += b - end
            end = b
    return total


def totals(path):
    db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    tables = {row[0] for row in db.execute("select name from sqlite_master where type='table'")}

    def rows(sql, table):
        return db.execute(sql).fetchall() if table in tables else []

    out = []
    pid = "(globalPid >> 24) & 16777215"
    tid = "(globalTid >> 24) & 16777215"
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    for device, process in db.execute(f"select distinct deviceId, {pid} from {kernels} order by 1, 2").fetchall():
        where = f"where deviceId = {device} and {pid} = {process}"
        compute = rows(f"select k.start, k.end from {kernels} k join StringIds s on k.demangledName = s.id {where} "
                       "and s.value not like '%nccl%'", kernels)
        comm = rows(f"select k.start, k.end from {kernels} k join StringIds s on k.demangledName = s.id {where} "
                    "and s.value like '%nccl%'", kernels)
        copies = rows(f"select start, end, bytes from CUPTI_ACTIVITY_KIND_MEMCPY {where}", "CUPTI_ACTIVITY_KIND_MEMCPY")
        sets = rows(f"select start, end, bytes from CUPTI_ACTIVITY_KIND_MEMSET {where}", "CUPTI_ACTIVITY_KIND_MEMSET")
        copies += sets
        calls = rows(f"select start, end from CUPTI_ACTIVITY_KIND_RUNTIME where {tid} = {process}",
                     "CUPTI_ACTIVITY_KIND_RUNTIME")
        syncs = rows(f"select start, end from CUPTI_ACTIVITY_KIND_SYNCHRONIZATION where {pid} = {process}",
                     "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
        ranges = rows(f"select start, end from NVTX_EVENTS where {tid} = {process} and end is not null", "NVTX_EVENTS")
        entry = {"device": device, "process": process}
        for name, list_ in (("compute", compute), ("communication", comm), ("copies", copies), ("calls", calls),
                            ("syncs", syncs), ("ranges", ranges)):
            spans = [(r[0], r[1]) for r in list_]
            entry[name] = {"count": len(spans), "sum_ns": sum(b - a for a, b in spans), "union_ns": union(spans)}
        entry["copied_bytes"] = sum(r[2] for r in copies)
        entry["wall_anchor_ns"] = db.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME").fetchone()[0]
        out.append(entry)
    return out


def main():
    folder = sys.argv[1]
    print(json.dumps({name: totals(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
                      if name.endswith(".sqlite")}, indent=1))


main()
