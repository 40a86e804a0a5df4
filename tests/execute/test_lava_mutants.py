"""Lava's own models decide: changing anything that they compute changes what they answer.

Every function of Lava's neurons and synapses that a run calls is changed in one place at a time: comparisons,
numbers, arithmetic, shifts, rounding, and the presence and order of statements. Each changed model takes part
in a run of Lava's simulator, and must differ from the reference in spikes or voltages. The few changes that
cannot be seen, because they do not change what is computed, are listed with the reason.
"""

import ast
import inspect
import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from difflib import ndiff
from types import SimpleNamespace

import numpy as np
import pytest
from networks import needs_lava

from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout
from mpbn_deploy.verify import verify

pytestmark = needs_lava
COMPARISONS = {
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.LtE: ast.Lt,
    ast.Lt: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv}
FUNCTIONS = {"left_shift": "right_shift", "right_shift": "left_shift", "sign": "abs"}
AT_ONCE = 16  # changed models in one run


# ---- changing a function in one place -----------------------------------------------------------


def changes(node):
    """Yield (what changes, the changed copies of a node or a list of statements)."""
    match node:
        case ast.Compare(ops=[operator]):
            yield replaced(node, ops=[COMPARISONS[type(operator)]()])
        case ast.Constant(value=bool(value)):
            yield replaced(node, value=not value)
        case ast.Constant(value=int(value)):
            yield replaced(node, value=value + 1)
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            yield replaced(node, op=ARITHMETIC[type(operator)]())
        case ast.UnaryOp(operand=operand) | ast.Call(func=ast.Attribute(attr="abs"), args=[operand]):
            yield operand
        case ast.Call(func=ast.Attribute(attr="int32" | "int64" | "clip"), args=[first, *_]):
            yield first
        case ast.IfExp(body=yes, orelse=no):
            yield replaced(node, body=no, orelse=yes)
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, yes, no]):
            yield replaced(node, args=[condition, no, yes])
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in FUNCTIONS:
            yield replaced(node, func=replaced(function, attr=FUNCTIONS[name]))


def replaced(node, **fields):
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def reordered(body):
    """Yield the statements without one of them, and with two neighbors swapped that depend on each other."""
    first = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
    for i in range(first, len(body)):
        yield [*body[:i], *body[i + 1 :]] or [ast.Pass()]
    for i in range(first, len(body) - 1):
        if depend(body[i], body[i + 1]):
            yield [*body[:i], body[i + 1], body[i], *body[i + 2 :]]


def depend(one, other):
    """Whether the order of two statements may matter: one assigns what the other mentions, or calls."""
    mentioned = [{ast.unparse(node) for node in ast.walk(each)} for each in (one, other)]
    return any(calls(each) for each in (one, other)) or bool(
        assigned(one) & mentioned[1] or assigned(other) & mentioned[0]
    )


def assigned(statement):
    return {
        ast.unparse(target)
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
        if target
    }


def calls(statement):
    """Whether a statement calls for its effects."""
    return any(isinstance(node, ast.Expr) for node in ast.walk(statement))


def changed_functions(function):
    """Yield every copy of a function that differs in one place."""
    for parent in ast.walk(function):
        for field, value in ast.iter_fields(parent):
            if field in ("body", "orelse") and isinstance(value, list) and value:
                found = list(reordered(value))
            elif isinstance(value, list):
                found = [
                    [*value[:i], other, *value[i + 1 :]]
                    for i, each in enumerate(value)
                    for other in changes(each)
                ]
            else:
                found = list(changes(value))
            for other in found:
                setattr(parent, field, other)
                yield ast.fix_missing_locations(deepcopy(function))
            setattr(parent, field, value)


