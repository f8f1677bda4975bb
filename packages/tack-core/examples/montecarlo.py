"""Prices of options by simulation, beside the formulas of Black and Scholes.

    python montecarlo.py
    python montecarlo.py --paths 10000000 --strike 120
    python montecarlo.py --check

Each iteration draws one path of the share's price. Shows `tack.random.normal`, f64 beside f32, and
device reductions.

Reference: A. G. Z. Kemna, A. C. F. Vorst, "A Pricing Method for Options Based on Average Asset
Values", Journal of Banking and Finance 14, 1990.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from _common import check, positive_int

import tack


@tack.kernel
def simulate(call, asian, price, strike, rate, volatility, years, dates, stream):
    """Discounted payoffs of each path: of a call, and of one on the geometric mean of the dates' prices."""
    dt = years / dates
    drift = (rate - 0.5 * volatility * volatility) * dt
    spread = volatility * tack.sqrt(dt)
    discount = tack.exp(-rate * years)
    for i in range(len(call)):
        state = tack.random.seed(i, stream)
        log_price = 0.0
        total = 0.0
        for _ in range(dates):
            z, state = tack.random.normal(state)
            log_price += drift + spread * z
            total += log_price
        call[i] = discount * max(price * tack.exp(log_price) - strike, 0.0)
        asian[i] = discount * max(price * tack.exp(total / dates) - strike, 0.0)


@dataclass
class Option:
    """A share's price, the strike, interest rate and volatility per year, and the years and dates to run."""

    price: float
    strike: float
    rate: float
    volatility: float
    years: float
    dates: int

    def lognormal(self, mean: float, deviation: float) -> float:
        """The value of max(exp(X) - strike, 0), discounted, for a normal X."""
        d = (mean - math.log(self.strike)) / deviation
        gain = math.exp(mean + deviation**2 / 2) * normal_cdf(d + deviation)
        return math.exp(-self.rate * self.years) * (gain - self.strike * normal_cdf(d))

    def call(self) -> float:
        """The Black-Scholes price of a call."""
        deviation = self.volatility * math.sqrt(self.years)
        mean = math.log(self.price) + (self.rate - self.volatility**2 / 2) * self.years
        return self.lognormal(mean, deviation)

    def asian(self) -> float:
        """The price of a call on the geometric mean of the prices on ``dates`` equally spaced dates."""
        n = self.dates
        mean = math.log(self.price) + (self.rate - self.volatility**2 / 2) * self.years * (n + 1) / (2 * n)
        variance = self.volatility**2 * self.years * (n + 1) * (2 * n + 1) / (6 * n * n)
        return self.lognormal(mean, math.sqrt(variance))


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--paths", type=positive_int, default=1_000_000, help="(default: 1 million)")
    parser.add_argument("--dates", type=positive_int, default=12, help="steps a path (default: 12)")
    parser.add_argument("--price", type=float, default=100.0, help="of the share (default: 100)")
    parser.add_argument("--strike", type=float, default=105.0, help="(default: 105)")
    parser.add_argument("--rate", type=float, default=0.03, help="interest per year (default: 0.03)")
    parser.add_argument("--volatility", type=float, default=0.25, help="per year (default: 0.25)")
    parser.add_argument("--years", type=float, default=1.0, help="to run (default: 1)")
    parser.add_argument("--check", action="store_true", help="compare with the formulas and exit")
    args = parser.parse_args()
    if min(args.price, args.strike, args.volatility, args.years) <= 0.0:
        parser.error("price, strike, volatility and years must be positive")

    option = Option(args.price, args.strike, args.rate, args.volatility, args.years, args.dates)
    call, asian = (tack.empty(args.paths, tack.f64) for _ in range(2))
    terms = (option.price, option.strike, option.rate, option.volatility, option.years)
    began = perf_counter()
    simulate(call, asian, *terms, option.dates, 7)
    seconds = perf_counter() - began

    passed = True
    for name, payoffs, want in (("call", call, option.call()), ("average", asian, option.asian())):
        error = payoffs.numpy().std() / math.sqrt(args.paths)
        if args.check:
            # Five standard errors: chance exceeds that once in two million times.
            passed &= check(name, payoffs.mean(), want, 5.0 * error)
        else:
            print(f"{name:8} {payoffs.mean():9.4f} ± {error:.4f}   formula {want:9.4f}")
    if args.check:
        # The same paths by NumPy. Its normal values differ by f32 rounding: some 16 units of at most 8.
        n = min(args.paths, 1000)
        states, logs = tack.random.np_seed(np.arange(n), 7), np.zeros(n)
        dt = option.years / option.dates
        for _ in range(option.dates):
            z, states = tack.random.np_normal(states)
            logs += (option.rate - option.volatility**2 / 2) * dt + option.volatility * math.sqrt(dt) * z
        gain = option.price * np.exp(logs)
        want = math.exp(-option.rate * option.years) * np.maximum(gain - option.strike, 0.0)
        bound = gain * option.dates * option.volatility * math.sqrt(dt) * 16 * 8 * 2.0**-24
        return 0 if check("calls, path by path", call[:n].numpy(), want, bound) and passed else 1
    print(f"{args.paths * args.dates / seconds / 1e6:.0f} M steps/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
