"""What the fields of the page say, as an order. Everything a person can get wrong there is told in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from app.orders import NOTHING, Order
from safe_core.types import InputError, Settings


def order_of(fields: Mapping[str, Any]) -> Order:
    """The order in the fields of the form. Raises InputError, naming the field, where one cannot be meant."""
    sides = tuple(side for side in (fields["left"], fields["right"]) if side not in (None, "", NOTHING))
    return Order(
        prompt=str(fields["prompt"] or ""),
        sides=sides,
        drafter=_name(fields["drafter"]),
        verifiers=tuple(dict.fromkeys(_name(v) for v in fields["verifiers"] or () if _name(v))),
        settings=_settings(fields),
        system=str(fields["system"] or "").strip(),
        device=_name(fields["device"]) or "auto",
        dtype=_name(fields["dtype"]) or "auto",
        attention=_name(fields["attention"]) or "auto",
    ).checked()


def _settings(fields: Mapping[str, Any]) -> Settings:
    return Settings(
        n=_window(fields["n"]),
        sharpen=fields["sharpen"] or "heur",
        lam=_number("lambda", fields["lam"]),
        top_k=_whole("k", fields["top_k"]),
        max_new_tokens=_whole("max tokens", fields["max_new_tokens"]),
        weights=_weights(fields["weights"]),
        temperature=_number("temperature", fields["temperature"]),
        seed=_whole("seed", fields["seed"]),
        stop=tuple(_unescaped(line) for line in str(fields["stop"] or "").splitlines() if line),
        after_confirm=fields["after_confirm"] or "redraft",
        commit=fields["commit"] or "whole",
        check_oov="OOV-like" in (fields["checks"] or ()),
        check_consensus="consensus" in (fields["checks"] or ()),
    )


def _name(value: Any) -> str:
    return str(value or "").strip()


def _window(value: Any) -> int | Literal["auto"]:
    return "auto" if str(value).strip() == "auto" else _whole("n", value)


def _number(field: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"The field '{field}' holds no number. Write one.") from None
    if number != number or abs(number) > 1e12:
        raise InputError(f"The field '{field}' holds a number that cannot be used. Write another.")
    return number


def _whole(field: str, value: Any) -> int:
    number = _number(field, value)
    if number != int(number):
        raise InputError(f"The field '{field}' takes a whole number, not {number}.")
    return int(number)


def _weights(value: Any) -> tuple[float, ...] | None:
    parts = [part for part in str(value or "").replace(";", ",").split(",") if part.strip()]
    return tuple(_number("weights", part) for part in parts) or None


def _unescaped(line: str) -> str:
    """A stop string as typed, where ``\\n`` and ``\\t`` stand for a line end and a tab."""
    return line.replace("\\n", "\n").replace("\\t", "\t")
