"""Calls every hooked function with unique sizes, and prints the results.

Each scenario is a function. It returns the addresses and error numbers from the C library; blocks that it leaves
allocated on purpose are leaks of that function. No size is used in two scenarios.
"""

import ctypes
import json
import mmap as constants
import os
import sys
from errno import EBADF, EEXIST, EINVAL, ENOMEM

from allocator_calls import ask, call, errno_changes

PAGE = constants.PAGESIZE
PROTECTION = constants.PROT_READ | constants.PROT_WRITE
PRIVATE, SHARED = constants.MAP_PRIVATE, constants.MAP_SHARED
ANONYMOUS = PRIVATE | constants.MAP_ANONYMOUS
FIXED, FIXED_NOREPLACE = 0x10, 0x100000
MAYMOVE, REMAP_FIXED, DONTUNMAP = 1, 2, 4
NO_FILE = -1
TOO_MUCH = 2**62
FAILED = 2**64 - 1


def map_pages(n_pages, flags=ANONYMOUS, at=0, file=NO_FILE, function="mmap"):
    return call(function, at, n_pages * PAGE, PROTECTION, flags, file)


def map_file(n_pages, function="mmap"):
    """Map all pages of a file but the last one."""
    file = os.open(f"mapped-{n_pages}", os.O_RDWR | os.O_CREAT)
    os.truncate(file, (n_pages + 1) * PAGE)
    address = map_pages(n_pages, SHARED, file=file, function=function)
    os.close(file)
    return address


# ---------------------------------------------------------------- blocks


def every_allocator():
    blocks = {
        "malloc": call("malloc", 100_003),
        "calloc": call("calloc", 7, 10_007),
        "realloc": call("realloc", 0, 20_011),
        "reallocarray": call("reallocarray", 0, 3, 30_011),
        "posix_memalign": ask("posix_memalign", 64, 40_009).stored,
        "aligned_alloc": call("aligned_alloc", 256, 256 * 177),
        "memalign": call("memalign", 128, 50_021),
        "valloc": call("valloc", 60_013),
        "pvalloc": call("pvalloc", 70_001),
    }
    for block in blocks.values():
        call("free", block)
    return blocks


def every_allocator_leaks():
    call("malloc", 91_009)
    call("calloc", 3, 7_001)
    call("realloc", 0, 2_011)
    call("reallocarray", 0, 7, 1_103)
    ask("posix_memalign", 64, 4_019)
    call("aligned_alloc", 256, 256 * 17)
    call("memalign", 128, 5_021)
    call("valloc", 6_029)
    call("pvalloc", 7_013)


def empty_block():
    block = call("malloc", 0)
    call("free", block)
    return {"block": block}


def realloc_in_place():
    old = call("malloc", 100_043)
    new = call("realloc", old, 100_019)
    call("free", new)
    return {"old": old, "new": new}


# The new sizes are too large for growth in place: libc keeps at most 64 MB of free memory after a block. Reports print
# them exactly in MB.
def realloc_moved():
    old = call("malloc", 3_019)
    return {"old": old, "new": call("realloc", old, 100_003_000)}


def reallocarray_moved():
    old = call("reallocarray", 0, 13, 307)
    return {"old": old, "new": call("reallocarray", old, 13, 7_701_000)}


def realloc_to_nothing():
    first, second = call("malloc", 9_001), call("malloc", 9_007)
    answers = call("realloc", first, 0), call("reallocarray", second, 0, 17)
    return {"first": first, "second": second, "answers": answers}


def realloc_that_fails():
    block = call("malloc", 80_021)
    answer = ask("realloc", block, TOO_MUCH)
    return {"block": block, "result": answer.result, "error": answer.error}


def realloc_that_fails_and_free():
    block = call("malloc", 80_039)
    answer = ask("realloc", block, TOO_MUCH)
    call("free", block)
    return {"block": block, "result": answer.result, "error": answer.error}


def reallocarray_that_overflows():
    block = call("malloc", 80_051)
    answer = ask("reallocarray", block, 2**33, 2**33)
    return {"block": block, "result": answer.result, "error": answer.error}


