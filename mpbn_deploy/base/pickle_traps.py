"""Pickles followed without being obeyed, to refuse those that would fill memory, stack or time.

A pickle is a program for a machine with a stack and a memo. A reader that calls nothing but harmless
functions still obeys the rest of it, and a few bytes can ask for a lot: a tuple of a tuple twice of a
tuple twice takes years to hash. Here the program runs on kinds instead of values, so that only what an
honest writer writes gets through: few opcodes, and nothing large that is mentioned again.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from typing import Any, NamedTuple

from .records import record

MOST_OPCODES = 1_000_000  # CIFAR-100, the longest honest pickle, has 300 000
DEEPEST_TUPLES = 8  # those of numpy and torch are nested twice; hashing takes the stack of C for each
LONGEST_SHARED = 1000  # characters of a text that may be mentioned again
MOST_SHARED = 16  # items of a tuple that may be mentioned again: optimizers share their betas

PLAIN, NAME, RESULT, SHORT_TUPLE = "plain value", "name", "result", "short tuple"
LONG_TEXT, TUPLE, CONTAINER, MARK = "long text", "tuple", "list or dictionary", "mark"
SHAREABLE = (PLAIN, NAME, RESULT, SHORT_TUPLE)


class TrapError(Exception):
    """A pickle that must not be obeyed."""


class ForeignNameError(TrapError):
    """A pickle that names something which is not allowed to it."""


@record
class Rules:
    """What a pickle may do."""

    opcodes: frozenset[str]
    builds: str  # the kind of what may be given a state
    names: Mapping[str, str] | None = None  # "module name" to the kind that calling it gives; None: any
    most_calls: int = MOST_OPCODES


class _Entry(NamedTuple):
    """What is known of a value on the stack."""

    kind: str
    value: Any = None  # of plain values, names and short tuples
    depth: int = 0  # of tuples in tuples


def refuse_traps(content: bytes, rules: Rules) -> list[Any]:
    """Raise TrapError unless a pickle keeps to the rules; gives the persistent ids that it asks for.

    Other errors mean that the pickle is damaged. Nothing is allocated for what a length claims:
    `genops` raises ValueError for a length beyond the end.
    """
    machine = _Machine(rules, most_memo=len(content))
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if number >= MOST_OPCODES:
            raise TrapError(f"more than {MOST_OPCODES} opcodes")
        if opcode.name not in rules.opcodes:
            raise TrapError(f"opcode {opcode.name}")
        machine.step(opcode.name, argument)
    return machine.persistent_ids


class _Machine:
    """The stack and the memo of an unpickler, of kinds."""

    def __init__(self, rules: Rules, most_memo: int) -> None:
        self.rules = rules
        self.most_memo = most_memo
        self.stack: list[_Entry] = []
        self.memo: dict[int, _Entry] = {}
        self.calls = 0
        self.persistent_ids: list[Any] = []

    def step(self, opcode: str, argument: Any) -> None:
        """Do to the stack what an opcode does."""
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self.stack.append(_Entry(MARK))
            case "GET" | "BINGET" | "LONG_BINGET":
                self._mention_again(int(argument))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._remember(int(argument))
            case "MEMOIZE":
                self._remember(len(self.memo))
            case "GLOBAL" | "STACK_GLOBAL" | "REDUCE" | "BUILD" | "BINPERSID":
                self._step_of_calls(opcode, argument)
            case _:
                self._step_of_values(opcode, argument)

    def _step_of_values(self, opcode: str, argument: Any) -> None:
        match opcode:
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = 0 if opcode == "EMPTY_TUPLE" else int(opcode[-1])
                self._push_tuple([self._pop() for _ in range(count)][::-1])
            case "TUPLE":
                self._push_tuple(self._pop_to_mark())
            case "LIST" | "DICT":
                self._pop_to_mark()
                self.stack.append(_Entry(CONTAINER))
            case "EMPTY_LIST" | "EMPTY_DICT":
                self.stack.append(_Entry(CONTAINER))
            case "APPEND" | "SETITEM" | "APPENDS" | "SETITEMS":
                self._fill(opcode)
            case _:  # numbers and texts, which take nothing from the stack
                is_long = isinstance(argument, (str, bytes, bytearray)) and len(argument) > LONGEST_SHARED
                self.stack.append(_Entry(LONG_TEXT) if is_long else _Entry(PLAIN, argument))

    def _step_of_calls(self, opcode: str, argument: Any) -> None:
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
                self.persistent_ids.append(self._expect(self._pop(), SHORT_TUPLE).value)
                self.stack.append(_Entry(RESULT))

    def _pop(self) -> _Entry:
        entry = self.stack.pop()
        if entry.kind == MARK:
            raise TrapError("a mark taken for a value")
        return entry

    def _pop_to_mark(self) -> list[_Entry]:
        entries = []
        while (entry := self.stack.pop()).kind != MARK:
            entries.append(entry)
        return entries[::-1]

    def _expect(self, entry: _Entry, *kinds: str) -> _Entry:
        if entry.kind not in kinds:
            raise TrapError(f"a {entry.kind} where a {' or '.join(kinds)} is needed")
        return entry

    def _mention_again(self, index: int) -> None:
        """Whatever holds others must not be shared: what is shared level by level doubles at each."""
        entry = self.memo[index]
        if entry.kind not in SHAREABLE:
            raise TrapError(f"a {entry.kind} that is mentioned again")
        self.stack.append(entry)

    def _remember(self, index: int) -> None:
        """Unpicklers allocate a memo as long as its highest index."""
        if not 0 <= index <= self.most_memo:
            raise TrapError(f"memo index {index} in a pickle of {self.most_memo} bytes")
        entry = self.stack[-1]
        if entry.kind == MARK:
            raise TrapError("a mark taken for a value")
        self.memo[index] = entry

    def _push_tuple(self, items: list[_Entry]) -> None:
        depth = 1 + max((item.depth for item in items), default=0)
        if depth > DEEPEST_TUPLES:
            raise TrapError(f"tuples nested more than {DEEPEST_TUPLES} deep")
        if len(items) <= MOST_SHARED and all(item.kind in (PLAIN, NAME) for item in items):
            self.stack.append(_Entry(SHORT_TUPLE, tuple(item.value for item in items), depth))
        else:
            self.stack.append(_Entry(TUPLE, depth=depth))

    def _fill(self, opcode: str) -> None:
        """Put what lies on a list or dictionary into it."""
        if opcode.endswith("S"):
            self._pop_to_mark()
        else:
            for _ in range(1 if opcode == "APPEND" else 2):
                self._pop()
        self._expect(self.stack[-1], CONTAINER)

    def _push_name(self, name: str) -> None:
        if self.rules.names is not None and name not in self.rules.names:
            raise ForeignNameError(name.replace(" ", ".")[:80])
        self.stack.append(_Entry(NAME, name))

    def _count_call(self) -> None:
        self.calls += 1
        if self.calls > self.rules.most_calls:
            raise TrapError(f"more than {self.rules.most_calls} calls")

    def _call(self, arguments: _Entry, function: _Entry) -> None:
        self._expect(function, NAME)
        self._expect(arguments, TUPLE, SHORT_TUPLE)
        made = RESULT if self.rules.names is None else self.rules.names[function.value]
        if made == CONTAINER and arguments.value != ():
            raise TrapError(f"{function.value.replace(' ', '.')} with arguments, which it would copy")
        self.stack.append(_Entry(made))
