"""Rules for neuron models: what a chip does not support, and what it computes differently."""

from __future__ import annotations

from ...ir import DECAY_ONE, Neuron
from .design import WHOLE_NETWORK, Design, Rule, Violations, list_some, needs, rule, says


def is_digital(design: Design) -> bool:
    return not design.profile.says("formats.digital", 0)


def keeps_states(design: Design) -> bool:
    """Return whether currents and voltages are integers that persist between time steps."""
    return is_digital(design) and not design.profile.says("formats.membrane", 0)


def decays(neuron: Neuron) -> dict[str, int]:
    """Return the decays by name."""
    return {"decay_current": neuron.decay_current, "decay_voltage": neuron.decay_voltage}


@needs(applies=says("formats.membrane", 0))
def membranes_are_supported(design: Design) -> Violations:
    """timesteps = 1 if the chip has no membrane, because no state persists"""
    kept = (
        [p.name for p, neuron in design.neurons() if min(decays(neuron).values()) < DECAY_ONE]
        if design.network.timesteps > 1
        else []
    )
    if kept:
        found = f"states of {list_some(kept)} persist over {design.network.timesteps} time steps"
        allowed = f"{design.profile.name} has no membrane ({design.limit('formats.membrane').source})"
        advice = "Train with --timesteps 1, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.leak", 0))
def leaks_are_supported(design: Design) -> Violations:
    """decay_voltage = 0 if the chip has no leak, unless there is only one time step"""
    leaking = [p.name for p, neuron in design.neurons() if neuron.decay_voltage]
    if leaking and design.network.timesteps > 1:
        found = f"voltages of {list_some(leaking)} leak"
        allowed = f"{design.profile.name} has no exponential leak ({design.limit('formats.leak').source})"
        advice = "Train with LIF(leak=1), which does not leak, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.current", 0))
def synaptic_currents_are_supported(design: Design) -> Violations:
    """decay_current = 4096 if the chip has no synaptic currents, unless there is only one time step"""
    lasting = [p.name for p, neuron in design.neurons() if neuron.decay_current < DECAY_ONE]
    if lasting and design.network.timesteps > 1:
        found = f"synaptic currents of {list_some(lasting)} persist between time steps"
        allowed = f"{design.profile.name} has no synaptic currents ({design.limit('formats.current').source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Use neurons without synaptic currents."


@needs(applies=says("formats.reset_to_zero", 0))
def reset_to_zero_is_supported(design: Design) -> Violations:
    """No population spikes if the chip cannot reset to zero, as all our spiking neurons do."""
    spiking = [population.name for population in design.spiking()]
    if spiking:
        found = f"spikes of {list_some(spiking)} reset the voltage to zero"
        allowed = f"{design.profile.name} cannot ({design.limit('formats.reset_to_zero').source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Choose another target, such as loihi2."


@needs(applies=says("formats.time_steps", 0), severity="warning")
def time_steps_are_supported(design: Design) -> Violations:
    """Warn if the chip is event-driven, without common time steps."""
    source = design.limit("formats.time_steps").source
    found = f"{design.network.timesteps} time steps; {design.profile.name} is event-driven ({source})"
    yield WHOLE_NETWORK, f"{found}. Events act on arrival, so spikes may differ."


@needs(applies=says("formats.digital", 0), severity="warning")
def states_are_integers(design: Design) -> Violations:
    """Warn if states are analog, and therefore inexact."""
    source = design.limit("formats.digital").source
    found = f"integer states; states of {design.profile.name} are analog ({source})"
    yield WHOLE_NETWORK, f"{found}. Spikes will differ; train with the chip in the loop."


@needs(
    "formats.decay_shift_maximum",
    related=("formats.decay_shift_maximum",),
    applies=keeps_states,
    severity="warning",
)
def decay_rounding_matches(design: Design) -> Violations:
    """Warn if the chip decays by shifts, which round unlike trunc(state * (4096 - decay) / 4096)."""
    source = design.limit("formats.decay_shift_maximum").source
    found = f"decays in units of 1/4096; {design.profile.name} decays by bit shifts ({source})"
    yield WHOLE_NETWORK, f"{found}. The last bits of states will differ."


NEURON_RULES: tuple[Rule, ...] = (
    rule(membranes_are_supported),
    rule(leaks_are_supported),
    rule(synaptic_currents_are_supported),
    rule(reset_to_zero_is_supported),
    rule(time_steps_are_supported),
    rule(states_are_integers),
    rule(decay_rounding_matches),
)
