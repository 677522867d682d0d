"""Executes one rank's part of an exported transfer over sockets; it knows the JSON form alone, and no planner.

    reshard transfer plan --source trainer.json --target server.json --export plan
    python transfer_over_sockets.py plan/rank_RANK.json SOURCES TARGETS SOCKETS      # for each rank

SOURCES and TARGETS have a file NAME.RANK for each buffer; SOCKETS is an empty folder. It converts `f32` to `bf16`, and no other types.
"""

import json
import pathlib
import socket
import struct
import sys
import threading
import time
from typing import Any

SIZES = {"bool": 1, "u8": 1, "i8": 1, "bf16": 2, "f16": 2, "i16": 2, "f32": 4, "i32": 4, "f64": 8, "i64": 8}
Buffers = dict[str, bytearray]


def elements(start: int, loops: list[list[int]], stride: int, size: int) -> list[slice]:
    """The bytes of each element of a box; a loop has an extent, a source stride and a target stride."""
    found = [start]
    for loop in loops:
        found = [at + step * loop[stride] for at in found for step in range(loop[0])]
    return [slice(at * size, (at + 1) * size) for at in found]


def bf16(element: bytes) -> bytes:
    """An `f32` rounded to the nearest `bf16`, ties to even."""
    bits: int = struct.unpack("<I", element)[0]
    return struct.pack("<H", ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) & 0xFFFF)


def message(boxes: list[dict[str, Any]], sources: Buffers, sizes: dict[str, int]) -> bytes:
    """The elements of boxes as they are sent: each in the smaller of its two types."""
    made = b""
    for box in boxes:
        assert box.get("cast", []) in ([], ["f32", "bf16"]), box["cast"]
        found = (bytes(sources[box["source"]][one]) for one in elements(box["source_offset"], box["loops"], 1, sizes[box["source"]]))
        made += b"".join(map(bf16, found) if box.get("cast") else found)
    return made


def execute(part: dict[str, Any], sources: Buffers, targets: Buffers, sockets: pathlib.Path) -> None:
    """Sends, receives and fills the boxes of a part; each pair of ranks has one message, with its boxes in order."""
    rank, sizes, into = part["rank"], *({one["name"]: SIZES[one["dtype"]] for one in part[side]} for side in ("sources", "targets"))
    received = {rank: message([box for box in part["receives"] if box["from"] == rank], sources, sizes)}

    def send(peer: int) -> None:
        made = message([box for box in part["sends"] if box["to"] == peer], sources, sizes)
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(sockets / str(peer)))
                    link.sendall(struct.pack("<I", rank) + made)
                return
            except (ConnectionRefusedError, FileNotFoundError):
                time.sleep(0.01)  # it has not started

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sockets / str(rank)))
        server.listen(128)
        threads = [threading.Thread(target=send, args=(peer,)) for peer in {box["to"] for box in part["sends"]}]
        for thread in threads:
            thread.start()
        for _ in {box["from"] for box in part["receives"]} - {rank}:
            with server.accept()[0] as link, link.makefile("rb") as stream:
                peer = struct.unpack("<I", stream.read(4))[0]
                received[peer] = stream.read()
    for box in part["receives"]:
        size = into[box["target"]]
        for one in elements(box["target_offset"], box["loops"], 2, size):
            targets[box["target"]][one], received[box["from"]] = received[box["from"]][:size], received[box["from"]][size:]
    for fill in part["fills"]:
        for one in elements(fill["offset"], fill.get("loops") or [[fill["count"], 1]], 1, into[fill["target"]]):
            targets[fill["target"]][one] = bytes(into[fill["target"]])
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    described = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folders = dict(zip(("sources", "targets"), map(pathlib.Path, sys.argv[2:4])))
    held = {side: {one["name"]: bytearray((folder / f"{one['name']}.{described['rank']}").read_bytes()) for one in described[side] if one["count"]} for side, folder in folders.items()}
    execute(described, held["sources"], held["targets"], pathlib.Path(sys.argv[4]))
    for name, buffer in held["targets"].items():
        (folders["targets"] / f"{name}.{described['rank']}").write_bytes(buffer)
