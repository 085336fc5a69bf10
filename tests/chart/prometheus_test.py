# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the real agent of three played nodes (played_nodes.py): what the dashboard's panels and the
alerts' expressions come to on it."""

import os
import pathlib
import re
import tempfile
import time
import unittest
import urllib.parse
from collections.abc import Callable
from typing import Any

import chart
from dashboard_picture import ask, draw
from dashboard_test import DASHBOARD, PANELS, VARIABLES, filled_in
from played_nodes import BLOCKED, BUSY, DIVIDED, HELD, REFUSED, WHOLE, PlayedNodes, wait_until

ALERTS = {rule["alert"]: rule["expr"]
          for group in chart.sample(chart.CHART / "files/alerts.yaml")["groups"] for rule in group["rules"]}

# Each sample: the values of its labels in the order of the labels' names, and its own. None: any above zero.
Sample = tuple[tuple[str, ...], float | None]


def of(value: float | None, *labels: str) -> Sample:
    return labels, value


L40S, PART, PART_TYPE = "nvidia.com/AD102GL_L40S", "nvidia.com/NVIDIA_L40S-12Q", "L40S-12Q"
LANES = [("n1", DIVIDED), ("n2", REFUSED), ("n2", BLOCKED), ("n3", BUSY)]  # n1's other GPU sleeps, n2's third is held


def gpu_row(node: str, address: str, group: str, driver: str, mode: str, desired: str, numa: tuple[str, ...] = ("1",)) -> Sample:
    return of(1, desired, "10de:26b9", driver, node, group, mode, *numa, address, "NVIDIA L40S")


# The expected results by title, for each query of the panel.
PANEL_RESULTS: dict[str, list[list[Sample]]] = {
    "GPUs by mode": [[of(2, "host"), of(2, "passthrough"), of(2, "vgpu")]],
    "Blocked": [[of(1)]],
    "Stuck": [[of(1)]],
    "Groups that no VM can use": [[of(1)]],
    "Nodes without hostd or plugin": [[of(1, "hostd"), of(1, "plugin")]],
    # The states by their numbers in the panel's mappings.
    "Phase of each node": [[of(1, "n1"), of(4, "n2"), of(2, "n3")]],
    "Changes that ended": [[of(None, "ready"), of(None, "failed"), of(0, "idle"), of(0, "blocked")]],
    "How long a change takes": [[of(None)], [of(None)]],
    "The GPUs": [[gpu_row("n1", WHOLE, "42", "vfio-pci", "passthrough", "passthrough"),
                  gpu_row("n1", DIVIDED, "43", "nvidia", "vgpu", "vgpu"),
                  gpu_row("n2", REFUSED, "42", "nvidia", "host", "passthrough"),
                  gpu_row("n2", BLOCKED, "44", "vfio-pci", "passthrough", "passthrough"),
                  gpu_row("n2", HELD, "45", "nvidia", "host", "host", ()),
                  gpu_row("n3", BUSY, "42", "nvidia", "vgpu", "vgpu")]],
    "GPUs that became blocked": [[of(None, "in_use"), of(0, "other")]],
    "Device users": [[of(1, "process"), of(1, "virtual_machine")]],
    "Devices of each resource": [[
        of(1, L40S, "allocated"), of(0, L40S, "allocated_unhealthy"), of(0, L40S, "free"), of(0, L40S, "unhealthy"),
        of(1, PART, "allocated"), of(1, PART, "allocated_unhealthy"), of(2, PART, "free"), of(2, PART, "unhealthy")]],
    "vGPUs": [[of(1, "free", PART_TYPE), of(1, "used", PART_TYPE)]],
    "Creatable vGPUs": [[of(2, PART_TYPE), of(0, "L40S-24Q")]],
    "Resources that the kubelet does not read": [[of(1)]],
    "Devices that are not advertised": [[of(1)]],
    "Devices and their users": [[
        of(1, WHOLE, "n1", "studio", WHOLE, "virt-launcher-render-x7x2k", L40S, "render"),
        of(1, "0000:41:00.5", "n1", "studio", DIVIDED, "desktop", PART),
        of(1, "0000:3b:00.8", "n3", "studio", BUSY, "dead", PART)]],
    "Width of the link": [[of(0.5 if gpu == BLOCKED else 1, node, gpu) for node, gpu in LANES]],
    "Speed of the link": [[of(2.5 / 16 if gpu == DIVIDED else 1, node, gpu) for node, gpu in LANES]],
    "PCIe errors": [[of(None, "n2", BLOCKED, "correctable"), of(None, "n2", BLOCKED, "fatal")]],
    "Power": [[of(4, "n1", WHOLE), of(1, "n1", DIVIDED), of(1, "n2", REFUSED), of(6, "n2", BLOCKED), of(1, "n3", BUSY)]],
    "Requests to the API server": [[of(None, "200"), of(None, "none")]],
    "Age of the data": [[of(None, node) for node in ("n1", "n2", "n3")]],
    "Files that cannot be read": [[of(1)]],
    "Versions": [[of(3, "0.1.0")]],
    "Pulls of Kata's artifacts that ended": [[of(0, "done"), of(None, "failed")]],
    "Running pulls": [[of(1, "kata-gpu", "n1")]],
}

