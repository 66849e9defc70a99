"""Tokenizers against each other: on which words they agree (the paper's Figure 4), and how often one's tokens are OOV-like
for another in running text. No weights are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from safe_core.reading import Reading
from safe_core.types import InputError, ModelError
from safe_core.vocabulary import Vocabulary, fast_tokenizer

MOST_BYTES: Final = 64 << 20
"""A word list or a text beyond this is a mistake."""

_LIST: Final = """
the of and to in that was his with for had you not but her him all she they this one have which were when there been will
their who would what more them said out some upon into could then now like time other only any very man than about little
over great must good well should know before such down men never come after two made day way first life own again much
water work house place year people world head hand eyes night long old right thing found every without thought took young
mother father child friend woman school teacher student doctor window garden kitchen morning evening yesterday tomorrow
Monday Wednesday January summer winter weather mountain river island ocean village city country street bridge station
letter number question answer language sentence paper history science music picture story newspaper library museum
bread cheese apple orange potato tomato chicken breakfast dinner restaurant butter sugar coffee strawberry banana
red green yellow purple orange-red black white narrow broad heavy light empty quiet loud clever foolish honest careful
beautiful wonderful terrible comfortable important necessary possible impossible different difficult dangerous famous
happy unhappy happiness unhappiness kind unkind kindness friendly unfriendly believe unbelievable agree disagreement
write writing written rewrite read reading reader unreadable teach taught speak spoken understand misunderstanding
begin began begun swim swam choose chosen forget forgotten remember remembered imagine imagination decide decision
govern government democracy president parliament election economy industry agriculture manufacture transport
chemistry biology physics mathematics geometry algebra calculator telescope microscope photograph photosynthesis
oxygen hydrogen nitrogen temperature electricity magnetism gravity energy molecule bacteria antibiotic gallbladder
kidney stomach shoulder finger thumb knee ankle skeleton muscle medicine hospital ambulance surgeon appointment
elephant giraffe kangaroo butterfly mosquito penguin squirrel crocodile hippopotamus rabbit sparrow nightingale
airplane bicycle automobile locomotive submarine helicopter lighthouse harbour warehouse greenhouse bookshelf
thunderstorm earthquake volcano avalanche hurricane rainbow snowflake moonlight sunrise seaside waterfall
computer keyboard software algorithm database internet password download tokenizer parameter variable function
although because therefore however nevertheless meanwhile throughout underneath otherwise somewhere everybody
incorrect incomplete independent international intelligence interpretation interview invitation irregular
encyclopedia refrigerator responsibility characteristic extraordinary simultaneously approximately unfortunately
queue rhythm psychology knowledge wrist island receipt debt subtle castle whistle yacht colonel choir ghost
"""
WORDS: Final = tuple(dict.fromkeys(_LIST.split()))
"""Common English words, with some long, compound and oddly spelled ones."""

TEXTS: Final = {
    "English": (
        "The ferry left the harbour at 6:45, a quarter of an hour late, because the captain couldn't find his glasses. Nobody "
        "minded: the sea was calm, the kiosk sold warm rolls, and a schoolteacher from Aberdeen explained to anyone who'd listen "
        'how lighthouses had been automated between 1971 and 1998. "It\'s incredible," she said, "how quickly we forget."\n\n'
        "By noon they could see the island. Its 1,204 inhabitants keep sheep, distil whisky and argue about the weather.\n"
    ),
    "German": (
        "Der Bürgermeister von Neustadt überreichte gestern die Schlüssel für das neue Feuerwehrgerätehaus. Rund dreißig Gäste "
        "waren gekommen, darunter auch die frühere Landtagsabgeordnete. Das Gebäude kostete 2,4 Millionen Euro und wurde – "
        "trotz Lieferschwierigkeiten – zwei Monate früher fertig als geplant.\n"
    ),
    "French": (
        "Qu'est-ce qu'on mange ce soir ? demanda-t-elle en rentrant du marché. Il n'y avait plus de pâtes, mais il restait des "
        "œufs, un peu de crème fraîche et l'aubergine qu'il avait oubliée dans le réfrigérateur. « Une omelette, bien sûr », "
        "répondit son frère, déjà occupé à éplucher l'ail.\n"
    ),
    "code": (
        "def moving_average(values: list[float], width: int = 3) -> list[float]:\n"
        '    """Means of every `width` neighbours."""\n'
        "    if width < 1:\n"
        '        raise ValueError(f"width must be >= 1, not {width}")\n'
        "    sums = [sum(values[i:i + width]) for i in range(len(values) - width + 1)]\n"
        "    return [total / width for total in sums]  # one float per window\n\n"
        "assert moving_average([1.0, 2.5, 4.0, 8.25]) == [2.5, 4.916666666666667]\n"
    ),
    "Chinese": (
        "昨天下午，图书馆里来了一位老先生。他想找一本三十年前借过的书，却只记得封面是蓝色的。"
        "管理员笑着说：“我们有两万四千本蓝色的书。”最后他们在地下室的第七个书架上找到了它。\n"
    ),
}
"""Running text of several kinds; by default it is read as one text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``tokenizers`` takes on the command line."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="built-in model, folder (a tokenizer.json is enough) or hub id")
    parser.add_argument("--words", metavar="FILE", help="word list, one a line (default: some hundred common English words)")
    parser.add_argument("--text", metavar="FILE", help="running text (default: prose in four languages, and code)")
    parser.add_argument("--save", metavar="OUT.json", help="write the numbers to this file")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Print both agreement matrices and the OOV-like rates, and return them.

    Raises InputError for a file or a name that cannot be used, ModelError for a tokenizer that cannot be read.
    """
    words = read_words(options.words) if options.words else list(WORDS)
    text = _read(options.text) if options.text else "\n".join(TEXTS.values())
    if not text.strip():
        raise InputError(f"The text {options.text} is empty; give a file with some prose in it.")
    asked = list(dict.fromkeys(options.names))
    if len(asked) < 2:
        raise InputError("One tokenizer has nothing to be compared with; name two or more.")
    result = compare(dict(zip(shortened(asked), map(vocabulary, asked), strict=True)), words, text)
    _tell(result)
    return result


def compare(vocabularies: Mapping[str, Vocabulary], words: Sequence[str], text: str) -> dict[str, Any]:
    """Everything that is measured, as plain numbers; rows and columns of every matrix are in the order of ``names``."""
    return {
        "kind": "tokenizers",
        "names": list(vocabularies),
        "words": len(words),
        "agreement": agreement(vocabularies, words),
        "agreement_with_blank": agreement(vocabularies, [f" {word}" for word in words]),
        "oov_like": oov_like(vocabularies, text.encode()),
        "text_bytes": len(text.encode()),
        "versions": {name: version(name) for name in ("tokenizers", "transformers")},
    }


def agreement(vocabularies: Mapping[str, Vocabulary], words: Sequence[str]) -> list[list[float]]:
    """Share of ``words`` that two tokenizers cut into the same byte pieces (Figure 4); 1 on the diagonal.

    A word that a tokenizer does not give back byte for byte is cut like nobody else's.
    """
    cuts = [[_pieces(v, word) for word in words] for v in vocabularies.values()]

    def alike(one: int, other: int) -> float:
        same = sum(a is not None and a == b for a, b in zip(cuts[one], cuts[other], strict=True))
        return 1.0 if one == other else same / len(words)

    return _matrix(len(cuts), alike)


def _pieces(vocabulary: Vocabulary, word: str) -> tuple[bytes, ...] | None:
    encoding = vocabulary.encode(word.encode())
    return None if encoding.unaligned else tuple(token.bytes for token in encoding.tokens)


def oov_like(vocabularies: Mapping[str, Vocabulary], text: bytes) -> list[list[float]]:
    """Share of the drafter's (row's) boundaries inside ``text`` that are none in the verifier's (column's) reading (Eq. 1).

    Places that a tokenizer does not give back byte for byte are no OOV-like tokens; the engine calls them unaligned.
    """
    readings = [Reading(name, v.encode(text), text, 0, None) for name, v in vocabularies.items()]
    ends = [sorted({t.end for t in r.encoding.tokens} - {0, len(text)}) for r in readings]
    inner = [[at for at in own if not r.is_unaligned(at, at)] for own, r in zip(ends, readings, strict=True)]

    def rate(drafter: int, verifier: int) -> float:
        read = readings[verifier]
        lacking = sum(not read.has_boundary(at) and not read.is_unaligned(at, at) for at in inner[drafter])
        return lacking / len(inner[drafter]) if inner[drafter] else 0.0

    return _matrix(len(readings), rate)


def vocabulary(name: str) -> Vocabulary:
    """A tokenizer by built-in name, folder or hub id, without its weights; a folder or file of a tokenizer alone will do."""
    from tokenizers import Tokenizer

    from safe_core import zoo

    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    alone = file.is_file() and file.name == "tokenizer.json" and not (file.parent / "config.json").is_file()
    if not alone:
        return Vocabulary(fast_tokenizer(zoo.load_tokenizer(name), name), name=name)
    try:
        return Vocabulary(Tokenizer.from_file(str(file)), name=name)
    except Exception as error:  # the reader of these files raises bare Exceptions
        raise ModelError(f"The tokenizer {file} cannot be read ({str(error).splitlines()[0]}); check the file.") from error


def shortened(names: Sequence[str]) -> list[str]:
    """Names as short as they stay apart: of paths, only as many last parts as are needed, without an ending all share."""
    parts = [list(Path(name).parts) if Path(name).expanduser().exists() else [name] for name in names]
    paths = [p for p in parts if len(p) > 1]
    while len(paths) > 1 and min(map(len, paths)) > 1 and len({p[-1] for p in paths}) == 1:
        for path in paths:
            path.pop()
    for length in range(1, max(map(len, parts))):
        short = ["/".join(p[-length:]) for p in parts]
        if len(set(short)) == len(short):
            return short
    return ["/".join(p) for p in parts]


def read_words(path: str) -> list[str]:
    """The words of a list, one a line, each once. Raises InputError for a file without any."""
    words = list(dict.fromkeys(word for line in _read(path).splitlines() if (word := line.strip())))
    if not words:
        raise InputError(f"The word list {path} is empty; write one word a line.")
    return words


def _read(path: str) -> str:
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise InputError(f"The file {path} is larger than {MOST_BYTES >> 20} MB; give a shorter one.")
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"The file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The file {path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def _matrix(size: int, cell: Callable[[int, int], float]) -> list[list[float]]:
    return [[round(cell(row, column), 6) for column in range(size)] for row in range(size)]


def _tell(result: dict[str, Any]) -> None:
    names = result["names"]
    _table(f"cut alike, {result['words']} words", names, result["agreement"])
    _table("cut alike, with a blank before the word", names, result["agreement_with_blank"])
    _table(
        f"OOV-like tokens of the drafter (row) for the verifier (column), {result['text_bytes']:,} bytes of text",
        names,
        result["oov_like"],
    )


def _table(title: str, names: Sequence[str], matrix: Sequence[Sequence[float]]) -> None:
    """One matrix in percent, to the terminal."""
    widths = [max(len(name), 8) for name in names]
    first = max(widths)
    print(title)
    print("  " + " " * first + "".join(f"  {name:>{width}}" for name, width in zip(names, widths, strict=True)))
    for name, row in zip(names, matrix, strict=True):
        print(f"  {name:<{first}}" + "".join(f"  {share:>{width}.2%}" for share, width in zip(row, widths, strict=True)))
    print(flush=True)
