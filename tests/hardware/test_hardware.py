"""Profiles: ours are sound, and every fault in somebody's profile is named."""

import os

import pytest

from mpbn_deploy.base import OptionError, ProfileError
from mpbn_deploy.hardware import (
    KEYS,
    load_profile,
    profile_files,
    profile_names,
    readable_profiles,
    summarize_profile,
)
from mpbn_deploy.hardware.keys import BASES, EXPORT_KEYS, PLACEMENTS
from mpbn_deploy.hardware.profile import broken_packages

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
    assert profile.placement in PLACEMENTS
    for entry in (*profile.limits.values(), *profile.lists.values(), *profile.costs.values()):
        assert entry.basis in BASES and len(entry.source) > 5


def test_all_chips_are_there():
    others = {"truenorth", "tianjic", "speck", "xylo-a3", "spinnaker2", "akida1000", "brainscales2"}
    others |= {"loihi2-2022", "hala-point", "dynapcnn", "xylo-a2", "xylo-imu", "akd1500", "akida2"}
    others |= {"odin", "reckon", "darwin3", "ice40-up5k", "ecp5-25k", "ecp5-85k"}
    others |= {"c", "rp2040", "rp2350", "stm32f446", "stm32h743", "nrf52840", "esp32-c3"}
    assert {"loihi1", "loihi2", "unbounded"} | others == set(profile_names())


def test_networks_are_quantized_for_chips_whose_formats_are_known():
    assert {name for name in profile_names() if load_profile(name).exportable} >= {
        "loihi1",
        "loihi2",
        "unbounded",
    }
    for key in EXPORT_KEYS:
        assert load_profile("unbounded").value(key) == load_profile("loihi2").value(key)


@pytest.mark.parametrize(("rate", "milliwatts"), [(11.58, 68), (20.07, 71), (95.93, 94)])
def test_truenorth_takes_the_power_that_its_paper_printed(rate, milliwatts):
    """Akopyan et al. 2015, Fig. 17: a million neurons with 128 synapses each, at three firing rates."""
    profile = load_profile("truenorth")
    static, event = profile.cost("power.static"), profile.cost("energy.synaptic_operation")
    events = 2**20 * rate * 128
    assert static.value + event.value * 1e-9 * events == pytest.approx(milliwatts, rel=0.01)


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
    assert profile.placement == "words"  # unless it says otherwise
    limit = profile.limit("core.neurons")
    assert limit is not None
    assert (limit.value, limit.source, limit.basis) == (8, "me", "measured")
    assert profile.systems == {"board": 8}


def test_an_unknown_limit_is_none_and_its_value_an_error(tmp_path):
    profile = read(tmp_path, HEADINGS)
    assert profile.limit("core.neurons") is None
    assert not profile.knows("core.neurons")
    assert not profile.says("formats.leak", 0) and not profile.says("formats.leak", 1)
    with pytest.raises(ProfileError, match=r"mine: the profile lacks core\.neurons \(neurons on one core\)"):
        profile.value("core.neurons")


def test_without_formats_one_is_told_how_to_put_a_network_to_a_chip_nevertheless(tmp_path):
    entry = '[formats]\nweight_bits = { value = 4, source = "me", basis = "measured" }'
    profile = read(tmp_path, f"{HEADINGS}{entry}")
    assert profile.value("formats.weight_bits") == 4
    with pytest.raises(ProfileError) as caught:
        profile.value("formats.decay_bits")
    assert str(caught.value) == (
        "mine: networks cannot be quantized for it, because its profile lacks formats.threshold_maximum, "
        "formats.bias_mantissa_bits, formats.decay_bits. Export for a target that has them (ecp5-25k, "
        "ecp5-85k, hala-point, ice40-up5k, loihi1, loihi2, loihi2-2022, unbounded), then check that export "
        "against this chip: "
        f"python -m mpbn_deploy.fit FOLDER --target {tmp_path / 'mine.toml'}."
    )


def test_a_key_outside_the_vocabulary_is_our_own_mistake():
    with pytest.raises(AssertionError, match=r"core\.neuron"):
        load_profile("loihi2").limit("core.neuron")


