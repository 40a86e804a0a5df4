"""Rules of the neuron: what it can do on the chip, and what it does there otherwise than here."""

from __future__ import annotations

from ...ir import DECAY_ONE, Lif, Readout
from .design import WHOLE_NETWORK, Design, Found, Rule, needs, rule, says, some


def is_digital(design: Design) -> bool:
    return not design.profile.says("formats.digital", 0)


def keeps_states(design: Design) -> bool:
    """Whether currents and voltages are integers that last from step to step."""
    return is_digital(design) and not design.profile.says("formats.membrane", 0)


def decays(neuron: Lif | Readout) -> dict[str, int]:
    """The decays by name."""
    return {"decay_current": neuron.decay_current, "decay_voltage": neuron.decay_voltage}


@needs(applies=says("formats.membrane", 0))
def voltages_may_be_kept(design: Design) -> Found:
    """Without a membrane nothing outlasts a time step, so there may be only one."""
    kept = (
        [p.name for p, neuron in design.neurons() if min(decays(neuron).values()) < DECAY_ONE]
        if design.network.timesteps > 1
        else []
    )
    if kept:
        found = f"{some(kept)} keep states over {design.network.timesteps} time steps"
        allowed = f"{design.profile.name} has no membrane ({design.known('formats.membrane').source})"
        advice = "Train with --timesteps 1, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.leak", 0))
def voltages_may_leak(design: Design) -> Found:
    """Without a leak, decay_voltage = 0; in a single time step there is nothing to leak."""
    leaking = [p.name for p, neuron in design.neurons() if neuron.decay_voltage]
    if leaking and design.network.timesteps > 1:
        found = f"voltages of {some(leaking)} lose a share of themselves in each step"
        allowed = f"{design.profile.name} has no such leak ({design.known('formats.leak').source})"
        advice = "Train with LIF(leak=1), which forgets nothing, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.current", 0))
def currents_may_last(design: Design) -> Found:
    """Without currents of their own, decay_current = 4096: what arrives acts at once."""
    lasting = [p.name for p, neuron in design.neurons() if neuron.decay_current < DECAY_ONE]
    if lasting and design.network.timesteps > 1:
        found = f"currents of {some(lasting)} outlast their time step"
        allowed = f"those of {design.profile.name} do not ({design.known('formats.current').source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Use neurons without a synaptic current."


@needs(applies=says("formats.reset_to_zero", 0))
def spikes_may_reset_to_zero(design: Design) -> Found:
    """Every spiking neuron here is reset to zero."""
    spiking = [population.name for population in design.firing()]
    if spiking:
        found = f"spikes of {some(spiking)} reset the voltage to zero"
        allowed = f"{design.profile.name} cannot ({design.known('formats.reset_to_zero').source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Choose another target, such as loihi2."


@needs(applies=says("formats.time_steps", 0), severity="warning")
def time_steps_exist(design: Design) -> Found:
    """Where events act when they arrive, there is no common step in which all of them do."""
    source = design.known("formats.time_steps").source
    found = f"{design.network.timesteps} time steps; {design.profile.name} has none ({source})"
    yield WHOLE_NETWORK, f"{found}. Its events act when they arrive, so spikes can differ from these."


@needs(applies=says("formats.digital", 0), severity="warning")
def states_are_integers(design: Design) -> Found:
    """An analogue state is never exact."""
    source = design.known("formats.digital").source
    found = f"integer states; those of {design.profile.name} are analogue ({source})"
    yield WHOLE_NETWORK, f"{found}. Spikes will differ from these; train with the chip in the loop."


@needs(
    "formats.decay_shift_maximum",
    kin=("formats.decay_shift_maximum",),
    applies=keeps_states,
    severity="warning",
)
def decays_round_alike(design: Design) -> Found:
    """trunc(state * (4096 - decay) / 4096) is no shift, even where the share is the same"""
    source = design.known("formats.decay_shift_maximum").source
    found = f"decays by 4096ths; {design.profile.name} shifts whole numbers ({source})"
    yield WHOLE_NETWORK, f"{found}. States will differ from these in their last bits."


NEURON_RULES: tuple[Rule, ...] = (
    rule(voltages_may_be_kept),
    rule(voltages_may_leak),
    rule(currents_may_last),
    rule(spikes_may_reset_to_zero),
    rule(time_steps_exist),
    rule(states_are_integers),
    rule(decays_round_alike),
)
