#!/usr/bin/env python3
"""Prints the scalars of a TensorBoard event file, decoded without TensorFlow: one "step tag value" a line.

An independent check of our writer: the CRC is computed bit by bit here, by table there. Exit code 1 on a
wrong CRC or a torn record.
"""
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check(data, stored):
    crc = crc32c(data)
    if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != stored:
        sys.exit("wrong CRC")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[wire]
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def main(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        if len(data) - at < 16:
            sys.exit("torn record")
        size, head_crc = struct.unpack_from("<QI", data, at)
        check(data[at:at + 8], head_crc)
        event = data[at + 12:at + 12 + size]
        check(event, struct.unpack_from("<I", data, at + 12 + size)[0])
        at += 16 + size
        parts = dict(fields(event))
        step = parts.get(2, 0)
        if 3 in parts:
            print("version", parts[3].decode())
        if 7 in parts:
            print(step, "session", dict(fields(parts[7])).get(1))
        for number, value in fields(parts.get(5, b"")):
            if number == 1:
                scalar = dict(fields(value))
                print(step, scalar[1].decode(), repr(struct.unpack("<f", scalar[2])[0]))


if __name__ == "__main__":
    main(sys.argv[1])
