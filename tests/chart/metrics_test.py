# SPDX-License-Identifier: Apache-2.0
"""Metrics and alerts: what the chart asks for, what is documented, and when an alert fires."""

import copy
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from typing import Any

import yaml

import chart

ALERTS = chart.CHART / "files/alerts.yaml"
CASES = chart.REPOSITORY / "tests/chart/alerts_test.yaml"
DOCUMENT = chart.REPOSITORY / "docs/metrics.md"


def families() -> set[str]:
    """The metric families that the agent knows."""
    return set(re.findall(r'"(ferry_[a-z_]+)"', (chart.REPOSITORY / "agent/metrics/metric_families.cpp").read_text()))


def with_metrics(**more: Any) -> list[chart.Object]:
    return chart.render({"agent": {"metrics": {"enabled": True, **more}}})


class MetricsTest(unittest.TestCase):
    """The objects that values lead to."""

    def test_metrics_are_off_by_default(self) -> None:
        self.assertNotIn("metrics", str(chart.containers_of(chart.render())))
        self.assertEqual(chart.render(), chart.render({"agent": {"metrics": {"tlsSecret": "a", "tokenSecret": "b"}}}))

    def test_the_address_of_the_listener(self) -> None:
        for address, listen in (("0.0.0.0", "0.0.0.0:9417"), ("::", "[::]:9417"), ("127.0.0.1", "127.0.0.1:9417")):
            agent = chart.containers_of(with_metrics(address=address))["agent"]
            self.assertIn(f"--metrics-address={listen}", agent["args"])
            self.assertEqual(agent["ports"], [{"name": "metrics", "containerPort": 9417, "protocol": "TCP"}])

    def test_files_are_in_the_secrets_mounts(self) -> None:
        objects = with_metrics(tlsSecret="tls", tokenSecret="tok")
        agent = chart.containers_of(objects)["agent"]
        secrets = {one["name"]: one["secret"]["secretName"]
                   for one in chart.volumes_of(objects, "agent").values() if "secret" in one}
        mounts = {one["mountPath"]: secrets[one["name"]] for one in agent["volumeMounts"] if one["name"] in secrets}
        paths = {option: word.split("=")[1] for option in ("certificate", "key", "token-file") for word in agent["args"]
                if word.startswith(f"--metrics-{option}=")}
        self.assertEqual({option: mounts[str(pathlib.PurePath(file).parent)] for option, file in paths.items()},
                         {"certificate": "tls", "key": "tls", "token-file": "tok"})
        # A missing Secret does not keep the pod from starting.
        for one in chart.volumes_of(objects, "agent").values():
            if "secret" in one:
                self.assertIs(one["secret"].get("optional"), True, one["name"])

    def test_the_pod_monitor_selects_the_pods(self) -> None:
        objects = chart.render(chart.sample(chart.CHART / "ci/metrics-values.yaml"))
        (monitor,) = chart.of_kind(objects, "PodMonitor")
        selected = monitor["spec"]["selector"]["matchLabels"].items()
        self.assertLessEqual(selected, chart.pod_of(objects, "agent")["metadata"]["labels"].items())
        self.assertFalse(selected <= chart.pod_of(objects)["metadata"]["labels"].items())
        (end,) = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual((end["port"], end["scheme"], end["tlsConfig"]["serverName"],
                          end["authorization"]["credentials"]),
                         ("metrics", "https", "ferry.example", {"name": "ferry-metrics-token", "key": "token"}))
        # The agent pod's own labels must not replace those of the pod that has a device.
        dropped = next(one["regex"] for one in end["relabelings"] if one.get("action") == "labeldrop")
        for label in ("namespace", "pod"):
            self.assertTrue(re.fullmatch(dropped, label))
        self.assertFalse(re.fullmatch(dropped, "node"))
        # The address of a pod is another after each restart; alerts compare samples of one instance.
        named = {one["targetLabel"]: one["sourceLabels"] for one in end["relabelings"] if "targetLabel" in one}
        self.assertEqual(named["instance"], ["__meta_kubernetes_pod_node_name"])

    def test_the_rule_object_has_the_files_rules(self) -> None:
        objects = chart.render(chart.sample(chart.CHART / "ci/metrics-values.yaml"))
        (rule,) = chart.of_kind(objects, "PrometheusRule")
        self.assertEqual(rule["spec"], chart.sample(ALERTS))


class WordsTest(unittest.TestCase):
    """The pages about them."""

    def test_each_family_is_described(self) -> None:
        self.assertTrue(families())
        self.assertEqual(set(re.findall(r"`(ferry_[a-z_]+)`", DOCUMENT.read_text())), families())

    def test_alerts_name_existing_families(self) -> None:
        text = ALERTS.read_text() + CASES.read_text()
        self.assertLessEqual(set(re.findall(r"\bferry_[a-z_]+\b", text)), families())

    def test_each_alert_is_described(self) -> None:
        alerts = {rule["alert"] for group in chart.sample(ALERTS)["groups"] for rule in group["rules"]}
        self.assertEqual(set(re.findall(r"`(Ferry[A-Za-z]+)`", DOCUMENT.read_text())), alerts)

    def test_alerts_have_a_severity_and_a_remedy(self) -> None:
        for group in chart.sample(ALERTS)["groups"]:
            for rule in group["rules"]:
                with self.subTest(alert=rule["alert"]):
                    self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
                    self.assertEqual(set(rule["annotations"]), {"summary", "description"})


@unittest.skipUnless(os.environ.get("FERRY_PROMTOOL"), "FERRY_PROMTOOL names no promtool")
class AlertsTest(unittest.TestCase):
    """When alerts fire."""

    def checked(self, rules: Any, of: str = "") -> subprocess.CompletedProcess[str]:
        """The results of the test cases; with an alert, only of the cases that name it."""
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "rules.yaml").write_text(yaml.safe_dump(rules))
            cases = chart.sample(CASES)
            cases["rule_files"] = ["rules.yaml"]
            cases["tests"] = [case for case in cases["tests"] if of in yaml.safe_dump(case)]
            (place / "cases.yaml").write_text(yaml.safe_dump(cases))
            return subprocess.run([os.environ["FERRY_PROMTOOL"], "test", "rules", "cases.yaml"], cwd=place,
                                  capture_output=True, text=True, check=False)

    def test_prometheus_reads_the_rules(self) -> None:
        done = subprocess.run([os.environ["FERRY_PROMTOOL"], "check", "rules", str(ALERTS)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_alerts_fire(self) -> None:
        done = self.checked(chart.sample(ALERTS))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_is_tested(self) -> None:
        """Without an alert, and with one that does not wait, a case fails."""
        rules = chart.sample(ALERTS)["groups"][0]["rules"]
        for number, rule in enumerate(rules):
            fewer = copy.deepcopy(rules)
            del fewer[number]
            hasty = copy.deepcopy(rules)
            waits = hasty[number].pop("for", None)
            for changed, meant in ((fewer, True), (hasty, waits is not None)):
                if not meant:
                    continue
                with self.subTest(alert=rule["alert"], gone=changed is fewer):
                    done = self.checked({"groups": [{"name": "ferry", "rules": changed}]}, of=rule["alert"])
                    self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
