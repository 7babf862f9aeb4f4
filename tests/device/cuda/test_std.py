"""The little of the standard library that kernels have does what the host's does, and lies in memory like it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from support.host_kernels import ROOT, Kernels

SOURCE = (ROOT / "cpp/tests/gpu/std_behaviour.cpp").read_text()


@pytest.fixture(scope="session")
def libraries(kernels: Kernels) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """With the kernels' library, and with the host's."""
    paths = kernels.compile(SOURCE, "-DAS_KERNEL"), kernels.compile(SOURCE, "-O1", "-ffp-contract=off", kernel=False)
    return ctypes.CDLL(str(paths[0])), ctypes.CDLL(str(paths[1]))


def answers(function: ctypes._NamedFuncPointer, *given: object) -> np.ndarray:
    out = np.zeros(4000)
    function.restype = ctypes.c_long
    count = function(*given, ctypes.c_void_p(out.ctypes.data))
    assert 0 < count < out.size
    return out[:count].copy()


@pytest.mark.parametrize("subject", ["algorithms", "spans", "orders", "arrays", "numbers", "optionals", "layout"])
def test_both_say_the_same(libraries: tuple[ctypes.CDLL, ctypes.CDLL], subject: str) -> None:
    ours, hosts = (answers(library[subject]) for library in libraries)
    assert ours.tolist() == hosts.tolist()


def test_functions_are_of_the_same_type_and_differ_in_the_last_bit_at_most(
    libraries: tuple[ctypes.CDLL, ctypes.CDLL],
) -> None:
    ours, hosts = (answers(library["functions"]) for library in libraries)
    assert ours.shape == hosts.shape
    assert np.isnan(ours).tolist() == np.isnan(hosts).tolist()
    differ = np.flatnonzero(~np.isnan(ours) & (ours != hosts))
    # Functions of floats, which we round once.
    assert len(differ) <= 0.01 * len(ours)
    assert np.allclose(ours[differ], hosts[differ], rtol=2**-23, atol=0)


def test_one_reads_what_the_other_wrote(libraries: tuple[ctypes.CDLL, ctypes.CDLL]) -> None:
    expected = [3, 1, 1.25, -3, 7, 9, 0.125, 1, 1, 2, 3, 4, 5]
    for writer in libraries:
        memory = ctypes.create_string_buffer(256)
        writer.write_plain(memory)
        for reader in libraries:
            assert answers(reader.read_plain, memory).tolist() == expected


def test_a_shared_table_is_read_through_the_hosts_pointer(libraries: tuple[ctypes.CDLL, ctypes.CDLL]) -> None:
    memory = ctypes.create_string_buffer(64)
    libraries[1].write_shared(memory)
    assert [answers(one.read_shared, memory).tolist() for one in libraries] == [[4.5, 2, 4.5, 1]] * 2


@pytest.mark.parametrize("name", ["INFINITY", "M_PI", "FP_NAN", "EOF", "strlen", "stderr", "lgamma_r"])
def test_the_host_lends_a_kernel_nothing_that_a_gpu_lacks(kernels: Kernels, name: str) -> None:
    with pytest.raises(RuntimeError, match=name):
        kernels.compile(f'#include "gpu/prelude.h"\nauto used() {{ return {name}; }}')
