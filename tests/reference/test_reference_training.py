"""Heads, images, files, and training that resumes bit for bit."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from encdoctor.reference import Encoder, EncoderConfig, PatchEmbedding, heads, io, training
from encdoctor.reference.demonstrations import DEMONSTRATIONS

torch.set_num_threads(1)
SMALL = EncoderConfig(vocab_size=30, d_model=16, num_heads=2, num_layers=2, d_ff=32)


def test_pooling() -> None:
    hidden = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [9.0, 9.0]], [[1.0, 1.0]] * 3])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert heads.pool(hidden, mask, "cls").tolist() == [[1, -5], [1, 1]]
    assert heads.pool(hidden, mask, "mean").tolist() == [[2, -3], [0, 0]]
    assert heads.pool(hidden, mask, "max").tolist() == [[3, -1], [0, 0]]
    assert torch.equal(heads.pool(hidden, None, "mean"), hidden.mean(1))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_heads_do_not_see_padding(pooling: heads.Pooling) -> None:
    ids, mask = torch.randint(30, (3, 7)), torch.arange(7) < torch.tensor([[7], [4], [1]])
    changed = torch.where(mask, ids, (ids + 1) % 30)
    models: list[tuple[nn.Module, tuple[int, ...]]] = [
        (heads.SequenceClassifier(Encoder(SMALL), 5, pooling), (3, 5)),
        (heads.ContrastiveEncoder(Encoder(SMALL), 6, pooling), (3, 6)),
        (heads.TokenClassifier(Encoder(SMALL), 4), (3, 7, 4)),
        (heads.MaskedLanguageModel(Encoder(SMALL)), (3, 7, 30)),
    ]
    for model, shape in models:
        out = model.eval()(ids, mask)
        assert out.shape == shape
        assert torch.equal(out, model(changed, mask))


def test_mlm_ties_its_output() -> None:
    model = heads.MaskedLanguageModel(Encoder(SMALL))
    tables = [name for name, p in model.named_parameters() if 30 in p.shape and p.dim() == 2]
    assert tables == ["encoder.embedding.tokens.weight"]
    with pytest.raises(ValueError, match="token table"):
        heads.MaskedLanguageModel(Encoder(EncoderConfig(vocab_size=None, d_model=8)))


def test_hidden_tokens() -> None:
    ids = torch.randint(3, 1000, (200, 100))
    mask = torch.arange(100).expand(200, -1) < 80
    corrupted, labels = heads.hide_tokens(ids, mask, mask_id=2, vocab_size=1000)
    chosen = labels != heads.IGNORED
    assert not chosen[~mask].any()
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(corrupted[~chosen], ids[~chosen])
    assert abs(chosen[mask].float().mean().item() - 0.15) < 0.01
    assert abs((corrupted[chosen] == 2).float().mean().item() - 0.8) < 0.03
    assert abs((corrupted == ids)[chosen].float().mean().item() - 0.1) < 0.03


def test_contrastive_loss_formula() -> None:
    first, second = nn.functional.normalize(torch.randn(2, 4, 6, dtype=torch.float64), dim=-1)
    views = torch.cat((first, second))
    expected = 0.0
    for i in range(8):
        others = [torch.exp(views[i] @ views[j] / 0.2) for j in range(8) if j != i]
        expected -= torch.log(torch.exp(views[i] @ views[(i + 4) % 8] / 0.2) / sum(others)).item() / 8
    assert abs(heads.contrastive_loss(first, second, 0.2).item() - expected) < 1e-5
    assert heads.contrastive_loss(first, first) < heads.contrastive_loss(first, second)


def test_patches() -> None:
    patches = PatchEmbedding(image_size=6, patch_size=2, d_model=8, channels=2, sinusoidal_2d=True)
    assert patches.length == 10
    pixels = torch.randn(3, 2, 6, 6)
    out = patches(pixels)
    assert out.shape == (3, 10, 8)
    weight, bias = patches.projection.weight.flatten(1), patches.projection.bias
    assert bias is not None
    corner = pixels[:, :, 2:4, 4:6].flatten(1)  # row 1, column 2: patch 5, after [CLS]
    expected = corner @ weight.T + bias + patches.positions(8, pixels.device)[5].float()
    assert (out[:, 6] - expected).abs().max() < 1e-5
    table = patches.positions(8, pixels.device)
    assert len({tuple(row) for row in table.tolist()}) == 9
    assert torch.equal(table[5, :4], table[3, :4])  # the same row
    assert torch.equal(table[5, 4:], table[8, 4:])  # the same column
    with pytest.raises(ValueError, match=r"must be \(B, 2, 6, 6\)"):
        patches(pixels[:, :1])
    with pytest.raises(ValueError, match="not divisible by patch_size"):
        PatchEmbedding(image_size=7, patch_size=2, d_model=8)


@pytest.mark.parametrize("share_layers", [True, False])
def test_files(tmp_path: Path, share_layers: bool) -> None:
    config = EncoderConfig(vocab_size=30, d_model=16, num_heads=2, d_ff=32, share_layers=share_layers)
    encoder, ids = Encoder(config).double().eval(), torch.randint(30, (2, 9))
    io.save(encoder, tmp_path / "encoder.safetensors")
    loaded = io.load(tmp_path / "encoder.safetensors")
    assert loaded.config == config
    assert torch.equal(loaded(ids), encoder(ids))


def test_files_of_images(tmp_path: Path) -> None:
    def patches() -> PatchEmbedding:
        return PatchEmbedding(image_size=6, patch_size=2, d_model=8, channels=1)

    config = EncoderConfig(vocab_size=None, d_model=8, num_heads=2, d_ff=8, position="learned", max_length=10)
    encoder, pixels = Encoder(config, patches()).eval(), torch.randn(2, 1, 6, 6)
    io.save(encoder, tmp_path / "vit.safetensors")
    assert torch.equal(io.load(tmp_path / "vit.safetensors", patches())(pixels), encoder(pixels))


def trainer(accumulate: int = 1, precision: str = "float32", steps: int = 8) -> training.Trainer:
    torch.manual_seed(0)
    model = heads.SequenceClassifier(Encoder(SMALL), 3)

    def batch(index: int) -> training.Batch:
        ids = torch.randint(30, (8, 6), generator=training.generator(0, index))
        return ids, torch.ones(8, 6, dtype=torch.bool), ids[:, 0] % 3

    config = training.TrainingConfig(
        steps=steps, warmup=2, accumulate=accumulate, precision=precision  # type: ignore[arg-type]
    )  # fmt: skip
    return training.Trainer(model, training.classification_loss(0.1), batch, config)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_resumes_bit_for_bit(tmp_path: Path, accumulate: int) -> None:
    whole = trainer(accumulate)
    whole.run(progress=False)
    first = trainer(accumulate)
    first.run(until=3, progress=False)
    first.save(tmp_path / "checkpoint")
    torch.manual_seed(99)  # dropout must continue from the checkpoint's random state
    second = trainer(accumulate)
    second.step()
    second.resume(tmp_path / "checkpoint")
    second.run(progress=False)
    assert second.history == whole.history
    ours, theirs = second.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_accumulation_is_the_mean_of_its_batches() -> None:
    once, twice = trainer(), trainer(accumulate=2)
    for each in (once, twice):
        each.model.eval()
    joined = [torch.cat(parts) for parts in zip(once.batch(0), once.batch(1), strict=True)]
    torch.autograd.backward(once.loss(once.model, tuple(joined)))
    for index in range(2):
        twice.backward(index)
    for one, other in zip(once.model.parameters(), twice.model.parameters(), strict=True):
        if one.grad is not None and other.grad is not None:
            assert (one.grad - other.grad).abs().max() < 1e-6


def test_autocast_trains() -> None:
    history = trainer(precision="bfloat16", steps=4).run(progress=False)
    assert all(torch.tensor(step.loss).isfinite() for step in history)


def test_norms_and_biases_are_not_decayed() -> None:
    model = heads.MaskedLanguageModel(Encoder(SMALL))
    decayed, spared = training.parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") and "norm" not in names[id(p)] for p in decayed["params"])
    assert all(names[id(p)].endswith("bias") or "norm" in names[id(p)] for p in spared["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_schedule() -> None:
    rates = [training.warmup_cosine(step, 4, 20) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert abs(rates[12] - 0.5) < 1e-12
    assert all(later <= earlier for earlier, later in pairwise(rates[4:]))
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("name", list(DEMONSTRATIONS))
def test_demonstrations_learn(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demonstration = DEMONSTRATIONS[name](steps={"digits": 60, "mlm": 12, "contrastive": 30}[name])
    demonstration.run(progress=False, parts=2)
    demonstration.plot(str(tmp_path / "plot.png"))
    losses = [step.loss for step in demonstration.trainer.history]
    assert sum(losses[-5:]) < 0.97 * sum(losses[:5])
    assert demonstration.accuracies[-1][1] > demonstration.baseline
    assert "held-out accuracy" in capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_export_and_compile() -> None:
    encoder = Encoder(SMALL).eval()
    ids, mask = torch.randint(30, (2, 9)), torch.arange(9) < torch.tensor([[9], [4]])
    expected: Tensor = encoder(ids, mask)
    exported = torch.export.export(encoder, (ids, mask)).module()
    assert (exported(ids, mask) - expected).abs().max() < 1e-6
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    assert (compiled(ids, mask) - expected).abs().max() < 1e-6
