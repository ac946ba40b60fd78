"""Copies everything that a call reaches to new addresses: the place of objects in memory is part of the noise and must vary with rebuilds.

Copying arrays alone is not enough. A list of floats in another memory order, a dict whose strings are elsewhere or a tuple
of tensors takes up to several percent more or less time, for as long as the objects exist.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import functools
import math
import random
import re
import sys
import types
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

SCRAPS, LARGEST_SCRAP, SLABS, LARGEST_SLAB, CRUMBS = 100, 6000, 8, 80_000, 400
KEPT_SCRAPS = 0.2
SMALLEST, SMALL = -5, 256
HEAP_TYPE = 1 << 9
IMMORTAL = 1 << 30
DEPTH = 4
HOLLOW = (str, bytes, type, types.ModuleType, int, float, complex, types.NoneType)
"""Types of values that hold no arrays."""
MANY, FAR = 1000, 1 << 18

SHARED: tuple[type, ...] = (
    type, types.ModuleType, types.NoneType, types.EllipsisType, types.NotImplementedType, types.CodeType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GenericAlias, types.UnionType, property, staticmethod, classmethod, bool, object, re.Pattern, weakref.ReferenceType,
    np.dtype, np.ufunc,
)  # fmt: skip
"""Types whose objects exist once per process, or hold nothing that a call reads: both arms use the same objects."""

Copy = Callable[[Any, dict[Any, Any]], Any]
Fixed = Callable[[Any], bool]


def scraps(rng: random.Random) -> list[Any]:
    """Make holes at random places in the heap, which what is built next fills; return the objects that keep the holes apart."""
    made: list[Any] = [bytearray(rng.randrange(16, LARGEST_SCRAP)) for _ in range(rng.randrange(SCRAPS))]
    made += [np.empty(rng.randrange(64, LARGEST_SLAB), np.uint8) for _ in range(rng.randrange(SLABS))]
    made += [rng.random() if rng.random() < 0.5 else bytes(rng.randrange(2, 200)) for _ in range(rng.randrange(CRUMBS))]
    return rng.sample(made, round(KEPT_SCRAPS * len(made)))


class Immovable(Exception):
    """Raised when a copy failed half-way, so nothing of this move can be used; the text is the kind of object that failed."""


class Move:
    """Copies everything that is reachable from given objects, each object once, so that sharing stays and cycles close.

    `copy` returns the copy of an array, or its argument if that is not an array; `fixed` says what must stay, such as compiled
    code. Parts are copied in the order in which they are found, not in the order of the originals in memory, which is partly chance
    and would be passed on to every copy. Only parts that are far apart in memory, as in a long list that was shuffled, are copied
    in drawn order, because such a list is slower to read. `stays` names the kinds of objects that could not be copied: locks,
    generators, what C code keeps to itself.
    """

    def __init__(self, copy: Copy, fixed: Fixed = lambda value: False, rng: random.Random | None = None) -> None:
        self.copy, self.fixed, self.rng = copy, fixed, rng or random.Random()
        self.stays: set[str] = set()
        self._made: dict[int, Any] = {}
        self._buffers: dict[Any, Any] = {}
        self._alive: list[Any] = []
        self._named: dict[int, frozenset[int]] = {}
        self._home: Mapping[str, Any] = {}
        self._roots: set[int] = set()

    def all(self, values: Iterable[Any]) -> list[Any]:
        """Return the copies of several values, which may share parts; the values themselves if copying fails half-way."""
        given = list(values)
        self._alive.append(given)
        functions = (getattr(item, "__func__", item) for item in given)
        self._home = next((fn.__globals__ for fn in functions if isinstance(fn, types.FunctionType)), {})
        try:
            return [self._root(value) for value in given]
        except RecursionError:
            self.stays.add("objects nested too deeply")
        except Immovable as error:
            self.stays.add(str(error))
        except Exception as error:  # whatever users' own __hash__, __eq__ or __set__ raise for an object that is only half made
            self.stays.add(f"an object whose copy raises {type(error).__name__}")
        return given

    def found(self, value: Any) -> Any:
        """Return the copy of a value that was copied on the way; the value itself if it was not."""
        return self._made.get(id(value), value)

    def _root(self, value: Any) -> Any:
        """Copy a task's function or argument even if a module has it under a name."""
        self._roots.add(id(value))
        return self.one(value)

    def one(self, value: Any) -> Any:
        """Return the copy of a value; the value itself if it exists once per process or cannot be copied."""
        kind = type(value)
        if kind in SHARED:
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        scalar = SCALARS.get(kind)
        if scalar is not None:
            return self._set(value, scalar(value))
        if isinstance(value, type):
            return value
        if self.fixed(value):
            return self._keep(value, stays=next(held_arrays(value), None) is not None)
        array = self.copy(value, self._buffers)
        if array is not value:
            return self._array(value, array)
        container = CONTAINERS.get(kind)
        if container is not None:
            return container(self, value)
        return self._keep(value) if self._is_named(value, kind.__module__) else self._object(value)

    def _set(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = made
        return made

    def _keep(self, value: Any, *, stays: bool = False) -> Any:
        if stays:
            self.stays.add(type(value).__name__)
        return self._set(value, value)

    def _is_named(self, value: Any, where: str) -> bool:
        """Whether a module has the value under a name: code may need that very object, and all arms share it anyway."""
        if id(value) in self._roots:
            return False
        return any(id(value) in self._names(names) for names in (self._home, vars(sys.modules[where]) if where in sys.modules else {}))

    def _names(self, names: Mapping[str, Any]) -> frozenset[int]:
        if id(names) not in self._named:
            self._named[id(names)] = frozenset(map(id, names.values()))
        return self._named[id(names)]

    def _parts(self, values: Iterable[Any]) -> None:
        """Copy parts that are far apart in memory first, in drawn order, so that their copies are far apart too."""
        found = list(values)
        if len(found) >= MANY and float(np.median(np.abs(np.diff(np.fromiter(map(id, found), np.int64, len(found)))))) > FAR:
            for value in self.rng.sample(found, len(found)):
                self.one(value)

    def _array(self, value: Any, array: Any) -> Any:
        self._set(value, array)
        if isinstance(array, np.ndarray) and array.dtype == object:
            for place in np.ndindex(array.shape):
                array[place] = self.one(value[place])
        return array

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if hasattr(kind, "__del__") or kind.__module__ in ("itertools", "_thread"):
            return self._keep(value, stays=True)
        if _is_plain(kind) and not hasattr(kind, "__deepcopy__"):
            return self._plain(value)
        try:
            if hasattr(kind, "__deepcopy__"):
                return self._set(value, kind.__deepcopy__(value, self._made))
            reduce = copyreg.dispatch_table.get(kind)
            reduced = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:
            return self._keep(value, stays=True)
        return self._keep(value) if isinstance(reduced, str) else self._rebuilt(value, reduced)

    def _rebuilt(self, value: Any, reduced: tuple[Any, ...]) -> Any:
        """Copy an object as its class instructs pickle, with copied parts."""
        self._alive.append(reduced)
        make, args, state, items, pairs, setter = [*reduced, None, None, None, None][:6]
        try:
            made = self._set(value, make(*[self.one(arg) for arg in args]))
            if state is not None:
                _restore(made, self.one(state), setter)
            parts = (list(items or ()), list(pairs or ()))
            self._alive.append(parts)
            for item in parts[0]:
                made.append(self.one(item))
            for key, item in parts[1]:
                made[self.one(key)] = self.one(item)
        except (RecursionError, Immovable):
            raise
        except Exception as error:
            raise Immovable(type(value).__name__) from error
        return made

    def _plain(self, value: Any) -> Any:
        """Copy an instance of a class written in Python.

        Attributes are set one by one, as `__init__` does: an instance that gets a whole dict is slower to read.
        """
        kind = type(value)
        slots = [name for name in copyreg._slotnames(kind) if hasattr(value, name)]  # type: ignore[attr-defined]
        state = {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}
        if not state:
            return self._keep(value)
        self._alive.append(state)
        made = self._set(value, object.__new__(kind))
        for name, item in state.items():
            if name in slots or not hasattr(_class_attribute(kind, name), "__set__"):
                object.__setattr__(made, name, self.one(item))
            else:
                made.__dict__[name] = self.one(item)
        return made

    def _list(self, value: list[Any]) -> list[Any]:
        made: list[Any] = self._set(value, [])
        self._parts(value)
        made.extend(map(self.one, value))
        return made

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = self._set(value, {})
        self._parts(value.values())
        for key, item in value.items():
            made[self.one(key)] = self.one(item)
        return made

    def _tuple(self, value: Any) -> Any:
        self._parts(value)
        return self._frozen(value)

    def _frozen(self, value: Any) -> Any:
        """Copy a container that is made from all its parts at once, unless copying a part has already made it."""
        parts = [self.one(item) for item in value]
        found = self._made.get(id(value))
        return found if found is not None else self._set(value, type(value)(parts))

    def _set_of(self, value: set[Any]) -> set[Any]:
        made: set[Any] = self._set(value, set())
        made.update(map(self.one, value))
        return made

    def _deque(self, value: collections.deque[Any]) -> collections.deque[Any]:
        made: collections.deque[Any] = self._set(value, collections.deque(maxlen=value.maxlen))
        made.extend(map(self.one, value))
        return made

    def _proxy(self, value: types.MappingProxyType[Any, Any]) -> types.MappingProxyType[Any, Any]:
        whole = dict(value)
        self._alive.append(whole)
        made: types.MappingProxyType[Any, Any] = self._set(value, types.MappingProxyType(self.one(whole)))
        return made

    def _cell(self, value: types.CellType) -> types.CellType:
        made: types.CellType = self._set(value, types.CellType())
        with contextlib.suppress(ValueError):
            made.cell_contents = self.one(value.cell_contents)
        return made

    def _function(self, value: types.FunctionType) -> types.FunctionType:
        """Copy a function and what it holds, but not its code; a function that holds nothing movable is returned itself."""
        if all(map(_inert, _held(value))) or self._is_named(value, value.__module__ or ""):
            self._made[id(value)] = value
            return value
        own = value.__closure__ or ()
        empty = [cell for cell in own if id(cell) not in self._made]
        cells = tuple([self._made.get(id(cell)) or self._set(cell, types.CellType()) for cell in own])
        made = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, cells if own else None)
        self._set(value, made)
        functools.update_wrapper(made, value)
        made.__dict__.pop("__wrapped__", None)
        for cell in empty:
            with contextlib.suppress(ValueError):
                self._made[id(cell)].cell_contents = self.one(cell.cell_contents)
        made.__defaults__, made.__kwdefaults__ = self.one(value.__defaults__), self.one(value.__kwdefaults__)
        made.__dict__.update({name: self.one(item) for name, item in value.__dict__.items()})
        return made

    def _method(self, value: types.MethodType) -> types.MethodType:
        made: types.MethodType = self._set(value, types.MethodType(self.one(value.__func__), self._root(value.__self__)))
        return made

    def _builtin(self, value: Any) -> Any:
        owner = value.__self__
        moved = self._root(owner)
        return self._set(value, value if moved is owner else getattr(moved, value.__name__))

    def _partial(self, value: functools.partial[Any]) -> functools.partial[Any]:
        func, args, keywords = self._root(value.func), self.one(value.args), self.one(value.keywords)
        made: functools.partial[Any] = self._set(value, functools.partial(func, *args, **keywords))
        return made


