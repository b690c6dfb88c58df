"""Full-text search over sections: BM25 on stems, with identifiers taken apart."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

K1, B = 1.2, 0.75
MAX_TERMS = 24  # of a query: its most telling ones
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS = ("ations", "ation", "ingly", "ings", "ing", "ied", "ies", "ers", "ed", "es", "er", "ly", "s", "e")


def terms_of(text: str) -> list[str]:
    """Return the stems of a text: each name as a whole where it has parts, and its parts."""
    terms: list[str] = []
    for name in _NAME.findall(text):
        parts = _PART.findall(name)
        if len(parts) > 1:
            terms.append(name.strip("_").lower())
        terms += [_stem(part.lower()) for part in parts if len(part) > 1]
    return terms


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


class FullText:
    """An index of texts by their places."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._counts: list[Mapping[str, int]] = [Counter(terms_of(text)) for text in texts]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0
        self._holders: dict[str, list[int]] = {}
        for number, counts in enumerate(self._counts):
            for term in counts:
                self._holders.setdefault(term, []).append(number)

    def idf(self, term: str) -> float:
        """Return how telling a term is, 0 where no text has it."""
        held, total = len(self._holders.get(term, ())), len(self._counts)
        return math.log(1 + (total - held + 0.5) / (held + 0.5)) if held else 0.0

    def search(self, query: Mapping[str, float]) -> dict[int, float]:
        """Return by place the score of each text that holds a term, at most 1.

        1 is the score of a text about nothing else. `query` has weights of terms.
        """
        weighted = {term: weight * self.idf(term) for term, weight in query.items()}
        telling: Sequence[str] = sorted(weighted, key=lambda term: (-weighted[term], term))[:MAX_TERMS]
        whole = sum(weighted[term] for term in telling) * (K1 + 1) / 2
        found: dict[int, float] = {}
        for term in telling:
            for number in self._holders.get(term, ()):
                count = self._counts[number][term]
                norm = K1 * (1 - B + B * self._lengths[number] / self._mean)
                found[number] = found.get(number, 0.0) + weighted[term] * count * (K1 + 1) / (count + norm)
        return {number: min(1.0, score / whole) for number, score in found.items()} if whole else {}
