"""Encoders that would take the run along: what is wrong with each is its name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from torch import Tensor, nn


class Calm(nn.Module):
    """Does nothing wrong; the others do it in an inner module, so that there is one to name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner(self)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y

    def act(self) -> None:
        """What goes wrong."""


class Inner(nn.Module):
    """Calls back."""

    def __init__(self, owner: Calm) -> None:
        super().__init__()
        self.owner = [owner]  # in a list, so that it is not registered

    def forward(self, x: Tensor) -> Tensor:
        self.owner[0].act()
        return x


class Prints(Calm):
    def act(self) -> None:
        print("printed by the target")
        os.write(1, b"written by the target\n")


class NeverEnds(Calm):
    def act(self) -> None:
        while True:
            time.sleep(1)


class ExitsHard(Calm):
    def act(self) -> None:
        os._exit(0)


class ExitsSoftly(Calm):
    def act(self) -> None:
        sys.exit(0)


class Crashes(Calm):
    def act(self) -> None:
        ctypes.string_at(0)


class IsKilled(Calm):
    def act(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class LeavesABomb(Calm):
    """Ends the process after it was judged."""

    def act(self) -> None:
        threading.Timer(0.2, os._exit, [7]).start()


class TakesItsTime(Calm):
    def act(self) -> None:
        time.sleep(0.8)
