"""JavaScript with fewer bytes and the same meaning: without comments and spaces, and with short names.

It reads tokens, not a grammar, so it knows as much of the language as the client's modules use, and `tests/client` runs what it makes. The
place of a name says what it is: after a dot, and as a key of an object or a class, it is a property and stays; everywhere else it is a
variable, and all variables of one name get one new name, which nothing else has.

Source: ECMA-262, "ECMAScript Language: Lexical Grammar".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, product
from string import ascii_letters, digits
from typing import NamedTuple

__all__ = ["shortened"]

_TOKEN = re.compile(
    r"""(?P<skip>[ \t]+|//[^\n]*|/\*.*?\*/)|(?P<line>\n+)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<name>\#?[A-Za-z_$][\w$]*)"""
    r"""|(?P<number>\.?\d[\w.]*)|(?P<mark>\.\.\.|\?\.(?!\d)|=>|>>>=?|\*\*=?|<<=?|>>=?|&&=?|\|\|=?|\?\?=?|[-+*/%&|^=!<>]=+|\+\+|--|[^\w\s"'`\\#])""",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{)", re.DOTALL)
_SHORT = {"const": "let", "true": "!0", "false": "!1", "undefined": "void 0"}
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "arguments async await break case catch class const constructor continue default delete do else export extends false finally for"
        " from function get if import in instanceof let new null of return set static super switch this throw true try typeof undefined"
        " void while with yield NaN Infinity",
    )
)
"""What is no name of ours."""
_BEFORE_BLOCK = frozenset({")", "else", "try", "finally", "do", "=>", "{", "}", ";", ""})
_WITH_BLOCK = frozenset({"if", "for", "while", "switch", "catch", "with"})
_MODIFIERS = frozenset({"async", "get", "set", "static", "*"})
_NEVER_BEGINS = frozenset({"}", ")", "]", ",", ".", "?", "?.", ":", "=>", "||", "&&", "??", "="})
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")


class _Token(NamedTuple):
    kind: str
    text: str


def shortened(source: str, exported: Iterable[str]) -> str:
    """Return a module as shorter text.

    Args:
        source: JavaScript without `import` and `export`, whose statements end with their lines, and whose classes have a member a line.
        exported: What it exports, under these names.
    """
    tokens = list(_read(source))
    roles = _roles(tokens)
    uses = Counter(token.text for token, role in zip(tokens, roles, strict=True) if role in ("variable", "shorthand"))
    known = _declared(tokens, roles) - _WORDS
    taken = {token.text for token in tokens if token.kind == "name"} | _WORDS
    fresh = (name for name in _names() if name not in taken)
    new = _SHORT | {name: next(fresh) for name, _ in uses.most_common() if name in known}
    private = Counter(token.text for token in tokens if token.text.startswith("#"))
    new |= dict(zip((name for name, _ in private.most_common()), (f"#{name}" for name in _names()), strict=False))
    exports = ",".join(name if new.get(name, name) == name else f"{new[name]} as {name}" for name in exported)
    return "".join(_write(tokens, roles, new)) + f"\nexport{{{exports}}}\n"


def _read(source: str) -> Iterator[_Token]:
    at, nested, last = 0, [""], _Token("line", "")
    while at < len(source):
        opens = source[at]
        if opens == "`" or (opens == "}" and nested[-1] == "`"):
            if opens == "}":
                nested.pop()
            found = _TEMPLATE.match(source, at + 1)
            assert found is not None, source[at : at + 80]
            token = _Token("text", opens + found[0])
            if found[0].endswith("${"):
                nested.append("`")
        elif opens == "/" and not _is_value(last) and (found := _REGEX.match(source, at)):
            token = _Token("text", found[0])
        else:
            found = _TOKEN.match(source, at)
            assert found is not None, source[at : at + 80]
            token = _Token(str(found.lastgroup), found[0])
            if token.text == "{":
                nested.append("{")
            elif token.text == "}":
                nested.pop()
        at = found.end()
        if token.kind != "skip":
            yield token
            last = token if token.kind != "line" else last


def _is_value(token: _Token) -> bool:
    """Say whether a slash behind it divides."""
    is_word = token.text in _WORDS - {"this", "super"}
    return token.kind in ("number", "text") or token.text in _CLOSED or (token.kind == "name" and not is_word)