ALERT_RESULTS: dict[str, list[Sample]] = {
    "FerryNodeFailed": [of(1, "n2", "failed")],
    "FerryChangeDoesNotEnd": [of(1, "n3", "applying")],
    "FerryGpuBlocked": [of(1, "n2", REFUSED, "in_use")],
    "FerryGpuStuck": [of(1, "n2", HELD)],
    "FerryGroupNotViable": [of(0, "n2", BLOCKED)],
    "FerryGpuUncorrectableErrors": [of(None, "n2", BLOCKED, "device")],
    "FerryGpuCorrectableErrors": [of(None, "n2", BLOCKED, "device", "correctable")],
    "FerryGpuLinkNarrow": [of(8, "n2", BLOCKED)],
    "FerryGpuPowerError": [of(1, "n2", BLOCKED, "error")],
    "FerryHostdDown": [of(0, "n3", "hostd")],
    "FerryPluginDown": [of(0, "n2", "plugin")],
    "FerryResourceNotRegistered": [of(0, "n3", PART)],
    "FerryDevicesUnhealthy": [of(3, "n3", PART)],
    "FerryFileUnreadable": [of(1, "advertised.json", "n2")],
    "FerryGpuNotSanitized": [],
    "FerryGpuOffBus": [],
    "FerryGpuGone": [],
    "FerryAgentDown": [],
    "FerryNoAgent": [],
    "FerrySysfsNotRead": [],
    "FerryApiServerFails": [of(None, "n2")],
}


def queries() -> list[tuple[str, int, dict[str, Any], dict[str, Any]]]:
    """Title, number, query and panel of each."""
    return [(panel["title"], number, target, panel) for panel in PANELS for number, target in enumerate(panel["targets"])]


