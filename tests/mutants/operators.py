# SPDX-License-Identifier: Apache-2.0
"""Small changes of C++ text that a test should notice: generic mutants. They are found by the text's tokens alone.

Some changes do not compile and some change nothing; the compiler and a person sort these out.
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n\\]|\\.)* )
  | (?P<text> R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)" | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
  | (?P<number> \d[\w'.]* )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<sign> <=> | << | -> | :: | [-+*/%&|^!=<>]= | && | \|\| | \+\+ | -- | . )""",
                   re.VERBOSE | re.DOTALL | re.MULTILINE)
CLOSERS = {")": "(", "]": "[", "}": "{"}
BOUNDS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "catch", "decltype", "alignof", "noexcept", "static_assert"}
NO_CALL = KEYWORDS | {"using", "throw", "delete", "case", "default", "do", "else", "goto", "co_return", "typedef", "friend",
                      "spdlog", "const", "auto", "static", "constexpr", "class", "struct", "enum", "namespace", "template",
                      "public", "private", "protected", "virtual", "explicit", "operator", "extern", "try"}
BEFORE_BODY = {")", "else", "const", "override", "noexcept", "mutable", "do", "try", ">"}


@dataclasses.dataclass(frozen=True)
class Change:
    """The text from `start` to `end` becomes `new`."""
    kind: str
    start: int
    end: int
    new: str


class Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [match for match in TOKEN.finditer(text) if match.lastgroup != "space"]
        self.words = [match.group() for match in self.tokens]
        self.partner: dict[int, int] = {}
        self.bracket: list[int] = []  # for each token: the innermost open bracket, or -1
        opened: list[int] = []
        for index, word in enumerate(self.words):
            if word in CLOSERS and opened and self.words[opened[-1]] == CLOSERS[word]:
                self.partner[index] = opened.pop()
                self.partner[self.partner[index]] = index
            self.bracket.append(opened[-1] if opened else -1)
            if word in CLOSERS.values():
                opened.append(index)

    def between(self, first: int, last: int) -> str:
        """The text of the tokens from `first` up to `last`, both included."""
        return self.text[self.tokens[first].start():self.tokens[last].end()]

    def change(self, kind: str, first: int, last: int, new: str) -> Change:
        return Change(kind, self.tokens[first].start(), self.tokens[last].end(), new)

    def parts(self, opening: int, separator: str) -> list[tuple[int, int]]:
        """First and last token of each part between brackets, parted where no further bracket is open."""
        out, first, index = [], opening + 1, opening + 1
        while index < self.partner[opening]:
            if self.words[index] == separator:
                out.append((first, index - 1))
                first = index + 1
            index = self.partner[index] + 1 if self.words[index] in CLOSERS.values() and index in self.partner else index + 1
        return out + [(first, self.partner[opening] - 1)]

    def begins_statement(self, index: int) -> bool:
        """True if a token may be the first of a statement in the body of a function."""
        brace = self.bracket[index]
        if brace < 2 or self.words[brace] != "{":
            return False
        body = self.words[brace - 1] in BEFORE_BODY or self.words[brace - 2] in {"->", "::"}
        return body and (self.words[index - 1] in {";", "{", "}"} or self.begins_branch(index))

    def begins_branch(self, index: int) -> bool:
        """True if a token is the first of a statement that only some conditions lead to."""
        before = self.words[index - 1]
        if before == "else":
            return True
        return before == ")" and index - 1 in self.partner and self.words[self.partner[index - 1] - 1] in {"if", "for", "while"}

    def is_early(self, index: int) -> bool:
        """True if a jump is an early exit: a branch of its own, or the end of the block of a branch."""
        return self.begins_branch(index) or self.begins_branch(self.bracket[index])

    def end_of_statement(self, index: int) -> int:
        while index < len(self.words) and self.words[index] != ";":
            if self.words[index] in CLOSERS:
                return -1
            index = self.partner.get(index, index) + 1
        return index if index < len(self.words) else -1


def changes(text: str, lines: set[int] | None = None) -> list[Change]:
    """All changes of a text that begin on one of the lines, counted from 1."""
    source, out = Source(text), []
    for index, word in enumerate(source.words):
        if index + 1 < len(source.words) and source.bracket[index] >= 0:
            out += negated(source, index, word) + bounded(source, index, word) + dropped(source, index, word)
            out += swapped(source, index, word)
    return [change for change in out if lines is None or text.count("\n", 0, change.start) + 1 in lines]


def negated(source: Source, index: int, word: str) -> list[Change]:
    if word != "if" or source.words[index + 1] != "(" or index + 1 not in source.partner:
        return []
    first, last = source.parts(index + 1, ";")[-1]
    condition = source.between(first, last)
    declared = re.match(r"[^=!<>()]*?(\w+)\s*=[^=]", condition)
    new = f"{condition}; !{declared[1]}" if declared else f"!({condition})"
    return [source.change("negates a condition", first, last, new)]


def bounded(source: Source, index: int, word: str) -> list[Change]:
    token = source.tokens[index]
    before, after = source.text[token.start() - 1:token.start()], source.text[token.end():token.end() + 1]
    if word in BOUNDS and before.isspace() and after.isspace() and source.words[index - 1] not in {"template", "operator"}:
        return [source.change("changes a bound", index, index, BOUNDS[word])]
    initial = source.words[index - 1] == "=" and source.words[index + 1] == ";"  # rarely read, or `= 0` of a function
    if token.lastgroup == "number" and word.isdigit() and not word.startswith("00") and not initial:
        return [source.change("changes a number", index, index, str(int(word) + 1))]
    return []


def dropped(source: Source, index: int, word: str) -> list[Change]:
    last = source.end_of_statement(index)
    if not source.begins_statement(index) or last < 0:
        return []
    if word in {"return", "continue", "break"}:
        return [source.change("skips an early exit", index, last, ";")] if source.is_early(index) else []
    if source.tokens[index].lastgroup != "word" or word in NO_CALL or source.words[last - 1] != ")":
        return []
    head = re.sub(r"\s*\n\s*", "", source.text[source.tokens[index].start():source.tokens[source.words.index("(", index)].start()])
    # A blank is a sign of a declaration; to reserve room changes nothing that a test could see.
    return [] if re.search(r"[\w>&*] +\w|=|reserve", head) else [source.change("drops a call", index, last, ";")]


def swapped(source: Source, index: int, word: str) -> list[Change]:
    if word != "(" or source.tokens[index - 1].lastgroup != "word" or index not in source.partner:
        return []
    if source.words[index - 1] in KEYWORDS or source.partner[index] == index + 1:
        return []
    out, parts = [], source.parts(index, ",")
    for (first, last), (second, end) in zip(parts, parts[1:]):
        texts = source.between(first, last), source.between(second, end)
        alike = any(all(re.fullmatch(form, text) for text in texts) for form in (r"\*?\w+", r"[\w:]+(?:(?:\.|->)\w+)+"))
        if alike and texts[0] != texts[1]:
            out.append(source.change("swaps two arguments", first, end, f"{texts[1]}, {texts[0]}"))
    return out
