"""The reference shows names that exist, and says what each of their arguments means.

Checked are the entries of docs/reference and what `import aem` offers. What a subclass overrides is
documented once, where its base class declares it, as long as its arguments have the same names.
"""

import ast
import dataclasses
import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aem
from aem.base.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "aem"
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)\n(?:    options: \{(.*)\})?", re.MULTILINE)
OPTION = re.compile(r"(\w+): \[([^\]]*)\]")
HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
NAMES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?\n(?=    \S)", re.MULTILINE)


class Entry(NamedTuple):
    """A line `::: name` of a page, with the members that its options name."""

    name: str
    members: tuple[str, ...]
    inherited: tuple[str, ...]


class Documented(NamedTuple):
    """A class, function or property that the reference shows, and the class it is shown of."""

    name: str
    object: Any
    owner: type | None = None


def entries(page: Path) -> Iterator[Entry]:
    """What a page asks to be documented."""
    for name, text in ENTRY.findall(page.read_text(encoding="utf-8")):
        options = {key: tuple(re.split(r",\s*", names)) for key, names in OPTION.findall(text)}
        yield Entry(name, options.get("members", ()), options.get("inherited_members", ()))


def found(name: str) -> Any:
    """A module, or what a module holds."""
    module, _, last = name.rpartition(".")
    try:
        return import_module(name)
    except ImportError:
        return getattr(found(module), last)


def shown(entry: Entry) -> Iterator[Documented]:
    """Everything an entry shows: itself, or its members, and the members of classes."""
    thing = found(entry.name)
    if inspect.ismodule(thing):
        assert entry.members, f"{entry.name} is a module: name the members to show"
        for name in entry.members:
            yield from shown(Entry(f"{entry.name}.{name}", (), ()))
    elif inspect.isclass(thing):
        yield Documented(entry.name, thing)
        for name in (*(entry.members or vars(thing)), *entry.inherited):
            member = inspect.getattr_static(thing, name)
            if not name.startswith("_") and is_method_or_property(member):
                yield Documented(f"{entry.name}.{name}", member, thing)
    elif inspect.isfunction(thing):
        yield Documented(entry.name, thing)


def is_method_or_property(member: Any) -> bool:
    """Whether a member of a class is documented by a docstring of its own."""
    kinds = (property, classmethod, staticmethod)
    return isinstance(member, kinds) or inspect.isfunction(member) or hasattr(member, "func")


def function_of(member: Any) -> Callable[..., Any] | None:
    """The function behind a method or a property."""
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    member = getattr(member, "fget", None) or getattr(member, "func", member)
    return inspect.unwrap(member) if callable(member) else None


def initialiser(cls: type) -> Callable[..., Any] | None:
    """The `__init__` of a class, if it or a base class of the library has one."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("aem.")]
    return next((vars(base)["__init__"] for base in own if "__init__" in vars(base)), None)


def arguments(documented: Documented) -> list[str]:
    """Names of all that a class or a function is to be given."""
    thing = documented.object
    if inspect.isclass(thing) and dataclasses.is_dataclass(thing):
        # Settings have their help and their range in the metadata of the field.
        fields = dataclasses.fields(thing)
        own = (f for f in fields if f.init and "help" not in f.metadata)
        return [f.name for f in own if not f.name.startswith("_")]
    if inspect.isclass(thing):
        function = None if getattr(thing, "_is_protocol", False) else initialiser(thing)
    else:
        function = function_of(thing)
    if function is None:
        return []
    given = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [p.name for p in given if p.name not in ("self", "cls") and not p.name.startswith("_")]


def sections(docstring: str) -> dict[str, str]:
    """The text under each heading of a docstring; what stands before the first has the key ''."""
    parts = HEADING.split(docstring)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def names_in(section: str) -> set[str]:
    """Arguments that a section of parameters explains, each with a text below its name."""
    heads = NAMES.findall(section.strip("\n") + "\n")
    return {name.lstrip("*") for head in heads for name in head.split(", ")}


def explained(documented: Documented) -> set[str]:
    """Arguments that the docstring of a class or a function explains."""
    thing = documented.object
    texts = [own_docstring(thing)]
    if inspect.isclass(thing) and "__init__" in vars(thing):
        texts.append(inspect.getdoc(vars(thing)["__init__"]) or "")
    parts = [sections(text) for text in texts]
    kinds = ("Parameters", "Attributes") if dataclasses.is_dataclass(thing) else ("Parameters",)
    return {name for part in parts for kind in kinds for name in names_in(part.get(kind, ""))}


def own_docstring(thing: Any) -> str:
    """The docstring of a class or a function itself, none that it inherits."""
    documented = thing if inspect.isclass(thing) else function_of(thing)
    return inspect.cleandoc(getattr(documented, "__doc__", None) or "")


def explained_above(documented: Documented, everything: dict[Any, Documented]) -> set[str]:
    """Arguments of a class that base classes explain, as far as the reference shows those."""
    bases = documented.object.__mro__[1:] if inspect.isclass(documented.object) else ()
    shown_bases = [everything[base] for base in bases if base in everything]
    return {name for base in shown_bases for name in explained(base)}


def declared_above(documented: Documented, everything: dict[Any, Documented]) -> bool:
    """Whether a base class that the reference shows declares a method with the same arguments."""
    if documented.owner is None:
        return False
    name = documented.name.rpartition(".")[2]
    for base in documented.owner.__mro__[1:]:
        above = everything.get(vars(base).get(name))
        if above is None or above.object is documented.object:
            continue
        if arguments(above) == arguments(documented):
            return True
    return False


def everything_shown() -> dict[Any, Documented]:
    """All that the pages and the public interface show, by the object."""
    of_pages = [entry for page in PAGES for entry in entries(page)]
    classes = {name: getattr(aem, name) for name in aem.__all__ if name != "__version__"}
    public = [Entry(f"{each.__module__}.{name}", (), ()) for name, each in classes.items()]
    everything: dict[Any, Documented] = {}
    for documented in (each for entry in (*of_pages, *public) for each in shown(entry)):
        everything.setdefault(documented.object, documented)
    return everything


EVERYTHING = everything_shown()
WITH_EXAMPLES = [each for each in EVERYTHING.values() if ">>>" in own_docstring(each.object)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_exist(page: Path) -> None:
    for entry in entries(page):
        documented = found(entry.name)
        for member in (*entry.members, *entry.inherited):
            assert hasattr(documented, member), f"{entry.name} has no {member}"


def test_reference_shows_the_public_interface() -> None:
    """Whatever `import aem` offers, and all settings, are on some page."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    on_pages = {each.object for page in PAGES for e in entries(page) for each in shown(e)}
    tables = {found(name) for name in re.findall(r"<!-- settings ([\w.]+) -->", pages)}
    for name in set(aem.__all__) - {"__version__"}:
        assert getattr(aem, name) in on_pages | tables, f"aem.{name} is on no page"
    for section in ("plane", "tables", "vae"):
        import_module(f"aem.paper.{section}.config")
    settings = {cls for cls in Settings.__subclasses__() if cls.__module__.startswith("aem.")}
    assert not settings - tables, "settings without a table of what may be set"


