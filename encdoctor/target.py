"""Naming a target: from `pkg.module:Attr` or `path/file.py:Attr` to a model that was built.

Whatever goes wrong on the way ends in one sentence of `CannotJudge` that says what to do. torch is imported
only when something is loaded.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from encdoctor.model import CannotJudge

if TYPE_CHECKING:
    from torch import nn

# Parts of encdoctor that are encoders, and so may be examined like anybody's.
_OUR_ENCODERS = ("encdoctor.reference", "encdoctor.cases")

# Classes that wrap a model, and where in them it is. By name: no package is imported to look for them.
_WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "module",
    "PeftModel": "base_model.model",
}

_entered: list[str] = []


@dataclass(frozen=True)
class Origin:
    """Where the target's own source lives: its top-level package, and its folder where it is a project's.

    A line is *own* when it lies in the target's top-level package, or in the user's project folder and not in
    an installed package. `installed` tells that the target's class itself comes from an installed package.
    """

    package: str
    folder: Path | None
    installed: bool = False

    def owns(self, module_name: str, file: str) -> bool:
        """Whether a frame of `module_name` in `file` is the target author's to change."""
        if _within(module_name, self.package):
            return True
        if self.folder is None or _within(module_name, "encdoctor") or not file.endswith(".py"):
            return False
        return Path(file).is_relative_to(self.folder) and not _is_installed(file)


@dataclass
class Loaded:
    """A target that was built. `rebuild` makes another instance (None for an instance given from Python).

    `notes` says what was done to it on the way (a wrapper taken off).
    """

    name: str
    model: nn.Module
    origin: Origin
    rebuild: Callable[[], nn.Module] | None = None
    notes: tuple[str, ...] = ()


def load(text: str, arguments: Mapping[str, Any], working_directory: Path) -> Loaded:
    """Imports what `text` names and builds the model, with `arguments` for its constructor or factory."""
    place, attribute = split(text, working_directory)
    module = _import(place, working_directory)
    thing = _look_up(module, attribute, place)
    return from_object(thing, arguments, text, working_directory)


def from_object(thing: Any, arguments: Mapping[str, Any], name: str, working_directory: Path) -> Loaded:
    """A target from a class, an instance or a factory that is at hand."""
    label = name.rpartition(":")[2]
    build = _builder(thing, arguments, label, working_directory)
    if build is None:
        model, notes = unwrap(thing)
        return Loaded(name, model, origin_of(model, working_directory), None, notes)

    def rebuild() -> nn.Module:
        return unwrap(build())[0]

    model, notes = unwrap(build())
    return Loaded(name, model, origin_of(model, working_directory), rebuild, notes)


def split(text: str, working_directory: Path) -> tuple[str, str]:
    """The module or file, and the attribute, that a target's text names."""
    place, colon, attribute = text.rpartition(":")
    if colon and attribute and not re.search(r"[\\/]", attribute):
        return place, attribute
    bare = text.rstrip(":")
    if not bare:
        raise CannotJudge("a target is written `pkg.module:Attr` or `path/file.py:Attr`")
    found = _classes_in(_file(bare, working_directory)) if _is_file(bare) else []
    example = found[0] if found else "ClassName"
    listed = f" (it defines {_listed(found)})" if found else ""
    raise CannotJudge(f"`{text}` names no class: write `{bare}:{example}`{listed}")


