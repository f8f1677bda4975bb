"""Heat spreading over a plate that is cut into strips, one for each process of an MPI job.

    mpiexec -n 4 python mpi_heat.py
    mpiexec -n 3 python mpi_heat.py --size 1000 --steps 5000
    mpiexec -n 4 python mpi_heat.py --check

Shows a domain decomposition: MPI sends and receives rows of Tack arrays where they are in memory,
while the kernel works on the rows that need no neighbour. Any number of processes will do; one, too.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from _common import check, colourise, positive_int, save_png
from mpi4py import MPI
from numpy.typing import NDArray

import tack

# Diffusivity * time step / spacing^2; up to 0.25 is stable. With a power of two, and temperatures far
# from f32's smallest, products are exact: fused with a sum or not, the results are the same.
RATE = tack.constant(0.125)
COLD, HOT = 0.25, 1.0
REPORTS = 5


@tack.kernel
def step(old, new):
    for i, j in tack.ndindex((1, old.shape[0] - 1), (1, old.shape[1] - 1)):
        middle = old[i, j]
        around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
        new[i, j] = middle + RATE * (around - 4.0 * middle)


def initial_rows(first: int, last: int, size: int) -> NDArray[np.float32]:
    """Rows ``first`` to ``last`` of a cold plate with hot stripes in a hot ring, and two hot edges."""
    y, x = np.mgrid[first:last, 0:size] / size
    radius = np.hypot(x - 0.5, y - 0.5)
    hot = (radius > 0.3) & (radius < 0.36)
    hot |= (radius < 0.24) & (np.floor(16 * (x + y)) % 2 == 0)
    hot[:, 0] = True
    hot[: 1 if first == 0 else 0] = True
    return np.where(hot, np.float32(HOT), np.float32(COLD))


class Strip:
    """One process's rows of the plate, between a row of each neighbour: the halo.

    Row 0 of the arrays is the last row of the process above, or the plate's edge; the last row
    is the first of the process below, or the edge.
    """

    def __init__(self, comm: MPI.Comm, size: int) -> None:
        self.comm = comm
        rank, count = comm.Get_rank(), comm.Get_size()
        self.above = rank - 1 if rank > 0 else MPI.PROC_NULL
        self.below = rank + 1 if rank < count - 1 else MPI.PROC_NULL
        # The rows between the plate's first and last, shared out as evenly as they can be.
        cuts = [1 + (size - 2) * k // count for k in range(count + 1)]
        self.counts = np.diff(cuts)
        self.old = tack.asarray(initial_rows(cuts[rank] - 1, cuts[rank + 1] + 1, size))
        self.new = self.old.copy()  # so that the edges are right in both
        self.waited = 0.0  # seconds

    def advance(self) -> None:
        """One time step."""
        old, new = self.old, self.new
        exchange = [  # rows of arrays are views: MPI is given their memory, and nothing is copied
            self.comm.Irecv(old[:1], self.above, tag=1),
            self.comm.Irecv(old[-1:], self.below, tag=2),
            self.comm.Isend(old[1:2], self.above, tag=2),
            self.comm.Isend(old[-2:-1], self.below, tag=1),
        ]
        step(old[1:-1], new[1:-1])  # all rows but the outermost two, while the halo travels
        start = time.perf_counter()
        MPI.Request.Waitall(exchange)
        self.waited += time.perf_counter() - start
        step(old[:3], new[:3])
        step(old[-3:], new[-3:])
        self.old, self.new = new, old

    def gather(self) -> NDArray[np.float32] | None:
        """The whole plate, in process 0."""
        own = np.asarray(self.old)[1:-1]
        if self.comm.Get_rank() > 0:
            self.comm.Gatherv(own, None, root=0)
            return None
        size = own.shape[1]
        plate = initial_rows(0, size, size)  # whose first and last rows are the edges
        self.comm.Gatherv(own, (plate[1:-1], self.counts * size), root=0)
        return plate

    def in_place(self) -> bool:
        """Whether MPI is given the addresses of the rows that the kernel computes, not of copies."""
        rows = np.asarray(self.old, copy=False)
        return all(MPI.buffer(self.old[k : k + 1]).address == rows[k].ctypes.data for k in range(len(rows)))


def reference(size: int, steps: int) -> NDArray[np.float32]:
    """The whole plate by NumPy, with the same f32 operations in the same order."""
    t = initial_rows(0, size, size)
    rate, four = np.float32(RATE), np.float32(4.0)
    for _ in range(steps):
        around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
        t[1:-1, 1:-1] = t[1:-1, 1:-1] + rate * (around - four * t[1:-1, 1:-1])
    return t


def simulate(comm: MPI.Comm, size: int, steps: int) -> Strip:
    """Each process's strip after ``steps`` steps; process 0 prints how it goes."""
    strip = Strip(comm, size)
    first = comm.Get_rank() == 0
    if first:
        rows = f"{strip.counts.min()} to {strip.counts.max()} rows each"
        print(f"{size} x {size} cells, processes: {comm.Get_size()}, {rows}")
    step.compile(strip.old, strip.new)
    comm.Barrier()
    start = time.perf_counter()
    for done in range(1, steps + 1):
        strip.advance()
        if first and (done == steps or done % -(-steps // REPORTS) == 0):
            print(f"  {done} of {steps} steps, {time.perf_counter() - start:.2f} s")
    comm.Barrier()
    seconds = time.perf_counter() - start
    waited = comm.reduce(strip.waited, root=0)
    if first:
        share = waited / comm.Get_size() / seconds
        print(f"{1e6 * seconds / steps:.0f} us a step, {share:.0%} of it waiting for neighbours")
    return strip


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and once for all processes."""

    def _print_message(self, message: str, file: object = None) -> None:
        if MPI.COMM_WORLD.Get_rank() == 0:
            super()._print_message(message, file)

    def print_usage(self, file: object = None) -> None:
        pass  # --help prints it


def main() -> int:
    comm = MPI.COMM_WORLD
    parser = Parser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=640, help="cells along a side (default: 640)")
    parser.add_argument("--steps", type=positive_int, default=1500, help="time steps (default: 1500)")
    parser.add_argument("--threads", type=positive_int, default=1, help="of each process (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("mpi_heat.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()
    if args.size < 3:
        parser.error(f"--size {args.size}: the plate has no cell between its edges; 3 is the least")
    if comm.Get_size() > args.size - 2:
        parser.error(f"{comm.Get_size()} processes cannot share {args.size - 2} rows; enlarge --size")
    # One process looks: on a cluster, the others may not see the folder.
    if not args.check and not comm.bcast(args.output.parent.is_dir() if comm.Get_rank() == 0 else None):
        parser.error(f"--output {args.output}: there is no folder {args.output.parent}")

    tack.set_default_device(tack.device("cpu", num_threads=args.threads))
    strip = simulate(comm, args.size, args.steps)
    plate = strip.gather()
    in_place = comm.reduce(strip.in_place(), op=MPI.LAND, root=0)
    if plate is None:
        return 0
    if args.check:
        # The same exact products and sums in the same order, wherever the cuts are.
        passed = check(f"heat after {args.steps} steps", plate, reference(args.size, args.steps), 0)
        return 0 if check("messages from copies of the rows", not in_place, False, 0) and passed else 1
    save_png(args.output, colourise((plate - COLD) / (HOT - COLD)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)  # or the others would wait for this process
