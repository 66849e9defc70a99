"""Guesses of what the drafter will say next, so that one forward pass can confirm several tokens.

A pass over five tokens costs hardly more than one over a single token. What was written before often comes again (names,
numbers, the question's own words), so the ids behind the last earlier occurrence of the last two are fed along. A guess never
changes the text: it counts only as far as the drafter's own rows choose the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence


class Lookup:
    """The ids of prompt and response so far, by pairs. Adding an id and looking one up take constant time."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self._ids: list[int] = []
        self._behind: dict[tuple[int, int], int] = {}  # a pair of ids -> where what followed it begins
        self.extend(prompt_ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Take in ids that stand."""
        for id in ids:
            if len(self._ids) >= 2:
                self._behind[self._ids[-2], self._ids[-1]] = len(self._ids)
            self._ids.append(id)

    def guess(self, drafted: Sequence[int], most: int) -> list[int]:
        """At most ``most`` ids that may follow what stands and ``drafted`` behind it; empty where nothing like it was seen."""
        last = [*self._ids[-2:], *drafted][-2:]
        at = self._behind.get((last[0], last[1])) if len(last) == 2 else None
        return [] if at is None else self._ids[at : at + most]
