"""What the core's memories hold, and the numbers of network.vh, as text.

`core/` is fixed; a network is data. The fields of a word are in the order of the concatenations in
core/mpbn_scan.v and core/mpbn_neuron.v.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...base import Array, array_record, record

FRACTION_BITS = 13  # of a decay: 4096 keeps everything


@record
class Field:
    """A number in a word: its width is a parameter of the core, such as COUNT_BITS."""

    name: str
    width: str


def _fields(text: str) -> tuple[Field, ...]:
    """Return the fields of 'WIDTH: name name; WIDTH: name', the most significant first."""
    parts = (part.split(":") for part in text.split(";"))
    return tuple(Field(name=name, width=width.strip()) for width, names in parts for name in names.split())


LAYER_FIELDS = _fields(
    "1: loop loop_ends holds fires subtracts; KEEP: keep_current keep_voltage; COUNT: height width groups;"
    "CONNECTION: first_connection last_connection; LAYER: loop_start; PARAMETER: first_parameter;"
    "PLACE: first_row_place first_column_place; ADDRESS: first_store store_step; STATE_ADDRESS: first_state"
)
CONNECTION_FIELDS = _fields(
    "1: graded pixelwise; FACTOR: factor; STEP: delay; COUNT: kernel_height kernel_width source_height "
    "source_width start_y start_x stride_y stride_x dilation_y dilation_x words top bottom left right;"
    "ADDRESS: base time_step tap_right tap_down next_group next_column next_row; ROW: first_row rows tap_rows"
)
Numbers = Mapping[str, int]


@record
class Grid:
    """How a population is stored: pixels, and groups of `lanes` channels; the input's are single values."""

    name: str
    channels: int
    height: int
    width: int
    unit: int  # channels in a word
    base: int = 0  # address of its first word
    time_step: int = 0  # words between time steps; 0 if every step is the same

    @property
    def words(self) -> int:
        """Words of a pixel."""
        return -(-self.channels // self.unit)

    @property
    def size(self) -> int:
        """Words of a time step."""
        return self.height * self.width * self.words


@array_record
class Tables:
    """The contents of the memories, and the numbers of network.vh."""

    numbers: Numbers
    layers: Sequence[Numbers]
    connections: Sequence[Numbers]
    weights: Array  # [rows, lanes]
    parameters: Sequence[int]
    places: Sequence[int]
    populations: Sequence[Grid]

    @property
    def lanes(self) -> int:
        return self.numbers["LANES"]

    @property
    def memories(self) -> dict[str, str]:
        """The text of the files *.hex."""
        return {
            "layers.hex": self._words(LAYER_FIELDS, self.layers),
            "connections.hex": self._words(CONNECTION_FIELDS, self.connections),
            "weights.hex": hex_lines(self.weight_words(), self.lanes * self.numbers["WEIGHT_BITS"]),
            "parameters.hex": hex_lines(self.parameters, self.numbers["PARAMETER_WIDTH"]),
            "places.hex": hex_lines(self.places, self.numbers["PARAMETER_BITS"]),
        }

    @property
    def identity(self) -> int:
        """A checksum of 24 bits of all numbers and memories, by which a board is recognized."""
        texts = [f"{name} {value}" for name, value in self.numbers.items()]
        return zlib.crc32("".join([*texts, *self.memories.values()]).encode()) & 0xFFFFFF

    def files(self, *, spram: bool = False) -> dict[str, str]:
        """Return network.vh and the memories; with `spram`, the weights are loaded from flash memory."""
        lines = [f"`define MPBN_{name} {value}\n" for name, value in self.numbers.items()]
        lines.append(f"`define MPBN_IDENTITY 24'h{self.identity:06x}\n")
        lines += ["`define MPBN_SPRAM\n"] if spram else []
        return {"network.vh": "".join(lines), **self.memories}

    def schedule(self, steps: int) -> Iterator[tuple[int, range]]:
        """Yield the layers in the order of the core, each with the time steps that it then runs."""
        number = 0
        while number < len(self.layers):
            last = number
            if not self.layers[number]["loop"]:
                yield number, range(steps)
            else:
                last = next(n for n in range(number, len(self.layers)) if self.layers[n]["loop_ends"])
                for step in range(steps):
                    for inside in range(number, last + 1):
                        yield inside, range(step, step + 1)
            number = last + 1

    def weight_words(self) -> Iterable[int]:
        """Yield the rows of weights as words, the first lane in the lowest bits."""
        bits = self.numbers["WEIGHT_BITS"]
        for row in self.weights.tolist():
            yield pack([(weight, bits) for weight in reversed(row)])

    def _width(self, name: str) -> int:
        return {"1": 1, "KEEP": FRACTION_BITS}.get(name) or self.numbers[f"{name}_BITS"]

    def _words(self, fields: Sequence[Field], entries: Sequence[Numbers]) -> str:
        words = [pack([(entry[f.name], self._width(f.width)) for f in fields]) for entry in entries]
        return hex_lines(words, sum(self._width(f.width) for f in fields))


def pack(values: Iterable[tuple[int, int]]) -> int:
    """Concatenate (value, bits), the first in the most significant bits, in two's complement."""
    word = 0
    for value, bits in values:
        word = word << bits | (int(value) & (1 << bits) - 1)
    return word


def hex_lines(words: Iterable[int], width: int) -> str:
    """Return the text that $readmemh reads."""
    digits = -(-width // 4)
    return "".join(f"{word:0{digits}x}\n" for word in words)
