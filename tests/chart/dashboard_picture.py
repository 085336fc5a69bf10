# SPDX-License-Identifier: Apache-2.0
"""Draws the dashboard as an SVG from answers of Prometheus. Equal answers give equal bytes.

Answers: {"seconds": S, "panels": {TITLE: [SERIES of the first query, ...]}}. SERIES is a list of {"labels": {...}, "values":
[[SECOND, VALUE], ...]} with seconds from 0 to S. A series of an instant query has one value.
"""

import itertools
import math
import re
import textwrap
import time
from collections.abc import Callable, Iterable
from typing import Any
from xml.sax.saxutils import escape

Json = dict[str, Any]
Point = tuple[float, float]

COLUMN, ROW, GAP = 42, 25, 6  # pixels of the grid
MARGIN, TITLE, CAPTION = 10, 24, 30
CHARACTER, BOLD = 5.9, 7.4  # width of a character: small, and of a title
NAMED = {"green": "#73bf69", "light-green": "#96d98d", "red": "#f2495c", "dark-red": "#c4162a", "orange": "#ff9830", "blue": "#5794f2",
         "light-blue": "#8ab8ff", "purple": "#b877d9", "gray": "#8e8e99", "text": "#d8d9e3"}
CLASSIC = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"]
SAID = "Drawn by tests/chart/picture from Prometheus' answers about three simulated nodes; Grafana's own drawing differs in detail"


def in_tag(attributes: dict[str, str]) -> str:
    """Names as Python has them: class_, text_anchor."""
    return "".join(f' {key.strip("_").replace("_", "-")}="{value}"' for key, value in attributes.items())


