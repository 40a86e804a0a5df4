"""Profiles: ours are sound, and every fault in somebody's profile is named."""

import pytest

from mpbn_deploy.errors import OptionError, ProfileError
from mpbn_deploy.hardware import BASES, KEYS, load_profile, profile_names

HEADINGS = 'schema = 1\nname = "mine"\ntitle = "My chip"\ndescription = "A chip."\n'
NEURONS = 'neurons = { value = 8, source = "me", basis = "measured" }'


def read(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return load_profile(path)


def problem_of(tmp_path, text):
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, text)
    assert "mine.toml" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", profile_names())
def test_our_profiles_are_named_as_their_files_and_cite_public_sources(name):
    profile = load_profile(name)
    assert profile.name == name
    for limit in profile.limits.values():
        assert limit.basis in BASES and len(limit.source) > 5


def test_loihi_profiles_hold_what_quantization_needs():
    loihi1, loihi2 = load_profile("loihi1"), load_profile("loihi2")
    assert [loihi1.value(f"formats.threshold_{end}") for end in ("minimum", "maximum")] == [1, 131071]
    assert [loihi2.value(f"formats.threshold_{end}") for end in ("minimum", "maximum")] == [-131071, 131071]
    assert loihi1.value("core.thresholds") == 7
    for key in ("weight_bits", "bias_mantissa_bits", "bias_exponent_maximum", "decay_bits", "state_bits"):
        assert loihi1.value(f"formats.{key}") == loihi2.value(f"formats.{key}")


def test_every_key_is_explained_in_the_readme(request):
    readme = (request.config.rootpath / "hw_profiles" / "README.md").read_text(encoding="utf-8")
    names = {key.split(".")[1] for key in KEYS} - {"*"}
    assert {name for name in names if f"`{name}`" not in readme} == set()


def test_a_profile_of_ones_own(tmp_path):
    profile = read(tmp_path, f"{HEADINGS}[core]\n{NEURONS}\n[systems]\nboard = {NEURONS.split(' = ', 1)[1]}")
    assert profile.title == "My chip"
    limit = profile.limit("core.neurons")
    assert limit is not None
    assert (limit.value, limit.source, limit.basis) == (8, "me", "measured")
    assert profile.systems == {"board": 8}


def test_an_unknown_limit_is_none_and_its_value_an_error(tmp_path):
    profile = read(tmp_path, HEADINGS)
    assert profile.limit("core.neurons") is None
    with pytest.raises(ProfileError, match=r"mine: the profile lacks core\.neurons \(neurons of one core\)"):
        profile.value("core.neurons")


def test_a_key_outside_the_vocabulary_is_our_own_mistake():
    with pytest.raises(AssertionError, match=r"core\.neuron"):
        load_profile("loihi2").limit("core.neuron")


def test_an_unknown_name_suggests_a_known_one(tmp_path):
    with pytest.raises(OptionError, match=r"no hardware profile 'loihi3'\. Did you mean 'loihi2'"):
        load_profile("loihi3")
    with pytest.raises(OptionError, match="no hardware profile"):
        load_profile(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("neuron = 1", "core.neuron: unknown key. Did you mean 'core.neurons'?"),
        ("neurons = 8", "core.neurons: 8; write it as { value = "),
        (NEURONS.replace("8", "-8"), "core.neurons: value -8; at least 1"),
        (NEURONS.replace("8", "0"), "core.neurons: value 0; at least 1"),
        (
            NEURONS.replace("neurons", "index_bits").replace("8", "-1"),
            "core.index_bits: value -1; at least 0",
        ),
        (NEURONS.replace("8", "8.5"), "core.neurons: value 8.5; a whole number"),
        (NEURONS.replace("8", "true"), "core.neurons: value True; a whole number"),
        (NEURONS.replace('"me"', '" "'), "core.neurons: no source"),
        (NEURONS.replace("measured", "guessed"), "core.neurons: basis 'guessed'; allowed are published"),
        (NEURONS.replace(" }", ", note = 1 }"), "core.neurons: unknown note; an entry holds"),
    ],
)
def test_a_faulty_entry_is_named(tmp_path, entry, problem):
    assert problem in problem_of(tmp_path, f"{HEADINGS}[core]\n{entry}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADINGS.replace("= 1", "= 2"), "schema 2; this version reads schema = 1"),
        (HEADINGS.replace("schema = 1", ""), "schema None"),
        (HEADINGS.replace('name = "mine"', ""), "name: missing"),
        (
            HEADINGS.replace("description", "descripton"),
            "descripton: unknown key. Did you mean 'description'?",
        ),
        (HEADINGS + "[cores]\nneurons = 1", "cores.neurons: unknown key. Did you mean 'core.neurons'?"),
        ("schema = ", "cannot be read as TOML"),
    ],
)
def test_a_faulty_file_is_named(tmp_path, text, problem):
    assert problem in problem_of(tmp_path, text)


def test_a_negative_threshold_is_a_number_but_an_empty_range_is_not(tmp_path):
    entry = 'threshold_{} = {{ value = {}, source = "me", basis = "derived" }}\n'
    head = f"{HEADINGS}[formats]\n"
    profile = read(tmp_path, head + entry.format("minimum", -5) + entry.format("maximum", -4))
    assert profile.value("formats.threshold_minimum") == -5
    text = head + entry.format("minimum", 3) + entry.format("maximum", -4)
    assert "formats.threshold: the range 3..-4 is empty" in problem_of(tmp_path, text)


def test_all_problems_of_a_file_come_in_one_message(tmp_path):
    text = "schema = 3\n[core]\nneurons = 8\nhats = 1"
    problems = problem_of(tmp_path, text).splitlines()[1:]
    assert len(problems) == 6  # schema, three headings, an entry without source, an unknown key
