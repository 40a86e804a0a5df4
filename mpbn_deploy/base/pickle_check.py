"""Check a pickle before it is loaded, and reject one that could exhaust memory, stack or time.

A pickle is a program for a machine with a stack and a memo. Even an unpickler that calls only harmless
functions executes the rest of that program, and a few bytes can be expensive: a tuple that holds a tuple
twice, which holds a tuple twice, and so on, takes years to hash. `check_pickle` executes the program on
the kinds of values instead of the values. Only a short list of opcodes is allowed, and nothing large may
be referenced twice.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from .records import record

MAX_OPCODES = 1_000_000  # the longest file of a supported data set, CIFAR-100, has 300,000
DEEPEST_TUPLES = 8  # numpy and torch nest two; hashing uses C stack for each level
LONGEST_SHARED = 1000  # characters of a string that may be referenced twice
MAX_SHARED = 16  # items of a tuple that may be referenced twice: optimizers share their betas


class PickleKind(Enum):
    """The kind of a value on the stack; messages print its value."""

    PLAIN = "plain value"
    NAME = "name"
    RESULT = "result"
    SHORT_TUPLE = "short tuple"
    LONG_TEXT = "long text"
    TUPLE = "tuple"
    CONTAINER = "list or dictionary"
    MARK = "mark"


# Values that may be referenced twice. Sharing containers level by level doubles the size at each level.
SHAREABLE = (PickleKind.PLAIN, PickleKind.NAME, PickleKind.RESULT, PickleKind.SHORT_TUPLE)


class UnsafePickleError(Exception):
    """The pickle breaks a rule and must not be loaded."""


class ForbiddenNameError(UnsafePickleError):
    """The pickle imports a name that is not allowed."""


@record
class PickleRules:
    """What a pickle may do."""

    opcodes: frozenset[str]
    builds: PickleKind  # the kind of value that a BUILD opcode may modify
    names: Mapping[str, PickleKind] | None = None  # "module name" -> kind of its result; None allows any name
    most_calls: int = MAX_OPCODES


class _Entry(NamedTuple):
    """What is known about a value on the stack."""

    kind: PickleKind
    value: Any = None  # of plain values, names and short tuples
    depth: int = 0  # of nested tuples


def check_pickle(content: bytes, rules: PickleRules) -> list[Any]:
    """Raise UnsafePickleError if a pickle breaks the rules; return the persistent ids it refers to.

    Any other exception means that the pickle is damaged. No memory is allocated for claimed lengths:
    `genops` raises ValueError for a length beyond the end of the content.
    """
    machine = _Machine(rules, most_memo=len(content))
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if number >= MAX_OPCODES:
            raise UnsafePickleError(f"more than {MAX_OPCODES} opcodes")
        if opcode.name not in rules.opcodes:
            raise UnsafePickleError(f"opcode {opcode.name}")
        machine.execute(opcode.name, argument)
    return machine.persistent_ids


class _Machine:
    """The stack and the memo of an unpickler, holding kinds instead of values."""

    def __init__(self, rules: PickleRules, most_memo: int) -> None:
        self.rules = rules
        self.most_memo = most_memo
        self.stack: list[_Entry] = []
        self.memo: dict[int, _Entry] = {}
        self.calls = 0
        self.persistent_ids: list[Any] = []

    def execute(self, opcode: str, argument: Any) -> None:
        """Execute one opcode."""
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self._push(PickleKind.MARK)
            case "GET" | "BINGET" | "LONG_BINGET":
                self._push_memo(int(argument))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memoize(int(argument))
            case "MEMOIZE":
                self._memoize(len(self.memo))
            case "GLOBAL" | "STACK_GLOBAL" | "REDUCE" | "BUILD" | "BINPERSID":
                self._execute_call(opcode, argument)
            case _:
                self._execute_value(opcode, argument)

    def _execute_value(self, opcode: str, argument: Any) -> None:
        match opcode:
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = 0 if opcode == "EMPTY_TUPLE" else int(opcode[-1])
                self._push_tuple([self._pop() for _ in range(count)][::-1])
            case "TUPLE":
                self._push_tuple(self._pop_to_mark())
            case "LIST" | "DICT":
                self._pop_to_mark()
                self._push(PickleKind.CONTAINER)
            case "EMPTY_LIST" | "EMPTY_DICT":
                self._push(PickleKind.CONTAINER)
            case "APPEND" | "SETITEM" | "APPENDS" | "SETITEMS":
                self._fill(opcode)
            case _:  # numbers and strings, which pop nothing
                is_long = isinstance(argument, (str, bytes, bytearray)) and len(argument) > LONGEST_SHARED
                self.stack.append(
                    _Entry(PickleKind.LONG_TEXT) if is_long else _Entry(PickleKind.PLAIN, argument)
                )

    def _execute_call(self, opcode: str, argument: Any) -> None:
        match opcode:
            case "GLOBAL":
                self._push_name(str(argument))
            case "STACK_GLOBAL":
                name, module = self._pop().value, self._pop().value
                self._push_name(f"{module} {name}")
            case "REDUCE":
                self._count_call()
                self._call(arguments=self._pop(), function=self._pop())
            case "BUILD":
                self._count_call()
                self._pop()
                self._expect(self.stack[-1], self.rules.builds)
            case "BINPERSID":
                self.persistent_ids.append(self._expect(self._pop(), PickleKind.SHORT_TUPLE).value)
                self._push(PickleKind.RESULT)

    def _push(self, kind: PickleKind) -> None:
        self.stack.append(_Entry(kind))

    def _pop(self) -> _Entry:
        return _value(self.stack.pop())

    def _pop_to_mark(self) -> list[_Entry]:
        entries = []
        while (entry := self.stack.pop()).kind != PickleKind.MARK:
            entries.append(entry)
        return entries[::-1]

    def _expect(self, entry: _Entry, *kinds: PickleKind) -> _Entry:
        if entry.kind not in kinds:
            needed = " or ".join(kind.value for kind in kinds)
            raise UnsafePickleError(f"a {entry.kind.value} where a {needed} is needed")
        return entry

    def _push_memo(self, index: int) -> None:
        entry = self.memo[index]
        if entry.kind not in SHAREABLE:
            raise UnsafePickleError(f"a {entry.kind.value} that is referenced twice")
        self.stack.append(entry)

    def _memoize(self, index: int) -> None:
        """Store the top of the stack; the index is bounded because unpicklers allocate a memo up to it."""
        if not 0 <= index <= self.most_memo:
            raise UnsafePickleError(f"memo index {index} in a pickle of {self.most_memo} bytes")
        self.memo[index] = _value(self.stack[-1])

    def _push_tuple(self, items: list[_Entry]) -> None:
        depth = 1 + max((item.depth for item in items), default=0)
        if depth > DEEPEST_TUPLES:
            raise UnsafePickleError(f"tuples nested more than {DEEPEST_TUPLES} deep")
        if len(items) <= MAX_SHARED and all(
            item.kind in (PickleKind.PLAIN, PickleKind.NAME) for item in items
        ):
            values = tuple(item.value for item in items)
            self.stack.append(_Entry(PickleKind.SHORT_TUPLE, values, depth))
        else:
            self.stack.append(_Entry(PickleKind.TUPLE, depth=depth))

    def _fill(self, opcode: str) -> None:
        """Pop the items that are added to a list or dictionary."""
        if opcode.endswith("S"):
            self._pop_to_mark()
        else:
            for _ in range(1 if opcode == "APPEND" else 2):
                self._pop()
        self._expect(self.stack[-1], PickleKind.CONTAINER)

    def _push_name(self, name: str) -> None:
        if self.rules.names is not None and name not in self.rules.names:
            raise ForbiddenNameError(name.replace(" ", ".")[:80])
        self.stack.append(_Entry(PickleKind.NAME, name))

    def _count_call(self) -> None:
        self.calls += 1
        if self.calls > self.rules.most_calls:
            raise UnsafePickleError(f"more than {self.rules.most_calls} calls")

    def _call(self, arguments: _Entry, function: _Entry) -> None:
        self._expect(function, PickleKind.NAME)
        self._expect(arguments, PickleKind.TUPLE, PickleKind.SHORT_TUPLE)
        result = PickleKind.RESULT if self.rules.names is None else self.rules.names[function.value]
        if result == PickleKind.CONTAINER and arguments.value != ():
            raise UnsafePickleError(f"{function.value.replace(' ', '.')} with arguments, which it would copy")
        self._push(result)


def _value(entry: _Entry) -> _Entry:
    if entry.kind == PickleKind.MARK:
        raise UnsafePickleError("a mark where a value is needed")
    return entry