def mutants(model, taped=None):
    """Yield (the changed lines, a copy of the model, or of `taped` derived from it, changed in one place)."""
    module = inspect.getmodule(model)
    tree = ast.parse(inspect.getsource(module))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for owner in model.__mro__:
        if inspect.getmodule(owner) is not module:
            continue
        body = classes[owner.__name__].body
        for place, function in enumerate(body):
            if not isinstance(function, ast.FunctionDef) or not called(model, owner, function.name):
                continue
            before = ast.unparse(function).splitlines()
            for changed in changed_functions(function):
                body[place] = changed
                namespace = dict(vars(module))
                exec(compile(tree, module.__file__, "exec"), namespace)
                after = ast.unparse(changed).splitlines()
                yield difference(before, after), rebuilt(namespace[model.__name__], taped)
            body[place] = function


def called(model, owner, name):
    """Whether a function is called: it is the constructor, or no class before its owner overrides it."""
    return name == "__init__" or getattr(model, name) is getattr(owner, name)


def difference(before, after):
    """Return the function and its changed lines."""
    lines = [line for line in ndiff(before, after) if line[0] in "+-"]
    return f"{before[0].split('(')[0].removeprefix('def ')}: {' '.join(' '.join(lines).split())}"


def rebuilt(base, taped):
    """Return the base, or the class `taped` with this base, as a model whose errors are wrong answers."""
    from lava.magma.core.model.py.model import PyLoihiProcessModel

    entry, exit_ = ("a_in", "s_out") if hasattr(base, "a_in") else ("s_in", "a_out")

    def construct(self, proc_params):
        PyLoihiProcessModel.__init__(self, proc_params)  # in case that the changed one does not
        with suppress(Exception):
            super(made, self).__init__(proc_params)

    def run_spk(self):
        """Receive once and send once in each step, whatever changed; send ones if nothing fits."""
        ports, received, sent = (getattr(self, entry), getattr(self, exit_)), getattr(self, entry).recv(), []
        setattr(self, entry, SimpleNamespace(recv=lambda: received))
        setattr(self, exit_, SimpleNamespace(send=sent.append, shape=ports[1].shape))
        try:
            super(made, self).run_spk()
        except Exception:
            sent = []
        setattr(self, entry, ports[0])
        setattr(self, exit_, ports[1])
        fits = len(sent) == 1 and np.shape(sent[0]) == ports[1].shape
        ports[1].send(sent[0] if fits else np.ones(ports[1].shape, np.int32))

    additions = () if taped is None else taped.__bases__[:-1]
    plain = type(base.__name__, (*additions, base), {} if taped is None else dict(vars(taped)))
    made = type(base.__name__, (plain,), {"__init__": construct, "run_spk": run_spk})
    return made


# ---- networks whose populations are the same neurons ------------------------------------------------


def one_population(seed=0, *, binary=False, kernels=False):
    """Neurons with currents, leaks, biases and thresholds of their own; some of them leave 24 bits.

    With `binary`, they receive spikes instead of inputs; with `kernels`, by a convolution of one pixel.
    """
    generator = np.random.default_rng(seed)
    neurons, ones = 40, (1, 1) if kernels else ()
    threshold, bias = generator.integers(-300, 3000, neurons), generator.integers(-40, 40, neurons)
    weight = generator.integers(-99, 100, (neurons, 6)) * np.where(np.arange(neurons) % 4, 1, 900)[:, None]
    # The last ones meet their thresholds and the ends of 24 bits exactly, on an input of 1 in the first step.
    end = 2**17  # in units of weights
    weight[-5:], bias[-5:] = 0, (0, 0, 0, 0, -(2**19))
    weight[-5:, 0], threshold[-5:] = (5, -5, end, -end, end), (5, -5, end, end, end)
    neuron = Lif(
        threshold=threshold.reshape(-1, *ones),
        bias=bias.reshape(-1, *ones),
        bias_exponent=3,
        decay_current=701,
        decay_voltage=903,
    )
    weight[0] = 2**21 + 12345  # sums beyond 24 bits
    weight *= 4 if binary else 1  # so that Dense gets an exponent of 1, beside others
    synapse = Conv2d(weight=weight[..., None, None]) if kernels else Dense(weight=weight)
    chain = [Population(name="input", shape=(6, *ones), neuron=Input(minimum=0, maximum=7))]
    connections = []
    if binary:
        half = Lif(threshold=np.full((6, *ones), 3), bias=np.zeros((6, *ones), int), decay_voltage=4096)
        chain.append(Population(name="spikes", shape=(6, *ones), neuron=half))
        same_place = np.eye(6, dtype=int)
        each = Conv2d(weight=same_place[..., None, None]) if kernels else Dense(weight=same_place)
        connections.append(Connection(source="input", target="spikes", synapse=each))
    chain += [
        Population(name="original", shape=(neurons, *ones), neuron=neuron),
        Population(name="output", shape=(2,), neuron=Readout(bias=np.zeros(2, int))),
    ]
    connections += [
        Connection(source=chain[-3].name, target="original", synapse=synapse),
        Connection(source="original", target="output", synapse=Dense(weight=np.eye(2, neurons, dtype=int))),
    ]
    return IntNetwork(
        populations=tuple(chain),
        connections=tuple(connections),
        timesteps=6,
        scales={p.name: np.ones(p.shape[0]) for p in chain[1:]},
        foreign=True,
    )


