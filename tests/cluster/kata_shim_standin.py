#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a container runtime takes for Kata's shim: pods run with runc's, in no VM. As Kata's it makes no sandbox unless
there is the configuration that it is told, and all of the guest that this names; what it was told is in TOLD.

Runc's shim knows no options but its own, so that a proxy stands before it and takes those of Kata out of the order to
create. ABI: containerd's runtime v2 (shims are told `start` and `delete`, and say where they listen), ttrpc (frames of
length, stream, type and flags), runtime/v2/task/shim.proto and api/runtimeoptions/v1/api.proto of containerd 1.6,
api/runtime/bootstrap/v1/bootstrap.proto of containerd 2.4.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator

TOLD = pathlib.Path("/run/kata-shim-told")
RUNC = "containerd-shim-runc-v2"
HEADER = struct.Struct(">IIBB")
REQUEST = 1  # among the types of frames
METHOD, PAYLOAD = 2, 3  # of a ttrpc.Request
OPTIONS = 10  # of a CreateTaskRequest: an Any
ANY_VALUE = 2
CONFIG_PATH = 2  # of runtimeoptions.v1.Options
INSTANCE_ID = 1  # of a BootstrapParams
RESULT_ADDRESS = 2  # of a BootstrapResult
VARINT, BYTES = 0, 2  # wire types


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def as_varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The fields of a protobuf message: number, contents (if any), and all bytes of the field."""
    at = 0
    while at < len(message):
        begin = at
        key, at = varint(message, at)
        value, after = varint(message, at)
        if key & 7 == BYTES:
            at, after = after, after + value
        elif key & 7 != VARINT:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, message[at:after], message[begin:after]
        at = after


def field(message: bytes, wanted: int) -> bytes:
    return next((contents for number, contents, _ in fields(message) if number == wanted), b"")


def as_field(number: int, contents: bytes) -> bytes:
    return as_varint(number << 3 | BYTES) + as_varint(len(contents)) + contents


def without_kata(request: bytes) -> bytes:
    """The same order, for runc's shim. Any error: Kata could not obey it."""
    if field(request, METHOD) != b"Create":
        return request
    order = field(request, PAYLOAD)
    read_configuration(pathlib.Path(field(field(field(order, OPTIONS), ANY_VALUE), CONFIG_PATH).decode()))
    rest = b"".join(whole for number, _, whole in fields(order) if number != OPTIONS)
    return b"".join(as_field(PAYLOAD, rest) if number == PAYLOAD else whole for number, _, whole in fields(request))


def read_configuration(path: pathlib.Path) -> None:
    with open(TOLD, "a", encoding="utf-8") as told:
        print(path, file=told)
    settings = tomllib.loads(path.read_text())["hypervisor"]["qemu"]
    for drop_in in sorted((path.parent / "config.d").glob("*.toml")):
        settings |= tomllib.loads(drop_in.read_text()).get("hypervisor", {}).get("qemu", {})
    for key in ("kernel", "image"):
        pathlib.Path(settings[key]).stat()


def read_whole(connection: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        part = connection.recv(size - len(out))
        if not part:
            raise EOFError
        out += part
    return out


def pass_orders_on(client: socket.socket, shim: socket.socket) -> None:
    try:
        while True:
            size, stream, kind, flags = HEADER.unpack(read_whole(client, HEADER.size))
            message = read_whole(client, size)
            if kind == REQUEST:
                message = without_kata(message)
            shim.sendall(HEADER.pack(len(message), stream, kind, flags) + message)
    except (OSError, EOFError, KeyError, ValueError):
        shim.close()
        client.close()  # to a container runtime the shim is gone


def pass_answers_on(shim: socket.socket, client: socket.socket) -> None:
    try:
        while part := shim.recv(1 << 16):
            client.sendall(part)
    except OSError:
        pass
    client.close()


def connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def serve(listener: socket.socket, address: str) -> None:
    while True:
        client, _ = listener.accept()
        shim = connected(address)
        for work, ends in ((pass_orders_on, (client, shim)), (pass_answers_on, (shim, client))):
            threading.Thread(target=work, args=ends, daemon=True).start()


def start_runcs_shim() -> tuple[str, bool]:
    """Where it listens, and whether its containerd starts shims by bootstrap messages, as containerd 2.4 does. An older
    containerd sends the options of the runtime, which runc's shim does not know."""
    message = sys.stdin.buffer.read()
    try:
        bootstraps = field(message, INSTANCE_ID).decode() == sys.argv[sys.argv.index("-id") + 1]
    except (IndexError, ValueError):
        bootstraps = False
    answer = subprocess.run([RUNC, *sys.argv[1:]], input=message if bootstraps else b"", stdout=subprocess.PIPE,
                            check=True).stdout
    address = field(answer, RESULT_ADDRESS) if bootstraps else answer.strip()
    return address.decode().removeprefix("unix://"), bootstraps


def start() -> str:
    """Starts runc's shim and this one before it; what containerd is to read."""
    address, bootstraps = start_runcs_shim()
    ours = listen_before(address)
    # The JSON of containerd 2.0: a plain address would stand for the task service of version 2, which is gone.
    return json.dumps({"version": 3, "address": f"unix://{ours}", "protocol": "ttrpc"}) if bootstraps else f"unix://{ours}"


def listen_before(address: str) -> str:
    """Where this shim listens, for runc's at the address. A process stays that passes on what comes."""
    ours = f"{address}-k"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(ours)
    except OSError:
        return ours  # this pod's shim is there already
    listener.listen()
    if os.fork() == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        last = connected(address)  # which ends with the shim
        threading.Thread(target=serve, args=(listener, address), daemon=True).start()
        while last.recv(1 << 16):
            pass
        os.unlink(ours)
        os._exit(0)
    return ours


def main() -> None:
    if sys.argv[-1] == "start":
        print(start(), end="")
    else:
        os.execvp(RUNC, [RUNC, *sys.argv[1:]])


main()
