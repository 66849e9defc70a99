"""One model's reading of the response: its own tokens, its boundaries, and the row of every token that may be asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from safe_core.types import EOS, Symbol, Token
from safe_core.vocabulary import Encoding


class RowView(Protocol):
    """Next-token rows of one model, as far as they can be seen without tensors (:class:`safe_core.model.Rows`)."""

    argmax: list[Symbol]

    def __len__(self) -> int: ...

    def p(self, k: int, id: int) -> float: ...

    def eos_p(self, k: int) -> float: ...

    def best_id(self, k: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Witness:
    """What one model says at one position: its own token that starts there, how probable it finds it, what it prefers.

    ``rows`` and ``k`` say where the whole row is. ``None`` in place of a witness means: no boundary, not asked.
    """

    symbol: Symbol
    end: int
    p: float
    argmax: Symbol
    rows: RowView
    k: int

    @property
    def agrees(self) -> bool:
        """Whether the token is the model's first choice."""
        return self.symbol == self.argmax


@dataclass(frozen=True)
class Reading:
    """``encoding`` of ``text``, the response so far.

    Row ``k`` of ``rows`` belongs to token ``first + k``; token ``first`` holds the window's first byte. Where the end of the
    text may be asked for, one more row follows the last token's.
    """

    model: str
    encoding: Encoding
    text: bytes
    first: int
    rows: RowView | None

    @property
    def length(self) -> int:
        return len(self.text)

    def has_boundary(self, offset: int) -> bool:
        """Whether a token starts or ends at this byte offset (offsets from the window's first byte on)."""
        if offset in (0, self.length):
            return True
        before = bisect_right(self.encoding.tokens, offset, key=_start) - 1
        token = self.encoding.tokens[before] if before >= 0 else None
        return token is not None and (token.start == offset or token.end == offset)

    def is_unaligned(self, start: int, end: int) -> bool:
        """Whether bytes ``[start, end)``, or the offset ``start`` itself, lie in a range this tokenizer does not give back."""
        return any(a <= start < b or start < a < end for a, b in self.encoding.unaligned)

    def witness(self, token: Token) -> Witness | None:
        """What this model says where the drafter's ``token`` starts; ``None`` where none of its tokens starts."""
        if self.rows is None:
            return None
        if token.eos:
            k = len(self.encoding.tokens) - self.first
            return Witness(EOS, token.start, self.rows.eos_p(k), self.rows.argmax[k], self.rows, k)
        index = token_at(self.encoding, token.start)
        if index is None or index < self.first:
            return None
        own, k = self.encoding.tokens[index], index - self.first
        return Witness((own.bytes, own.eos), own.end, self.rows.p(k, own.id), self.rows.argmax[k], self.rows, k)


def token_at(encoding: Encoding, offset: int) -> int | None:
    """Index of the first token that starts at this byte offset."""
    index = bisect_right(encoding.tokens, offset - 1, key=_start)
    found = index < len(encoding.tokens) and encoding.tokens[index].start == offset
    return index if found else None


def token_holding(encoding: Encoding, offset: int) -> int:
    """Index of the token that holds this byte; the number of tokens where the text ends before it."""
    index = bisect_right(encoding.tokens, offset, key=_start) - 1
    if index < 0:
        return 0
    while index > 0 and encoding.tokens[index - 1].start == encoding.tokens[index].start:
        index -= 1
    return index if encoding.tokens[index].end > offset else index + 1


def oov_like(committed: Sequence[Token], encoding: Encoding) -> list[int]:
    """Indices of the committed tokens whose end is no boundary of this reading of the final text (Eq. 1).

    Ends inside bytes that the tokenizer does not give back are unaligned, not OOV-like.
    """
    edges = {0} | {t.start for t in encoding.tokens} | {t.end for t in encoding.tokens}
    edges |= {offset for a, b in encoding.unaligned for offset in range(a, b)}
    last = committed[-1].end if committed else 0
    return [i for i, t in enumerate(committed) if not t.eos and t.end != last and t.end not in edges]


def _start(token: Token) -> int:
    return token.start
