# SPDX-License-Identifier: Apache-2.0
"""The dashboard against Grafana's types: every key known, every value of its type."""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

from dashboard_test import DASHBOARD

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = os.environ.get("FERRY_GRAFANA_SCHEMA", "")
NODE = shutil.which("node") or shutil.which("nodejs")


def panel(dashboard: Any, kind: str) -> Any:
    """The first of its kind."""
    return next(one for one in dashboard["panels"] if one["type"] == kind)


# A change to a copy, and the compiler's message about it.
FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a key of nobody's": (lambda d: d.update(tittle="x"), '"tittle"\' does not exist'),
    "a number as text": (lambda d: d.update(schemaVersion="39"), "'string' is not assignable to type 'number'"),
    "no such sort order": (lambda d: d["templating"]["list"][1].update(sort=9), "'9' is not assignable"),
    "a variable's key": (lambda d: d["templating"]["list"][1].update(multy=True), '"multy"\' does not exist'),
    "a row that does not say whether it is open": (lambda d: panel(d, "row").pop("collapsed"), "'collapsed' is missing"),
    "a panel's key": (lambda d: panel(d, "table").update(gridPosition={}), '"gridPosition"\' does not exist'),
    "a panel without a place": (lambda d: panel(d, "stat")["gridPos"].pop("w"), "'w' is missing"),
    "another panel's option": (lambda d: panel(d, "stat")["options"].update(showHeader=True), '"showHeader"\' does not exist'),
    "no such text mode": (lambda d: panel(d, "stat")["options"].update(textMode="loud"), "'\"loud\"' is not assignable"),
    "half a legend": (lambda d: panel(d, "timeseries")["options"]["legend"].pop("calcs"), "'calcs' is missing"),
    "a field's key": (lambda d: panel(d, "stat")["fieldConfig"]["defaults"].update(units="s"), '"units"\' does not exist'),
    "no such style": (lambda d: panel(d, "timeseries")["fieldConfig"]["defaults"]["custom"].update(drawStyle="bar"),
                      "'\"bar\"' is not assignable"),
    "a style's key": (lambda d: panel(d, "state-timeline")["fieldConfig"]["defaults"]["custom"].update(drawStyle="bars"),
                      '"drawStyle"\' does not exist'),
    "a property of some fields": (lambda d: panel(d, "timeseries")["fieldConfig"].update(overrides=[
        {"matcher": {"id": "byName"}, "properties": [{"id": "colour", "value": {"mode": "fixed"}}]}]),
                                  "'\"colour\"' is not assignable"),
    "a query's key": (lambda d: panel(d, "table")["targets"][0].update(expression="up"), '"expression"\' does not exist'),
    "no such answer": (lambda d: panel(d, "table")["targets"][0].update(format="csv"), "'\"csv\"' is not assignable"),
    "no such panel": (lambda d: panel(d, "table").update(type="grid"), "has no exported member 'grid'"),
}


def parts(dashboard: Any) -> list[tuple[str, Any]]:
    """The name of the type of each, and what it is: each panel, and what is around them."""
    around = {key: value for key, value in dashboard.items() if key != "panels"}
    return [("Around", around)] + [(one["type"].replace("-", "_"), one) for one in dashboard["panels"]]


def spelt(some: list[tuple[str, Any]]) -> str:
    """The dashboard as TypeScript."""
    lines = [f"export const part{number}: Type.{kind} = {json.dumps(part)};" for number, (kind, part) in enumerate(some)]
    return "\n".join(["import type * as Type from './dashboard-types';", *lines, ""])


def faulty(change: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """The parts of a changed copy that the dashboard itself does not have."""
    dashboard = copy.deepcopy(DASHBOARD)
    change(dashboard)
    return [part for part in parts(dashboard) if part not in parts(DASHBOARD)]


def compiled(dashboards: dict[str, list[tuple[str, Any]]]) -> dict[str, list[str]]:
    """The compiler's messages about each dashboard; "" has those about none."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "node_modules").symlink_to(pathlib.Path(SCHEMA) / "node_modules")
        shutil.copy(HERE / "dashboard-types.ts", folder)
        files = {f"dashboard{number}.ts": title for number, title in enumerate(dashboards)}
        for file, title in files.items():
            (folder / file).write_text(spelt(dashboards[title]))
        done = subprocess.run(
            [str(NODE), "node_modules/typescript/lib/tsc.js", "--noEmit", "--strict", "--skipLibCheck", "--pretty", "false",
             "--target", "es2015", "--lib", "es2015", "--moduleResolution", "node", *files],
            cwd=folder, capture_output=True, text=True, check=False)
    said: dict[str, list[str]] = {title: [] for title in [*dashboards, ""]}
    title = ""
    for line in (done.stdout + done.stderr).splitlines():
        if not line.startswith(" "):  # else it says more of the error before
            place = re.match(r"(dashboard\d+\.ts)\(", line)
            title = files[place[1]] if place else ""
        said[title].append(line)
    return said


@unittest.skipUnless(SCHEMA and NODE, "FERRY_GRAFANA_SCHEMA names no types of Grafana's, or there is no Node.js")
class GrafanaSchemaTest(unittest.TestCase):
    said: dict[str, list[str]]

    @classmethod
    def setUpClass(cls) -> None:
        # A single run serves all, since most of its time goes into reading the types.
        cls.said = compiled({"ours": parts(DASHBOARD)} | {title: faulty(change) for title, (change, _) in FAULTS.items()})

    def test_the_dashboard_matches_grafanas_schema(self) -> None:
        self.assertEqual([], self.said["ours"] + self.said[""])

    def test_a_faulty_copy_is_refused_for_its_fault(self) -> None:
        for title, (_, complaint) in FAULTS.items():
            with self.subTest(title):
                self.assertIn(complaint, "\n".join(self.said[title]))
                self.assertEqual(1, sum(not line.startswith(" ") for line in self.said[title]), self.said[title])


if __name__ == "__main__":
    unittest.main()