def reallocarray_that_is_too_large():
    block = call("malloc", 80_071)
    answer = ask("reallocarray", block, 2, TOO_MUCH // 2)
    return {"block": block, "result": answer.result, "error": answer.error}


def allocations_that_fail():
    answers = {
        "malloc": ask("malloc", TOO_MUCH),
        "calloc": ask("calloc", 1, TOO_MUCH),
        "calloc overflow": ask("calloc", 2**33, 2**33),
        "realloc": ask("realloc", 0, TOO_MUCH),
        "reallocarray": ask("reallocarray", 0, 2**33, 2**33),
        "aligned_alloc": ask("aligned_alloc", 64, TOO_MUCH),
        "memalign": ask("memalign", 64, TOO_MUCH),
        "valloc": ask("valloc", TOO_MUCH),
        "pvalloc": ask("pvalloc", TOO_MUCH),
    }
    return {name: [answer.result, answer.error] for name, answer in answers.items()}


def posix_memalign_that_fails():
    huge, misaligned = ask("posix_memalign", 64, TOO_MUCH), ask("posix_memalign", 3, 40_031)
    return {"results": [huge.result, misaligned.result], "stored": [huge.stored, misaligned.stored]}


def free_of_nothing():
    return {"error": ask("free", 0, error_before=77).error}


# ---------------------------------------------------------------- mappings


def anonymous_mappings():
    return {"mmap": map_pages(3), "mmap64": map_pages(5, function="mmap64")}


def file_mappings():
    return {"mmap": map_file(7), "mmap64": map_file(9, function="mmap64")}


def odd_length():
    mapping = call("mmap", 0, 12_345, PROTECTION, ANONYMOUS, NO_FILE)
    call("munmap", mapping, 12_345)
    return {"mapping": mapping}


def munmap_front():
    mapping = map_pages(11)
    call("munmap", mapping, 4 * PAGE)
    return {"mapping": mapping}


def munmap_middle():
    mapping = map_pages(12)
    call("munmap", mapping + 3 * PAGE, 4 * PAGE)
    return {"mapping": mapping}


def munmap_end():
    mapping = map_pages(13)
    call("munmap", mapping + 9 * PAGE, 4 * PAGE)
    return {"mapping": mapping}


def munmap_of_several():
    """Unmap the end of one mapping, all of the next and the front of a third with one call."""
    space = map_pages(30)
    call("munmap", space, 30 * PAGE)
    first, second, third = (map_pages(10, ANONYMOUS | FIXED, at=space + n * 10 * PAGE) for n in range(3))
    call("munmap", first + 8 * PAGE, (2 + 10 + 5) * PAGE)
    return {"first": first, "second": second, "third": third}


def munmap_that_fails():
    mapping = map_pages(14)
    answer = ask("munmap", mapping + 1, PAGE)
    return {"mapping": mapping, "result": answer.result, "error": answer.error}


def mapping_over_a_mapping():
    mapping = map_pages(20)
    above = map_pages(6, ANONYMOUS | FIXED, at=mapping + 7 * PAGE)
    call("munmap", mapping, 7 * PAGE)
    return {"mapping": mapping, "above": above}


def mapping_over_a_mapping_that_fails():
    mapping = map_pages(15)
    bad_file = ask("mmap", mapping, 15 * PAGE, PROTECTION, PRIVATE | FIXED, NO_FILE)
    taken = ask("mmap", mapping, 15 * PAGE, PROTECTION, ANONYMOUS | FIXED_NOREPLACE, NO_FILE)
    return {"results": [bad_file.result, taken.result], "errors": [bad_file.error, taken.error]}


def mmap_that_fails():
    empty = ask("mmap", 0, 0, PROTECTION, ANONYMOUS, NO_FILE)
    huge = ask("mmap64", 0, TOO_MUCH, PROTECTION, ANONYMOUS, NO_FILE)
    return {"results": [empty.result, huge.result], "errors": [empty.error, huge.error]}


def mremap_grows():
    old = map_pages(16)
    return {"old": old, "new": call("mremap", old, 16 * PAGE, 40 * PAGE, MAYMOVE)}


def mremap_shrinks():
    old = map_pages(41)
    return {"old": old, "new": call("mremap", old, 41 * PAGE, 17 * PAGE, 0)}


def mremap_onto_a_mapping():
    """Move a mapping onto the middle of another, whose ends stay."""
    old, target = map_pages(18), map_pages(60)
    new = call("mremap", old, 18 * PAGE, 18 * PAGE, MAYMOVE | REMAP_FIXED, target + 20 * PAGE)
    return {"old": old, "target": target, "new": new}


def mremap_of_a_part():
    old = map_pages(19)
    return {"old": old, "new": call("mremap", old + 12 * PAGE, 7 * PAGE, 50 * PAGE, MAYMOVE)}


def mremap_that_keeps_the_old_mapping():
    old = map_pages(21)
    return {"old": old, "new": call("mremap", old, 21 * PAGE, 21 * PAGE, MAYMOVE | DONTUNMAP, 0)}


def mremap_that_fails():
    """Grow a mapping that may not move, with no free memory after it."""
    space = map_pages(45)
    answer = ask("mremap", space, 22 * PAGE, 23 * PAGE, 0)
    return {"mapping": space, "result": answer.result, "error": answer.error}


def mremap_of_a_file():
    old = map_file(23)
    return {"old": old, "new": call("mremap", old, 23 * PAGE, 24 * PAGE, MAYMOVE)}


# ---------------------------------------------------------------- the C library's own allocations


def copy_of_a_string():
    return {"copy": call("strdup", 11_003)}


def line_of_a_file():
    with open("lines", "w") as file:
        file.write("y" * 9_973)
    name = ctypes.create_string_buffer(b"lines")
    file = call("fopen", ctypes.addressof(name))
    line = ask("getline", file)
    call("fclose", file)
    return {"file": file, "line": line.result, "size": line.stored}


def folder():
    name = ctypes.create_string_buffer(b".")
    opened = call("opendir", ctypes.addressof(name))
    call("closedir", opened)
    return {"folder": opened}


# ---------------------------------------------------------------- the rest


def error_numbers():
    return {"changes": [errno_changes(20_000, 0), errno_changes(20_000, 1)]}


def munmap_of_a_part_of_a_page():
    """Unmap a page and one byte: the kernel releases whole pages.

    This is the last scenario, so that nothing is mapped over the released pages.
    """
    mapping = map_pages(2)
    call("munmap", mapping, PAGE + 1)
    return {"mapping": mapping}


def leave_room_for_objects():
    """Make sure that Python's allocator maps no arena during a scenario."""
    blocks = [bytes(440) for _ in range(9_000)]
    return blocks[::3_000]


def main():
    room = leave_room_for_objects()
    ask("free", 0)  # ctypes allocates at the first call
    scenarios = [value for value in globals().values() if getattr(value, "__module__", "") == "__main__"]
    helpers = {map_pages, map_file, leave_room_for_objects, main}
    results = {scenario.__name__: scenario() for scenario in scenarios if scenario not in helpers}
    results["errors"] = {"EBADF": EBADF, "EEXIST": EEXIST, "EINVAL": EINVAL, "ENOMEM": ENOMEM}
    json.dump({"page": PAGE, "failed": FAILED, **results}, sys.stdout)
    del room


main()
