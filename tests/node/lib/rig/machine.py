# SPDX-License-Identifier: Apache-2.0
"""A running QEMU: its command line, its console, its record channel and its QMP monitor, read by one loop."""

import contextlib
import json
import os
import pathlib
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

QEMU = "qemu-system-x86_64"


class MachineError(Exception):
    """QEMU could not be started or does not answer as it must."""


@contextlib.contextmanager
def gpu_models(program: pathlib.Path, ids: dict[str, str], sockets: pathlib.Path, state: pathlib.Path) -> Iterator[None]:
    """Runs a program for each GPU whose registers it models. Its log and what it obeys are NAME.log and NAME.control in the state
    folder, which the node shares."""
    with contextlib.ExitStack() as running:
        for name, shown in ids.items():
            model = subprocess.Popen(["setpriv", "--pdeathsig", "SIGKILL", "--", program, sockets / name, shown,
                                      state / f"{name}.log", state / f"{name}.control"], stdin=subprocess.DEVNULL)
            running.callback(model.wait)
            running.callback(model.kill)
            while not (sockets / name).exists():
                if model.poll() is not None:
                    raise MachineError(f"{program} ended with {model.returncode} before QEMU had connected to it")
                time.sleep(0.01)
        yield


class Lines:
    """Bytes that come in pieces, as whole lines of text."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")

    def rest(self) -> str:
        return self._rest.decode(errors="replace")


def command_line(*, kernel: pathlib.Path, initrd: pathlib.Path, disks: list[pathlib.Path], iommu: str, memory_mib: int,
                 shares: dict[str, tuple[pathlib.Path, bool]], kernel_args: list[str], scratch_disk: pathlib.Path | None,
                 tap: str, qemu: str = QEMU) -> list[str]:
    """QEMU with its arguments for a node without its devices under test. Shares: tag -> (folder, writable). `scratch_disk`: another disk,
    of which the node's writes last until it ends. `tap`: an interface of the machine that leads to the node's network card."""
    # Checks that count in real time take a busy machine for a broken one.
    append = ["console=ttyS0,115200", "panic=-1", "quiet", "random.trust_cpu=on", "no_timer_check", "nowatchdog",
              "rcupdate.rcu_cpu_stall_suppress=1"]
    command = [qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(memory_mib),
               "-machine", "q35,kernel-irqchip=split",
               # Slots as a server has them (pciehp, with its five seconds to think again), not ACPI's.
               "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    if iommu != "absent":
        # caching-mode lets vfio work for the guests inside the node.
        command += ["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]
    append += ["intel_iommu=on", "iommu=pt"] if iommu == "on" else ["intel_iommu=off"]
    for number, disk in enumerate(disks):
        command += ["-drive", f"if=none,id=disk{number},format=raw,readonly=on,file={disk}",
                    "-device", f"virtio-blk-pci,drive=disk{number},addr={2 + number:x}.0"]
    if scratch_disk:
        command += ["-drive", f"if=none,id=scratch,format=raw,snapshot=on,file={scratch_disk}",
                    "-device", "virtio-blk-pci,drive=scratch,serial=scratch,addr=4.0"]
    if tap:
        command += ["-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,addr=5.0"]
    for number, (tag, (folder, writable)) in enumerate(shares.items()):
        readonly = "" if writable else ",readonly=on"
        command += ["-fsdev", f"local,id=share{number},path={folder},security_model=none,multidevs=remap{readonly}",
                    "-device", f"virtio-9p-pci,fsdev=share{number},mount_tag={tag},addr={8 + number // 8:x}.{number % 8},multifunction=on"]
        append.append(f"node.{'rw' if writable else 'ro'}={tag}")
    return [*command, "-kernel", str(kernel), "-initrd", str(initrd), "-append", " ".join(append + kernel_args)]


class Machine:
    """A started QEMU. Callbacks are called from pump() only; leaving the context ends it whatever happened."""

    def __init__(self, command: list[str], on_console: Callable[[str], None],
                 on_record: Callable[[dict[str, Any]], None], on_event: Callable[[dict[str, Any]], None]) -> None:
        if not shutil.which(command[0]):
            raise MachineError(f"{command[0]} is not installed; hint: apt-get install qemu-system-x86")
        self.started = time.monotonic()
        self._sockets = tempfile.mkdtemp(prefix="ferry-node-")
        self._selector = selectors.DefaultSelector()
        self._listeners = {name: self._listen(name) for name in ("records", "qmp")}
        self._on_console, self._on_record, self._on_event = on_console, on_record, on_event
        self._console, self._records, self._monitor = Lines(), Lines(), Lines()
        self._monitor_socket: socket.socket | None = None
        self._answers: list[Callable[[dict[str, Any]], None]] = []
        extra = ["-serial", "stdio", "-chardev", f"socket,id=records,path={self._sockets}/records", "-serial",
                 "chardev:records", "-qmp", f"unix:{self._sockets}/qmp"]
        # setpriv: QEMU goes when we do, even when we are killed. A session of its own keeps Ctrl-C for us.
        self._process = subprocess.Popen(["setpriv", "--pdeathsig", "SIGKILL", "--", *command, *extra],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         start_new_session=True)
        assert self._process.stdout
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ, self._read_console)

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def exit_status(self) -> int | None:
        return self._process.poll()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """The processor time that it has used; 0 once it is gone."""
        try:
            fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Ends the machine as a power cut does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def command(self, name: str, arguments: dict[str, Any], on_answer: Callable[[dict[str, Any]], None]) -> None:
        """Sends a QMP command; the answer ("return" or "error") comes from a later pump()."""
        if self._monitor_socket is None:
            raise MachineError("QEMU's monitor is not connected")
        self._answers.append(on_answer)
        # A QEMU that has just ended answers nothing; pump() says that it has.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._monitor_socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")

    def pump(self, timeout_s: float) -> bool:
        """Waits for input and hands it out; False once QEMU has ended and all of its output was handed out."""
        for key, _ in self._selector.select(max(timeout_s, 0)):
            key.data(key.fileobj)
        if self._process.stdout and not self._process.stdout.closed:
            return True
        return any(not isinstance(key.fileobj, socket.socket) or key.data != self._accept
                   for key in self._selector.get_map().values())

    def _listen(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._sockets}/{name}")
        listener.listen(1)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        name = next(name for name, other in self._listeners.items() if other is listener)
        self._selector.unregister(listener)
        listener.close()
        if name == "qmp":
            self._monitor_socket = connection
        self._selector.register(connection, selectors.EVENT_READ,
                                self._read_monitor if name == "qmp" else self._read_records)

    def _read_console(self, stream: Any) -> None:
        data = stream.read(65536)
        for line in self._console.feed(data or b""):
            self._on_console(line)
        if data == b"":
            if self._console.rest():
                self._on_console(self._console.rest())
            self._close(stream)

    def _read_records(self, connection: socket.socket) -> None:
        for line in self._receive(connection, self._records):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise MachineError(f"the node wrote a record that is not a JSON object: {line!r}")
            self._on_record(record)

    def _read_monitor(self, connection: socket.socket) -> None:
        for line in self._receive(connection, self._monitor):
            message = json.loads(line)
            if "QMP" in message:
                self.command("qmp_capabilities", {}, lambda _: None)
            elif "event" in message:
                self._on_event(message)
            elif self._answers:
                self._answers.pop(0)(message)

    def _receive(self, connection: socket.socket, lines: Lines) -> list[str]:
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self._close(connection)
        return [line for line in lines.feed(data) if line]

    def _close(self, stream: Any) -> None:
        self._selector.unregister(stream)
        stream.close()
