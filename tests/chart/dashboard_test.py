# SPDX-License-Identifier: Apache-2.0
"""The dashboard: whether Grafana can lay it out, and whether Prometheus could answer what it asks."""

import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "charts/ferry/dashboards/gpus.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
COLUMNS = 24


def documented() -> set[str]:
    """Every metric that docs/metrics.md has a row for, and what Prometheus makes of a histogram."""
    rows = [line.split("|")[1:3] for line in (ROOT / "docs/metrics.md").read_text().splitlines() if line.startswith("| `ferry_")]
    names = set()
    for cell, kind in rows:
        for name in re.findall(r"`(ferry_\w+)`", cell):
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if "histogram" in kind else {name}
    return names


def expressions() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def filled_in(expression: str) -> str:
    """The query that Grafana sends, with all nodes and GPUs chosen."""
    for name, value in (("$__rate_interval", "5m"), ("$node", ".*"), ("$gpu", ".*")):
        expression = expression.replace(name, value)
    return expression


# hostd reads registers and sanitizes on few nodes, so a panel of these would be empty nearly everywhere.
ON_FEW_NODES = ("ferry_gpu_sanitize_state", "ferry_gpu_sanitize_result", "ferry_gpu_sanitize_seconds", "ferry_gpu_sanitizings_total",
                "ferry_gpu_confidential_mode", "ferry_gpu_recovery_mode", "ferry_gpu_memory_bytes", "ferry_gpu_memory_ecc",
                "ferry_gpu_registers_read_timestamp_seconds", "ferry_gpu_reset_in_use")


class DashboardTest(unittest.TestCase):
    def test_each_panel_has_a_place_of_its_own(self) -> None:
        self.assertEqual(len({panel["id"] for panel in DASHBOARD["panels"]}), len(DASHBOARD["panels"]))
        cells: dict[tuple[int, int], str] = {}
        for panel in DASHBOARD["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], COLUMNS, panel["title"])
            for cell in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])):
                self.assertNotIn(cell, cells, f"{panel['title']} lies on {cells.get(cell)}")
                cells[cell] = panel["title"]

    def test_each_panel_has_a_description_and_the_chosen_source(self) -> None:
        for panel in PANELS:
            self.assertTrue(panel["title"] and panel["description"], panel["title"])
            for asks in [panel, *panel["targets"]]:
                self.assertEqual({"type": "prometheus", "uid": "${datasource}"}, asks["datasource"], panel["title"])
            references = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(set(references)), len(references), panel["title"])

    def test_the_dashboard_queries_existing_metrics_and_all_about_gpus(self) -> None:
        asked = set()
        for title, expression in expressions():
            names = set(re.findall(r"\bferry_\w+", expression))
            self.assertTrue(names, title)
            self.assertLessEqual(names, documented(), title)
            asked |= names
        self.assertLessEqual({name for name in documented() if name.startswith(("ferry_gpu", "ferry_vgpu", "ferry_device"))} -
                             asked, {"ferry_gpu_state", *ON_FEW_NODES}, "shown nowhere")

    def test_variables_come_from_metrics_of_every_node_and_gpu(self) -> None:
        self.assertEqual(["datasource", "node", "gpu"], list(VARIABLES))
        for name, metric in (("node", "ferry_build_info"), ("gpu", "ferry_gpu_info")):
            variable = VARIABLES[name]
            self.assertIn(f"label_values({metric}", variable["query"]["query"])
            self.assertTrue(variable["multi"] and variable["includeAll"])
        for title, expression in expressions():
            used = set(re.findall(r"\$\{?(\w+)", expression)) - {"__rate_interval"}
            self.assertLessEqual(used, set(VARIABLES), title)
            self.assertIn("$node", expression, f"{title}: a node that is not chosen would be shown")

    def test_a_timeline_has_a_word_for_each_state_that_it_counts(self) -> None:
        for title, states, file in (("Phase of each node", 5, "api/words.h"), ("Power", 7, "agent/metrics/metric_families.cpp")):
            panel = next(panel for panel in PANELS if panel["title"] == title)
            (target,), ((mapping,)) = panel["targets"], panel["fieldConfig"]["defaults"]["mappings"]
            numbers = {number: word for word, number in re.findall(r'="(\w+)"} == 1\) \* (\d)', target["expr"])}
            self.assertEqual(numbers, {number: shown["text"] for number, shown in mapping["options"].items()}, title)
            self.assertEqual(len(numbers), states, title)
            # The states are the agent's; a state without a number would be a gap.
            known = [words for words in map(set, (re.findall(r'"(\w+)"', line) for line in (ROOT / file).read_text().split(";")))
                     if numbers["1"] in words and len(words) == states]
            self.assertIn(set(numbers.values()), known, title)

    def test_prometheus_can_parse_the_queries(self) -> None:
        promtool = os.environ.get("FERRY_PROMTOOL")
        if not promtool:
            self.skipTest("there is no promtool")
        rules = [{"record": f"ferry_panel:{number}", "expr": filled_in(expression)}
                 for number, (_, expression) in enumerate(expressions())]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)  # YAML too
            file.flush()
            checked = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True, check=False)
        self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
