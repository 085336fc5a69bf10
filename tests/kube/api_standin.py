#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that plays an API server's way of talking, the broken ones too. It ends when its standard input does.

usage: api_standin.py SEEN [--tls CERTIFICATE KEY] [--client-authority FILE] [--http2 | --proxy-to PORT]

Prints its port on the loopback. Each request is a line of JSON in the file SEEN before it is answered. What the answer
is like is in the path: see ANSWERS. With --http2 it answers each request on its first connection until one asks for
nothing but silence by PATCH, and then never again on that connection. With --proxy-to it takes CONNECT to any place and
leads to that port.
"""
import argparse
import gzip
import json
import os
import socket
import ssl
import struct
import sys
import threading
import urllib.parse

LOCK = threading.Lock()
RELEASED = threading.Event()
# Cut so that no chunk, no TLS record and no line ends where another does.
CUTS = (1, 2, 3, 5, 7, 11, 13)


def head(status, headers=(), reason="Some"):
    return "\r\n".join([f"HTTP/1.1 {status} {reason}", *headers, "", ""]).encode()


def whole(body, status=200, headers=()):
    return head(status, [f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]) + body


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def echo(out, seen, query):
    out.sendall(whole(json.dumps(seen).encode()))


def watch(out, seen, query):
    text = b"".join(b'{"n":%d}\n' % n for n in range(int(query["lines"])))
    out.sendall(head(200, ["Transfer-Encoding: chunked"]))
    framed, at, turn = b"", 0, 0
    while at < len(text):
        framed += chunk(text[at:at + CUTS[turn % 7]])
        at, turn = at + CUTS[turn % 7], turn + 1
    framed += chunk(b"")
    at, turn = 0, 3
    while at < len(framed):
        out.sendall(framed[at:at + CUTS[turn % 7]])
        at, turn = at + CUTS[turn % 7], turn + 1


def hold(out, seen, query):
    """Begins, and goes on when another request says so."""
    out.sendall(head(200, ["Transfer-Encoding: chunked"]) + chunk(b"begun\n"))
    RELEASED.wait()
    out.sendall(chunk(b"done\n") + chunk(b""))


def release(out, seen, query):
    RELEASED.set()
    echo(out, seen, query)


def stall(out, seen, query):
    out.sendall(head(200, ["Transfer-Encoding: chunked"]) + chunk(b"begun\n"))
    until_gone(out)


def silent(out, seen, query):
    until_gone(out)


def until_gone(out):
    while out.recv(1):
        pass
    raise ConnectionError


def half(out, seen, query):
    out.sendall(head(200, ["Content-Length: 100"]) + b"0123456789")
    raise ConnectionError


def half_chunk(out, seen, query):
    out.sendall(head(200, ["Transfer-Encoding: chunked"]) + b"64\r\n0123456789")
    raise ConnectionError


def no_answer(out, seen, query):
    raise ConnectionError


def junk(out, seen, query):
    out.sendall(b"220 this is another protocol\r\n\r\n")
    raise ConnectionError


def redirect(out, seen, query):
    out.sendall(whole(b"elsewhere", 307, [f"Location: {query['to']}"]))


def large(out, seen, query):
    left = int(query["bytes"])
    out.sendall(head(200, [f"Content-Length: {left}"]))
    while left:
        out.sendall(b"x" * min(left, 1 << 16))
        left -= min(left, 1 << 16)


def packed(out, seen, query):
    accepts = "gzip" in seen["headers"].get("accept-encoding", "")
    body = b"x" * int(query["bytes"])
    out.sendall(whole(gzip.compress(body), headers=["Content-Encoding: gzip"]) if accepts else whole(b"plain"))


def status(out, seen, query):
    out.sendall(whole(b'{"kind":"Status"}', int(query["code"]),
                      [f"Retry-After: {query['after']}"] if "after" in query else []))


ANSWERS = {"/echo": echo, "/watch": watch, "/hold": hold, "/release": release, "/stall": stall, "/silent": silent,
           "/half": half, "/half-chunk": half_chunk, "/no-answer": no_answer, "/junk": junk, "/redirect": redirect,
           "/large": large, "/packed": packed, "/status": status}


def note(seen, place):
    with LOCK, open(place, "a", encoding="utf-8") as file:
        file.write(json.dumps(seen) + "\n")


def read_head(stream):
    """The first line's words and the headers; absent: nobody asks any more."""
    line = stream.readline()
    if not line:
        return None
    headers = {}
    while (field := stream.readline()) not in (b"\r\n", b""):
        name, value = field.decode().split(":", 1)
        headers[name.strip().lower()] = value.strip()
    return line.decode().split(), headers


