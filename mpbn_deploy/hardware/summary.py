"""Summarize hardware profiles: each chip as a row of the table that `fit --targets` prints."""

from __future__ import annotations

from ..base import record
from .profile import Cost, HardwareProfile
from .sources import BUILT_IN


@record
class ProfileSummary:
    """A row of the table of chips; None marks unknown numbers."""

    target: str
    title: str
    placement: str
    cores: int | None
    neurons: tuple[int, int] | None  # of the smallest and the largest core
    weights: str | None  # bits
    thresholds: str | None
    messages: str | None
    synaptic_operation: Cost | None  # picojoules
    exportable: bool
    is_chip: bool
    origin: str = BUILT_IN  # where the profile comes from

    def cells(self) -> dict[str, str]:
        """Return heading -> text of each column, with "?" for unknown numbers."""
        least, most = self.neurons or (None, None)
        energy = self.synaptic_operation
        found = {
            "target": self.target,
            "chip": self.title,
            "cores": self.cores,
            "neurons per core": most if least == most else f"{least}..{most}",
            "weight bits": self.weights,
            "thresholds": self.thresholds,
            "messages": self.messages,
            "placement": self.placement if self.placement != "unknown" else None,
            "pJ per synaptic operation": energy and f"{energy.value:g}",
            "from": self.origin,
        }
        return {heading: "?" if text is None else str(text) for heading, text in found.items()}


def summarize_profile(profile: HardwareProfile, origin: str = BUILT_IN) -> ProfileSummary:
    """Return the summary of a profile from this origin."""
    cores = profile.limit("chip.cores")
    return ProfileSummary(
        target=profile.name,
        title=profile.title,
        placement=profile.placement,
        cores=None if cores is None else cores.value,
        neurons=_neurons(profile),
        weights=_weights(profile),
        thresholds=_thresholds(profile),
        messages=_messages(profile),
        synaptic_operation=profile.cost("energy.synaptic_operation"),
        exportable=profile.exportable,
        is_chip=profile.is_chip,
        origin=origin,
    )


def _neurons(profile: HardwareProfile) -> tuple[int, int] | None:
    """Return the neurons of the smallest and the largest core; one word of state holds one neuron."""
    if (same := profile.limit("core.neurons")) is not None:
        return same.value, same.value
    words = profile.allowed("core.neuron_words")
    return None if words is None else (min(words.values), max(words.values))


def _weights(profile: HardwareProfile) -> str | None:
    """Return the bits of a weight and, for crossbars with axon types, the weights per neuron."""
    bits, types = profile.limit("formats.weight_bits"), profile.limit("core.axon_types")
    width = profile.limit("core.axon_weight_bits")
    if types is not None and width is not None:
        return f"{width.value}, {types.value} per neuron"
    return None if bits is None else str(bits.value)


def _thresholds(profile: HardwareProfile) -> str | None:
    low, high = (profile.limit(f"formats.threshold_{end}") for end in ("minimum", "maximum"))
    counts = {place: profile.limit(f"{place}.thresholds") for place in ("core", "layer")}
    parts = [] if low is None or high is None else [f"{low.value}..{high.value}"]
    parts += [f"{count.value} per {place}" for place, count in counts.items() if count is not None]
    return ", ".join(parts) or None


def _messages(profile: HardwareProfile) -> str | None:
    """Return what a spike carries, or the input range if only that is known."""
    bits = profile.limit("formats.message_bits")
    low, high = (profile.limit(f"network.input_{end}") for end in ("minimum", "maximum"))
    if bits is not None:
        return "plain" if bits.value == 1 else f"graded, {bits.value} bits"
    return None if low is None or high is None else f"inputs {low.value}..{high.value}"
