"""Permission to call the Python functions of kernels and bases.

A function that code in this process passes to a constructor may be called. A function that comes
from a file, as a name "module:function" or in any other form, may be called only with explicit
permission: ``allow_code=True`` or ``--allow-code`` when the file is opened, or ``allow_functions``
before. How the object was restored does not matter.

Permission is never part of an object's state, which a file can contain: it is kept here, by the
identity of objects whose constructors ran in this process. Two ways of copying an object keep its
permission: copies inside this process, and pickles that a process sends to its children or gets
back from them. Such a pickle carries a code that only processes of the same family can compute,
because they share the ``authkey`` of multiprocessing.
"""

import copyreg
import hmac
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from multiprocessing.process import current_process
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from partirvm.errors import UsageError

Function: TypeAlias = Callable[..., Any]
Proof: TypeAlias = tuple[int, bytes]

PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""A function given by name, "module:function"."""

_allowed = set[str]()
"""Names passed to ``allow_functions``."""

_called = set[str]()
"""Names that this process has called with permission; only pickles that were made here may use
them."""

_made: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Objects, by id, whose constructors ran in this process."""

_given: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""For each estimator, the values of parameters that code in this process has set."""


def allow_functions(*names: str) -> None:
    """Allow this process to call functions, given as "module:function", that models and jobs name.

    This is needed for a model with a user's kernel or basis that was restored by pickle, joblib,
    skops or MLflow, which have no ``allow_code``. Child processes and Dask workers that this
    process uses may call them, too. Raises ``UsageError`` for anything except such names.

    Examples
    --------
    >>> from partirvm import allow_functions
    >>> # joblib.load("model.joblib").predict(X) now calls this function
    >>> allow_functions("kernels_of_mine:periodic")
    """
    for name in names:
        if not (isinstance(name, str) and PATH.fullmatch(name)):
            raise UsageError(f"{name!r} is not the name of a function: pass 'module:function'")
    if _is_restoring():
        raise UsageError("a file cannot allow functions: call allow_functions before loading it")
    _allowed.update(names)


def permitted_names() -> tuple[str, ...]:
    """Return all names that this process may call, for processes that work for it."""
    return tuple(sorted(_allowed | _called))


def permit_names(names: tuple[str, ...]) -> None:
    """Permit the names of the process for which this one works."""
    _called.update(names)


def register(holder: Any) -> None:
    """Record that an object's constructor was called, unless a file loader calls it."""
    if not _is_restoring():
        _made[id(holder)] = holder


def forget(holder: Any) -> None:
    """Undo ``register``."""
    _made.pop(id(holder), None)


def is_permitted(holder: Any, function: str | Function) -> bool:
    """Return True if an object may call its function."""
    if _made.get(id(holder)) is holder:
        return True
    name = function if isinstance(function, str) else path_of(function)
    return name in _allowed or (name in _called and isinstance(function, str))


def require_permission(holder: Any, function: str | Function, what: str) -> None:
    """Raise ``UsageError`` unless an object may call its function; ``what`` is its role in the
    message."""
    if not is_permitted(holder, function):
        name = function if isinstance(function, str) else path_of(function)
        raise UsageError(
            f"the {what} {name} comes from a file, and is called only with your permission: if "
            f"you trust the file, call partirvm.allow_functions({name!r}) first, or load a file "
            "of partirvm with allow_code=True"
        )
    if isinstance(function, str):
        _called.add(function)