def with_copies(network, count):
    """Return the network with copies of its population "original", named by number."""
    *before, original, last = network.populations
    names = [str(number) for number in range(count)]
    (entering,) = network.entering("original")
    return replace(
        network,
        populations=(*before, original, *(replace(original, name=name) for name in names), last),
        connections=(*network.connections, *(replace(entering, target=name) for name in names)),
        scales={**network.scales, **dict.fromkeys(names, network.scales["original"])},
    )


def survivors(monkeypatch, network, changed, kind):
    """Run Lava's models and changed ones of a process; return the changes that nothing recorded shows."""
    from mpbn_deploy.execute.lava import graph

    shape = network.input.shape
    inputs = np.random.default_rng(1).integers(0, 8, (3, network.timesteps, *shape))
    inputs[0, 0, 0], inputs[0, 1, 0] = 1, 0
    expected = simulate(network, inputs)
    choose, alike = graph.ModelChoice.__getitem__, []
    for start in range(0, len(changed), AT_ONCE):
        part = dict(zip(map(str, range(AT_ONCE)), changed[start : start + AT_ONCE], strict=False))

        def chosen(self, process, part=part):
            name = process.name.split("->")[-1]
            return part[name][1] if name in part and isinstance(process, kind) else choose(self, process)

        monkeypatch.setattr(graph.ModelChoice, "__getitem__", chosen)
        got = lava_sim.run(with_copies(network, len(part)), inputs, stock=True)
        assert same(expected, got, "original")
        alike += [what for name, (what, _) in part.items() if same(expected, got, name)]
    monkeypatch.setattr(graph.ModelChoice, "__getitem__", choose)
    return alike


def same(expected, got, name):
    return np.array_equal(expected.spikes["original"], got.spikes[name]) and np.array_equal(
        expected.voltages["original"], got.voltages[name]
    )


