"""An exact draw from a finite distribution whose probabilities are proportional to exp(−cost).

The costs are exact numbers. The cumulative sums of the weights are computed in Arb balls, and a uniform real is located
among them: with more bits of the uniform and more digits of the sums, until its place is certain. No weight underflows.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from slowscale.sampling.bits import BitSource, Stream
from slowscale.sampling.exact import _decide_with_enough_bits, _uniforms, lift_arb
from slowscale.sampling.samplers import Number


class Choice:
    """A distribution on 0, 1, 2…: the probability of i is proportional to exp(−costs[i]).

    >>> from slowscale.sampling.bits import SECRET
    >>> Choice([Fraction(10**9), Fraction(0), Fraction(10**9)]).draw(SECRET)
    1
    """

    def __init__(self, costs: Sequence[Fraction]) -> None:
        least = min(costs)
        self._costs = [cost - least for cost in costs]
        self._ends: dict[int, list[Number]] = {}  # the cumulative sums of the weights, by the number of bits

    def draw(self, source: BitSource) -> int:
        """Return one draw, by as many bits as it needs."""
        stream = Stream(int(source.words(1)[0]), source)
        return _decide_with_enough_bits(lambda bits: self._place(stream, bits))

    def _place(self, stream: Stream, bits: int) -> int | None:
        """Return the place of the uniform among the cumulative sums, or None if it is not certain yet."""
        ends = self._cumulative(bits)
        (uniform,), _ = _uniforms([stream], bits)
        at = uniform * ends[-1]
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            if at < ends[middle]:
                high = middle
            elif at > ends[middle]:
                low = middle + 1
            else:
                return None
        return low

    def _cumulative(self, bits: int) -> list[Number]:
        if bits not in self._ends:
            from flint import arb

            weights: dict[Fraction, Any] = {}
            total, ends = arb(0), []
            for cost in self._costs:
                if cost not in weights:
                    weights[cost] = (-lift_arb(cost)).exp()
                total = total + weights[cost]
                ends.append(total)
            self._ends[bits] = ends
        return self._ends[bits]
