from __future__ import annotations

import threading

from criticizer.bounded_cache import BoundedCache


def test_the_longest_unused_values_go_when_the_room_is_full() -> None:
    cache = BoundedCache[str, int](100)
    for number in range(4):
        cache.put(f"key {number}", number, 25)
    assert cache.get("key 0") == 0  # used now, so it stays
    cache.put("key 4", 4, 25)
    assert [cache.get(f"key {number}") for number in range(5)] == [0, None, 2, 3, 4]


def test_a_value_of_more_than_a_quarter_of_the_room_is_not_kept() -> None:
    cache = BoundedCache[str, int](100)
    cache.put("small", 1, 25)
    cache.put("large", 2, 26)
    assert (cache.get("small"), cache.get("large")) == (1, None)


def test_threads_never_take_more_than_the_room() -> None:
    cache = BoundedCache[int, int](1_000)

    def fill(first: int) -> None:
        for number in range(first, first + 2_000):
            cache.put(number % 700, number, 10)
            cache.get(number % 500)

    threads = [threading.Thread(target=fill, args=(n * 97,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(cache.get(number) is not None for number in range(700)) == 100


def test_a_cleared_cache_has_its_room_again() -> None:
    cache = BoundedCache[str, int](100)
    cache.put("a", 1, 25)
    cache.clear()
    assert cache.get("a") is None
    for number in range(4):
        cache.put(str(number), number, 25)
    assert cache.get("0") == 0