NEURONS = {
    r"__init__: .*effective_(vth|bias) = ": "assigned again before it is used",
    r"__init__: [+-] (super|self.ds_offset = 1 -)": "the test calls Lava's constructor first, in any case",
    r"(__init__|scale_bias): - self.isbiasscaled": "Lava never reads it",
    r"scale_threshold: - self.isthrscaled": "the same threshold is computed again in every step",
    r"scale_bias: .*(exp > 0|>= 1|, np.left.*, np.left|, self.bias_exp\)\)$)": "no exponent is negative",
    r"run_spk: [+-] self.scale_bias\(\) [+-]": "nothing between uses the bias",
    r"run_spk: \+ self.subthr_dynamics": "the threshold is used after it",
    r"run_spk: \+ self.s_out.send": "the reset does not change the spikes",
    r"subthr_dynamics: .*= np.int32\(decayed_": "the value fits 32 bits",
    r"subthr_dynamics: \+ updated_volt": "the value fits 32 bits, before and after",
    r"subthr_dynamics: .*np.int32\(self.max_uv_val\) .* -?self.max_uv_val [+-] 1$": "a number fits 32 bits",
    r"subthr_dynamics: .*self.dv - self.dm_offset": "the offset is zero",
}
DENSE = {
    r"__init__: [+-] (super|self.weights_set = False -)": "the test calls Lava's constructor first",
    r"__init__: - self.weight_exp": "assigned again before it is used",
    r"run_spk: - self.weight_exp = [^+]*(\+ .*, 1\))?$": "the exponent is given, and the same in every step",
    r".*weights_set": "our weights fit, so that clipping and truncating them changes nothing",
    r"run_spk: [+-] self.weights = (clip|truncate)_weights": "our weights fit",
    r"run_spk: - num_weight_bits": "the number of bits is given",
    r"run_spk: [+-] self.a_out.send": "nothing between changes what is sent",
    r"run_spk: - if self.num_message_bits.item\(\) > 0:": "a product with spikes is a sum",
    r"run_spk: - self.a_buff .* >= 0 else": "a shift by zero, in either direction",
}
CONVOLUTION = {
    r"run_spk: - (if self.a_buf is None|self.a_buf = np.zeros_like)": "the buffer always exists",
    r"run_spk: [+-] self.a_out.send": "nothing between changes what is sent",
    r"run_spk: - if self.num_message_bits.item\(\) > 0:": "spikes are 0 and 1 already",
}


def check(alike, reasons):
    """Every change that was not noticed has a reason, and every reason is needed."""
    unknown = [what for what in alike if not any(re.match(known, what) for known in reasons)]
    assert not unknown, "\n".join(unknown)
    assert [known for known in reasons if not any(re.match(known, what) for what in alike)] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)  # hundreds of processes, which take minutes on a busy machine
@pytest.mark.parametrize(
    ("name", "reasons"), [("Dense", DENSE), ("Conv", CONVOLUTION)], ids=["Dense", "Conv"]
)
def test_every_change_of_lavas_synapses_is_noticed(monkeypatch, name, reasons):
    """By neurons that receive graded inputs, or by neurons that receive spikes."""
    from mpbn_deploy.execute.lava import graph

    kind = getattr(graph, f"Lava{name}")
    changed = list(mutants(graph.FIXED[kind]))
    graded, binary = (
        survivors(monkeypatch, one_population(binary=spikes, kernels=name == "Conv"), changed, kind)
        for spikes in (False, True)
    )
    check([what for what in graded if what in binary], reasons)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # hundreds of processes, which take minutes on a busy machine
def test_every_change_of_lavas_neurons_is_noticed(monkeypatch):
    from mpbn_deploy.execute.lava.processes import PyLifResetModelBitAcc, TapedLif, TapedLifModelFixed

    changed = list(mutants(PyLifResetModelBitAcc, TapedLifModelFixed))
    alike = survivors(monkeypatch, one_population(), changed, TapedLif)
    check(alike, NEURONS)
    assert len(changed) > 4 * len(alike)


def test_a_changed_comparison_of_lavas_turns_its_row_red(monkeypatch):
    """Voltages equal to their threshold must not fire."""
    from mpbn_deploy.execute.lava.processes import PyLifResetModelBitAcc

    network, inputs = one_population(), np.ones((1, 6, 6), int)
    for exact in (True, False):
        (row,) = (
            c for c in verify(network, inputs, budget=5.0).comparisons if c.execution == "Lava's own models"
        )
        assert row.exact is exact and row.spikes_compared > 0
        monkeypatch.setattr(
            PyLifResetModelBitAcc, "spiking_activation", lambda model: model.v >= model.effective_vth
        )
