#!/usr/bin/env python3
"""Small valid inputs for the fuzzers to begin from: make_seeds.py FOLDER"""
import json
import os
import pickle
import sqlite3
import sys


def kineto():
    base = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Card", "totalGlobalMem": 1 << 34}],
            "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": [
                {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]}}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 10.5, "dur": 2.25,
            "args": {"correlation": 3, "cbid": 211}}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm<float>", "pid": 0, "tid": 7, "ts": 14.125, "dur": 3.001,
              "args": {"correlation": 3, "stream": 7, "device": 0, "grid": [1, 2, 3]}}
    nccl = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20,
            "ts": 18.0, "dur": 4.0, "args": {"correlation": 4, "Collective name": "allreduce", "dtype": "Float",
            "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]", "Seq": 5}}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 9, "tid": 9, "ts": 10.0, "dur": 20.0}
    memory = {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": 11.0, "args": {
        "Device Type": 1, "Device Id": 0, "Addr": 1 << 63, "Bytes": -512, "Total Allocated": 4, "Total Reserved": 8}}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm \"q\" \u00e9", "pid": 9, "tid": 9, "ts": 10.25, "dur": 3,
          "args": {"Input Dims": [[4, 8], [8, 2]], "External id": 2}}
    flow = {"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": 9, "tid": 9, "ts": 10.5}
    events = [step, op, call, kernel, nccl, memory, flow]
    yield json.dumps({**base, "traceEvents": events, "baseTimeNanoseconds": 1700000000000000000}).encode()
    yield json.dumps(events, indent=1).encode()
    yield json.dumps({"traceEvents": [{**e, "cat": {"kernel": "Kernel", "cuda_runtime": "Runtime"}.get(
        e.get("cat"), "Operator")} for e in events], **base}, indent=2).encode()
    moved = [{**e, "pid": e["pid"] + 20000} for e in events]
    note = [{"rank": r, "processes": {str(p + 20000 * r): str(p) for p in (0, 9)}, "header": {
        **base, "distributedInfo": {"rank": r, "world_size": 2}}} for r in (0, 1)]
    yield json.dumps({"traceEvents": events + moved, "mergedRanks": note}).encode()
    names = [{"ph": "M", "name": "process_name", "pid": p, "args": {"name": "rank %d" % r}} for p, r in ((9, 0), (20009, 1))]
    yield json.dumps({"traceEvents": names + events + moved, "distributedInfo": [{"rank": 0}, {"rank": 1}]}).encode()
    yield (json.dumps([step, {**step, "ts": 50}, {**step, "ts": 12, "args": {"deep": [[[[1]]]]}}]) + "[]").encode()


def snapshots():
    frame = {"name": "forward", "filename": "model.py", "line": 3}
    block = {"address": 64, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [frame]}
    value = {"segments": [{"device": 0, "address": 64, "total_size": 2048, "allocated_size": 512, "active_size": 512,
                           "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
                           "is_expandable": False, "frames": [], "blocks": [block]}],
             "device_traces": [[{"action": a, "addr": 64, "size": 512, "stream": 0, "time_us": 10 + i, "frames": [frame]}
                                for i, a in enumerate(["segment_alloc", "alloc", "free_requested", "free_completed",
                                                       "alloc", "oom", "snapshot"])]],
             "allocator_settings": {"max_split_size": -1, "roundup": 1.5},
             "external_annotations": [{"stage": "START", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": 12}]}
    for protocol in range(2, 6):
        yield pickle.dumps(value, protocol)


def nsys(path):
    base = sqlite3.connect(path)
    base.executescript("""
      PRAGMA page_size=512;
      CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
      INSERT INTO StringIds VALUES (1,'gemm'),(2,'cudaLaunchKernel'),(3,'ncclDevKernel_AllReduce'),(4,'step');
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, graphId INTEGER);
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,200,0,7,1,16777216,1,1,NULL),(150,400,0,9,2,16777216,3,3,NULL);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER);
      INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90,95,16777217,1,2),(96,99,16777217,2,2);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
      INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (500,600,0,7,3,16777216,4096,1);
      CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
        globalTid INTEGER, jsonText TEXT);
      INSERT INTO NVTX_EVENTS VALUES (80,700,59,'step 1',NULL,16777217,NULL),(81,82,34,NULL,4,16777217,'{"a":1}');
    """)
    base.commit()
    base.close()


def main(folder):
    for kind, texts in (("kineto", kineto()), ("pickle", snapshots())):
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
        for i, text in enumerate(texts):
            with open(os.path.join(folder, kind, f"seed{i}"), "wb") as file:
                file.write(text)
    os.makedirs(os.path.join(folder, "nsys"), exist_ok=True)
    path = os.path.join(folder, "nsys", "seed0")
    if os.path.exists(path):
        os.remove(path)
    nsys(path)


main(sys.argv[1])
