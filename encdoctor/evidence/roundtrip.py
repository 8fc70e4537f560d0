"""Whether saved weights make the same model."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class RoundTrip:
    """A new instance, built with another seed, after it loaded the state of this one.

    `measured` is False, with `why`, where there is no second instance. `missing` are names that the new instance
    wants and the saved state lacks, `unexpected` the reverse, `reshaped` those of another shape; `raised` is what
    loading raised besides. `change` is how far outputs differ afterwards, in eval mode; `unsaved` names tensors that
    differ still, and `place` is where the first of these names is set.
    """

    measured: bool
    why: str = ""
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    reshaped: tuple[str, ...] = ()
    raised: str = ""
    change: float = 0.0
    unsaved: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Names over which loading stops."""
        return self.missing + self.unexpected + self.reshaped
