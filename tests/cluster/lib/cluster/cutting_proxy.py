# SPDX-License-Identifier: Apache-2.0
"""A way to a server on which no connection lasts."""

import contextlib
import select
import socket
import threading
from types import TracebackType


class CuttingProxy:
    """Hands on what comes, both ways, and cuts all connections every `seconds`, wherever they are."""

    def __init__(self, server: str, seconds: float) -> None:
        address, port = server.removeprefix("https://").split(":")
        self._server, self._seconds = (address, int(port)), seconds
        # On the server's own address: its certificate names no other.
        self._listener = socket.create_server((address, 0))
        self.address = f"https://{address}:{self._listener.getsockname()[1]}"
        self.cut = 0
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept), threading.Thread(target=self._cut_all)]

    def __enter__(self) -> "CuttingProxy":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                self._open.append((client, server))
                threading.Thread(target=self._hand_on, args=(client, server)).start()

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError):
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    other[ready].sendall(data)

    def _cut_all(self) -> None:
        while not self._ended.wait(self._seconds):
            self._cut_open()
        self._cut_open()

    def _cut_open(self) -> None:
        while self._open:
            for end in self._open.pop():
                with contextlib.suppress(OSError):  # it has gone by itself
                    end.shutdown(socket.SHUT_RDWR)
            self.cut += 1