def _text(value: str) -> str:
    """Return a copy of a string; interned strings stay, because names are looked up faster by identity."""
    if len(value) < 2 or _is_interned(value):
        return value
    return (value + "\0")[:-1]


def _is_interned(value: str) -> bool:
    known = getattr(sys, "_is_interned", None)
    if known is not None:
        return bool(known(value))
    if sys.getrefcount(None) >= IMMORTAL:
        return sys.getrefcount(value) >= IMMORTAL
    return sys.intern((value + "\0")[:-1]) is value


SCALARS: dict[type, Callable[[Any], Any]] = {
    float: lambda value: value if math.isnan(value) else value * 1.0,
    int: lambda value: value if SMALLEST <= value <= SMALL else value + 0,
    complex: lambda value: value if value != value else complex(value.real, value.imag),
    str: _text,
    bytes: lambda value: value if len(value) < 2 else bytes(bytearray(value)),
}
"""How to copy values that hold no other values. NaN objects are not copied, as lists find them by identity."""
CONTAINERS: dict[type, Callable[[Move, Any], Any]] = {
    list: Move._list, dict: Move._dict, tuple: Move._tuple, set: Move._set_of, frozenset: Move._frozen, collections.deque: Move._deque,
    types.MappingProxyType: Move._proxy, types.CellType: Move._cell, types.FunctionType: Move._function, types.MethodType: Move._method,
    types.BuiltinMethodType: Move._builtin, types.MethodWrapperType: Move._builtin, functools.partial: Move._partial,
}  # fmt: skip