def unwrap(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """The model inside DDP, DataParallel, FSDP, `torch.compile` or PEFT, and a note for each wrapper."""
    notes: list[str] = []
    while (path := _wrapped_at(model)) is not None:
        notes.append(f"{type(model).__name__} was taken off: the model inside it is examined")
        for step in path.split("."):
            model = getattr(model, step)
    return model, tuple(notes)


def origin_of(model: nn.Module, working_directory: Path | None = None) -> Origin:
    """Whose code the model is: told by its class, or, in a container of torch's, by the first inside."""
    from torch import nn

    directory = working_directory or Path.cwd()
    classes = (type(module) for module in model.modules())
    own = next((c for c in classes if not _within(c.__module__, "torch")), nn.Module)
    name = own.__module__
    ours = next((package for package in _OUR_ENCODERS if _within(name, package)), None)
    if ours:
        return Origin(ours, None)
    package = name.split(".")[0]
    file = _source_file(own)
    if package == "torch" or (file is not None and _is_installed(str(file))):
        return Origin(package, None, installed=True)
    return Origin(package, _project_folder(file, package, directory))


# ---- importing -------------------------------------------------------------------------------------------


def _import(place: str, working_directory: Path) -> ModuleType:
    try:
        import torch  # noqa: F401  # before the user's folder can shadow what torch imports
    except ImportError as error:
        raise CannotJudge(f"torch cannot be imported here ({error}): install torch in this environment") from error
    if _is_file(place):
        return _import_file(place, working_directory)
    return _import_module(place, working_directory)


def _import_file(place: str, working_directory: Path) -> ModuleType:
    path = _file(place, working_directory)
    if not path.is_file():
        raise CannotJudge(_no_such_file(place, path))
    if path.suffix != ".py":
        raise CannotJudge(f"`{place}` is no Python file: give the .py file that defines the encoder")
    if (path.parent / "__init__.py").exists() and _imports_relatively(path):
        root, dotted = _as_package_member(path)
        _enter(root)
        with _speaking(place, path.parent, path):
            return importlib.import_module(dotted)
    _enter(path.parent)
    # A digest of the path keeps two files of one stem apart, and both away from a module really called so.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _speaking(place, path.parent, path), _as_script(path):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_module(name: str, working_directory: Path) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise CannotJudge(
            f"`{name}` is neither a module's name nor a .py file: write `pkg.module:Attr` or `file.py:Attr`"
        )
    if str(working_directory) not in sys.path:
        sys.path.insert(0, str(working_directory))
    importlib.invalidate_caches()
    with _speaking(name, working_directory, None):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not _within(name, error.name):
                raise
            raise CannotJudge(_no_such_module(name, error.name)) from error


@contextmanager
def _speaking(place: str, folder: Path, file: Path | None) -> Iterator[None]:
    """Turns whatever an import raises into one sentence with the line of the user's file."""
    try:
        yield
    except CannotJudge:
        raise
    except SystemExit as error:
        where = _blamed(error, folder, file)
        raise CannotJudge(
            f"`{place}` ends the program while it is imported (exit code {error.code}){where}: put what it "
            "runs under `if __name__ == '__main__':`"
        ) from error
    except SyntaxError as error:
        line = f" at {_short(error.filename)}:{error.lineno}" if error.filename else ""
        raise CannotJudge(f"`{place}` cannot be imported: {_last_line(error)}{line}") from error
    except Exception as error:
        raise CannotJudge(
            f"`{place}` cannot be imported: {_last_line(error)}{_blamed(error, folder, file)}{_advice(error)}"
        ) from error


def _advice(error: Exception) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    return f"; install `{error.name.split('.')[0]}` here, or run from the folder that holds it"


@contextmanager
def _as_script(path: Path) -> Iterator[None]:
    """The argument list that the file would see if it were run, so that ours is not parsed as its own."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before


def _enter(folder: Path) -> None:
    """Makes a folder importable, in front; forgets modules of folders entered before that it would shadow.

    Two files, each with a `blocks.py` beside it, must each get their own.
    """
    importlib.invalidate_caches()
    for name in [entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()]:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and _folder_of(Path(file)) in _entered and _folder_of(Path(file)) != str(folder):
            for loaded in [loaded for loaded in sys.modules if _within(loaded, name)]:
                del sys.modules[loaded]
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    if str(folder) not in _entered:
        _entered.append(str(folder))


def _folder_of(file: Path) -> str:
    """The folder on the path in which a top-level module's file was found."""
    return str(file.parent.parent if file.name == "__init__.py" else file.parent)


