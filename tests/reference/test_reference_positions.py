"""Positions against the papers' formulas, written out again here, and their properties."""

import math

import pytest
import torch

from encdoctor.reference import Encoder, EncoderConfig, masks
from encdoctor.reference.positions import AlibiBias, Rotation, alibi_slopes, angles, sinusoidal

torch.set_num_threads(1)
CPU = torch.device("cpu")


def test_sinusoidal_formula() -> None:
    table = sinusoidal(50, 11, CPU)  # an odd width too
    for position in (0, 1, 17, 49):
        for dimension in range(11):
            angle = position / 10000 ** (2 * (dimension // 2) / 12)
            expected = math.cos(angle) if dimension % 2 else math.sin(angle)
            assert abs(table[position, dimension].item() - expected) < 1e-12


def test_rotary_formula() -> None:
    x = torch.randn(2, 7, 3, 8, dtype=torch.float64)
    turned = Rotation(angles(7, 8, CPU), x.dtype)(x)
    for position in range(7):
        for pair in range(4):
            angle = position / 10000 ** (2 * pair / 8)
            as_complex = torch.complex(x[:, position, :, 2 * pair], x[:, position, :, 2 * pair + 1])
            expected = as_complex * complex(math.cos(angle), math.sin(angle))
            assert (turned[:, position, :, 2 * pair] - expected.real).abs().max() < 1e-12
            assert (turned[:, position, :, 2 * pair + 1] - expected.imag).abs().max() < 1e-12


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    rotation = Rotation(angles(40, 16, CPU), q.dtype)
    queries, keys = rotation(q.expand(1, 40, 1, 16)), rotation(k.expand(1, 40, 1, 16))
    scores = torch.einsum("bqhd,bkhd->qk", queries, keys)
    for distance in (-7, 0, 1, 12):
        diagonal = scores.diagonal(distance)
        assert (diagonal - diagonal[0]).abs().max() < 1e-12
    assert (scores.diagonal(1)[0] - scores.diagonal(2)[0]).abs() > 1e-3


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_alibi_slopes_of_a_power_of_two(heads: int) -> None:
    expected = [2 ** (-8 / heads * (h + 1)) for h in range(heads)]
    assert (alibi_slopes(heads, CPU) - torch.tensor(expected, dtype=torch.float64)).abs().max() < 1e-15


@pytest.mark.parametrize(("heads", "power"), [(3, 2), (6, 4), (12, 8)])
def test_alibi_slopes_between_powers(heads: int, power: int) -> None:
    expected = torch.cat((alibi_slopes(power, CPU), alibi_slopes(2 * power, CPU)[0::2][: heads - power]))
    assert (alibi_slopes(heads, CPU) - expected).abs().max() < 1e-15


def test_alibi_formula_and_symmetry() -> None:
    bias = AlibiBias(4)(masks.distances(9, 9))[0]
    for head, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
        for i in range(9):
            for j in range(9):
                assert bias[head, i, j].item() == -slope * abs(i - j)
    assert torch.equal(bias, bias.transpose(1, 2))


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative", "none"])
def test_relative_positions_are_shift_invariant(position: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(d_model=16, num_heads=2, num_layers=2, d_ff=32, position=position)  # type: ignore[arg-type]
    encoder = Encoder(config).double().eval()
    ids = torch.randint(1000, (1, 6))
    shifted = torch.cat((torch.zeros(1, 5, dtype=torch.long), ids), dim=1)  # left padding
    mask = torch.arange(11)[None] >= 5
    assert (encoder(shifted, mask)[:, 5:] - encoder(ids)).abs().max() < 1e-12


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "relative"])
def test_positions_see_the_order(position: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(d_model=16, num_heads=2, num_layers=1, d_ff=32, position=position)  # type: ignore[arg-type]
    encoder = Encoder(config).double().eval()
    ids = torch.randint(1000, (1, 6))
    permuted = ids[:, [2, 0, 1, 5, 3, 4]]
    assert (encoder(ids).mean(1) - encoder(permuted).mean(1)).abs().max() > 1e-6
    mirrored = (encoder(ids).flip(1) - encoder(ids.flip(1))).abs().max()
    assert mirrored < 1e-12 if position == "alibi" else mirrored > 1e-6  # symmetric ALiBi has no direction


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "relative", "none"])
def test_no_length_is_too_long(position: str) -> None:
    config = EncoderConfig(
        d_model=8, num_heads=2, num_layers=1, d_ff=8, max_length=4, position=position  # type: ignore[arg-type]
    )  # fmt: skip
    assert torch.isfinite(Encoder(config).eval()(torch.randint(1000, (1, 700)))).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_rounds_the_angles_once(dtype: torch.dtype) -> None:
    """At position 3000 angles in half are off by whole turns; ours are only rounded as results."""
    x = torch.ones(1, 3001, 1, 8, dtype=dtype)
    exact = Rotation(angles(3001, 8, CPU), torch.float64)(x.double())
    rounded = Rotation(angles(3001, 8, CPU), dtype)(x)
    assert rounded.dtype == dtype
    assert (rounded.double() - exact).abs().max() < 2 * torch.finfo(dtype).eps


def test_masks() -> None:
    T, F = True, False
    assert masks.from_lengths(torch.tensor([2, 0, 3]), 3).tolist() == [[T, T, F], [F, F, F], [T, T, T]]
    assert masks.from_pad_id(torch.tensor([[4, 0], [0, 4]]), 0).tolist() == [[T, F], [F, T]]
    assert masks.causal(3).tolist() == [[T, F, F], [T, T, F], [T, T, T]]
    assert masks.window(4, 1).tolist() == [[T, T, F, F], [T, T, T, F], [F, T, T, T], [F, F, T, T]]
    assert masks.prefix(3, 2).tolist() == [[T, T, F], [T, T, F], [T, T, T]]
    both = masks.combine(torch.tensor([[1, 1, 0]]), None, masks.causal(3)[None, None])
    assert both is not None
    assert both.tolist() == [[[[T, F, F], [T, T, F], [T, T, F]]]]
    assert masks.combine(None, None) is None