def _restore(made: Any, state: Any, setter: Any) -> None:
    if setter is not None:
        setter(made, state)
    elif hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        for name, item in {**(attributes or {}), **(slots or {})}.items():
            object.__setattr__(made, name, item)


def _is_plain(kind: type) -> bool:
    """Whether an instance is its attributes and nothing else."""
    usual = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__", "__getstate__"))
    python = all(base is object or base.__flags__ & HEAP_TYPE for base in kind.__mro__) and getattr(kind, "__new__", None) is object.__new__
    return usual and python and not hasattr(kind, "__getnewargs__") and not hasattr(kind, "__getnewargs_ex__")


def _class_attribute(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _inert(value: Any) -> bool:
    """Whether a value holds nothing that could be moved."""
    if isinstance(value, types.FunctionType):
        return not (value.__closure__ or value.__defaults__ or value.__kwdefaults__)
    if isinstance(value, types.BuiltinFunctionType):
        return type(value.__self__) in SHARED
    scalar = SCALARS.get(type(value))
    return type(value) in SHARED or isinstance(value, type) or (scalar is not None and scalar(value) is value)


def _held(value: types.FunctionType) -> Iterator[Any]:
    """Yield what a function holds in its defaults, attributes and closure."""
    yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values())
    for cell in value.__closure__ or ():
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def copy_array(value: np.ndarray[Any, Any], buffers: dict[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of an array with the same layout; views of one array become views of one copy."""
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    plain = type(owner) is type(value) is np.ndarray and not (value.dtype.hasobject or owner.dtype.hasobject)
    if not plain or not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        made = value.copy(order="K")
    else:
        if id(owner) not in buffers:
            buffers[id(owner)] = owner.copy(order="K")
        made = memory = buffers[id(owner)]
        if owner is not value:
            offset = value.ctypes.data - owner.ctypes.data
            made = np.ndarray(value.shape, value.dtype, memory.reshape(-1, order="A").view(np.uint8), offset, value.strides)
    made.flags.writeable = value.flags.writeable
    return made


def held_arrays(value: Any, within: tuple[type, ...] = (object,), depth: int = DEPTH) -> Iterator[Any]:
    """Yield the arrays that a callable holds in its closure, its bound object or its defaults, down to a depth that real code reaches."""
    if hasattr(value, "nbytes") and hasattr(value, "shape"):
        yield value
    elif depth and isinstance(value, within) and not isinstance(value, HOLLOW):
        for item in _inside(value):
            yield from held_arrays(item, within, depth - 1)


def loose_arrays(value: Any, known: Container[int]) -> Iterator[Any]:
    """Return the arrays that a function holds in its closure, its defaults or containers there, but not those that are `known`."""
    within = (types.FunctionType, types.MethodType, functools.partial, Mapping, list, tuple)
    return (item for item in held_arrays(value, within) if id(item) not in known)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.FunctionType):
        yield from _held(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif hasattr(value, "parameters") and callable(getattr(value, "buffers", None)):
        yield from (*value.parameters(), *value.buffers())
    elif hasattr(value, "__dict__"):
        yield vars(value)
