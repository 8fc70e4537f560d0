"""Divides the stream into regions: what stands between two points that everything goes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from encdoctor.lab.lab import Lab
from encdoctor.lab.outputs import pick
from encdoctor.lab.sites import score_paths
from encdoctor.lab.stream import Step, Stream
from encdoctor.lab.trace import Node, Trace


@dataclass(frozen=True)
class Region:
    """Consecutive steps that make one sublayer, and the sites in it."""

    steps: tuple[Step, ...]
    sites: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.steps[0].start

    @property
    def end(self) -> int:
        return self.steps[-1].end

    @property
    def bypass(self) -> bool:
        return all(step.bypass or (self.sites and step.shortcut) for step in self.steps)

    @property
    def inside(self) -> list[int]:
        return [n for step in self.steps for n in step.inside]


@dataclass(frozen=True)
class Site:
    """Nodes of one attention site."""

    softmax: int
    scores: int
    mix: int


def find_sites(trace: Trace) -> list[Site]:
    """All attention sites of a trace."""
    return [Site(p.softmax.index, p.contraction.index, p.reader.index) for p in score_paths(trace)]


def stream_of(lab: Lab, trace: Trace) -> Stream | None:
    """The stream of a trace to the contract's output, None where that is not one of its tensors."""
    try:
        output = pick(trace.output, lab.contract.output)
    except (KeyError, IndexError, AttributeError, TypeError):
        return None
    stream = Stream(trace, output)
    return stream if stream.end is not None else None


def divide(stream: Stream, steps: list[Step], sites: list[Site]) -> Iterator[Region]:
    """Steps with a bypass stand alone; those without are joined until a norm or a bypass separates them."""
    open_steps: list[Step] = []
    for step in steps:
        if step.works and (step.bypass or (_sites_in(step, sites) and step.shortcut)):
            yield from _close(open_steps, sites)
            open_steps = []
            yield Region((step,), _sites_in(step, sites))
        elif step.works:
            open_steps.append(step)
        elif any(stream.normed(n) for n in step.inside):
            yield from _close(open_steps, sites)
            open_steps = []
    yield from _close(open_steps, sites)


def _close(steps: list[Step], sites: list[Site]) -> Iterator[Region]:
    if steps:
        yield Region(tuple(steps), tuple(s for step in steps for s in _sites_in(step, sites)))


def _sites_in(step: Step, sites: list[Site]) -> tuple[int, ...]:
    inside = set(step.inside)
    return tuple(i for i, site in enumerate(sites) if site.softmax in inside)


def layer_of(index: int, sites: list[Site], nodes: list[Node]) -> str:
    """The outermost module that holds this site and no other one's module, "" where it is the root."""
    own = nodes[sites[index].softmax].module
    others = {nodes[s.softmax].module for s in sites} - {own}
    parts = own.split(".")
    for length in range(1, len(parts) + 1):
        prefix = ".".join(parts[:length])
        if not any(o == prefix or o.startswith(f"{prefix}.") for o in others):
            return prefix if others or length > 1 or len(parts) == 1 else own.rpartition(".")[0]
    return own


def common(modules: list[str]) -> str:
    """The longest module path that all share."""
    split = [m.split(".") for m in modules if m]
    if not split:
        return ""
    shared = []
    for names in zip(*split, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