def serve(client, number, options):
    stream = client.makefile("rb")
    while (asked := read_head(stream)) is not None:
        (method, target, _), headers = asked
        body = stream.read(int(headers.get("content-length", 0)))
        seen = {"method": method, "path": target, "headers": headers, "body": body.decode(), "connection": number}
        if options.client_authority:
            seen["subject"] = str(client.getpeercert().get("subject"))
        note(seen, options.seen)
        place = urllib.parse.urlsplit(target)
        path = place.path.removeprefix("/below")
        ANSWERS[path](client, seen, dict(urllib.parse.parse_qsl(place.query)))


def pass_on(source, to):
    while data := source.recv(1 << 16):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


def proxy(client, number, options):
    (method, target, _), headers = read_head(client.makefile("rb", buffering=0))
    note({"method": method, "path": target, "headers": headers, "body": "", "connection": number}, options.seen)
    client.settimeout(60)  # then one thread can write to a TLS socket while the other waits for its bytes
    with socket.create_connection(("127.0.0.1", options.proxy_to)) as server:
        client.sendall(head(200))
        threading.Thread(target=pass_on, args=(server, client), daemon=True).start()
        pass_on(client, server)


# ---- HTTP/2 (RFC 9113), as much as it takes. Names are Huffman-coded, so a request is known by its method alone.

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
STATUS_200 = b"\x88"  # entry 8 of HPACK's static table
GET = 0x82  # entry 2


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def serve_http2(client, number, options):
    stream = client.makefile("rb")
    stream.read(24)  # the preface
    client.sendall(frame(SETTINGS, 0, 0))
    mute = False
    while len(top := stream.read(9)) == 9:
        size = int.from_bytes(top[:3], "big")
        kind, flags, of = struct.unpack(">BBI", top[3:])
        payload = stream.read(size)
        if kind == SETTINGS and not flags & ACK:
            client.sendall(frame(SETTINGS, ACK, 0))
        if kind != HEADERS:
            continue
        at = 5 if flags & 0x20 else 0  # a priority comes first
        is_get = payload[at] == GET
        mute = mute or (not is_get and number == 1)
        note({"method": "GET" if is_get else "?", "path": "?", "headers": {}, "body": "", "connection": number,
              "stream": of}, options.seen)
        if mute:
            continue
        text = b"connection %d" % number
        client.sendall(frame(HEADERS, END_HEADERS, of, STATUS_200) + frame(DATA, END_STREAM, of, text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seen")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    parser.add_argument("--client-authority")
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--proxy-to", type=int)
    options = parser.parse_args()

    context = None
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
        if options.http2:
            context.set_alpn_protocols(["h2"])
        if options.client_authority:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(options.client_authority)
    talk = proxy if options.proxy_to else serve_http2 if options.http2 else serve

    def run(plain, number):
        # Whatever goes wrong with a client is what the client sees; the others go on.
        try:
            with context.wrap_socket(plain, server_side=True) if context else plain as client:
                talk(client, number, options)
        except (OSError, ConnectionError, ValueError):
            plain.close()

    def accept():
        number = 0
        while True:
            plain, _ = listener.accept()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number += 1
            threading.Thread(target=run, args=(plain, number), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()
    os._exit(0)  # not for threads that wait for clients


main()
