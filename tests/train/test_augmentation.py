"""What happens to a training sample follows from its own random numbers, pixel by pixel."""

import pytest
import torch

from mpbn_deploy.base import OptionError
from mpbn_deploy.train.loop import DRAWS, HOLE, KINDS, PADDING, ROLL, augment

NO_FLIP = 0.9


def images(count=6, size=(32, 32), frames=()):
    torch.manual_seed(0)
    return torch.randint(1, 256, (count, *frames, 3, *size), dtype=torch.uint8)


def draws(*rows):
    return torch.tensor(rows, dtype=torch.float32)


def test_crop_is_a_window_of_the_padded_image():
    image = images(1)
    center = (PADDING + 0.5) / (2 * PADDING + 1)
    assert torch.equal(augment("crop-flip", image, draws([center, center, NO_FLIP, 0, 0]), 32, 32), image)
    corner = augment("crop-flip", image, draws([0, 0, NO_FLIP, 0, 0]), 32, 32)
    assert torch.equal(corner[..., PADDING:, PADDING:], image[..., :-PADDING, :-PADDING])
    assert not corner[..., :PADDING, :].any() and not corner[..., :PADDING].any()


def test_a_larger_image_is_cropped_without_padding():
    image = images(1, (40, 36))
    last = augment("crop-flip", image, draws([0.9999, 0.9999, NO_FLIP, 0, 0]), 32, 32)
    assert torch.equal(last, image[..., 8:, 4:])


def test_half_of_the_samples_are_flipped():
    image = images(2)
    center = (PADDING + 0.5) / (2 * PADDING + 1)
    numbers = draws([center, center, 0.49, 0, 0], [center, center, 0.5, 0, 0])
    found = augment("crop-flip", image, numbers, 32, 32)
    assert torch.equal(found[0], image[0].flip(-1)) and torch.equal(found[1], image[1])


def test_flips_alone_keep_the_middle():
    image = images(2, (40, 36))
    found = augment("flip", image, draws([0, 0, 0.49, 0, 0], [0, 0, 0.5, 0, 0]), 32, 32)
    middle = image[..., 4:36, 2:34]
    assert torch.equal(found[0], middle[0].flip(-1)) and torch.equal(found[1], middle[1])


@pytest.mark.parametrize(("place", "side"), [(0.5, HOLE), (0.0, HOLE // 2)])
def test_cutout_is_a_square_hole_that_may_lie_partly_outside(place, side):
    image = images(1)
    center = (PADDING + 0.5) / (2 * PADDING + 1)
    found = augment("crop-flip-cutout", image, draws([center, center, NO_FLIP, place, place]), 32, 32)
    hole = found == 0
    assert hole.sum() == 3 * side * side
    assert torch.equal(found[~hole], image[~hole])


def test_frames_of_a_recording_roll_together():
    recording = images(1, frames=(4,))
    found = augment("roll-flip", recording, draws([0.0, 0.9999, NO_FLIP, 0, 0]), 32, 32)
    assert torch.equal(found, recording.roll((-ROLL, ROLL), (-2, -1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_does_not_depend_on_its_batch(kind):
    samples, numbers = images(6), torch.rand(6, DRAWS)
    together = augment(kind, samples, numbers, 32, 32)
    assert together.dtype == torch.uint8 and together.shape == samples.shape
    for one in range(6):
        alone = augment(kind, samples[one : one + 1], numbers[one : one + 1], 32, 32)
        assert torch.equal(alone[0], together[one])


def test_unknown_augmentations_are_refused():
    with pytest.raises(OptionError, match="Did you mean 'crop-flip'"):
        augment("crop-flop", images(), torch.rand(6, DRAWS), 32, 32)
