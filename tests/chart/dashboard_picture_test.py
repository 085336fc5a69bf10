# SPDX-License-Identifier: Apache-2.0
"""The picture of the dashboard: it has what the answers have, and the one in the pages is that of its answers."""

import json
import re
import unittest
import xml.etree.ElementTree
from typing import Any

from dashboard_picture import NAMED, ask, draw
from dashboard_test import DASHBOARD, PANELS, ROOT, filled_in

TEXT = "{http://www.w3.org/2000/svg}text"
SECONDS = 60


def composed() -> Any:
    """Answers with one series for each query: each label has its own name as its value, and the value is 1."""
    panels: dict[str, Any] = {}
    for panel in PANELS:
        panels[panel["title"]] = []
        for target in panel["targets"]:
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            if panel["type"] == "table":
                labels = list(panel["transformations"][1]["options"]["indexByName"])
            moments = [SECONDS] if target.get("instant") else range(SECONDS + 1)
            panels[panel["title"]].append([{"labels": {name: f"<{name}>" for name in labels},
                                            "values": [[at, 1] for at in moments]}])
    return {"seconds": SECONDS, "panels": panels}


def words_of(picture: str) -> list[str]:
    return [one.text or "" for one in xml.etree.ElementTree.fromstring(picture).iter(TEXT)]


class DashboardPictureTest(unittest.TestCase):
    def test_the_picture_has_each_panel_with_its_series(self) -> None:
        words = words_of(draw(DASHBOARD, composed()))
        self.assertNotIn("No data", words)
        joined = " ".join(words)
        for panel in PANELS:
            self.assertIn(panel["title"], joined)
        for label in ("mode", "phase", "result", "resource", "instance"):
            if any(f"{{{{{label}}}}}" in target["legendFormat"] for panel in PANELS for target in panel["targets"]):
                self.assertIn(f"<{label}>", joined)
        for column in ("GPU", "PCI ID", "IOMMU group", "VM"):
            self.assertIn(column, words)
        self.assertIn("D0", words)  # by its number

    def test_the_drawing_stays_inside_the_picture(self) -> None:
        picture = xml.etree.ElementTree.fromstring(draw(DASHBOARD, composed()))
        _, _, width, height = map(float, picture.attrib["viewBox"].split())
        for one in picture.iter():
            if "x" in one.attrib:
                self.assertTrue(0 <= float(one.attrib["x"]) <= width and 0 <= float(one.attrib["y"]) <= height, one.attrib)

    def test_equal_answers_give_equal_bytes(self) -> None:
        again = json.loads(json.dumps(composed()))
        self.assertEqual(draw(DASHBOARD, composed()), draw(DASHBOARD, again))

    def test_a_value_has_the_colour_of_its_threshold(self) -> None:
        answers = composed()
        for value, colour in ((0, "green"), (7, "orange")):
            answers["panels"]["Blocked"][0][0]["values"] = [[SECONDS, value]]
            self.assertIn(f'fill="{NAMED[colour]}">{value}</text>', draw(DASHBOARD, answers))

    def test_a_changing_state_is_drawn(self) -> None:
        answers = composed()
        answers["panels"]["Phase of each node"][0][0]["values"] = [[at, 2 if at < 30 else 4] for at in range(SECONDS + 1)]
        words = words_of(draw(DASHBOARD, answers))
        self.assertLess(words.index("applying"), words.index("failed"))

    def test_a_panel_without_data_says_so(self) -> None:
        answers = composed()
        for title, queries in answers["panels"].items():
            answers["panels"][title] = [[] for _ in queries]
        self.assertEqual(words_of(draw(DASHBOARD, answers)).count("No data"), len(PANELS))

    def test_answers_are_prometheus_data_of_the_last_seconds(self) -> None:
        def query(path: str, **form: str) -> Any:
            self.assertNotIn("$", form["query"])
            if path == "query":
                return {"result": [{"metric": {"job": "x", "mode": "host"}, "value": [float(form["time"]), "2"]}]}
            begin = float(form["start"])
            self.assertAlmostEqual(float(form["end"]) - begin, SECONDS, 3)
            return {"result": [{"metric": {"__name__": "y", "instance": "n1"}, "values": [[begin + 1, "NaN"], [begin + 2, "1.23456789"]]}]}
        answers = ask(PANELS, filled_in, query, SECONDS)
        self.assertEqual(answers["panels"]["GPUs by mode"], [[{"labels": {"mode": "host"}, "values": [[SECONDS, 2]]}]])
        self.assertEqual(answers["panels"]["Device users"], [[{"labels": {"instance": "n1"}, "values": [[2, 1.23457]]}]])
        self.assertEqual(set(answers["panels"]), {panel["title"] for panel in PANELS})

    def test_the_pages_picture_is_drawn_from_its_answers(self) -> None:
        file = ROOT / "docs/images/dashboard.json"
        if not file.exists():
            self.skipTest("there is none yet: tests/chart/picture makes it")
        self.assertEqual((ROOT / "docs/images/dashboard.svg").read_text(), draw(DASHBOARD, json.loads(file.read_text())),
                         "hint: tests/chart/picture --draw")


if __name__ == "__main__":
    unittest.main()