def _imports_relatively(path: Path) -> bool:
    tree = _parsed(path)
    return tree is not None and any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def _as_package_member(path: Path) -> tuple[Path, str]:
    """The folder above the outermost package, and the file's dotted name in it."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


# ---- finding and building --------------------------------------------------------------------------------


def _look_up(module: ModuleType, attribute: str, place: str) -> Any:
    thing: Any = module
    for step in attribute.split("."):
        try:
            thing = getattr(thing, step)
        except AttributeError:
            raise CannotJudge(f"`{place}` has no `{attribute}`: {_near(step, thing)}") from None
        except Exception as error:  # a lazy module imports what is asked for, and that may fail in any way
            raise CannotJudge(f"`{attribute}` cannot be taken from `{place}`: {_last_line(error)}") from error
    return thing


def _near(name: str, owner: Any) -> str:
    """What the user may have meant instead."""
    public = [word for word in dir(owner) if not word.startswith("_")]
    near = get_close_matches(name, public, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    encoders = [word for word in public if _is_own_module_class(owner, word)]
    if encoders:
        return f"it defines {_listed(encoders)}"
    return "it defines no torch.nn.Module class; name a class, an instance or a function that builds one"


def _is_own_module_class(owner: Any, name: str) -> bool:
    from torch import nn

    thing = vars(owner).get(name) if hasattr(owner, "__dict__") else None
    return (
        isinstance(thing, type)
        and issubclass(thing, nn.Module)
        and thing.__module__ == getattr(owner, "__name__", None)
    )


def _builder(
    thing: Any, arguments: Mapping[str, Any], label: str, working_directory: Path
) -> Callable[[], nn.Module] | None:
    """A function that makes the model, or None where `thing` is the model itself."""
    from torch import nn

    if isinstance(thing, nn.Module):
        if arguments:
            raise CannotJudge(f"`{label}` is an instance, built already: leave out --arg {next(iter(arguments))}")
        _must_have_forward(thing, label)
        return None
    if isinstance(thing, type) and not issubclass(thing, nn.Module):
        raise CannotJudge(f"`{label}` is a class that is no torch.nn.Module: this is no encoder")
    if not callable(thing):
        raise CannotJudge(
            f"`{label}` is {_a(type(thing))}: this is no encoder; name a torch.nn.Module class, an instance, "
            "or a function without arguments that builds one"
        )
    _must_fit(thing, arguments, label)
    return lambda: _built(thing, arguments, label, working_directory)


def _built(thing: Callable[..., Any], arguments: Mapping[str, Any], label: str, working_directory: Path) -> nn.Module:
    from torch import nn

    try:
        made = thing(**arguments)
    except (Exception, SystemExit) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        where = _blamed(error, working_directory, None)
        raise CannotJudge(
            f"`{label}({given})` raised {_last_line(error)}{where}: other values can be given with --arg NAME=VALUE"
        ) from error
    if not isinstance(made, nn.Module):
        raise CannotJudge(f"`{label}()` returned {_a(type(made))}, no torch.nn.Module: let it return the encoder alone")
    _must_have_forward(made, label)
    return made


def _must_have_forward(model: nn.Module, label: str) -> None:
    from torch import nn

    if getattr(type(model), "forward", None) is nn.Module.forward and "forward" not in vars(model):
        raise CannotJudge(f"`{label}` has no `forward`: this is no encoder; name a class that defines it")


def _must_fit(thing: Callable[..., Any], arguments: Mapping[str, Any], label: str) -> None:
    """Whether the arguments fit the signature, before anything is run."""
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):  # some callables written in C have none; calling tells
        return
    named = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in arguments if name not in {p.name for p in named}]
    if unknown and not open_ended:
        raise CannotJudge(_unknown_argument(label, unknown[0], [p.name for p in named]))
    missing = [p.name for p in named if p.default is p.empty and p.name not in arguments]
    if not missing:
        return
    options = " ".join(f"--arg {name}=…" for name in missing)
    noun = "argument" if len(missing) == 1 else "arguments"
    raise CannotJudge(
        f"`{label}` needs the {noun} {_listed(missing)}: give {options}, or name a function without "
        "arguments that builds the model"
    )


def _unknown_argument(label: str, name: str, known: list[str]) -> str:
    if not known:
        return f"`{label}` takes no arguments: leave out --arg {name}"
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"it takes {_listed(known)}"
    return f"`{label}` takes no argument `{name}`: {hint}"


def _wrapped_at(model: nn.Module) -> str | None:
    """The attribute path to the model inside a wrapper, None where `model` is no wrapper."""
    for kind in type(model).__mro__:
        if kind.__name__ in _WRAPPERS and kind.__module__.split(".")[0] in ("torch", "peft"):
            return _WRAPPERS[kind.__name__]
    return None


# ---- whose code it is ------------------------------------------------------------------------------------


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself, and so not to a project."""
    path = Path(file)
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    return path.is_relative_to(sysconfig.get_paths()["stdlib"])


