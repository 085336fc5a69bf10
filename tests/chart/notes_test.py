# SPDX-License-Identifier: Apache-2.0
"""NOTES.txt count the nodes that get Ferry's pods today, where Helm asks an API server: here a played one."""

import contextlib
import http.server
import json
import pathlib
import shutil
import tempfile
import threading
import unittest
from collections.abc import Iterator
from typing import Any

import yaml

import chart

PRESENT = "feature.node.kubernetes.io/pci-10de.present"
LINUX = {"kubernetes.io/os": "linux"}


@contextlib.contextmanager
def api_server(nodes: list[dict[str, str]], taints: dict[int, list[Any]] | None = None) -> Iterator[str]:
    """The address of one that has nodes with these labels, and nothing else. `taints`: those of a node, by its number."""
    answers = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": False, "verbs": ["get", "list"]},
            {"name": "configmaps", "singularName": "configmap", "kind": "ConfigMap", "namespaced": True, "verbs": ["get"]}]},
        "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": f"n{number}", "labels": labels},
             "spec": {"taints": (taints or {}).get(number, [])}}
            for number, labels in enumerate(nodes)]}}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = answers.get(self.path.split("?")[0])
            text = json.dumps(known or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class NotesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copytree(chart.CHART, self.folder / "ferry", ignore=lambda _, names: {
            name for name in names if name.endswith((".yaml", ".txt")) and name not in ("Chart.yaml", "values.yaml")})
        # `helm template` shows no notes.
        (self.folder / "ferry/templates/shown.yaml").write_text(
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: shown}\n"
            'data: {said: {{ include "ferry.nodesToday" . | quote }}}\n')

    def said(self, address: str, values: Any, helm: pathlib.Path) -> str:
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}]}))
        done = chart.run(helm, "template", "ferry", str(self.folder / "ferry"), "--dry-run=server", "--kubeconfig", str(kubeconfig),
                         "--disable-openapi-validation", values=chart.with_image(values))
        self.assertEqual(done.returncode, 0, done.stderr)
        return str(yaml.safe_load(done.stdout)["data"]["said"])

    def test_nodes_are_counted(self) -> None:
        gpus = {**LINUX, PRESENT: "true"}
        nodes = [gpus, {**gpus, "gpu-ferry.io/deploy": "false"}, {**gpus, "kubernetes.io/os": "windows"}, {PRESENT: "true"},
                 {**LINUX, PRESENT: "false"}, LINUX, {**gpus, "gpu-ferry.io/deploy": "true"}, {}]
        for helm in chart.helms().values():
            with api_server(nodes) as address:
                for values, expected in (
                        ({}, "It runs on nodes with a label of gpuNodeLabels: 2 of 8 nodes today."),
                        ({"gpuNodeLabels": []}, "It runs on all nodes of nodeSelector: 4 of 8 nodes today."),
                        # An installer without rights to roles may have none to nodes.
                        ({"rbac": {"create": False}}, "It runs on nodes with a label of gpuNodeLabels."),
                        ({"gpuNodeLabels": ["a"]}, "No node of 8 has a label of gpuNodeLabels: install Node Feature Discovery, or "
                                                   "--set-json 'gpuNodeLabels=[]'."),
                        ({"gpuNodeLabels": [], "nodeSelector": {"a": "b"}},
                         "No node of 8 has the labels of nodeSelector: kubectl get nodes --show-labels"),
                        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}},
                         "It runs on nodes with a label of gpuNodeLabels.")):
                    self.assertEqual(self.said(address, values, helm), expected)

    def test_nodes_with_other_taints_are_counted_separately(self) -> None:
        gpus = {**LINUX, PRESENT: "true"}

        def taint(key: str, value: str = "", effect: str = "NoSchedule") -> list[Any]:
            return [{"key": key, "effect": effect, **({"value": value} if value else {})}]
        taints = {0: taint("nvidia.com/gpu", "present"), 1: taint("team", "a"), 2: taint("team", "b", "NoExecute"),
                  3: taint("team", "b", "PreferNoSchedule"), 4: taint("node.kubernetes.io/unschedulable"),
                  5: taint("nvidia.com/gpu", effect="NoExecute")}
        for helm in chart.helms().values():
            with api_server([gpus] * 6 + [LINUX], taints) as address:
                for tolerations, runs, more in (
                        (None, 3, 3), ([], 2, 4), ([{"operator": "Exists"}], 6, 0), ([{"key": "team", "operator": "Exists"}], 4, 2),
                        ([{"key": "team", "value": "a"}], 3, 3), ([{"key": "team", "value": "b", "effect": "NoSchedule"}], 2, 4),
                        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], 4, 2)):
                    values = {} if tolerations is None else {"tolerations": tolerations}
                    self.assertEqual(self.said(address, values, helm),
                                     f"It runs on nodes with a label of gpuNodeLabels: {runs} of 7 nodes today."
                                     + (f" {more} more: their taints are not in tolerations." if more else ""), tolerations)
            with api_server([gpus], {0: taint("team")}) as address:
                self.assertEqual(self.said(address, {}, helm), "It runs on nodes with a label of gpuNodeLabels: 0 of 1 nodes today. "
                                                               "1 more: their taints are not in tolerations.")
