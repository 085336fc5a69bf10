# SPDX-License-Identifier: Apache-2.0
"""A real registry on the box's node, and artifacts in it. ABI: the OCI distribution specification, image
manifests."""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile
import urllib.parse
import urllib.request

from .box import NODE_ADDRESS
from .programs import Program

ADDRESS = f"{NODE_ADDRESS}:5000"
KIND = "application/vnd.oci.image."


class Registry:
    def __init__(self, program: str, folder: pathlib.Path, logs: pathlib.Path, address: str = ADDRESS) -> None:
        """Runs then, and keeps what it has below the folder."""
        folder.mkdir()
        configuration = folder / "config.yml"
        configuration.write_text(f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{address}'}}\n"
                                 f"storage: {{filesystem: {{rootdirectory: {folder}/storage}}}}\n")
        self._address = address
        self.program = Program(logs, program, "serve", str(configuration), name="registry")
        self.program.start()
        self.program.wait_until("the registry answers", self._answers, 30)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/v2/", timeout=5):
                return True
        except OSError:
            return False

    def push(self, name: str, tag: str, files: dict[str, bytes]) -> None:
        """Stores it as an artifact of a single layer."""
        unpacked = io.BytesIO()
        with tarfile.open(fileobj=unpacked, mode="w") as tar:
            for path, contents in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(contents)
                tar.addfile(entry, io.BytesIO(contents))
        config = {"architecture": "amd64", "os": "linux", "config": {},
                  "rootfs": {"type": "layers", "diff_ids": [_digest(unpacked.getvalue())]}}
        manifest = {
            "schemaVersion": 2, "mediaType": f"{KIND}manifest.v1+json",
            "config": {"mediaType": f"{KIND}config.v1+json", **self._put_blob(name, json.dumps(config).encode())},
            "layers": [{"mediaType": f"{KIND}layer.v1.tar+gzip",
                        **self._put_blob(name, gzip.compress(unpacked.getvalue()))}]}
        self._ask("PUT", f"http://{self._address}/v2/{name}/manifests/{tag}", json.dumps(manifest).encode(),
                  f"{KIND}manifest.v1+json")

    def _put_blob(self, name: str, contents: bytes) -> dict[str, str | int]:
        place = self._ask("POST", f"http://{self._address}/v2/{name}/blobs/uploads/", b"")
        digest = _digest(contents)
        self._ask("PUT", f"{place}&digest={urllib.parse.quote(digest)}", contents)
        return {"digest": digest, "size": len(contents)}

    @staticmethod
    def _ask(method: str, url: str, body: bytes, kind: str = "application/octet-stream") -> str:
        """Where the registry says to go on."""
        request = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers.get("Location", ""))


def _digest(contents: bytes) -> str:
    return "sha256:" + hashlib.sha256(contents).hexdigest()