def _source_file(kind: type) -> Path | None:
    try:
        return Path(inspect.getfile(kind)).resolve()
    except (TypeError, OSError):  # made by a function or typed into a console: there is no file
        return None


def _project_folder(file: Path | None, package: str, working_directory: Path) -> Path:
    """The working directory where the file lies below it, else the folder its package is imported from."""
    if file is None or file.is_relative_to(working_directory.resolve()):
        return working_directory.resolve()
    top = getattr(sys.modules.get(package), "__file__", None)
    return Path(_folder_of(Path(top).resolve())) if top else file.parent


# ---- words -----------------------------------------------------------------------------------------------


def _is_file(place: str) -> bool:
    return place.endswith((".py", ".ipynb")) or bool(re.search(r"[\\/]", place))


def _file(place: str, working_directory: Path) -> Path:
    return (working_directory / Path(place).expanduser()).resolve()


def _no_such_file(place: str, path: Path) -> str:
    if path.is_dir():
        return f"`{place}` is a folder: name the .py file in it that defines the encoder"
    beside = sorted(entry.name for entry in path.parent.glob("*.py")) if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside, n=1, cutoff=0.6)
    hint = f"; did you mean `{near[0]}` in the same folder?" if near else "; give its path from the working directory"
    return f"there is no file `{place}`{hint}"


def _no_such_module(name: str, missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", []) if parent else sys.path[:1]
    near = get_close_matches(last, [module.name for module in pkgutil.iter_modules(folders)], n=1, cutoff=0.6)
    if near:
        return f"there is no module `{missing}`: did you mean `{'.'.join(filter(None, [parent, near[0]]))}`?"
    return (
        f"there is no module `{missing}`: run from the folder that holds it, install it here, or give the "
        f"file as `path/to/{name.rpartition('.')[2]}.py:Attr`"
    )


def _classes_in(path: Path) -> list[str]:
    """The classes that a file defines, read without running it."""
    tree = _parsed(path)
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _last_line(error: BaseException) -> str:
    """`ValueError: what it says`, on one line, without the end that a very long one has."""
    said = " ".join(str(getattr(error, "msg", None) or error).split())
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


def _blamed(error: BaseException, folder: Path, file: Path | None) -> str:
    """` at models.py:3 (import einops)`: the last line of the user's that was running, or nothing."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_users(frame.filename, folder) or (file is not None and frame.filename == str(file))
    ]
    if not frames or frames[-1].lineno is None:
        return ""
    last = frames[-1]
    code = linecache.getline(last.filename, last.lineno or 0).strip()
    return f" at {_short(last.filename)}:{last.lineno}" + (f" (`{code[:100]}`)" if code else "")


def _is_users(file: str, folder: Path) -> bool:
    if _is_installed(file) or not file.endswith(".py") or not Path(file).is_relative_to(folder):
        return False
    # A checkout may hold encdoctor itself; its frames stand in every traceback and are not the user's.
    return Path(file).parent != Path(__file__).parent


def _short(file: str) -> str:
    """A path as the user would write it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else os.fspath(path)


def _listed(names: list[str], most: int = 6) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names[:most]]
    if len(names) > most:
        return ", ".join(quoted) + f" and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def _a(kind: type) -> str:
    """`a list`, `an int`, `a keras.Model`."""
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind is type(None):
        return "None"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