def test_an_unknown_name_suggests_a_known_one(tmp_path):
    with pytest.raises(OptionError, match=r"no hardware profile 'loihi3'\. Did you mean 'loihi2'"):
        load_profile("loihi3")
    with pytest.raises(OptionError, match="no hardware profile"):
        load_profile(tmp_path / "absent.toml")
    with pytest.raises(OptionError, match="Give each with a --target of its own"):
        load_profile("loihi1,loihi2")


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
        (NEURONS.replace("8", "8.5"), "core.neurons: value 8.5; an integer"),
        (NEURONS.replace("8", "true"), "core.neurons: value true; an integer"),
        (NEURONS.replace('"me"', '" "'), "core.neurons: no source"),
        (NEURONS.replace("measured", "guessed"), "core.neurons: basis 'guessed'; allowed are published"),
        (NEURONS.replace(" }", ", note = 1 }"), "core.neurons: unknown note; an entry holds"),
        (NEURONS.replace(" }", ", low = 1 }"), "core.neurons: unknown low; an entry holds"),
        (NEURONS.replace('source = "me", ', ""), "core.neurons: no source"),
        (NEURONS.replace(', basis = "measured"', ""), "core.neurons: basis None"),
        (NEURONS.replace("value = 8, ", ""), "core.neurons: value None; an integer"),
        (NEURONS.replace("8", "[8]"), "core.neurons: value [8]; an integer"),
        (
            NEURONS.replace("neurons", "zero_weights_stored"),
            "zero_weights_stored: value 8; 0 (no) or 1 (yes)",
        ),
        (NEURONS.replace("neurons", "kernel_words"), "core.kernel_words: value 8; a list of integers"),
        (
            NEURONS.replace("neurons", "kernel_words").replace("8", "[]"),
            "core.kernel_words: value []; a list of integers",
        ),
        (
            NEURONS.replace("neurons", "kernel_words").replace("8", "[8, -8]"),
            "core.kernel_words: value -8; at least 1",
        ),
        (
            NEURONS.replace("neurons", "kernel_words").replace("8", "[8, 0.5]"),
            "core.kernel_words: value 0.5; an integer",
        ),
    ],
)
def test_a_faulty_entry_is_named(tmp_path, entry, problem):
    assert problem in problem_of(tmp_path, f"{HEADINGS}[core]\n{entry}")


COST = 'hop = {{ value = {}, source = "me", basis = "fitted" }}'


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ("-1.5", "energy.hop: value -1.5, low -1.5, high -1.5; non-negative numbers"),
        ("inf", "energy.hop: value inf"),
        ("true", "energy.hop: value True"),
        ('"3"', "energy.hop: value '3'"),
        ("3, low = -1", "energy.hop: value 3, low -1, high 3; non-negative numbers"),
        ("3, low = 4", "energy.hop: value 3 is outside its range 4..3"),
        ("3, low = 2, high = 2.5", "energy.hop: value 3 is outside its range 2..2.5"),
    ],
)
def test_a_faulty_cost_is_named(tmp_path, numbers, problem):
    assert problem in problem_of(tmp_path, f"{HEADINGS}[energy]\n{COST.format(numbers)}")


def test_a_cost_without_a_range_is_its_own_range(tmp_path):
    def costs(numbers):
        cost = read(tmp_path, f"{HEADINGS}[energy]\n{COST.format(numbers)}").cost("energy.hop")
        return cost.low, cost.value, cost.high

    assert costs("3") == (3, 3, 3)
    assert costs("3.5, low = 2") == (2, 3.5, 3.5)
    assert costs("3, low = 2, high = 9") == (2, 3, 9)


LISTS = (("bias", "[1, 2]"), ("neuron", "[3]"))


def test_cores_that_differ_are_listed_one_by_one(tmp_path):
    def text(words):
        cores = NEURONS.replace("neurons", "cores").replace("8", "3")
        biases = NEURONS.replace("neurons", "bias_words").replace("8", words)
        return f"{HEADINGS}[chip]\n{cores}\n[core]\n{biases}"

    assert read(tmp_path, text("[1, 2, 3]")).allowed("core.bias_words").values == (1, 2, 3)
    assert "core.bias_words: 2 numbers for 3 cores; one per core" in problem_of(tmp_path, text("[1, 2]"))
    lists = [NEURONS.replace("neurons", f"{n}_words").replace("8", v) for n, v in LISTS]
    assert "core.neuron_words: 1 numbers for 2 cores" in problem_of(
        tmp_path, "\n".join([f"{HEADINGS}[core]", *lists])
    )


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_kind_of_placement_can_be_said(tmp_path, name):
    assert read(tmp_path, f'{HEADINGS}placement = "{name}"').placement == name


