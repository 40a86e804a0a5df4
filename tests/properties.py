"""How often a law is tried on examples that hypothesis makes up."""

from hypothesis import settings

USUAL = 100  # examples of a profile in which `examples(n)` tries n


def examples(count, **options):
    """Return settings that try `count` examples, or as many times more or fewer as the profile asks for."""
    return settings(max_examples=max(1, count * settings.default.max_examples // USUAL), **options)
