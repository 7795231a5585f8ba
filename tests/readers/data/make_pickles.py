#!/usr/bin/env python3
"""Makes the small pickles of the tests: python3 tests/readers/data/make_pickles.py"""
import collections
import os
import pickle

HERE = os.path.dirname(os.path.abspath(__file__))


def frame(name, filename, line):
    return {"name": name, "filename": filename, "line": line}


def snapshot():
    forward = [frame("linear", "/env/torch/nn/functional.py", 7), frame("forward", "/home/me/model.py", 33)]
    step = [frame("_init_group", "/env/torch/optim/adam.py", 178), frame("train", "/home/me/train.py", 5)]

    def event(action, addr, size, time_us, frames):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": frames}

    big = 0xFFFF800000000000  # beyond a signed 64-bit number
    history = [
        event("segment_alloc", big, 2 << 20, 1000, forward),
        event("alloc", big, 1 << 20, 1000, forward),
        event("alloc", big + (1 << 20), 512, 1001, []),
        event("free_requested", big, 1 << 20, 1002, []),
        event("free_completed", big, 1 << 20, 1003, []),
        event("alloc", big, 4096, 1004, step),
        {"action": "oom", "device_free": 12345, "size": 1 << 40, "stream": 0, "time_us": 1005, "frames": forward},
    ]
    blocks = [
        {"address": big, "size": 4096, "requested_size": 4000, "state": "active_allocated", "frames": step},
        {"address": big + 4096, "size": (1 << 20) - 4096, "requested_size": 0, "state": "inactive", "frames": []},
        {"address": big + (1 << 20), "size": 512, "requested_size": 500, "state": "active_awaiting_free", "frames": []},
        {"address": big + (1 << 20) + 512, "size": (1 << 20) - 512, "requested_size": 0, "state": "inactive",
         "frames": []},
    ]
    return {
        "segments": [{"device": 1, "address": big, "total_size": 2 << 20, "allocated_size": 4096,
                      "active_size": 4608, "requested_size": 4500, "stream": 0, "segment_type": "large",
                      "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": blocks}],
        "device_traces": [[], history],
        "allocator_settings": {"expandable_segments": True, "max_split_size": -1, "garbage_collection_threshold": 0.5,
                               "PYTORCH_CUDA_ALLOC_CONF": "a:b", "roundup_power2_divisions": {"1": 0}},
        "external_annotations": [
            {"stage": "START", "name": "forward", "device": 1, "time_us": 999},
            {"stage": "END", "name": "forward", "device": 1, "time_us": 1002}],
    }


class Runs:
    def __reduce__(self):
        return os.system, ("echo this must never run",)


def main():
    for protocol in range(2, 6):
        with open(f"{HERE}/snapshot_protocol{protocol}.pickle", "wb") as file:
            pickle.dump(snapshot(), file, protocol)
    for protocol in (2, 4):
        with open(f"{HERE}/runs_code_protocol{protocol}.pickle", "wb") as file:
            pickle.dump({"segments": [Runs()]}, file, protocol)
    with open(f"{HERE}/ordered_dict.pickle", "wb") as file:
        pickle.dump(collections.OrderedDict(a=1), file, 4)
    values = {"none": None, "truths": [True, False], "integers": [0, -1, 255, 65535, -2**31, 2**31, -2**63, 2**63,
              2**64 - 1, 2**64, -2**100], "float": 0.5, "text": "\u00e9" * 300, "bytes": b"x" * 300,
              "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "set": {7}, "long list": list(range(2500))}
    values["shared"] = values["truths"]
    for protocol in (2, 5):
        with open(f"{HERE}/values_protocol{protocol}.pickle", "wb") as file:
            values_here = dict(values)
            if protocol < 4:
                del values_here["set"], values_here["bytes"]  # need imported names there
            pickle.dump(values_here, file, protocol)


main()
