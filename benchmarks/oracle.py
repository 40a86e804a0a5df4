"""An oracle for integer networks: Python's own integers, which have no width, and code of its own.

It reads the numbers of an IntNetwork and nothing else of the package: no NumPy arithmetic, no shared
convolution, no shared update. A spike is passed on synapse by synapse.
"""

from itertools import product

STATE_LIMIT = 2**23 - 1


def simulate(network, sample):
    """Return spikes and voltages of one sample [steps][neurons], each {population: [steps][neurons]}."""
    shapes = {population.name: population.shape for population in network.populations}
    first, *layers = network.populations
    sent = {first.name: sample, **{population.name: [] for population in layers}}
    voltages = {population.name: [] for population in layers}
    fan_out = [synapses(c.synapse, shapes[c.source], shapes[c.target]) for c in network.connections]
    cells = {population.name: Cells(population) for population in layers}
    for step in range(network.timesteps):
        for population in layers:
            arriving = [0] * volume(population.shape)
            for connection, targets in zip(network.connections, fan_out, strict=True):
                if connection.target == population.name and step >= connection.delay:
                    deliver(sent[connection.source][step - connection.delay], targets, arriving)
            spikes, left = cells[population.name].update(arriving)
            sent[population.name].append(spikes)
            voltages[population.name].append(left)
    del sent[first.name]
    return sent, voltages


def deliver(values, targets, arriving):
    for source, value in enumerate(values):
        if value:
            for target, weight in targets.get(source, ()):
                arriving[target] += value * weight


class Cells:
    """The neurons of a population, one after the other."""

    def __init__(self, population):
        neuron, self.count = population.neuron, volume(population.shape)
        self.keep_current = kept(neuron.decay_current, population.shape)
        self.keep_voltage = kept(neuron.decay_voltage, population.shape)
        self.bias = [value << neuron.bias_exponent for value in spread(neuron.bias, population.shape)]
        self.threshold = shifted(neuron, "threshold", population.shape)
        self.subtrahend = shifted(neuron, "subtrahend", population.shape)
        self.current, self.voltage = [0] * self.count, [0] * self.count

    def update(self, arriving):
        """Return spikes and voltages of one step."""
        spikes = []
        for cell in range(self.count):
            current = toward_zero(self.current[cell] * self.keep_current[cell]) + arriving[cell]
            voltage = toward_zero(self.voltage[cell] * self.keep_voltage[cell]) + current + self.bias[cell]
            if max(abs(current), abs(voltage)) > STATE_LIMIT:
                raise OverflowError(f"neuron {cell}: a current of {current}, a voltage of {voltage}")
            fired = self.threshold is not None and voltage > self.threshold[cell]
            if fired:
                voltage = 0 if self.subtrahend is None else voltage - self.subtrahend[cell]
            spikes.append(int(fired))
            self.current[cell], self.voltage[cell] = current, voltage
        return spikes, list(self.voltage)


def toward_zero(product_of_4096ths):
    quotient = abs(product_of_4096ths) // 4096
    return quotient if product_of_4096ths >= 0 else -quotient


def kept(decay, shape):
    """Return what is left of 4096 in each neuron, of one decay for all or one per neuron or channel."""
    decays = [decay] * volume(shape) if isinstance(decay, int) else spread(decay, shape)
    return [4096 - each for each in decays]


def shifted(neuron, name, shape):
    values = getattr(neuron, name, None)
    return None if values is None else [value * 64 for value in spread(values, shape)]


def spread(values, shape):
    """Return one number per neuron, of numbers per neuron or per channel."""
    numbers = flattened(values.tolist())
    each = volume(shape) // len(numbers)
    return [number for number in numbers for _ in range(each)]


def flattened(nested):
    return [n for each in nested for n in flattened(each)] if isinstance(nested, list) else [nested]


def volume(shape):
    size = 1
    for length in shape:
        size *= length
    return size


def synapses(synapse, source, target):
    """Return {source neuron: [(target neuron, weight in units of the state)]}."""
    listed = matrix_synapses if len(synapse.weight.shape) == 2 else kernel_synapses
    found = {}
    for origin, goal, weight in listed(synapse, source, target):
        if weight:
            found.setdefault(origin, []).append((goal, weight << synapse.exponent + 6))
    return found


def matrix_synapses(synapse, source, target):
    for goal, row in enumerate(synapse.weight.tolist()):
        for origin, weight in enumerate(row):
            yield origin, goal, weight


def kernel_synapses(synapse, source, target):
    """Yield (source neuron, target neuron, weight), walking over the taps of every target neuron."""
    kernels, (_, rows, columns), (channels, height, width) = synapse.weight.tolist(), source, target
    inputs, per_group = len(kernels[0]), channels // synapse.groups
    (top, bottom), (left, right) = synapse.silent
    for channel, y, x in product(range(channels), range(top, height - bottom), range(left, width - right)):
        goal = (channel * height + y) * width + x
        for number, kernel in enumerate(kernels[channel]):
            plane = channel // per_group * inputs + number
            for a, line in enumerate(kernel):
                row = y * synapse.stride[0] - synapse.padding[0] + a * synapse.dilation[0]
                for b, weight in enumerate(line):
                    column = x * synapse.stride[1] - synapse.padding[1] + b * synapse.dilation[1]
                    if 0 <= row < rows and 0 <= column < columns:
                        yield (plane * rows + row) * columns + column, goal, weight
