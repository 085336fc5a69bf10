# SPDX-License-Identifier: Apache-2.0
"""The objects that each tested release of Helm renders from the chart."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from typing import Any

import yaml

import chart

PROFILES = chart.REPOSITORY / "configs/vgpu-config.yaml"
WRONG = chart.sample(chart.REPOSITORY / "tests/chart/wrong-values.yaml")


class RenderTest(unittest.TestCase):
    def test_lint(self) -> None:
        for version, helm in chart.helms().items():
            for file in chart.SAMPLES:
                with self.subTest(helm=version, values=file.name):
                    done = chart.run(helm, "lint", "--strict", str(chart.CHART), "--kube-version", "1.36.0", "--values",
                                     str(file))
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all_releases_of_helm_render_the_same(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                first, *others = [chart.render_all(chart.sample(file), helm=helm) for helm in chart.helms().values()]
                for other in others:
                    self.assertEqual(first, other)

    def test_rendered_objects_are_valid_in_kubernetes(self) -> None:
        if not os.environ["FERRY_K8S_CHECKS"]:
            self.skipTest("k8s-strict cannot be had, and nothing is held against the types of Kubernetes")
        program = os.environ["FERRY_K8S_CHECKS"] + "/k8s-strict"
        for file in chart.SAMPLES:
            for version in ("1.36.0",) if (chart.sample(file).get("dra") or {}).get("enabled") else ("1.20.2", "1.36.0"):
                with self.subTest(values=file.name, kubernetes=version):
                    # The kinds of the Prometheus operator and of OpenShift are not Kubernetes' own.
                    objects = [one for one in chart.render_all(chart.sample(file), kube_version=version)
                               if not one["apiVersion"].startswith(("monitoring.coreos.com/", "security.openshift.io/"))]
                    done = subprocess.run([program, "-"], input=yaml.safe_dump_all(objects), text=True,
                                          capture_output=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # It does refuse.
        objects = chart.render()
        chart.pod_of(objects)["spec"]["hostNetwrok"] = True
        done = subprocess.run([program, "-"], input=yaml.safe_dump_all(objects), text=True, capture_output=True,
                              check=False)
        self.assertIn('unknown field "spec.template.spec.hostNetwrok"', done.stdout)
        done = subprocess.run([program, str(chart.CHART.parent / "static/ferry.yaml")], check=False)
        self.assertEqual(done.returncode, 0)

    def test_the_static_manifests_are_the_chart_with_default_values(self) -> None:
        folder = chart.CHART.parent / "static"
        now = subprocess.run([folder / "render", "--print"], capture_output=True, text=True, check=True).stdout
        self.assertEqual((folder / "ferry.yaml").read_text(), now, "hint: charts/static/render")

    def test_the_virtual_node_runs_these_containers(self) -> None:
        program = chart.REPOSITORY / "tests/chart/pod-spec"
        folder = chart.REPOSITORY / "tests/node/scenarios/container"
        def rendered(*values: str) -> str:
            return subprocess.run([program, *values], capture_output=True, text=True, check=True).stdout
        self.assertEqual((folder / "pod.json").read_text(), rendered(), f"hint: {program} > {folder}/pod.json")
        for name, values in {"host-tools": ["hostd.hostTools=true"],
                             "privileged": ["hostd.privileged=true", "hostd.systemd=false"],
                             "metrics": ["agent.metrics.enabled=true"]}.items():
            with self.subTest(change=name):
                changed = subprocess.run(["jq", "-f", folder / f"{name}.jq", folder / "pod.json"], capture_output=True,
                                         text=True, check=True).stdout
                self.assertEqual(json.loads(rendered(*values)), json.loads(changed))

    def test_wrong_values_are_refused(self) -> None:
        for version, helm in chart.helms().items():
            for wrong in WRONG:
                with self.subTest(helm=version, values=wrong["values"]):
                    done = chart.run(helm, "template", "ferry", str(chart.CHART), "--kube-version",
                                     wrong.get("kubernetes", "1.36.0"), values=wrong["values"])
                    self.assertNotEqual(done.returncode, 0)
                    if "says" in wrong:
                        self.assertIn(wrong["says"], done.stderr)
                        self.assertNotIn("schema", done.stderr)
                        continue
                    self.assertIn("schema", done.stderr)
                    self.assertRegex(done.stderr, rf"\b{re.escape(wrong['names'])}\b")

    def test_the_schema_has_exactly_the_charts_values(self) -> None:
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        values = chart.sample(chart.CHART / "values.yaml")
        def compare(where: str, part: Any, value: Any) -> None:
            self.assertIs(part.get("additionalProperties"), False, where)
            known = {key for key, below in part["properties"].items() if not below.get("deprecated")}
            self.assertEqual(known - ({"global"} if not where else set()), set(value), where or "the top")
            for key, below in value.items():
                name = f"{where}.{key}".strip(".")
                inner = part["properties"][key]
                self.assertTrue(inner["description"], f"{name}: charts/describe")
                if isinstance(below, dict) and "properties" in inner and key not in ("resources", "seLinuxOptions", "affinity"):
                    compare(name, inner, below)

        compare("", schema, values)

    def test_files_made_from_the_values_comments_are_current(self) -> None:
        program = chart.CHART.parent / "describe"
        done = subprocess.run([program, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(chart.CHART, copy / "ferry")
            shutil.copy(program, copy)
            values = copy / "ferry/values.yaml"
            text = values.read_text()
            for changed, expected in ((text.replace("  # The registry, such", "  # Some registry, such"), "is stale"),
                                    (text.replace("uninstall:\n", "uninstall:\n  more: 1\n"), "does not know uninstall.more"),
                                    (text.replace("  # The tag. Empty: the chart's appVersion.\n", ""), "image.tag has no comment right above it")):
                self.assertNotEqual(changed, text)
                values.write_text(changed)
                done = subprocess.run([copy / "describe", "--check"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1, expected)
                self.assertIn(expected, done.stderr)

    def test_each_value_can_be_set_to_its_default(self) -> None:
        """Each alone, as `--set-json` takes it, so that the schema and the templates take what the table shows."""
        expected = chart.render_all()
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (chart.CHART / "README.md").read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 100)
        for helm in chart.helms().values():
            words = [word for path, default in rows for word in ("--set-json", f"{path}={default}")
                     if default != "null" and path != "image.repository"]
            done = chart.run(helm, "template", "ferry", str(chart.CHART), "--namespace", "gpus", "--kube-version", "1.36.0", *words,
                             "--set", "image.repository=ferry")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([one for one in yaml.safe_load_all(done.stdout) if one], expected)
        for path, default in rows:
            part = schema
            for key in path.split("."):
                part = part["properties"][key]
            self.assertIn(part["description"].replace("|", "\\|"), (chart.CHART / "README.md").read_text(), path)

    def test_a_sample_sets_each_value_to_another_one(self) -> None:
        """So each is linted, rendered by every Helm and held against the types of Kubernetes."""
        def changed(schema: Any, defaults: Any, given: Any, where: str = "") -> set[str]:
            out: set[str] = set()
            for key, value in given.items():
                part, path = schema["properties"][key], f"{where}.{key}".strip(".")
                if value != defaults[key]:
                    out.add(path)
                if isinstance(value, dict) and isinstance(defaults[key], dict) and "properties" in part:
                    inner = {name: below for name, below in value.items() if name in defaults[key]}
                    out |= changed(part, defaults[key], inner, path)
            return out
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        defaults = chart.sample(chart.CHART / "values.yaml")
        found = set().union(*(changed(schema, defaults, chart.sample(file)) for file in chart.SAMPLES))
        shown = set(re.findall(r"^\| `([\w.]+)` \|", (chart.CHART / "README.md").read_text(), re.MULTILINE))
        # Without a chart around it `enabled` can only be true: test_the_chart_can_be_a_dependency.
        self.assertEqual(shown - found, {"enabled"})

    def test_former_names_are_refused_with_the_new_name(self) -> None:
        former = chart.sample(chart.CHART / "files/renamed.yaml")
        defaults = chart.sample(chart.CHART / "values.yaml")
        table = (chart.REPOSITORY / "docs/compatibility.md").read_text()

        for helm in chart.helms().values():
            for value in ("x", {"y": ["z"]}):
                values = chart.with_image({})
                for old in [*former["renamed"], *former["elsewhere"]]:
                    *parents, last = old.split(".")
                    place = values
                    for key in parents:
                        place = place.setdefault(key, {})
                    place[last] = value
                said = chart.run(helm, "template", "ferry", str(chart.CHART), values=values).stderr
                for old, new in former["renamed"].items():
                    self.assertIn(f"{old} is {new} now", said)
                for old, hint in former["elsewhere"].items():
                    self.assertIn(f"there is no value {old}: {hint}", said)
        for old, new in former["renamed"].items():
            self.assertIn(f"| `{old}` | `{new}` |", table)
            place = defaults
            for key in new.split("."):
                self.assertIn(key, place)
                place = place[key]
        self.assertEqual(set(former["elsewhere"]) & set(defaults), set())

    def test_all_errors_are_reported_at_once(self) -> None:
        done = chart.run(chart.newest(), "template", "ferry", str(chart.CHART),
                         values={"nodes": {"selector": {"a": "b"}}, "kata": {"classes": "x"}})
        for words in ("nodes.selector is nodeSelector now", "image.repository is not set", "kata.classes have no effect"):
            self.assertIn(words, done.stderr)

    def test_the_chart_can_be_a_dependency(self) -> None:
        for helm in chart.helms().values():
            with tempfile.TemporaryDirectory() as folder:
                parent = pathlib.Path(folder)
                shutil.copytree(chart.CHART, parent / "charts/ferry")
                (parent / "templates").mkdir()
                (parent / "templates/own.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n")
                for alias in ("", "gpus"):
                    name = alias or "ferry"
                    (parent / "Chart.yaml").write_text(yaml.safe_dump({
                        "apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [
                            {"name": "ferry", "version": "0.1.0", "condition": f"{name}.enabled", **({"alias": alias} if alias else {})}]}))

                    def rendered(values: Any, parent: pathlib.Path = parent, helm: pathlib.Path = helm) -> list[chart.Object]:
                        done = chart.run(helm, "template", "release", str(parent), "--namespace", "gpus", "--kube-version", "1.36.0",
                                         values=values)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        return [one for one in yaml.safe_load_all(done.stdout) if one]
                    image = {"repository": "registry.example/ferry"}
                    on = rendered({name: {"enabled": True, "image": image}, "global": {"imageRegistry": "other"}})
                    self.assertEqual(set(chart.daemon_sets(on)), {"agent", "node", "plugin"})
                    self.assertEqual({one["metadata"]["labels"]["helm.sh/chart"] for one in on if "labels" in one["metadata"]},
                                     {"ferry-0.1.0"}, "by which `kubectl ferry gather` knows pods")
                    self.assertEqual([one["kind"] for one in rendered({name: {"enabled": False}})], ["ConfigMap"])
            done = chart.run(helm, "template", "ferry", str(chart.CHART), values=chart.with_image({"enabled": False}))
            self.assertIn("enabled=false has no effect here", done.stderr)

    def test_the_charts_metadata_for_catalogs(self) -> None:
        about = chart.sample(chart.CHART / "Chart.yaml")
        for helm in chart.helms().values():
            self.assertIn("| `nodeSelector` |", chart.run(helm, "show", "readme", str(chart.CHART)).stdout)
        self.assertEqual((chart.CHART / "LICENSE").read_text(), (chart.REPOSITORY / "LICENSE").read_text())
        icon = base64.b64decode(about["icon"].removeprefix("data:image/svg+xml;base64,"))
        self.assertEqual(icon, (chart.CHART / "icon.svg").read_bytes())
        self.assertEqual(xml.etree.ElementTree.fromstring(icon).tag, "{http://www.w3.org/2000/svg}svg")
        self.assertIn(f"    version: {about['version']}\n", (chart.CHART / "README.md").read_text())
        notes = about["annotations"]
        self.assertEqual(set(notes), {f"artifacthub.io/{key}" for key in (
            "license", "category", "operator", "prerelease", "crds", "images", "changes")})
        self.assertEqual(yaml.safe_load(notes["artifacthub.io/crds"]), [])
        (image,) = yaml.safe_load(notes["artifacthub.io/images"])
        self.assertEqual(image["image"], chart.containers_of(chart.render())["agent"]["image"])
        for change in yaml.safe_load(notes["artifacthub.io/changes"]):
            self.assertIn(change["kind"], ("added", "changed", "deprecated", "removed", "fixed", "security"))
            self.assertTrue(change["description"])

    def test_profiles_are_those_of_the_repository(self) -> None:
        self.assertEqual((chart.CHART / "files/vgpu-config.yaml").read_text(), PROFILES.read_text(),
                         f"hint: cp {PROFILES} {chart.CHART}/files/")
        (config,) = chart.of_kind(chart.render(), "ConfigMap")
        self.assertEqual(config["data"]["config.yaml"], PROFILES.read_text())

    def test_texts_are_rendered_unchanged(self) -> None:
        text = "version: v2\n\n# {{ no template }}\npolicies:\n  a:\n  - {devices: all, mode: host}  # trailing\n"
        for helm in chart.helms().values():
            objects = chart.render({"config": {"policies": text}, "kata": {"enabled": True, "classes": text}}, helm=helm)
            data = {one["metadata"]["name"]: one["data"] for one in chart.of_kind(objects, "ConfigMap")}
            self.assertEqual(data["ferry-policies"]["config.yaml"], text)
            self.assertEqual(data["ferry-kata-classes"]["classes.yaml"], text)

    def test_the_versions_are_those_of_the_program(self) -> None:
        said = subprocess.run([os.environ["FERRY_BIN"] + "/ferry", "--version"], capture_output=True, text=True,
                              check=True).stdout.split()[-1]
        about = chart.sample(chart.CHART / "Chart.yaml")
        self.assertEqual(about["appVersion"], said)
        image = chart.containers_of(chart.render())["agent"]["image"]
        self.assertEqual(image, f"ferry:{said}")

    def test_an_older_cluster_is_refused(self) -> None:
        for helm in chart.helms().values():
            done = chart.run(helm, "template", "ferry", str(chart.CHART), "--kube-version", "1.19.9", values=chart.with_image({}))
            self.assertIn("incompatible with Kubernetes v1.19.9", done.stderr)
            done = chart.run(helm, "template", "ferry", str(chart.CHART), "--kube-version", "1.20.2", values=chart.with_image({}))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_package_has_all_files(self) -> None:
        for version, helm in chart.helms().items():
            with self.subTest(helm=version):
                done = subprocess.run(
                    f"d=$(mktemp -d) && {helm} package {chart.CHART} -d $d >&2 && {helm} template ferry $d/*.tgz "
                    "--set image.repository=ferry --namespace gpus --kube-version 1.36.0; rm -rf $d", shell=True, capture_output=True, text=True,
                    check=True)
                packed = [document for document in yaml.safe_load_all(done.stdout) if document]
                self.assertEqual(packed, chart.render_all(helm=helm))
