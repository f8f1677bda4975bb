"""Parallel algorithms on arrays: scans, reductions, sorting, selection, histograms, statistics.

They are Tack kernels, so they run on the device where their arrays are; a NumPy array is used in place on the
default device. Results are arrays on that device, and totals Python numbers. All arrays are taken as one
sequence in row-major order unless a function has ``axis``. ``n`` restricts a function to the first n
elements, ``out`` names the array that takes the result, which may be the input where the function says so.

Integer results are exact. Results of floats have the same bits on every run on one device. Functions
raise ``TypeError`` and ``ValueError`` before anything runs.
"""

from tack.algorithms.histograms import histogram as histogram
from tack.algorithms.indexing import copy as copy
from tack.algorithms.indexing import fill as fill
from tack.algorithms.indexing import gather as gather
from tack.algorithms.indexing import scatter as scatter
from tack.algorithms.indexing import searchsorted as searchsorted
from tack.algorithms.reductions import reduce as reduce
from tack.algorithms.runs import reduce_by_key as reduce_by_key
from tack.algorithms.runs import run_length as run_length
from tack.algorithms.runs import unique as unique
from tack.algorithms.scans import exclusive_scan as exclusive_scan
from tack.algorithms.scans import inclusive_scan as inclusive_scan
from tack.algorithms.segments import segmented_reduce as segmented_reduce
from tack.algorithms.segments import segmented_scan as segmented_scan
from tack.algorithms.selection import compact as compact
from tack.algorithms.selection import where as where
from tack.algorithms.sorting import argsort as argsort
from tack.algorithms.sorting import sort as sort
from tack.algorithms.sorting import sort_by_key as sort_by_key
from tack.algorithms.statistics import absmax as absmax
from tack.algorithms.statistics import count_nonzero as count_nonzero
from tack.algorithms.statistics import dot as dot
from tack.algorithms.statistics import norm as norm
from tack.algorithms.statistics import std as std
from tack.algorithms.statistics import var as var
