#!/usr/bin/env python3
"""Lists a safetensors file, read without any of our code: one "name dtype shape sha256-of-bytes" a line.

Checks what the format's description asks for: header length, padding, ranges without holes or overlaps.
With --write PATH it writes a small file instead, for tests of our reader.
"""
import hashlib
import json
import struct
import sys

SIZES = {"F64": 8, "F32": 4, "I32": 4, "I64": 8, "BF16": 2, "F16": 2, "U8": 1}


def read(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack_from("<Q", data)
    assert length % 8 == 0, "the header is not padded to 8 bytes"
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    print("metadata", json.dumps(header.pop("__metadata__", {}), sort_keys=True))
    covered = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == covered, "hole or overlap before " + name
        elements = 1
        for dim in entry["shape"]:
            elements *= dim
        assert end - begin == elements * SIZES[entry["dtype"]], "size of " + name
        assert (8 + length + begin) % SIZES[entry["dtype"]] == 0, "alignment of " + name
        digest = hashlib.sha256(body[begin:end]).hexdigest()
        print(name, entry["dtype"], entry["shape"], digest)
        covered = end
    assert covered == len(body), "bytes that belong to no tensor"


def write(path):
    tensors = [("a", "F32", [2, 3], struct.pack("<6f", *range(6))),
               ("b", "I64", [1], struct.pack("<q", -5)),
               ("empty", "F32", [0, 4], b""),
               ("scalar", "F16", [], struct.pack("<e", 1.5))]
    header, body = {"__metadata__": {"made": "by python"}}, b""
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    write(sys.argv[2]) if sys.argv[1] == "--write" else read(sys.argv[1])
