"""Settings for property tests: the number of examples that hypothesis generates."""

from hypothesis import settings

USUAL = 100  # examples of the profile in which `examples(n)` tries n


def examples(count, **options):
    """Return settings that try `count` examples, scaled by the profile."""
    return settings(max_examples=max(1, count * settings.default.max_examples // USUAL), **options)
