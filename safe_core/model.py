"""A model and its sessions: rows of next-token logits for any token ids, with a KV cache that rolls back by itself.

To its caller :meth:`Session.rows` is a pure function of the ids; inside, whatever the cache already holds is not computed again.
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, get_layer_types_and_kwargs

from safe_core.types import InputError, ModelError, Symbol
from safe_core.vocabulary import Vocabulary, common_prefix, fast_tokenizer

ROLLS_BACK = {"full_attention", "sliding_attention", "chunked_attention", "dummy"}
"""Layer kinds whose past is keys and values alone; all others carry a state that cannot be taken back."""
CONTINUES = {
    "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "lfm2", "lfm2_moe",
    "mamba", "mamba2", "nemotron_h", "olmo_hybrid", "qwen3_5_text", "qwen3_next",
}  # fmt: skip
"""Architectures with a state whose cached step was compared with the whole computation and found equal. Not all are: a
step of RecurrentGemma, Bamba or RWKV behind a cache gives other rows, without an error."""

BLOCK = 256
"""Values whose maximum is taken at once in the search for the greatest."""


class Rows:
    """Next-token logits ``[K, V]``, cut to the vocabulary, the end-of-sequence set collapsed into its lowest id.

    They keep the model's own precision, since a float32 copy of a large vocabulary's rows costs more than all that is asked
    of them; every sum over them is taken in float32. The collapsed logit is the log-sum-exp over the set, so its probability
    is the sum; the other ids of the set hold ``-inf``.
    """

    __slots__ = ("_best", "_lse", "_maxima", "_vocabulary", "argmax", "logits")

    def __init__(self, logits: Tensor, maxima: Tensor, lse: list[float], best: list[int], vocabulary: Vocabulary) -> None:
        """``maxima``, ``lse`` and ``best`` are the maxima of the blocks, the log-sum-exp and the id of the greatest logit of
        every row, as :func:`summed` gives them."""
        self.logits = logits
        self._maxima = maxima
        self.argmax: list[Symbol] = [vocabulary.symbol(i) for i in best]
        self._best = best
        self._lse = lse
        self._vocabulary = vocabulary

    @staticmethod
    def of(logits: Tensor, vocabulary: Vocabulary) -> Rows:
        """Rows from raw logits ``[K, V']``."""
        logits = logits[:, : vocabulary.size]
        if logits.dtype == torch.float64:
            logits = logits.float()  # as the maxima of its blocks are
        eos = vocabulary.eos_id
        if len(vocabulary.eos_ids) > 1 and eos is not None:
            ids = torch.tensor(sorted(vocabulary.eos_ids), device=logits.device)
            mass = torch.logsumexp(logits[:, ids].float(), dim=-1)
            logits = logits.float().index_fill(1, ids, -torch.inf)
            logits[:, eos] = mass
        return Rows(logits, *summed(logits), vocabulary)

    @property
    def unusable(self) -> int | None:
        """The first row without a probability distribution in it: empty, infinite, or not a number."""
        return next((k for k, total in enumerate(self._lse) if not math.isfinite(total)), None)

    def __len__(self) -> int:
        return len(self._lse)

    def best_id(self, k: int) -> int:
        """Id of the most probable token of row ``k``; ties go to the lowest id."""
        return self._best[k]

    def p(self, k: int, id: int) -> float:
        """Probability of token ``id`` in row ``k``; for any end-of-sequence id, of the whole set."""
        if id in self._vocabulary.eos_ids:
            return self.eos_p(k)
        return min(1.0, math.exp(float(self.logits[k, id]) - self._lse[k]))

    def eos_p(self, k: int) -> float:
        """Probability of end of sequence in row ``k``; 0 for a model without one."""
        eos = self._vocabulary.eos_id
        return 0.0 if eos is None else min(1.0, math.exp(float(self.logits[k, eos]) - self._lse[k]))

    def probabilities(self, k: int, ids: Tensor | None = None) -> Tensor:
        """Softmax of row ``k``, ``[V]``, or of the given ids alone, on the device of the row."""
        row = self.logits[k] if ids is None else self.logits[k].index_select(0, ids)
        return row.to(torch.float32, copy=True).sub_(self._lse[k]).exp_()

    def probabilities_of(self, k: int, ids: Sequence[int]) -> list[float]:
        """Probabilities of some ids in row ``k``, in double precision; end of sequence goes by its lowest id."""
        return [min(1.0, math.exp(x - self._lse[k])) for x in self.logits[k, torch.tensor(ids, dtype=torch.long)].tolist()]

    def p_at(self, k: int, logit: float) -> float:
        """The probability of a token of row ``k`` with this logit."""
        return math.exp(logit - self._lse[k])

    def lse(self, k: int) -> float:
        """Log-sum-exp of row ``k``."""
        return self._lse[k]

    def on_cpu(self, k: int) -> Rows:
        """Row ``k`` alone, in main memory."""
        logits, maxima = self.logits[k : k + 1].cpu(), self._maxima[k : k + 1].cpu()
        return Rows(logits, maxima, self._lse[k : k + 1], self._best[k : k + 1], self._vocabulary)

    def leaders(self, k: int, count: int) -> tuple[Tensor, float]:
        """Ids of the ``count`` greatest logits of row ``k``, and a few more, and a bound (see :func:`leaders`)."""
        return leaders(self.logits[k], self._maxima[k], count)

    def symbol_p(self, k: int, symbol: Symbol) -> float:
        """Probability of a string in row ``k``: the sum over every token that spells it."""
        data, eos = symbol
        if eos:
            return self.eos_p(k)
        return min(1.0, math.fsum(self.p(k, id) for id in self._vocabulary.symbols.get(data, ())))

    def sample(self, k: int, u: float) -> int:
        """The token at which the cumulated probability of row ``k`` first exceeds ``u`` in [0, 1)."""
        cumulated = torch.softmax(self.logits[k].double(), dim=-1).cumsum(dim=-1).cpu()
        at = torch.searchsorted(cumulated, torch.tensor(u * float(cumulated[-1]), dtype=cumulated.dtype), right=True)
        return min(int(at), self.logits.shape[-1] - 1)

    def at_temperature(self, temperature: float) -> Rows:
        """The same rows with logits divided by ``temperature``."""
        logits = self.logits.float() / temperature
        maxima, lse, _ = summed(logits)
        return Rows(logits, maxima, lse, self._best, self._vocabulary)


def summed(logits: Tensor) -> tuple[Tensor, list[float], list[int]]:
    """Maxima of the blocks ``[K, V // BLOCK]`` of ``logits [K, V]``, log-sum-exp of every row, and the id of its greatest value,
    the first where several tie.

    One float32 copy is made and overwritten in place: fresh memory costs more here than arithmetic does.
    """
    values = logits.to(torch.float32, copy=True)
    maxima = block_maxima(values)
    best = _first_of_greatest(values, maxima)
    top = values.gather(1, best)
    rest = values.sub_(top).exp_().sum(dim=-1, keepdim=True).log_()
    return maxima, (top.double() + rest.double()).flatten().tolist(), best.flatten().tolist()


def block_maxima(values: Tensor) -> Tensor:
    """Maximum of every block of ``values [..., N]``; what lies behind the last whole block belongs to none."""
    blocks = values.shape[-1] // BLOCK
    return values[..., : blocks * BLOCK].reshape(*values.shape[:-1], blocks, BLOCK).amax(dim=-1)


def _first_of_greatest(values: Tensor, maxima: Tensor) -> Tensor:
    """Index ``[K, 1]`` of the greatest of ``values [K, V]``: many times faster than argmax, which is not vectorised on a CPU."""
    blocks = maxima.shape[-1]
    whole = blocks * BLOCK
    highest = torch.cat([maxima, values[:, whole:]], dim=-1).argmax(dim=-1, keepdim=True)
    start = torch.where(highest < blocks, highest * BLOCK, whole + highest - blocks)
    at = (start + torch.arange(BLOCK, device=values.device)).clamp(max=values.shape[-1] - 1)
    return start + values.gather(1, at).argmax(dim=-1, keepdim=True)


def leaders(values: Tensor, maxima: Tensor, count: int) -> tuple[Tensor, float]:
    """Indices of at least the ``count`` largest of ``values [N]``, with all that tie, and a bound: all others are below it.

    The bound is the ``count``-th largest of the ``maxima`` of blocks, and only blocks that reach it are looked into, which takes
    a small part of a selection's time.
    """
    blocks = maxima.shape[-1]
    if blocks < 4 * count:
        bound = torch.topk(values, min(count, values.shape[-1])).values[-1]
        return (values >= bound).nonzero().flatten(), float(bound)
    bound = torch.topk(maxima, count).values[-1]
    holding = (maxima >= bound).nonzero().flatten()
    whole = blocks * BLOCK
    block, place = (values[:whole].view(blocks, BLOCK)[holding] >= bound).nonzero().T
    rest = (values[whole:] >= bound).nonzero().flatten() + whole
    return torch.cat([holding[block] * BLOCK + place, rest]), float(bound)


class Model:
    """Weights and vocabulary of one model. Sessions share them.

    ``context``     tokens that prompt and response may take together
    ``rolls_back``  its cache crops exactly at any depth
    ``continues``   its cache takes a further token exactly; where it does not, every row is computed from the beginning
    ``rope_turn``   length behind which all positions are encoded in another way, if there is one
    """

    def __init__(self, name: str, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.name = name
        self.network = network.eval()
        self.tokenizer = tokenizer
        config = network.config.get_text_config(decoder=True)
        head = network.get_output_embeddings()
        head_size = None if head is None else int(head.weight.shape[0])
        ids = (tokenizer.eos_token_id, config.eos_token_id, getattr(network.generation_config, "eos_token_id", None))
        self.vocabulary = Vocabulary(fast_tokenizer(tokenizer, name), name=name, eos_ids=_flat(ids), head_size=head_size)
        self.device = network.get_input_embeddings().weight.device
        context = int(getattr(config, "max_position_embeddings", None) or 0)
        self.context = context if context > 0 else 1 << 30
        self.rope_turn = _rope_turn(config)
        accepts = inspect.signature(network.forward).parameters
        control = self.vocabulary.control_ids | self.vocabulary.eos_ids
        added = fast_tokenizer(tokenizer, name).get_added_tokens_decoder()
        self._control_spellings = [a.content for i, a in added.items() if a.special or i in control]
        self._cuts_head = "logits_to_keep" in accepts
        self._cache_name = next((name for name in ("cache", "past_key_values") if name in accepts), None)
        kinds, _ = get_layer_types_and_kwargs(config)
        stateless = set(kinds) <= ROLLS_BACK and not getattr(network, "_is_stateful", False)
        self.rolls_back = self._cache_name is not None and stateless
        self.continues = self.rolls_back or (self._cache_name is not None and config.model_type in CONTINUES)

    def session(self, prompt: str, system: str | None = None, *, use_cache: bool = True) -> Session:
        """A conversation with this prompt and an empty response. Raises InputError where the prompt does not fit."""
        return Session(self, self.prompt_ids(prompt, system), use_cache=use_cache)

    def prompt_ids(self, prompt: str, system: str | None = None) -> tuple[int, ...]:
        """The prompt as this model is used to it: its chat template, or ``Question: ...\\nAnswer:`` after its BOS.

        What looks like a control token inside ``prompt`` or ``system`` stays text. Raises InputError for a prompt that is
        blank or longer than the model's context.
        """
        if not prompt.strip():
            raise InputError("The prompt is empty. Type a question or a text to continue.")
        ids = tuple(self._templated(prompt, system) if self.tokenizer.chat_template else self._plain(prompt, system))
        if len(ids) >= self.context:
            raise InputError(
                f"The prompt takes {len(ids)} tokens for {self.name}, whose context is {self.context}. Shorten the prompt."
            )
        return ids

    def forward(self, ids: Sequence[int], cache: Cache | None, keep: int) -> Tensor:
        """Feed ``ids`` behind ``cache`` (which takes them in); logits ``[keep, V]`` of the last ``keep`` of them."""
        fed = torch.tensor([list(ids)], device=self.device)
        options: dict[str, Any] = {"logits_to_keep": keep} if self._cuts_head else {}
        if cache is not None and self._cache_name is not None:
            options[self._cache_name] = cache
        try:
            with torch.inference_mode():
                logits: Tensor = self.network(input_ids=fed, use_cache=cache is not None, **options).logits[0, -keep:]
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
        except RuntimeError as error:  # a card's OutOfMemoryError is one; the CPU's allocator raises a plain one
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            raise ModelError(f"{self.name} ran out of memory on {self.device}. Use a smaller model or a shorter text.") from None
        return logits

    def new_cache(self) -> Cache:
        """An empty cache: one that crops exactly at any depth, or the model's own kind where its past cannot be taken back."""
        if self.rolls_back:
            return Cache(layer_class_to_replicate=GrowingLayer)
        return DynamicCache(config=self.network.config)

    def _plain(self, prompt: str, system: str | None) -> list[int]:
        start = self.tokenizer.bos_token_id
        text = f"{system}\n\nQuestion: {prompt}\nAnswer:" if system else f"Question: {prompt}\nAnswer:"
        ids = self.vocabulary.encode(text.encode()).ids if self._spells_control(text) else self._encode_template(text)
        return ([] if start is None else [start]) + ids

    def _templated(self, prompt: str, system: str | None) -> list[int]:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        texts = [m["content"] for m in messages]
        if not any(map(self._spells_control, texts)):
            return self._encode_template(self._render(messages))
        # Control tokens spelled by the person: render with placeholders, and put the texts back as plain text.
        rendered = self._render([m | {"content": f"\ue000{i}\ue001"} for i, m in enumerate(messages)])
        ids: list[int] = []
        for at, part in enumerate(re.split("\ue000([0-9])\ue001", rendered)):  # template, number, template, ...
            ids += self.vocabulary.encode(texts[int(part)].encode()).ids if at % 2 else self._encode_template(part)
        return ids

    def _spells_control(self, text: str) -> bool:
        """Whether a text holds what this tokenizer would read as a control token."""
        return any(spelling in text for spelling in self._control_spellings)

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is code of the model's author and may raise anything
            raise InputError(f"The chat template of {self.name} refuses this prompt: {error}.") from error
        return str(text)

    def _encode_template(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


class Session:
    """One prompt and a KV cache. ``passes``, ``fed`` and ``forward_ms`` count forward passes, tokens fed and their time."""

    def __init__(self, model: Model, prompt_ids: Sequence[int], *, use_cache: bool = True) -> None:
        if not prompt_ids:
            raise InputError(f"The prompt gives no token for {model.name}.")
        self.name = model.name
        self.model = model
        self.vocabulary = model.vocabulary
        self.context = model.context
        self.rolls_back = use_cache and model.rolls_back
        self.prompt_ids = tuple(prompt_ids)
        self.passes = 0
        self.fed = 0
        self.forward_ms = 0.0
        self._prompt = list(prompt_ids)
        self._use_cache = use_cache and model.continues
        self._cached: list[int] = []
        self._cache: Cache | None = None

    def rows(self, ids: Sequence[int], since: int) -> Rows:
        """Rows ``[len(ids) - since + 1, V]``; row ``k`` is P(. | prompt, ids[:since + k]).

        Raises ModelError where prompt and ids outgrow the context, or memory runs out.
        """
        all_ids = self._prompt + list(ids)
        if len(all_ids) > self.context:
            raise ModelError(f"{self.name} reached the end of its context of {self.context} tokens at response token {len(ids)}.")
        keep = len(ids) - since + 1
        start = time.perf_counter()
        logits = self._feed(all_ids, keep)
        self.forward_ms += (time.perf_counter() - start) * 1e3
        return Rows.of(logits, self.vocabulary)

    def _feed(self, all_ids: list[int], keep: int) -> Tensor:
        """Logits of the last ``keep`` of ``all_ids``, computing only what the cache does not hold."""
        turn = self.model.rope_turn
        if (len(self._cached) > turn) != (len(all_ids) > turn):
            self._cached = []  # its keys were turned by the other set of angles
        known = min(common_prefix(self._cached, all_ids), len(all_ids) - keep)
        if not self._use_cache:
            known, cache = 0, None
        else:
            cache = self._rolled_back(known, len(all_ids) - known)
            known = len(self._cached)
        fed = all_ids[known:]
        self._cached = []  # should the pass fail, nothing of the cache is trusted
        logits = self.model.forward(fed, cache, keep)
        if cache is not None:
            self._cache, self._cached = cache, all_ids
        self.passes += 1
        self.fed += len(fed)
        return logits

    def _rolled_back(self, known: int, new: int) -> Cache:
        """The cache holding exactly the first ``known`` ids, or fewer; ``_cached`` says how many."""
        excess = len(self._cached) - known
        # A recurrent state cannot be taken back, and takes more than one token in only at its very start.
        lost = not self.model.rolls_back and (excess > 0 or new > 1)
        if self._cache is None or known == 0 or lost:
            self._cached = []
            return self.model.new_cache()
        if excess > 0:
            self._cache.crop(-excess)
            self._cached = self._cached[:known]
        return self._cache


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """Keys and values in buffers that double, so that a token costs its own copy, not one of the whole past; cropping is free.

    Shapes ``[batch, heads, length, head_dim]``, as transformers has them.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._length = 0
            self._key_buffer = key_states.new_empty(0)
            self._value_buffer = value_states.new_empty(0)
        length = self._length + key_states.shape[-2]
        self._key_buffer = self._put(self._key_buffer, key_states, length)
        self._value_buffer = self._put(self._value_buffer, value_states, length)
        self._length = length
        self.keys = self._key_buffer[..., :length, :]
        self.values = self._value_buffer[..., :length, :]
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if self.is_initialized:
            self._length = self.keys.shape[-2]

    def _put(self, buffer: Tensor, states: Tensor, length: int) -> Tensor:
        if buffer.dim() != states.dim() or buffer.shape[-2] < length:
            size = [*states.shape[:-2], max(2 * length, 256), states.shape[-1]]
            grown = states.new_empty(size)
            if self._length:
                grown[..., : self._length, :] = buffer[..., : self._length, :]
            buffer = grown
        buffer[..., self._length : length, :] = states
        return buffer


def _rope_turn(config: Any) -> int:
    """The length behind which rotary positions of type ``longrope`` change for the whole text; none for all others."""
    given = getattr(config, "rope_parameters", None) or {}
    kinds = [given, *(part for part in given.values() if isinstance(part, dict))]  # one for all layers, or by layer type
    turns = [int(part["original_max_position_embeddings"]) for part in kinds if part.get("rope_type") == "longrope"]
    return min(turns, default=1 << 30)


def _flat(ids: Sequence[Any]) -> set[int]:
    """Ids out of values that are an id, a list of ids, or nothing."""
    out: set[int] = set()
    for value in ids:
        if value is not None:
            out.update(value if isinstance(value, (list, tuple)) else [value])
    return out
