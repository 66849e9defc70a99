"""From a GGUF file to a folder in ``from_pretrained`` format."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from safe_core.types import ModelError
from safe_core.zoo.cache import disk_full
from safe_core.zoo.child import last_error, run
from safe_core.zoo.mend import mended
from safe_core.zoo.pretrained import refuse_holes
from safe_core.zoo.telling import Progress, one_line


def convert(gguf: Path, folder: Path, name: str, report: Progress) -> None:
    """Write the model of a GGUF file into ``folder`` as plain ``from_pretrained`` files, working beside it.

    It runs in a process of its own: half a minute of Python loops would hold up every other thread here, and a process
    can be ended when ``report`` raises, and gives all its memory back. Raises ModelError.
    """
    log = folder.with_name("log.txt")
    code = f"import sys; from {__name__} import convert_here; sys.exit(convert_here(*sys.argv[1:]))"
    package = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([package, *(entry for entry in sys.path if entry)]),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-P", "-c", code, str(gguf), str(folder)]
    status = run(command, log, environment, lambda: report(None, f"Converting {name} (only once)"))
    if status == 0:
        return
    reason = log.read_text(encoding="utf-8", errors="replace")
    if "No space left" in reason:
        raise ModelError(disk_full(gguf.name))
    if status == -9:
        raise ModelError(f"The system ended the conversion of {gguf.name}, most likely for want of memory; free some.")
    raise ModelError(
        f"The GGUF file {gguf.name} cannot be converted ({last_error(reason)}); "
        "give the model's folder in from_pretrained format instead."
    )


def convert_here(gguf: str, folder: str) -> int:
    """The work of ``convert``. Returns the exit status, and prints the reason of a failure."""
    # Alone in a folder, because transformers also reads what lies beside a model.
    alone = Path(folder).with_name("alone")
    try:
        alone.mkdir()
        try:
            (alone / Path(gguf).name).symlink_to(gguf)
        except OSError:  # not every system lets everybody make links
            shutil.copyfile(gguf, alone / Path(gguf).name)
        _convert_tokenizer(alone / Path(gguf).name, Path(folder))
        _convert_network(alone / Path(gguf).name, Path(folder))
    except Exception as error:  # a GGUF file is foreign data, and its readers raise anything
        print(f"ERROR: {one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _convert_network(gguf: Path, folder: Path) -> None:
    """Unpack the weights and save them in bfloat16.

    bfloat16 is what such models are trained and published in, has float32's range (float16 has not), and is what runs
    by default where the hardware has it, so that every other dtype starts from the same weights. Against the same file
    unpacked to float32, norms come out exactly and no weight is off by more than 2^-8 of itself; run in float32, the
    next-token distributions of the built-in models differ by 0.00007 nats on average (0.0008 at worst), far less than
    4-bit quantisation costs or than computing in bfloat16 does (0.001).
    """
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    network, notes = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),  # else a kernel for packed weights may be fetched from the hub
        output_loading_info=True,
    )
    refuse_holes(gguf.name, notes)
    # Without these the saved folder would still claim to be packed, and could not be loaded.
    network.config.__dict__.pop("quantization_config", None)
    network.hf_quantizer = None
    network.save_pretrained(folder)


def _convert_tokenizer(gguf: Path, folder: Path) -> None:
    """Save the tokenizer as transformers reads it from the file, less what it gets wrong."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    from transformers.integrations.gguf import get_gguf_tokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    architecture, facts, _ = get_gguf_tokenizer(str(gguf))
    tokenizer.save_pretrained(folder)
    spec = mended(json.loads(tokenizer.backend_tokenizer.to_str()), architecture, facts)
    Tokenizer.from_str(json.dumps(spec)).save(str(folder / "tokenizer.json"), pretty=False)
    # The plain class takes tokenizer.json as it is, where a model's own class rebuilds parts of it; and with the added
    # tokens listed here it need not read that file twice, which halves the time of a large vocabulary.
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only", "backend"):
        config.pop(key, None)
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["added_tokens_decoder"] = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in spec["added_tokens"]
    }
    config_file.write_text(json.dumps(config, ensure_ascii=False, indent=1), encoding="utf-8")