def test_a_misspelt_key_is_told_the_others_of_its_table(tmp_path):
    """The nearest eight, each whole: a list of all would be cut."""
    problem = problem_of(tmp_path, f"{HEADINGS}[layer]\nstride = 1")
    assert "layer.stride: unknown key. Did you mean 'layer.strides'? Known in [layer]: strides," in problem
    assert problem.endswith(" and 11 more (hw_profiles/README.md).")
    assert "leak" not in problem and " ... " not in problem


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("[core]\nfoo = 1", "core.foo: unknown key. Known in [core]: "),  # near to nothing
        ("[chip]\nneurons = 1", "chip.neurons: unknown key. Did you mean 'core.neurons'? Known in [chip]: "),
        ("[layer]\nthreshold = 1", "Did you mean 'layer.thresholds'?"),  # and not core.thresholds
        ("[core]\nthreshold = 1", "Did you mean 'core.thresholds'?"),
        ("chips = true", "without. Numbers belong in tables: [chip] cores = { value = NUMBER, source = "),
        ("neuron = 8", "without. Numbers belong in tables: [core] neurons = { value = NUMBER, source = "),
        ("[chip]\ncores = true", "chip.cores: true; write it as { value = NUMBER, source = "),
    ],
)
def test_an_entry_in_the_wrong_place_or_form(tmp_path, entry, problem):
    assert problem in problem_of(tmp_path, f"{HEADINGS}{entry}")


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
        (
            HEADINGS + 'placement = "crosbar"',
            "placement: 'crosbar'; allowed are words, crossbar, layers, whole, program, fabric, unknown",
        ),
        (HEADINGS + "placement = 3", "placement: 3; allowed are"),
        (HEADINGS + 'placements = "words"', "placements: unknown key. Did you mean 'placement'?"),
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
    text = text.replace("threshold_", "bias_exponent_").replace("-4", "2")
    assert "formats.bias_exponent: the range 3..2 is empty" in problem_of(tmp_path, text)


def test_all_problems_of_a_file_come_in_one_message(tmp_path):
    text = "schema = 3\n[core]\nneurons = 8\nhats = 1"
    problems = problem_of(tmp_path, text).splitlines()[1:]
    assert len(problems) == 6  # schema, three headings, an entry without source, an unknown key


def test_profiles_side_by_side(tmp_path):
    summaries = {s.target: s for s in map(summarize_profile, map(load_profile, profile_names()))}
    assert list(summaries) == profile_names()
    assert len({tuple(summary.cells()) for summary in summaries.values()}) == 1  # the same columns
    assert summaries["speck"].cells()["neurons per core"] == "16384..65536"
    assert summaries["speck"].cells()["thresholds"] == "0..32766, 1 per layer"
    assert summaries["truenorth"].cells()["pJ per synaptic operation"] == "2.3"
    assert summaries["truenorth"].cells()["weight bits"] == "9, 4 per neuron"
    assert summaries["loihi1"].cells()["messages"] == "plain"
    assert summaries["loihi2"].cells()["messages"] == "graded, 32 bits"
    assert summaries["xylo-a3"].cells()["messages"] == "inputs 0..15"
    unknown = summarize_profile(read(tmp_path, f'{HEADINGS}placement = "unknown"'))
    assert list(unknown.cells().values()) == ["mine", "My chip", *["?"] * 7, "built-in"]


# ---- profiles from elsewhere --------------------------------------------------------------------


def test_profiles_of_the_user_and_of_installed_packages_are_found_with_their_origin(tmp_path, monkeypatch):
    text = f"{HEADINGS}[core]\n{NEURONS}\n"
    package, folder = tmp_path / "site" / "toy_chips", tmp_path / "mine"
    package.mkdir(parents=True)
    folder.mkdir()
    (package / "installed.toml").write_text(text)
    (folder / "own.toml").write_text(text)
    metadata = tmp_path / "site" / "toy_chips-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-chips\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[mpbn_deploy.profiles]\nchips = toy_chips\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("MPBN_DEPLOY_PROFILES", str(folder))
    origins = {file.name: file.origin for file in profile_files()}
    assert (origins["installed"], origins["own"], origins["loihi2"]) == (
        "toy-chips",
        str(folder),
        "built-in",
    )
    assert load_profile("installed").typed == "installed" and load_profile("own").limits
    (folder / "loihi2.toml").write_text(text)
    with pytest.raises(OptionError, match="two profiles are named 'loihi2'"):
        load_profile("loihi2")