def test_docstrings_are_sentences() -> None:
    summaries = {n: own_docstring(o).split("\n\n")[0] for n, o, _ in EVERYTHING.values()}
    unfinished = {n: s for n, s in summaries.items() if not s.endswith((".", "?"))}
    assert not unfinished, "docstrings that do not end as sentences do"
    assert not {n: s for n, s in summaries.items() if len(s.split()) < 3}, "too short to say much"


def test_arguments_are_documented() -> None:
    missing = {}
    for each in EVERYTHING.values():
        told = explained(each) | explained_above(each, EVERYTHING)
        untold = [name for name in arguments(each) if name not in told]
        if untold and not declared_above(each, EVERYTHING):
            missing[each.name] = untold
    assert not missing, "arguments that nothing is said of"


def test_documented_arguments_exist() -> None:
    unknown = {}
    for each in EVERYTHING.values():
        known = {*arguments(each), *getattr(each.object, "__dataclass_fields__", ())}
        unknown[each.name] = explained(each) - known
    assert not {name: names for name, names in unknown.items() if names}


def test_no_docstring_explains_an_argument_that_is_gone() -> None:
    """Everywhere in the library, whether the reference shows it or not."""
    gone = {}
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                told = names_in(sections(ast.get_docstring(node) or "").get("Parameters", ""))
                given = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
                if told - given:
                    gone[f"{file.relative_to(SOURCES)} {node.name}"] = told - given
    assert not gone


def test_several_results_are_told_apart() -> None:
    """What returns a tuple of different things says what each of them is."""
    silent = []
    for each in EVERYTHING.values():
        function = None if inspect.isclass(each.object) else function_of(each.object)
        annotation = "" if function is None else str(function.__annotations__.get("return", ""))
        if not annotation.startswith("tuple[") or "..." in annotation:
            continue
        told = "Returns" in sections(own_docstring(each.object))
        if not told and not declared_above(each, EVERYTHING):
            silent.append(each.name)
    assert not silent, "a tuple is returned, and nothing says of what"


def test_code_stands_under_examples() -> None:
    """Anywhere else the pages would show it as a quotation."""
    for each in WITH_EXAMPLES:
        parts = sections(own_docstring(each.object))
        assert [name for name, text in parts.items() if ">>>" in text] == ["Examples"], each.name


@pytest.mark.parametrize("documented", WITH_EXAMPLES, ids=lambda documented: documented.name)
def test_examples_print_what_they_show(documented: Documented) -> None:
    text = sections(own_docstring(documented.object))["Examples"]
    example = doctest.DocTestParser().get_doctest(text, {}, documented.name, None, None)
    failures, tried = doctest.DocTestRunner(verbose=False).run(example)
    assert tried and not failures, f"the example of {documented.name} prints something else"


def test_a_missing_argument_is_found() -> None:
    """The parser itself: what is named and explained counts, and nothing else."""

    def example(rows: int, seed: int, quiet: bool) -> None:
        """Do something with rows.

        Parameters
        ----------
        rows, seed
            how many rows, and which.

        Returns
        -------
        quiet
            is no argument here.
        """

    documented = Documented("example", example)
    assert set(arguments(documented)) - explained(documented) == {"quiet"}
    assert sections(own_docstring(example)).keys() == {"", "Parameters", "Returns"}
