# SPDX-License-Identifier: Apache-2.0
"""YAML text as plain values, with limits on the size that a hostile file can expand to."""

from __future__ import annotations

from typing import Any

from curation.base.errors import RecipeError

MAX_BYTES = 4_000_000  # per recipe; PyYAML reads 0.2 to 0.6 MB per second
MAX_VALUES = 1_000_000  # per recipe, aliases expanded
ADVICE = {  # part of a problem that PyYAML names -> remedy
    "'\\t'": ". Indent with spaces; YAML allows no tabs",
    "unknown escape character": ". Use / in paths, or single quotes around backslashes",
    "expected alphabetic or numeric character": ". Quote text that begins with * or &",
    "'%'": ". Quote text that begins with %",
    "'@'": ". Quote text that begins with @",
    "'`'": ". Quote text that begins with `",
    "<block end>": ". Indent the entries of one list or mapping equally",
    "<stream end>": ". A bracket or a quote is not closed",
    "end of stream": ". A bracket or a quote is not closed",
    "mapping values are not allowed here": ". Quote text that contains a colon, and put each key on its own line",
    "could not find expected ':'": ". Put a colon and a space after each key",
    "could not determine a constructor": ". Quote the text = or <<",
    "tag ": ". Remove the tag: a value is text, a number, a list or a mapping. Quote text that begins with !",
    "merges": ". Write the values out",
    "duplicate key": ". Remove one of the two",
    "undefined alias": ". Quote text that begins with *",
    "special characters are not allowed": ". Save the recipe as UTF-8 text",
    "codec can't decode": ". Save the recipe as UTF-8 text",
    "invalid start byte": ". Save the recipe as UTF-8 text",
    "invalid continuation byte": ". Save the recipe as UTF-8 text",
}
SHOWN_CHARACTERS = 40  # of a wrong value in a message


def parse_yaml(text: str | bytes, where: str) -> Any:
    """The values of YAML text; RecipeError for invalid YAML, more than MAX_BYTES and more than MAX_VALUES values."""
    import yaml

    if len(text) > MAX_BYTES:
        raise RecipeError(
            f"{where} has more than {MAX_BYTES:,} bytes, too many for a recipe. Put long lists into files: "
            "{column: url, listed: {file: FILE, as: value}, max_count: 0}"
        )
    try:
        content = yaml.load(text, _strict_loader())
        size = _expanded_size(content, {})
    except yaml.YAMLError as error:
        raise RecipeError(f"{where} is not valid YAML: {_yaml_problem(error)}") from None
    except RecursionError:
        raise RecipeError(f"{where} is nested too deeply; a recipe has at most six levels") from None
    if size > MAX_VALUES:
        raise RecipeError(
            f"{where} expands to {size:,} values through aliases (*name), at most {MAX_VALUES:,} are allowed. Write "
            "the values out"
        )
    return content


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML carries no types
        def represent_str(self, text: str) -> Any:
            """Quote a text with characters that are not printable."""
            style = None if text.isprintable() else '"'  # other styles write line ends as they are
            return self.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, Dumper.represent_str)
    settings = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 2**31}
    return str(yaml.dump(value, Dumper=Dumper, **settings)).strip().removesuffix("\n...")


def _expanded_size(value: object, known: dict[int, int]) -> int:
    """The number of values with aliases expanded; RecursionError for a value that contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = -1
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_expanded_size(entry, known) for entry in inner)
    if known[id(value)] < 0:
        raise RecursionError
    return known[id(value)]


def _yaml_problem(error: Any) -> str:
    """The problem and its place, without the line itself, which may hold a password in a URL."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error).splitlines()[0]
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{problem}{place}{next((advice for part, advice in ADVICE.items() if part in str(problem)), '')}"


def _strict_loader() -> Any:
    """PyYAML's safe loader that refuses duplicate keys, tags, more than MAX_VALUES merged values, and values that
    Python cannot hold (`2001-13-45`, a number of 5,000 digits)."""
    import yaml

    class YamlLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML carries no types
        merged = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Refuse tags: they would name types of Python."""
            event = self.peek_event()
            if tag := getattr(event, "tag", None):
                name = tag.replace("tag:yaml.org,2002:", "!!")[:SHOWN_CHARACTERS]
                raise yaml.composer.ComposerError(None, None, f"tag {name!r} is not allowed", event.start_mark)
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: Any) -> None:
            """Merge as YAML does (`<<`), up to MAX_VALUES values in the file."""
            before = len(node.value)
            super().flatten_mapping(node)
            self.merged += len(node.value) - before
            if self.merged > MAX_VALUES:
                problem = f"merges (<<) make more than {MAX_VALUES:,} values"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            """Report a value that its type cannot hold, such as a very long integer, with its line."""
            try:
                constructed = super().construct_object(node, deep)
                if isinstance(constructed, int):
                    float(constructed)  # OverflowError for an integer too long for messages
            except (ValueError, ArithmeticError):
                kind, value = node.tag.rpartition(":")[2], str(node.value)
                value = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}..."
                problem = f"{value!r} is not a valid {kind}; quote it if it is text"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
            return constructed

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Refuse a key that occurs twice, of which YAML would keep the last."""
            seen = set()
            for key, _ in node.value:
                if str(key.value) in seen:
                    problem = f"duplicate key {key.value!r}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    return YamlLoader