def text(x: float, y: float, words: str, **attributes: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{in_tag(attributes)}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, **attributes: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{in_tag(attributes)}/>'


def shortened(words: str, width: float) -> str:
    most = max(int(width / CHARACTER), 1)
    return words if len(words) <= most else words[:most - 1] + "…"


def number(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    shown = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return shown + {"s": " s", "reqps": " req/s"}.get(unit, "")


def name_of(series: Json, target: Json, panel: Json) -> str:
    if target["legendFormat"] == "__auto":
        return str(panel["title"])
    return re.sub(r"{{(\w+)}}", lambda match: series["labels"].get(match[1], ""), target["legendFormat"])


def colour_of(name: str, index: int, panel: Json) -> str:
    """The colour from the panel's exceptions, else from the classic palette."""
    for override in panel["fieldConfig"]["overrides"]:
        if re.search(override["matcher"]["options"].strip("/"), name):
            for one in override["properties"]:
                if one["id"] == "color":
                    return NAMED[one["value"]["fixedColor"]]
    return CLASSIC[index % len(CLASSIC)]


def colour_of_value(value: float, panel: Json) -> str:
    found = "text"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return NAMED[found]


def named_series(panel: Json, answers: list[list[Json]]) -> list[tuple[str, list[Point]]]:
    """The series of all queries, by name."""
    found = [(name_of(one, target, panel), [(float(at), float(value)) for at, value in one["values"]])
             for target, series in zip(panel["targets"], answers, strict=True) for one in series]
    return sorted(found)


# --- answers ------------------------------------------------------------------------------------------------------------


def ask(panels: list[Json], filled_in: Callable[[str], str], query: Callable[..., Any], seconds: int) -> Json:
    """The answers for the last seconds. `query(PATH, **FORM)` returns the data of an answer of Prometheus' HTTP API."""
    end = time.time()
    begin = end - seconds
    out: dict[str, list[list[Json]]] = {}
    for panel in panels:
        out[panel["title"]] = []
        for target in panel["targets"]:
            form = {"query": filled_in(target["expr"])}
            if target.get("instant"):
                found = [(one["metric"], [one["value"]]) for one in query("query", **form, time=str(end))["result"]]
            else:
                form |= {"start": str(begin), "end": str(end), "step": "1s"}
                found = [(one["metric"], one["values"]) for one in query("query_range", **form)["result"]]
            series = [{"labels": {key: label for key, label in sorted(labels.items()) if key not in ("job", "__name__")},
                       "values": [[round(at - begin), float(f"{float(value):.6g}")] for at, value in values
                                  if math.isfinite(float(value))]} for labels, values in found]
            out[panel["title"]].append(sorted((one for one in series if one["values"]), key=lambda one: str(one["labels"])))
    return {"seconds": seconds, "panels": out}


# --- one function a kind of panel: its parts within (x, y, width, height) ----------------------------------------------


def stat(panel: Json, answers: list[list[Json]], x: float, y: float, width: float, height: float, _: float) -> Iterable[str]:
    series = named_series(panel, answers)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for index, (name, values) in enumerate(series):
        part = width / len(series)
        middle = x + part * (index + 0.5)
        value = values[-1][1]
        if len(series) > 1:
            yield text(middle, y + 16, shortened(name, part), text_anchor="middle", class_="s")
        yield text(middle, y + height / 2 + 16, number(value, unit), text_anchor="middle", font_size="30",
                   fill=colour_of_value(value, panel))


def table(panel: Json, answers: list[list[Json]], x: float, y: float, width: float, height: float, _: float) -> Iterable[str]:
    options = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    rows = [one["labels"] for one in answers[0]]
    columns = sorted({key for row in rows for key in row if not options["excludeByName"].get(key)},
                     key=lambda key: (options["indexByName"].get(key, math.inf), key))
    names = [options["renameByName"].get(key, key) for key in columns]
    rows.sort(key=lambda row: [row.get(key, "") for key in columns])
    lengths = [max(len(name), *(len(row.get(key, "")) for row in rows)) + 2 for key, name in zip(columns, names, strict=True)]
    size = "s" if sum(lengths) * (CHARACTER + 0.5) < width else "a"
    starts = [x + width * before / sum(lengths) for before in itertools.accumulate(lengths, initial=0)]
    for row, cells in enumerate([names, *([one.get(key, "") for key in columns] for one in rows)]):
        at = y + 16 + 21 * row
        if at > y + height:
            break
        for begin, end, cell in zip(starts, starts[1:], cells):
            yield text(begin, at, shortened(cell, end - begin), class_=size, fill=NAMED["text" if row else "light-blue"])
        yield f'<path d="M{x:.1f} {at + 6:.1f}h{width:.1f}" stroke="#2c3235"/>'


def time_axis(x: float, y: float, width: float, seconds: float) -> Iterable[str]:
    for part, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        yield text(x + width * part, y, f"{seconds * part:.3g} s", text_anchor=anchor, class_="a")


def state_timeline(panel: Json, answers: list[list[Json]], x: float, y: float, width: float, height: float,
                   seconds: float) -> Iterable[str]:
    states = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    series = named_series(panel, answers)
    left = max(len(name) for name, _ in series) * CHARACTER + 8
    row = (height - 16) / len(series)
    place = scale(0, seconds, x + left, x + width)
    for index, (name, values) in enumerate(series):
        top = y + row * index
        yield text(x, top + row / 2 + 4, name, class_="s")
        for value, group in itertools.groupby(values, key=lambda one: one[1]):
            moments = [at for at, _ in group]
            end = min([at for at, _ in values if at > moments[-1]], default=seconds)
            shown = states[f"{value:g}"]
            begin = place(moments[0])
            length = place(end) - begin
            yield box(begin, top + 2, length, row - 4, NAMED[shown["color"]], fill_opacity="0.8")
            if length > len(shown["text"]) * CHARACTER + 4:
                yield text(begin + 4, top + row / 2 + 4, shown["text"], fill="#111217", class_="s")
    yield from time_axis(x + left, y + height - 2, width - left, seconds)


def scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (value - low) / (high - low or 1) * (end - begin)


def top_of(highest: float) -> float:
    """The next of 1, 2, 5, 10, 20 ..."""
    if highest <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest * 0.9999)


def line(points: list[Point]) -> str:
    """Without points on the straight line between their neighbours of the same height."""
    kept = [one for index, one in enumerate(points) if index in (0, len(points) - 1)
            or not points[index - 1][1] == one[1] == points[index + 1][1]]
    return "M" + "L".join(f"{at:.1f} {height:.1f}" for at, height in kept)


def legend(names: list[str], colours: list[str], x: float, bottom: float, width: float, most_rows: int) -> tuple[list[str], float]:
    """Its parts, and its height."""
    rows: list[list[tuple[str, str]]] = [[]]
    used = 0.0
    for name, colour in zip(names, colours, strict=True):
        need = len(name) * CHARACTER + 24
        if rows[-1] and used + need > width:
            rows.append([])
            used = 0
        rows[-1].append((name, colour))
        used += need
    left_out = sum(len(row) for row in rows[most_rows:])
    rows = rows[:most_rows]
    if left_out:
        left_out += len(rows[-1])
        rows[-1] = [(f"and {left_out} more", "none")]
    height = 14.0 * len(rows)
    parts = []
    for index, row in enumerate(rows):
        at, y = x, bottom - height + 14 * index + 10
        for name, colour in row:
            parts += [box(at, y - 4, 10, 3, colour), text(at + 14, y, shortened(name, width - 14), class_="a")]
            at += len(name) * CHARACTER + 24
    return parts, height


def timeseries(panel: Json, answers: list[list[Json]], x: float, y: float, width: float, height: float,
               seconds: float) -> Iterable[str]:
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    series = named_series(panel, answers)
    colours = [colour_of(name, index, panel) for index, (name, _) in enumerate(series)]
    parts, taken = legend([name for name, _ in series], colours, x, y + height, width, max(int((height - 70) / 14), 1))
    yield from parts
    bottom = y + height - taken - 22
    if custom.get("stacking", {}).get("mode") == "normal":
        series = stacked(series)
    highest = max((value for _, values in series for _, value in values), default=0)
    logarithmic = custom.get("scaleDistribution", {}).get("type") == "log"
    low, high = (0.0, math.ceil(math.log10(max(highest, 10)))) if logarithmic else (0.0, defaults.get("max") or top_of(highest))
    whole = defaults.get("decimals") == 0 and high <= 1
    marks = [low, high] if whole or (logarithmic and high == 1) else [low, (low + high) / 2, high]
    labels = [number(10 ** mark if logarithmic else mark, defaults["unit"]) for mark in marks]
    left = max(map(len, labels)) * CHARACTER + 6
    across, up = scale(0, seconds, x + left, x + width), scale(low, high, bottom, y + 4)
    for mark, label in zip(marks, labels, strict=True):
        yield f'<path d="M{x + left:.1f} {up(mark):.1f}H{x + width:.1f}" stroke="#2c3235"/>'
        yield text(x + left - 4, up(mark) + 4, label, text_anchor="end", class_="a")
    yield from time_axis(x + left, bottom + 13, width - left, seconds)
    for (_, values), colour in reversed(list(zip(series, colours, strict=True))):
        points = [(across(at), up(math.log10(value) if logarithmic else value)) for at, value in values]
        if custom.get("drawStyle") == "points":
            yield "".join(f'<circle cx="{at:.1f}" cy="{top:.1f}" r="2.5" fill="{colour}"/>' for at, top in points)
        elif custom.get("drawStyle") == "bars":
            thick = max(width / max(seconds, 1) * 0.8, 1)
            yield "".join(box(min(max(at - thick / 2, x + left), x + width - thick), top, thick, bottom - top, colour)
                          for at, top in points if bottom - top > 0.05)
        else:
            if custom["fillOpacity"]:
                yield (f'<path d="{line(points)}V{bottom:.1f}H{points[0][0]:.1f}z" fill="{colour}" '
                       f'fill-opacity="{custom["fillOpacity"] / 100:g}"/>')
            yield f'<path d="{line(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def stacked(series: list[tuple[str, list[Point]]]) -> list[tuple[str, list[Point]]]:
    """Each on top of those before it."""
    heaps: dict[float, float] = {}
    out = []
    for name, values in series:
        for at, value in values:
            heaps[at] = heaps.get(at, 0) + value
        out.append((name, [(at, heaps[at]) for at, _ in values]))
    return out


def nothing(_: Json, __: list[list[Json]], x: float, y: float, width: float, height: float, ___: float) -> Iterable[str]:
    yield text(x + width / 2, y + height / 2, "No data", text_anchor="middle", class_="s")


KINDS = {"stat": stat, "table": table, "state-timeline": state_timeline, "timeseries": timeseries}


def draw(dashboard: Json, answers: Json) -> str:
    """The whole dashboard, as it is laid out."""
    panels = dashboard["panels"]
    width = 24 * COLUMN + 2 * MARGIN
    height = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels) * ROW + CAPTION + 2 * MARGIN + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" '
           f'fill="{NAMED["text"]}" role="img" aria-label="The dashboard {escape(dashboard["title"])}">',
           "<style>.s{font-size:11px}.a{font-size:10px}</style>", box(0, 0, width, height, "#111217"),
           text(MARGIN, MARGIN + 12, dashboard["title"], font_size="15", font_weight="bold"),
           text(MARGIN, height - 8, SAID, **{"class_": "a", "fill": NAMED["gray"]})]
    for panel in panels:
        place = panel["gridPos"]
        x, y = MARGIN + place["x"] * COLUMN, MARGIN + CAPTION + place["y"] * ROW
        wide, high = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        if panel["type"] == "row":
            out.append(text(x, y + 15, f"▾ {panel['title']}", font_size="13", font_weight="bold"))
            continue
        found = answers["panels"][panel["title"]]
        show = KINDS[panel["type"]] if any(found) else nothing
        titles = textwrap.wrap(panel["title"], int((wide - 16) / BOLD))
        below = TITLE + 15 * (len(titles) - 1)
        out += [box(x, y, wide, high, "#181b1f", stroke="#2c3235", rx="2"),
                *(text(x + 8, y + 16 + 15 * index, words, font_weight="bold") for index, words in enumerate(titles)),
                *show(panel, found, x + 8, y + below, wide - 16, high - below - 6, answers["seconds"])]
    return "\n".join(out) + "\n</svg>\n"
