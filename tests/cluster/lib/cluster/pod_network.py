# SPDX-License-Identifier: Apache-2.0
"""A network for pods that do not use the node's: a pair of interfaces between the pod and its node, and nothing else. The pod
reaches the node by its addresses, and the node the pod (pod-network, the program)."""

import json
import pathlib
import shutil

PROGRAM = pathlib.Path(__file__).with_name("pod-network")
PROGRAMS = pathlib.Path("/opt/cni/bin")  # where containerd looks; the box's own


def install(configurations: pathlib.Path, programs: pathlib.Path, prefix: str = "10.201") -> None:
    """Makes both folders: the file that tells containerd of it, and the program. containerd has `loopback` called for the pod's
    own loopback device. `prefix`: the first two numbers of the pods' addresses."""
    for folder in (configurations, programs):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("box", "loopback"):
        shutil.copy(PROGRAM, programs / name)
        (programs / name).chmod(0o755)
    (configurations / "box.conflist").write_text(json.dumps(
        {"cniVersion": "0.4.0", "name": "box", "plugins": [{"type": "box", "prefix": prefix}]}))
