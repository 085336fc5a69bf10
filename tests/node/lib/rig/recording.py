# SPDX-License-Identifier: Apache-2.0
"""A recording of the demo, from the console of its node: for asciinema, and as an SVG that moves by itself.

Both have each line that scripts/demo prints of the node, in that order. The times of the first are those of the console. The
second shortens waits, and stays on each command's output long enough to be read.
"""

import json
import re
from xml.sax.saxutils import escape

TIME = re.compile(r"^\[ *(\d+\.\d+)\] ?")
KERNEL = re.compile(r"^\[ *\d+\.\d{6}\]")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")  # no XML has these
STEP = "--- "

COLUMNS, ROWS = 100, 30
LONGEST_WAIT = 1.5  # seconds that the picture waits for output at most
READING, LEAST_READING, MOST_READING = 0.12, 1.2, 4.0  # seconds before the next command: for each line, at least, at most
LAST = 6.0  # seconds that the last screen stays

Line = tuple[float, str]  # seconds since the first step, and the text


def of_the_node(line: str) -> str | None:
    """A line of the console without its time; None: the kernel's, or the runner's own."""
    if not TIME.match(line):
        return None
    text = CONTROL.sub("", TIME.sub("", line.rstrip("\r\n"), count=1)).expandtabs()
    return None if KERNEL.match(text) else text


def story(console: list[str]) -> list[Line]:
    """The part of a console that scripts/demo prints: from the first step on, with an empty line before each."""
    out: list[Line] = []
    begin: float | None = None
    for line in console:
        text = of_the_node(line)
        if text is None or (begin is None and not text.startswith(STEP)):
            continue
        at = float(TIME.match(line)[1])
        begin = at if begin is None else begin
        if text.startswith(STEP):
            out.append((at - begin, ""))
        out.append((at - begin, text))
    return out


def cast(lines: list[Line], title: str) -> str:
    """The recording in version 2 of asciinema's format."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title, "idle_time_limit": 2}
    events = [[round(at, 3), "o", text + "\r\n"] for at, text in lines]
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in [header, *events])


def lines_of_cast(text: str) -> list[str]:
    return [json.loads(line)[2].removesuffix("\r\n") for line in text.splitlines()[1:]]


def shortened(lines: list[Line]) -> list[Line]:
    """The same lines with the times of the picture."""
    out: list[Line] = []
    now = before = 0.0
    unread = 0
    for at, text in lines:
        wait = min(at - before, LONGEST_WAIT)
        if unread and (not text or text.startswith("$ ")):
            wait = max(wait, min(max(READING * unread, LEAST_READING), MOST_READING))
            unread = 0
        elif not text.startswith(STEP):
            unread += 1
        now, before = now + wait, at
        out.append((now, text))
    return out


def picture(lines: list[Line], title: str) -> str:
    """A terminal whose lines move up as they are printed. Without animation it shows the end."""
    size, width, margin, bar = 16, 7.25, 12, 30  # of a line and of a character, in pixels
    rows = [(at, text[begin:begin + COLUMNS], text) for at, text in shortened(lines)
            for begin in range(0, max(len(text), 1), COLUMNS)]
    length = rows[-1][0] + LAST
    moves: dict[float, int] = {0.0: 0}  # when -> how many lines there are
    for count, (at, _, _) in enumerate(rows, 1):
        moves[round(at, 2)] = count
    keys = "".join(f"{100 * at / length:.3f}%{{transform:translateY({-size * count}px)}}" for at, count in moves.items())
    wide, high = COLUMNS * width + 2 * margin, ROWS * size + bar + margin
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high}" font-family="monospace" font-size="12" fill="#c9d1d9" '
           f'xml:space="preserve" role="img" aria-label="{escape(title)}">',
           "<style>.c{fill:#7ee787;font-weight:bold}.s{fill:#79c0ff;font-weight:bold}"
           f"#l{{animation:l {length:.2f}s step-end infinite}}@keyframes l{{{keys}}}</style>",
           f'<clipPath id="v"><rect y="{bar}" width="{wide:g}" height="{ROWS * size}"/></clipPath>',
           f'<rect width="{wide:g}" height="{high}" rx="6" fill="#0d1117"/>',
           f'<text x="{margin}" y="20" fill="#8b949e" font-family="sans-serif">{escape(title)}</text>',
           f'<g clip-path="url(#v)"><g transform="translate({margin} {bar + ROWS * size})"><g id="l" transform="translate(0 {-size * len(rows)})">']
    for row, (_, part, whole) in enumerate(rows):
        kind = ' class="c"' if whole.startswith("$ ") else ' class="s"' if whole.startswith(STEP) else ""
        if part:
            out.append(f'<text y="{size * (row + 1) - 4}"{kind}>{escape(part)}</text>')
    return "\n".join(out) + "\n</g></g></g>\n</svg>\n"