@pytest.mark.parametrize(
    ("value", "reason"),
    [("no_such_package", ""), ("raising.chips", " (ValueError: no\\ndevice)"), ("raising.chips:FOLDER", "")],
)
def test_a_broken_package_hides_no_profile(tmp_path, monkeypatch, value, reason):
    raising, metadata = tmp_path / "raising", tmp_path / "toy_chips-1.0.dist-info"
    raising.mkdir()
    (raising / "__init__.py").write_text("raise ValueError('no\\ndevice')")
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-chips\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[mpbn_deploy.profiles]\nchips = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_profile("loihi2").name == "loihi2"
    (line,) = broken_packages()
    assert line.startswith("toy-chips: its entry point 'chips'")
    assert f"'{value}', which is not an importable package{reason}" in line
    assert readable_profiles()[1] == [line]
    with pytest.raises(OptionError, match="toy-chips: its entry point"):
        load_profile("no-chip")


def test_a_broken_profile_of_the_user_hides_no_other_one(tmp_path, monkeypatch):
    """It is named with its reason, as a missing folder is; asked for, it is an error."""
    folder, nowhere = tmp_path / "mine", tmp_path / "nowhere"
    folder.mkdir()
    (folder / "broken.toml").write_text("a = [")
    (folder / "wrong.toml").write_text(f"{HEADINGS}[core]\nneurons = 8\nhats = 1")
    monkeypatch.setenv("MPBN_DEPLOY_PROFILES", f"{folder}{os.pathsep}{nowhere}")
    read, left_out = readable_profiles()
    assert {"loihi2", "speck"} <= {profile.name for _, profile in read}
    missing, broken, wrong = left_out
    assert missing == f"MPBN_DEPLOY_PROFILES names {nowhere}, which is not a folder."
    assert broken.startswith(f"{folder / 'broken.toml'}: cannot be read as TOML") and "\n" not in wrong
    with pytest.raises(ProfileError, match="cannot be read as TOML"):
        load_profile("broken")
    with pytest.raises(OptionError, match="nowhere, which is not a folder"):
        load_profile("no-chip")
    with pytest.raises(ProfileError, match=r"Export for a target that has them .*loihi2"):
        load_profile("truenorth").value("formats.weight_bits")


def test_a_profile_that_changes_the_chip_inherits_no_boards(tmp_path):
    head = HEADINGS + 'extends = "loihi2"\n'
    entry = '= { value = 12, source = "me", basis = "derived" }\n'
    assert read(tmp_path, f"{head}[core]\nneurons {entry}").systems == load_profile("loihi2").systems != {}
    assert read(tmp_path, f"{head}[chip]\ncores {entry}").systems == {}
    assert read(tmp_path, f'{head}without = ["chip.cores"]\n').systems == {}
    assert read(tmp_path, f"{head}[chip]\ncores {entry}[systems]\nboard {entry}").systems == {"board": 12}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('extends = "../loihi2"', r"extends = '\.\./loihi2'; the name of a profile is needed"),
        ("extends = 2", "extends = 2; the name of a profile is needed"),
        ('extends = "loihi2"\n[[core]]', "core: unknown key"),
        ('extends = "loihi2"\n[core]\nsource = "a page"', "core.source: unknown key"),
        (
            'extends = "lohi2"',
            r"extends = 'lohi2', an unknown profile, and .*lohi2\.toml does not exist\. "
            "Did you mean 'loihi2'",
        ),
        ('extends = "mine"', "extends = 'mine', which is this profile itself. Name another one"),
        ('extends = "second"', "extends 'second', which extends another one; extend that one instead"),
        (
            'extends = "loihi2"\nwithout = ["core.wings"]',
            "without = .*; a list of keys of loihi2.toml is needed",
        ),
    ],
)
def test_what_cannot_be_extended(tmp_path, content, message):
    (tmp_path / "second.toml").write_text('extends = "loihi2"\n')
    (tmp_path / "mine.toml").write_text(content + "\n")
    with pytest.raises(ProfileError, match=message):
        load_profile(tmp_path / "mine.toml")