@unittest.skipUnless(os.environ.get("FERRY_PROMETHEUS"), "FERRY_PROMETHEUS names no Prometheus")
class PrometheusTest(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    nodes: PlayedNodes

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.addClassCleanup(cls.folder.cleanup)
        cls.nodes = PlayedNodes(pathlib.Path(cls.folder.name), pathlib.Path(os.environ["FERRY_BIN"]),
                                os.environ["FERRY_PROMETHEUS"])
        cls.nodes.start()
        cls.addClassCleanup(cls.nodes.stop)
        cls.nodes.go_on()

    def expect(self, expected: list[Sample], found: list[tuple[dict[str, str], float]]) -> None:
        got = {tuple(text for key, text in sorted(labels.items()) if key != "__name__"): value for labels, value in found}
        self.assertEqual(set(got), {labels for labels, _ in expected})
        for labels, value in expected:
            if value is None:
                self.assertGreater(got[labels], 0, labels)
            else:
                self.assertEqual(got[labels], value, labels)

    def soon(self, check: Callable[[], None]) -> None:
        """It holds within ten seconds: after a scrape that came too late a node shows nothing until the next one."""
        deadline = time.monotonic() + 10
        while True:
            try:
                check()
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def expect_soon(self, expected: list[Sample], expression: str, ahead: float = 0) -> None:
        """`ahead`: so many seconds from now."""
        self.soon(lambda: self.expect(expected, self.nodes.now(expression, str(time.time() + ahead) if ahead else "")))

    def test_each_panel_shows_the_expected_values(self) -> None:
        self.assertEqual(set(PANEL_RESULTS), {panel["title"] for panel in PANELS})
        for title, number, target, _ in queries():
            with self.subTest(panel=title, query=number):
                self.expect_soon(PANEL_RESULTS[title][number], filled_in(target["expr"]))

    def test_time_series_panels_have_past_values(self) -> None:
        for title, number, target, panel in queries():
            if panel["type"] not in ("timeseries", "state-timeline"):
                continue
            with self.subTest(panel=title, query=number):
                most = self.wait_for_a_past(filled_in(target["expr"]))
                self.assertGreaterEqual(most, len(PANEL_RESULTS[title][number]))

    def wait_for_a_past(self, expression: str) -> int:
        """How many series there are, once one has two moments."""
        def series() -> Any:
            now = time.time()
            found = self.nodes.ask("query_range", query=expression, start=str(now - 5), end=str(now), step="500ms")["result"]
            return any(len(one["values"]) > 1 for one in found) and found
        return len(wait_until(f"a past of {expression}", series, 10))

    def test_the_picture_is_drawn_from_these_answers(self) -> None:
        def expect_no_gap() -> None:
            answers = ask(PANELS, filled_in, self.nodes.ask, 5)
            picture = draw(DASHBOARD, answers)
            self.assertNotIn("No data", picture)
            for words in ("virt-launcher-render-x7x2k", "failed", "D3hot", PART_TYPE):
                self.assertIn(words, picture)
        self.soon(expect_no_gap)

    def test_legends_and_columns_name_existing_labels(self) -> None:
        for title, number, target, panel in queries():
            with self.subTest(panel=title, query=number):
                labels = self.labels_of(filled_in(target["expr"]))
                self.assertLessEqual(set(re.findall(r"{{(\w+)}}", target["legendFormat"])), labels)
                for change in panel.get("transformations", []):
                    if change["id"] == "organize":
                        shown = labels - set(change["options"]["excludeByName"])
                        self.assertLessEqual(shown, set(change["options"]["indexByName"]))

    def labels_of(self, expression: str) -> set[str]:
        """The labels that all its samples have."""
        samples = wait_until(f"samples of {expression}", lambda: self.nodes.now(expression), 10)
        return set.intersection(*(set(sample) for sample, _ in samples))

    def test_nodes_that_are_not_chosen_are_not_shown(self) -> None:
        for title, number, target, _ in queries():
            with self.subTest(panel=title, query=number):
                of_nobody = self.nodes.now(filled_in(target["expr"].replace("$node", "nobody")))
                self.assertEqual([value for _, value in of_nobody if value != 0], [])
                if "$gpu" in target["expr"]:
                    others = self.nodes.now(filled_in(target["expr"].replace("$gpu", "0000:ff:00.0")))
                    self.assertEqual([value for _, value in others if value != 0], [])

    def test_its_variables_list_the_nodes_and_their_gpus(self) -> None:
        def choices(name: str, node: str) -> Any:
            metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["query"]["query"]).groups()
            return self.nodes.ask(f"label/{label}/values?" + urllib.parse.urlencode({"match[]": metric.replace("$node", node)}))

        self.assertEqual(choices("node", ""), ["n1", "n2", "n3"])
        self.assertEqual(choices("gpu", ".*"), sorted({WHOLE, DIVIDED, REFUSED, BLOCKED, HELD, BUSY}))
        self.assertEqual(choices("gpu", "n1"), [WHOLE, DIVIDED])

    def test_each_alert_names_the_faulty_node(self) -> None:
        self.assertEqual(set(ALERT_RESULTS), set(ALERTS))
        for alert, expression in ALERTS.items():
            with self.subTest(alert=alert):
                self.expect_soon(ALERT_RESULTS[alert], expression)
        # Two minutes from now, if nobody looked until then.
        self.expect_soon([of(None, node) for node in ("n1", "n2", "n3")], ALERTS["FerrySysfsNotRead"], 140)
        # Ten minutes from now, if nobody was scraped until then.
        self.expect_soon([of(None, node) for node in ("n1", "n2", "n3")], ALERTS["FerryAgentDown"], 600)
        self.expect_soon([of(1)], ALERTS["FerryNoAgent"], 600)

    def test_prometheus_evaluates_the_rules(self) -> None:
        self.soon(self.expect_rules)

    def expect_rules(self) -> None:
        groups = self.nodes.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertEqual({rule["name"] for rule in rules}, set(ALERTS))
        self.assertEqual([rule for rule in rules if rule["health"] != "ok"], [])
        raised = {(one["labels"]["alertname"], one["labels"]["instance"]) for one in self.nodes.ask("alerts")["alerts"]}
        self.assertLessEqual({("FerryNodeFailed", "n2"), ("FerryGpuStuck", "n2"), ("FerryDevicesUnhealthy", "n3")}, raised)
        self.assertEqual({node for _, node in raised}, {"n2", "n3"})


if __name__ == "__main__":
    unittest.main()
