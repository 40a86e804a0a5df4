"""Program -> the text of network.c and network.h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent

import numpy as np

from ...ir import DECAY_ONE, Conv2d, Membrane, Modulator, neuron_kind, sends
from . import memory as kernels
from .memory import Kernel, Memory, kernel, place
from .plan import Arrival, Layer, Parameter, Program, Table

PER_LINE = 24  # numbers of a table


def block(head: str, *body: str) -> str:
    """head { body }"""
    return f"{head} {{\n{indent(''.join(body), '    ')}}}\n"


def comment(text: str) -> str:
    """Return a comment; names of others cannot end it."""
    plain = text.encode("ascii", "backslashreplace").decode().replace("\\", "?").replace("??", "?")
    return f"/* {plain.replace('*/', '* /').replace('/*', '/ *')} */\n"


def table_text(table: Table) -> str:
    """static const int8_t name[12] = {...};"""
    flat = [str(int(value)) for value in table.values.ravel()]
    if table.values.dtype == np.int32:  # 2147483648 is no int
        flat = ["(-2147483647 - 1)" if value == "-2147483648" else value for value in flat]
    lines = [", ".join(flat[k : k + PER_LINE]) for k in range(0, len(flat), PER_LINE)]
    body = ",\n    ".join(lines)
    return f"static const {table.c_type} {table.name}[{len(flat)}] = {{\n    {body}}};\n"


class Writer:
    """Writes the functions of a program, and collects the kernels that they call."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kernels: dict[str, str] = {}
        self.fixed: set[str] = set()
        wide = any(layer.arithmetic == "int64_t" for layer in program.layers)
        self.names = {
            "index": program.index_type,
            "wide": "int64_t" if wide else "int32_t",
            "chosen": kernels.CHOSEN,
        }

    # ---- what is called -----------------------------------------------------------------------

    def call(self, name: str) -> str:
        """Return the name of a fixed function, which is then written."""
        for needed in (*kernels.NEEDS.get(name, ()), name):
            self.fixed.add(needed)
        return name

    def called(self, found: Kernel) -> str:
        for each in (*found.before, found):
            self.kernels[each.name] = each.text
        return found.name

    def functions(self) -> str:
        """Return the text of all functions that were called."""
        fixed = [text.substitute(self.names) for name, text in kernels.TEXTS.items() if name in self.fixed]
        return "\n".join([*fixed, *self.kernels.values()])

    # ---- a population -------------------------------------------------------------------------

    def layer(self, layer: Layer) -> str:
        """The function that runs a population over the time steps from `first` to `end - 1`."""
        p, kind = layer.population, neuron_kind(layer.population.neuron)
        shape = " x ".join(map(str, p.shape))
        head = f"static {'int' if layer.checked else 'void'} layer_{layer.number}({self.parameters(layer)})"
        steps = block(
            "for (int t = first; t < end; ++t)"
            if layer.steps == 1
            else f"for (int start = first; start < end; start += {layer.steps})",
            "" if layer.steps == 1 else self.stop(layer),
            self.arriving(layer),
            self.updates(layer),
        )
        return comment(f"{p.name}: {shape}, {kind}") + block(
            head, block(*self.tile(layer), self.cleared(layer), steps), "return 0;\n" if layer.checked else ""
        )

    def parameters(self, layer: Layer) -> str:
        reads = any(arrival.source.kind == "input" for arrival in layer.arrivals)
        given = ["const net_input_t *input, size_t stride"] * reads + ["int first, int end"]
        return ", ".join([*given, *(["net_score_t *scores"] * self.is_output(layer))])

    def is_output(self, layer: Layer) -> bool:
        return layer.number == len(self.program.layers)

    def stop(self, layer: Layer) -> str:
        return f"const int stop = end - start < {layer.steps} ? end : start + {layer.steps};\n"

    def tile(self, layer: Layer) -> tuple[str, str]:
        """Return the loop over tiles, and how many pixels a tile has."""
        if layer.tile == 1:
            return f"for (int pixel = 0; pixel < {layer.pixels}; ++pixel)", ""
        whole = layer.pixels % layer.tile == 0
        rest = f"{layer.pixels} - begin < {layer.tile} ? {layer.pixels} - begin : {layer.tile}"
        count = f"const int pixels = {layer.tile if whole else rest};\n"
        return f"for (int begin = 0; begin < {layer.pixels}; begin += {layer.tile})", count

    def cleared(self, layer: Layer) -> str:
        first, count = ("pixel", "") if layer.tile == 1 else ("begin", "pixels * ")
        names = [n for n, there in (("VOLTAGE", layer.has_voltage), ("CURRENT", layer.has_current)) if there]
        lines = [
            f"for (int i = 0; i < {count}{layer.channels}; ++i) {name}_{layer.number}(0, {first})[i] = 0;\n"
            for name in names
        ]
        return block("if (first == 0)", *lines) if lines else ""

    def each_pixel(self, layer: Layer, *body: str) -> str:
        """Loop over the pixels of a tile."""
        if layer.tile == 1:
            return "".join(body)
        return block("for (int k = 0; k < pixels; ++k)", "const int pixel = begin + k;\n", *body)

    def each_step(self, layer: Layer, *body: str) -> str:
        return "".join(body) if layer.steps == 1 else block("for (int t = start; t < stop; ++t)", *body)

    def sums(self, layer: Layer, name: str = "SUMS") -> str:
        """Return where the sums of a pixel in a time step are."""
        pixel = "0" if layer.tile == 1 else "k"
        step = "" if layer.steps == 1 else f" * {layer.steps} + t - start"
        return f"{name}_{layer.number}({pixel}{step}, 0)"

    # ---- what arrives -------------------------------------------------------------------------

    def arriving(self, layer: Layer) -> str:
        """Compute the sums of a tile; if only the input is read, once for all steps unless it changes."""
        count = layer.tile * layer.steps * layer.channels
        wraps = any(arrival.wraps for arrival in layer.arrivals)
        names = ["SUMS", *(["TOTALS"] * (layer.total_type is not None)), *(["EXACT"] * wraps)]
        cleared = [
            f"for (int i = 0; i < {count}; ++i) {name}_{layer.number}(0, 0)[i] = 0;\n" for name in names
        ]
        body = []
        for arrival in layer.arrivals:
            body.append(self.arrival(layer, arrival))
            if layer.total_type is not None:
                body.append(self.moved(layer, arrival))
        text = "".join([*cleared, *body])
        if layer.reads_only_input and layer.arrivals:
            return block("if (t == first || stride != 0u)", text)
        return text

    def moved(self, layer: Layer, arrival: Arrival) -> str:
        """Add the sums of one arrival to the total, and clear them."""
        n, count = layer.number, layer.tile * layer.steps * layer.channels
        kept = f"{self.call('wrapped')}(sums[i], 24)" if arrival.wraps else "sums[i]"
        exact = "exact[i] += sums[i];\n" if any(a.wraps for a in layer.arrivals) else ""
        return block(
            "",
            f"{layer.sum_type} *restrict sums = SUMS_{n}(0, 0);\n",
            f"{layer.total_type} *restrict totals = TOTALS_{n}(0, 0);\n",
            f"int64_t *restrict exact = EXACT_{n}(0, 0);\n" if exact else "",
            block(
                f"for (int i = 0; i < {count}; ++i)",
                f"totals[i] = totals[i] + {kept};\n",
                exact,
                "sums[i] = 0;\n",
            ),
        ).lstrip()

    def arrival(self, layer: Layer, arrival: Arrival) -> str:
        """Loop over taps (of a matrix: source pixels), target pixels and steps, and add rows of weights."""
        source, synapse, late = arrival.source, arrival.connection.synapse, arrival.connection.delay
        low, high = arrival.taps
        channel = "" if layer.block == layer.channels else " + from"
        offset = " + from / 2" if channel and arrival.paired else channel
        unit = arrival.weights.values[0].size * arrival.span
        at = "" if high == 1 else f" + (size_t)tap * {unit}u"
        weights = f"const {arrival.weights.c_type} *weights = {arrival.weights.name}{at}{offset};\n"
        add = self.each_step(
            layer,
            f"if (t < {late}) continue;\n" if late and layer.steps > 1 else "",
            self.added(layer, arrival, channel),
        )
        if late and layer.steps == 1:
            add = block(f"if (t >= {late})", add)
        if isinstance(synapse, Conv2d):
            inner = self.each_pixel(layer, self.window(layer, arrival, synapse, add))
        else:
            inner = self.each_pixel(layer, self.whole_row(arrival), add)
        text = block(f"for (int tap = {low}; tap < {high}; ++tap)", weights, inner)
        if high == 1:
            needed = isinstance(synapse, Conv2d) or self.lists(arrival)
            text = block("", "const int tap = 0;\n" * needed, weights, inner).lstrip()
        if channel:
            text = block(f"for (int from = 0; from < {layer.channels}; from += {layer.block})", text)
        return comment(f"from {source.population.name}") + text

    def whole_row(self, arrival: Arrival) -> str:
        """The source pixel of a matrix; in a fast program, its row of source pixels."""
        if not self.lists(arrival):
            return f"const int place = {'tap' if arrival.taps[1] > 1 else '0'};\n"
        width = arrival.span
        return f"const int place = tap * {width}, next = place + {width}, column = 0;\n"

    def lists(self, arrival: Arrival) -> bool:
        """Whether spikes arrive as lists that are stored."""
        return self.program.fast and arrival.source.kind == "spikes" and not arrival.depthwise

    def window(self, layer: Layer, arrival: Arrival, synapse: Conv2d, add: str) -> str:
        """Find the source pixel of a tap, if there is one; with lists, those of a row of the kernel."""
        width, (height, across) = synapse.weight.shape[3], arrival.source.size
        (down, right), (top, left), (skip, hop) = synapse.stride, synapse.padding, synapse.dilation
        tap, shift = f"tap / {width} * {skip}", f" + tap % {width} * {hop}"
        if arrival.span > 1:
            tap, shift = f"tap * {skip}", ""
        end = f"column + {arrival.span} < {across} ? column + {arrival.span} : {across}"
        bounds = "const int low = column < 0 ? 0 : column;\n" + f"const int high = {end};\n"
        inside = "low < high" if arrival.span > 1 else f"column >= 0 && column < {across}"
        listed = self.lists(arrival)
        place = f"const int place = row * {across} + {'low' if arrival.span > 1 else 'column'};\n"
        after = f"row * {across} + high" if arrival.span > 1 else "place + 1"
        conditions = [f"row >= 0 && row < {height}", inside, *self.loud(layer, synapse)]
        return (
            f"const int row = pixel / {layer.width} * {down} - {top} + {tap};\n"
            f"const int column = pixel % {layer.width} * {right} - {left}{shift};\n"
            f"{bounds if arrival.span > 1 else ''}"
        ) + block(
            f"if ({' && '.join(conditions)})", place, f"const int next = {after};\n" if listed else "", add
        )

    def loud(self, layer: Layer, synapse: Conv2d) -> Iterator[str]:
        """Yield the conditions that a target pixel lies inside of the silent border."""
        height, width = layer.population.shape[1:]
        (above, below), (before, after) = synapse.silent
        for sign, limit, needed in (
            (f"pixel / {layer.width} >=", above, above),
            (f"pixel / {layer.width} <", height - below, below),
            (f"pixel % {layer.width} >=", before, before),
            (f"pixel % {layer.width} <", width - after, after),
        ):
            if needed:
                yield f"{sign} {limit}"

    def added(self, layer: Layer, arrival: Arrival, channel: str) -> str:
        """Add what one source pixel sends in one time step."""
        source, late = arrival.source, arrival.connection.delay
        row = arrival.weights.values.shape[-1]
        stride = int(np.prod(arrival.weights.values.shape[2:]))
        matrix = not isinstance(arrival.connection.synapse, Conv2d)
        weights = f"weights + (size_t)pixel * {row}u" if matrix and layer.pixels > 1 else "weights"
        per_group = layer.channels // arrival.groups
        targets = layer.block if channel else per_group
        sums = self.sums(layer) + channel
        factor, packed = arrival.factor, "_packed" if arrival.packed else ""
        when, n, lists = f"t - {late}" if late else "t", source.number, self.program.fast

        def name(stem: str, value: str = "") -> str:
            types = {"index": self.program.index_type, "total": layer.sum_type, "value": value}
            return self.called(kernel(stem, **types, weight=arrival.weights.c_type, factor=factor))

        rows = f"{sums}, {weights}, {stride}u, {targets}"
        if source.kind != "spikes":
            values, apart = f"MESSAGES_{n}({when}, place)", 1
            if source.kind == "input":
                values, apart = f"input + (size_t)({when}) * stride + place", source.pixels
            groups = f"{arrival.groups}, {source.channels // arrival.groups}"
            return f"{name(f'add{packed}_values', source.c_type)}({rows}, {values}, {apart}u, {groups});\n"
        if arrival.depthwise:
            stem, fired = ("add_fired", "FIRED") if lists else ("add_bits", "SPIKES")
            return f"{name(stem)}({sums}, {weights}, {fired}_{n}({when}, place), {layer.channels});\n"
        base = "0"
        if lists:  # numbers in a list count from the first pixel of its row
            starts = f"START_{n}({when}, 0)"
            listed, count = f"LIST_{n}({when}, 0) + begins[place]", "begins[next] - begins[place]"
            prepared, base = f"const int32_t *begins = {starts};\n", f"column * {source.channels}"
            weights = f"{weights} - column * (ptrdiff_t){source.channels * stride}"
            rows = f"{sums}, {weights}, {stride}u, {targets}"
        else:
            listed, count, width = self.list_scratch(layer), "count", -(-source.channels // 8)
            call = f"{self.call('listed_bits')}(SPIKES_{n}({when}, place), {width}, {listed})"
            prepared = f"const int count = {call};\n"
        if arrival.paired:
            pairs = self.called(kernels.pair_kernel(layer.block, self.program.index_type))
            return f"{prepared}{pairs}({sums}, {weights}, {stride}u, {listed}, {count});\n"
        if arrival.groups > 1:
            per_source = source.channels // arrival.groups
            call = f"{name(f'add_grouped{packed}')}({rows}, {listed}, {count}, {per_source}, {base})"
            return f"{prepared}{call};\n"
        return f"{prepared}{name(f'add{packed}')}({rows}, {listed}, {count});\n"

    def list_scratch(self, layer: Layer) -> str:
        shared = self.program.index_type == "uint8_t"
        return f"{'SCRATCH' if shared else 'LISTED'}_{layer.number}(0, 0)"

    # ---- neurons ------------------------------------------------------------------------------

    def updates(self, layer: Layer) -> str:
        return self.each_pixel(layer, self.each_step(layer, block("", *self.update(layer)).lstrip()))

    def update(self, layer: Layer) -> Iterator[str]:
        """Update the neurons of one pixel in one time step, and send what they send."""
        n, pixel = layer.number, "0" if layer.tile == 1 else "k"
        total = "TOTALS" if layer.total_type else "SUMS"
        yield f"const {layer.total_type or layer.sum_type} *restrict sums = {self.sums(layer, total)};\n"
        if any(arrival.wraps for arrival in layer.arrivals):
            yield f"const int64_t *restrict exact = {self.sums(layer, 'EXACT')};\n"
        for name, there in (("VOLTAGE", layer.has_voltage), ("CURRENT", layer.has_current)):
            if there:
                yield f"int32_t *restrict {name.lower()} = {name}_{n}({pixel}, pixel);\n"
        for name, parameter in layer.parameters.items():
            if isinstance(parameter.value, Table) and self.is_used(layer, name):
                yield f"const {parameter.value.c_type} *restrict {name} = {self.row(layer, parameter)};\n"
        fired, messages = self.sent_to(layer)
        if layer.sends_spikes:
            yield f"uint8_t *restrict fired = {fired};\n"
        if messages:
            yield messages
        if layer.checked:
            yield "int bad = 0;\n"
        rule = layer.rule
        if isinstance(rule, Modulator):
            body = self.modulated(layer, rule)
        else:
            body = self.narrowed(layer, rule) if layer.narrows else self.charged(layer, rule)
        yield block(f"for (int o = 0; o < {layer.channels}; ++o)", *body)
        if layer.checked:
            yield f"if (bad != 0) return {n};\n"
        yield from self.stored(layer)

    def is_used(self, layer: Layer, name: str) -> bool:
        return name != "kept_current" or layer.has_current

    def row(self, layer: Layer, parameter: Parameter) -> str:
        """Return where the numbers of a pixel begin."""
        assert isinstance(parameter.value, Table)
        if parameter.classes is not None:
            of_class = f"{parameter.classes.name}[{parameter.pixel}]"
            return f"{parameter.value.name} + (size_t){of_class} * {layer.channels}u"
        if parameter.per_pixel:
            return f"{parameter.value.name} + (size_t){parameter.pixel} * {layer.channels}u"
        return parameter.value.name

    def sent_to(self, layer: Layer) -> tuple[str, str]:
        """Return where spikes are written, and the declaration of where messages are."""
        n, readers = layer.number, self.program.readers(layer.population.name)
        spikes = self.program.fast and any(arrival.depthwise for _, arrival in readers)
        fired = f"FIRED_{n}(t, pixel)" if spikes else f"SCRATCH_{n}(0, 0)"
        if not sends(layer.population.neuron) or layer.sends_spikes:
            return fired, ""
        kind = self.program.senders[layer.population.name].c_type
        if readers:
            return fired, f"{kind} *restrict messages = MESSAGES_{n}(t, pixel);\n"
        return fired, f"{kind} messages[{layer.channels}];\n"

    def value(self, layer: Layer, name: str, *, wide: bool = True) -> str:
        """Return a number of neuron o, in units of the state."""
        parameter = layer.parameters[name]
        if isinstance(parameter.value, int):
            return str(parameter.value) if parameter.value >= 0 else f"({parameter.value})"
        factor = f" * {parameter.factor}" if parameter.factor > 1 else ""
        return f"({layer.arithmetic}){name}[o]{factor}" if wide else f"{name}[o]{factor}"

    def decayed(self, layer: Layer, name: str, state: str) -> str:
        """trunc(state * kept / 4096); C divides toward zero"""
        parameter = layer.parameters[name]
        if parameter.value == 0:
            return ""
        if parameter.value == DECAY_ONE:
            return f"{state} + "
        if layer.narrows:
            return f"(int64_t){state} * {self.value(layer, name)} / {DECAY_ONE} + "
        if isinstance(parameter.value, int):
            common = int(np.gcd(parameter.value, DECAY_ONE))
            kept, of = parameter.value // common, DECAY_ONE // common
            if kept < 256:  # 24 bits and 8 fit 32
                return f"{state}{f' * {kept}' if kept > 1 else ''} / {of} + "
        return f"{self.call('decayed')}({state}, {self.value(layer, name, wide=False)}) + "

    def arrived(self, layer: Layer) -> str:
        scale = f" * {layer.scale}" if layer.scale > 1 else ""
        return f"const {layer.arithmetic} arrived = ({layer.arithmetic})sums[o]{scale};\n"

    def charged(self, layer: Layer, rule: Membrane) -> Iterator[str]:
        """A neuron whose states fit, or are checked."""
        kind = layer.arithmetic
        if rule.graded:
            message = self.program.senders[layer.population.name].c_type
            yield f"messages[o] = ({message})sums[o]{f' * {layer.scale}' if layer.scale > 1 else ''};\n"
            return
        yield self.arrived(layer)
        arriving = "arrived"
        if layer.has_current:
            yield f"const {kind} charge = {self.decayed(layer, 'kept_current', 'current[o]')}arrived;\n"
            arriving = "charge"
        bias = self.value(layer, "bias")
        plus = "" if bias == "0" else f" + {bias}"
        left = self.decayed(layer, "kept_voltage", "voltage[o]")
        yield f"const {kind} potential = {left}{arriving}{plus};\n"
        if layer.checked:
            yield f"bad |= {self.call('beyond')}({arriving}) | beyond(potential);\n"
        if layer.has_current:
            yield f"current[o] = {cast(kind, 'charge')};\n"
        yield from self.fires(layer, kind)

    def fires(self, layer: Layer, kind: str) -> Iterator[str]:
        """Compare with the threshold, and reset."""
        if not layer.sends_spikes:
            yield f"voltage[o] = {cast(kind, 'potential')};\n"
            return
        yield f"const int spike = potential > {self.value(layer, 'threshold')};\n"
        yield "fired[o] = (uint8_t)spike;\n"
        if "subtrahend" not in layer.parameters:
            yield f"voltage[o] = spike ? 0 : {cast(kind, 'potential')};\n"
            return
        yield f"const {kind} left = spike ? potential - {self.value(layer, 'subtrahend')} : potential;\n"
        if layer.checked:
            yield "bad |= beyond(left);\n"
        yield f"voltage[o] = {cast(kind, 'left')};\n"

    def narrowed(self, layer: Layer, rule: Membrane) -> Iterator[str]:
        """A neuron of a network of others: states that leave their width continue as in Lava."""
        yield self.arrived(layer)
        kept = self.decayed(layer, "kept_current", "current[o]") if layer.has_current else ""
        yield f"const int64_t charge = {kept}arrived;\n"
        yield f"const int64_t held = {self.call('wrapped_current')}(charge);\n"
        kept = self.decayed(layer, "kept_voltage", "voltage[o]")
        yield f"const int64_t sum = {kept}charge + {self.value(layer, 'bias')};\n"
        yield f"const int64_t potential = {self.call('clipped')}(sum + held - charge);\n"
        if layer.has_current:
            yield "current[o] = (int32_t)held;\n"
        changed = "held != charge || potential != sum"
        if any(arrival.wraps for arrival in layer.arrivals):
            changed += " || exact[o] != sums[o]"
        after = "potential"
        if layer.sends_spikes:
            yield f"const int spike = potential > {self.value(layer, 'threshold')};\n"
            yield "fired[o] = (uint8_t)spike;\n"
            reset = f"potential - {self.value(layer, 'subtrahend')}" if rule.subtrahend is not None else "0"
            yield f"const int64_t left = spike ? {reset} : potential;\n"
            changed += " || clipped(left) != left"
            after = "clipped(left)"
        yield f"voltage[o] = (int32_t){after};\n"
        yield f"if ({changed}) NET_OVERFLOW({layer.number}, pixel, o);\n"

    def modulated(self, layer: Layer, rule: Modulator) -> Iterator[str]:
        """A sigma-delta neuron: `voltage` holds sigma, `current` what is encoded."""
        kind = layer.arithmetic
        yield self.arrived(layer)
        yield f"const {kind} sigma = {'voltage[o] + ' if rule.accumulates else ''}arrived;\n"
        if layer.checked:
            yield f"bad |= {self.call('beyond')}(arrived) | beyond(sigma);\n"
        yield f"voltage[o] = {cast(kind, 'sigma')};\n"
        if rule.threshold is None:
            return
        yield f"const {kind} sum = sigma + {self.value(layer, 'bias')};\n"
        yield f"const {kind} activation = {'sum < 0 ? 0 : sum' if rule.rectified else 'sum'};\n"
        yield f"const {kind} change = activation - current[o];\n"
        yield f"const int sent = (change < 0 ? -change : change) >= {self.value(layer, 'threshold')};\n"
        message = self.program.senders[layer.population.name].c_type
        yield f"messages[o] = sent ? ({message}){self.call('floored')}(change, {rule.shift}) : 0;\n"
        if layer.checked:
            yield "bad |= sent & beyond(activation);\n"
        yield f"current[o] = sent ? {cast(kind, 'activation')} : current[o];\n"

    def stored(self, layer: Layer) -> Iterator[str]:
        """Store what was sent for those who read it, add it to the output, and show it to a trace."""
        n, channels = layer.number, layer.channels
        readers = self.program.readers(layer.population.name)
        if layer.sends_spikes and readers:
            if not self.program.fast:
                yield f"{self.call('packed_bits')}(fired, {channels}, SPIKES_{n}(t, pixel));\n"
            elif not all(arrival.depthwise for _, arrival in readers):
                yield f"int32_t *begins = START_{n}(t, pixel);\nif (pixel == 0) *begins = 0;\n"
                first = f"pixel % {layer.width} * {channels}"
                call = f"{self.call('listed_fired')}(fired, {channels}, LIST_{n}(t, 0) + *begins, {first})"
                yield f"begins[1] = *begins + {call};\n"
        shown = [
            "voltage" if layer.has_voltage else "0",
            "fired" if layer.sends_spikes else "0",
            "messages" if sends(layer.population.neuron) and not layer.sends_spikes else "0",
        ]
        if self.is_output(layer):
            given = "fired" if layer.sends_spikes else shown[2] if shown[2] != "0" else "voltage"
            place = f"o * {layer.pixels} + pixel" if layer.pixels > 1 else "o"
            summed = given != "voltage"
            score = f"scores[{place}] = {f'(t == 0 ? 0 : scores[{place}]) + ' if summed else ''}{given}[o];\n"
            yield block(f"for (int o = 0; o < {channels}; ++o)", score)
        yield f"NET_TRACE({n}, t, pixel, {', '.join(shown)});\n"


def cast(kind: str, value: str) -> str:
    return value if kind == "int32_t" else f"(int32_t){value}"


# ---- the whole program ------------------------------------------------------------------------


def places_text(program: Program, memory: Memory) -> str:
    """Define where each array is: NAME_n(place) or NAME_n(step, pixel)."""
    lines = []
    for each in memory.placed:
        array = each.array
        number = int(array.name.rsplit("_", 1)[1])
        pixels = program.layers[number - 1].pixels
        base = f"memory.{array.c_type.removesuffix('_t')}_ + {each.start}"
        stem = array.name.rsplit("_", 1)[0]
        if stem in ("SPIKES", "FIRED", "LIST", "START", "MESSAGES"):
            step = f"((t) & {array.ring - 1})" if array.ring else "(t)"
            place = f"(size_t)({step} * {pixels + (stem == 'START')} + (pixel))"
        elif stem in ("VOLTAGE", "CURRENT") and array.places == pixels:
            place = "(size_t)(pixel)"
        else:
            place = "(size_t)(t)"
        lines.append(f"#define {array.name}(t, pixel) ({base} + {place} * {array.per}u)\n")
    return "".join(lines)


def struct_text(memory: Memory) -> str:
    fields = [f"{kind} {kind.removesuffix('_t')}_[{count}];\n" for kind, count in memory.sizes.items()]
    return block("static NET_THREAD struct", *fields).rstrip() + " memory;\n"


def schedule(program: Program, memory: Memory, *, stepped: bool) -> str:
    """Call the populations in order."""
    lines = []
    for together in memory.blocks:
        repeats = len(together) > 1 or any(
            a.source.number == together[0].number for a in together[0].arrivals
        )
        steps = ("t", "t + 1") if stepped or repeats else ("0", "NET_TIMESTEPS")
        calls = [_call(program, layer, steps) for layer in together]
        lines += (
            calls if stepped or not repeats else [block("for (int t = 0; t < NET_TIMESTEPS; ++t)", *calls)]
        )
    return "".join(lines)


def _call(program: Program, layer: Layer, steps: Sequence[str]) -> str:
    reads = any(arrival.source.kind == "input" for arrival in layer.arrivals)
    given = [*(["input", "stride"] * reads), *steps, *(["scores"] * (layer is program.layers[-1]))]
    call = f"layer_{layer.number}({', '.join(given)})"
    return f"if ({call} != 0) return -{layer.number};\n" if layer.checked else f"{call};\n"


def memories(program: Program) -> tuple[Memory, Memory]:
    """Return the memory of whole runs, and of single steps."""
    return place(program, stepped=False), place(program, stepped=True)