def path_of(function: Any) -> str:
    """Return a callable as "module:function"."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}:{name}"


def proof_of(names: list[str]) -> Proof:
    """Return this process's PID and the code that permits the names in other processes of its
    family."""
    process = os.getpid()
    return process, _code(process, names)


def is_proven(names: list[str], proof: Proof) -> bool:
    """Return True if another process of the family has permitted the names.

    A process does not trust pickles with its own PID, which may come from files: its own
    permissions are recorded here.
    """
    process, code = proof
    if not names:
        return True
    return process != os.getpid() and hmac.compare_digest(code, _code(process, names))


def _code(process: int, names: list[str]) -> bytes:
    text = "\n".join(["partirvm functions", str(process), *sorted(names)])
    return hmac.digest(bytes(current_process().authkey), text.encode(), "sha256")


def _is_restoring() -> bool:
    """Return True if skops is the caller: it restores some objects by calling a constructor with
    arguments from the file."""
    if "skops" not in sys.modules:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "skops":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class FunctionHolder:
    """Base class of frozen dataclasses that call Python functions, all of which ``functions_of``
    finds."""

    def __reduce__(self) -> Any:
        functions = list(functions_of(self))
        if not functions:
            return copyreg.__newobj__, (type(self),), dict(self.__dict__)  # type: ignore[attr-defined]
        values = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        names = [function for function in functions if isinstance(function, str)]
        is_known = all(is_permitted(self, function) for function in functions)
        return _restored, (type(self), values, proof_of(names) if is_known else None)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _restored(kind: type, values: tuple[Any, ...], proof: Proof | None) -> Any:
    """Return an unpickled object, which is permitted if its pickle was."""
    holder = kind(*values)
    names = [function for function in functions_of(holder) if isinstance(function, str)]
    if proof is None or not is_proven(names, proof):
        forget(holder)
    return holder


def functions_of(value: Any) -> Iterator[str | Function]:
    """Yield each function, by name or as a callable, in a kernel, a basis, a parameter or a
    spec."""
    inner: Any = value if isinstance(value, tuple | list) else ()
    if isinstance(value, str):
        if PATH.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        inner = value.values()
    elif is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif callable(value):
        yield value
    for item in inner:
        yield from functions_of(item)


def holders_in(value: Any) -> Iterator[FunctionHolder]:
    """Yield each object in a kernel, or in a list of kernels, that calls functions."""
    if isinstance(value, FunctionHolder):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from holders_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from holders_in(getattr(value, field.name))


NAMED = ("kernel", "basis")
"""Parameters of estimators that may be functions."""


class FunctionParameters:
    """Base class of estimators, whose parameters ``kernel`` and ``basis`` may be functions.

    A parameter may be called if code in this process has set it, as the constructor and
    ``set_params`` do.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in NAMED and not _is_restoring():
            _given.setdefault(self, {})[name] = value

    def require_permitted_parameters(self) -> None:
        """Raise ``UsageError`` if a parameter has functions that may not be called."""
        for name in NAMED:
            value = getattr(self, name)
            is_given = name in self._permitted()
            for holder in holders_in(value):
                for function in functions_of(holder):
                    require_permission(holder, function, name)
            for function in functions_of(value):
                if not is_given:
                    require_permission(self, function, name)

    def _permitted(self) -> set[str]:
        """Return the names of the parameters that code in this process has set."""
        values = _given.get(self, {})
        return {
            name for name in NAMED if name in values and values[name] is getattr(self, name, None)
        }

    def _permit(self, names: set[str]) -> None:
        """Record that exactly these parameters may be called."""
        _given[self] = {name: getattr(self, name) for name in names}

    def __copy__(self) -> Any:
        return self._copied(self.__getstate__())

    def __deepcopy__(self, memo: Any) -> Any:
        from copy import deepcopy

        copy = self._copied(deepcopy(self.__getstate__(), memo))
        memo[id(self)] = copy
        return copy

    def _copied(self, state: Any) -> Any:
        copy = type(self).__new__(type(self))
        copy.__setstate__(state)  # type: ignore[attr-defined]
        copy._permit(self._permitted())
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        names = self._permitted()
        functions = list(functions_of([getattr(self, name) for name in sorted(names)]))
        if not functions:
            return super().__reduce_ex__(protocol)
        paths = [function for function in functions if isinstance(function, str)]
        return _unpickled, (type(self), self.__getstate__(), sorted(names), proof_of(paths))


def _unpickled(kind: Any, state: Any, names: list[str], proof: Proof) -> Any:
    """Return an unpickled estimator, whose parameters are permitted if its pickle was.

    Args:
        kind: the class
        state: the estimator's state
        names: the names of the permitted parameters
        proof: the code of the process that made the pickle
    """
    estimator = kind.__new__(kind)
    estimator.__setstate__(state)
    paths = [
        function
        for function in functions_of([getattr(estimator, name) for name in names])
        if isinstance(function, str)
    ]
    if is_proven(paths, proof):
        estimator._permit(set(names))
    return estimator