def _roles(tokens: list[_Token]) -> list[str]:
    """Say of each token what it is: `variable`, `shorthand` for a property named like its variable, or nothing that gets another name."""
    roles, braces = [], [""]
    code = [token for token in tokens if token.kind != "line"]
    at, begins_line = -1, True
    for token in tokens:
        if token.kind == "line":
            roles.append("")
            begins_line = True
            continue
        at += 1
        before, after = code[at - 1].text if at else "", code[at + 1].text if at + 1 < len(code) else ""
        role = ""
        if token.kind == "name" and not token.text.startswith("#") and before not in (".", "?."):
            begins = begins_line or before in _MODIFIERS | {"{"}
            in_object = braces[-1] == "object" and before in _MODIFIERS | {"{", ","}
            if in_object and after in ("}", ",", "="):
                role = "shorthand"
            elif not (in_object or (braces[-1] == "class" and begins)):
                role = "variable"
        roles.append(role)
        begins_line = False
        if token.text in _OPEN or token.text.endswith("${"):
            if token.text.startswith("}"):
                braces.pop()
            braces.append(_kind_of(code, at) if token.text == "{" else "")
        elif token.text in _CLOSED or (token.kind == "text" and token.text[0] == "}"):
            braces.pop()
    return roles


def _kind_of(code: list[_Token], at: int) -> str:
    """Say what a brace opens."""
    before = [token.text for token in code[max(0, at - 4) : at]][::-1]
    if "class" in before[:2] or (before[1:2] == ["extends"] and "class" in before):
        return "class"
    is_case = before[:1] == [":"] and ("case" in before or before[1] == "default")
    if not before or is_case or before[0] in _BEFORE_BLOCK:
        return "block"
    begins_value = code[at - 1].kind == "mark" or before[0].endswith("${") or before[0] in ("return", "const", "let", "of")
    return "object" if begins_value else "block"


def _declared(tokens: list[_Token], roles: list[str]) -> set[str]:
    """Return the variables that the module declares, and none of the browser's."""
    code = [(token, role) for token, role in zip(tokens, roles, strict=True) if token.kind != "line"]
    texts = ["", *(token.text for token, _ in code), "", ""]
    found = {token.text for token, role in code if role == "shorthand"}
    opened: list[int] = []
    for at, (token, _) in enumerate(code, start=1):
        if token.kind == "name" and (texts[at - 1] in ("const", "let", "class", "function") or texts[at - 2 : at] == ["function", "*"]):
            found.add(token.text)
        if token.text in _OPEN or token.text.endswith("${"):
            opened[-1:] = [*opened[-1:], at] if not token.text.startswith("}") else [at]
        elif token.text in _CLOSED or (token.kind == "text" and token.text[0] == "}"):
            start = opened.pop()
            is_parameters = texts[at + 1] == "=>" or (texts[at + 1] == "{" and texts[start - 1] not in _WITH_BLOCK - {"catch"})
            if (token.text == ")" and is_parameters) or (token.text == "]" and texts[start - 1] in ("const", "let")):
                inside = range(start + 1, at)
                found |= {texts[i] for i in inside if code[i - 1][1] == "variable" and texts[i - 1] in ("(", "[", ",", "...")}
    return found


def _names() -> Iterator[str]:
    letters = ascii_letters + "_$"
    return chain(letters, ("".join(pair) for pair in product(letters, letters + digits)))


def _write(tokens: list[_Token], roles: list[str], new: dict[str, str]) -> Iterator[str]:
    last, breaks = _Token("line", "\n"), False
    begun = [""]
    """The first words of the statements that this is in, from the outermost."""
    for token, role in zip(tokens, roles, strict=True):
        if token.kind == "line":
            breaks = last.kind != "mark" or last.text in (")", "]", "}", "++", "--")
            continue
        text = token.text
        if role or text.startswith("#"):
            text = new.get(text, text)
        if role == "shorthand" and text != token.text:
            text = f"{token.text}:{text}"
        if breaks and not (token.kind == "mark" and text in _NEVER_BEGINS):
            if text == begun[-1] == "let":
                yield ","
                last, breaks = _Token("mark", ","), False
                continue
            yield "\n"
        elif (_is_wordlike(text[0]) and _is_wordlike(last.text[-1])) or (text[0] in "+-" and last.text[-1] == text[0]):
            yield " "
        if breaks or last.text in ("{", "\n", ";", "}"):
            begun[-1] = text
        yield text
        if token.text in _OPEN or token.text.endswith("${"):
            begun[-1:] = [*begun[-1:], ""] if not token.text.startswith("}") else [""]
        elif token.text in _CLOSED or (token.kind == "text" and token.text[0] == "}"):
            begun.pop()
        last, breaks = _Token(token.kind, text), False


def _is_wordlike(character: str) -> bool:
    return character.isalnum() or character in "_$#"
