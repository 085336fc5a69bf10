# SPDX-License-Identifier: Apache-2.0
"""The YAML that the pages for people show."""

import dataclasses
import pathlib
import re
from typing import Any

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]


def is_of_kubevirt(document: Any) -> bool:
    group = document.get("apiVersion", "").split("/")[0]
    return bool(group == "kubevirt.io" or group.endswith(".kubevirt.io"))


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file's name, which stands in a comment on the first line; empty: there is none."""
        first = self.text.split("\n", 1)[0]
        return first.removeprefix("# ") if first.startswith("# ") and first.endswith(".yaml") else ""

    def texts(self) -> list[str]:
        """Each document as it is written: of a key that stands twice, loading keeps one."""
        return [one for one in re.split(r"^---$", self.text, flags=re.MULTILINE) if yaml.safe_load(one) is not None]

    def documents(self) -> list[Any]:
        return [yaml.safe_load(one) for one in self.texts()]

    def manifests(self) -> list[Any]:
        return [one for one in self.documents() if "apiVersion" in one and "kind" in one]


def blocks() -> list[Block]:
    out = []
    for page in (REPOSITORY / "README.md", REPOSITORY / "SECURITY.md", REPOSITORY / "images/README.md",
                 *sorted((REPOSITORY / "docs").rglob("*.md"))):
        begin: int | None = None
        lines: list[str] = []
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line == "```yaml":
                begin, lines = number + 1, []
            elif line.startswith("```") and begin is not None:
                out.append(Block(str(page.relative_to(REPOSITORY)), begin, "\n".join(lines) + "\n"))
                begin = None
            else:
                lines.append(line)
    return out
