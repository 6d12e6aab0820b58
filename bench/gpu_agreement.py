"""Whether the GPU says what the CPU says: texts, the next token's distribution, vectors; what a token costs.

Counterparts: `gpu_agreement.js`, which runs a backend in a page; `gpu.py`, the command line;
`tests/browser/test_gpu_agreement.py`, which judges.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Snapshots would be read back from the GPU and counted with the tokens.
OPTIONS: Mapping[str, Any] = {"artifact": "st", "context": {"size": 1024}, "prefixCacheBytes": 0}

RUN = Path(__file__).with_suffix(".js").read_text()
"""A JavaScript function, to be evaluated with a dictionary of `Questions` and the model's address."""

CLEAR_LEAD = 0.2
"""Nats between the two likeliest tokens. The rounding of neither backend turns that round."""

FORCED_PROMPT = "The most important rule of a good kitchen is"

TEXT = (
    "The city lies on both banks of a wide river, where two trade routes have crossed since antiquity. Its "
    "oldest quarter grew around a stone bridge that was built in the twelfth century and has been repaired "
    "many times since. In spring the water rises, and for a few weeks the lower streets can only be reached "
    "by boat. Merchants used to store grain and salt in the vaulted cellars below the market hall, which now "
    "houses a small museum. Visitors can see the old scales, the seals of the guilds and a map that shows "
    "how far the walls once reached. After the great fire of 1684 the council decided that new houses must "
    "be made of brick, and much of what we see today dates from the years that followed. The university was "
    "founded later, when the region had become wealthy through the trade in wool and glass. Its first "
    "professors taught law and medicine, and only slowly did the natural sciences find their place. Today "
    "about thirty thousand students live here, which is almost a quarter of the population. The railway "
    "station, opened in 1859, brought factories to the northern suburbs; most of them are closed, and their "
    "halls are used by artists and small companies. If you have only one day, begin with the bridge, climb "
    "the tower of the main church before noon, and walk along the river in the evening, when the lights are "
    "reflected in the water and the last boats return to the harbour."
)


@dataclass(frozen=True)
class Questions:
    """What both backends are asked.

    forced: so many tokens that the CPU says after `FORCED_PROMPT` are the text that both are asked about, one
    by one. foreign: how many beginnings of `TEXT` are, which no model has written and is less sure of.
    """

    chats: Sequence[str] = ()
    queries: Sequence[str] = ()
    forced: int = 0
    foreign: int = 0
    sentences: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, evaluate: Callable[[str, object], Any], model: str) -> dict[str, Any]:
        """Runs both backends in a page, by its `evaluate`. Returns `{cpu, gpu}`, see gpu_agreement.js."""
        cpu = evaluate(RUN, self._to_page(model, "cpu"))
        same = {"forced": None, "prefixes": cpu["places"]}
        return {"cpu": cpu, "gpu": evaluate(RUN, self._to_page(model, "webgpu") | same)}

    def _to_page(self, model: str, backend: str) -> dict[str, Any]:
        return {
            "model": model,
            "backend": backend,
            "options": {**OPTIONS, **self.options},
            "chats": self.chats,
            "queries": self.queries,
            "forced": {"prompt": FORCED_PROMPT, "tokens": self.forced} if self.forced else None,
            "prefixes": beginnings(TEXT, self.foreign),
            "sentences": self.sentences,
        }


def beginnings(text: str, count: int) -> list[str]:
    """The first `count` beginnings of a text, cut behind words and punctuation, the shortest first."""
    ends = [match.end() for match in re.finditer(r"\w+|[^\w\s]", text)]
    if count > len(ends):
        raise ValueError(f"the text has {len(ends)} beginnings, not {count}")
    return [text[:end] for end in ends[:count]]


def compare(cpu: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """How two runs of gpu_agreement.js agree.

    `{sameTexts: [bool], positions, top1, clearPositions, clearTop1, klMean, klMax, cosines}`: `top1` is the
    share of positions whose likeliest token is the same, `clearTop1` that of those where the CPU's leads
    clearly; `kl` the GPU's divergence from the CPU in nats, over the CPU's twenty likeliest tokens and the
    rest as one.
    """
    divergences = [divergence(a, b) for a, b in zip(cpu["next"], gpu["next"], strict=True)]
    same = [a[0][0] == b[0][0] for a, b in zip(cpu["next"], gpu["next"], strict=True)]
    clear = [same[place] for place, top in enumerate(cpu["next"]) if top[0][1] - top[1][1] >= CLEAR_LEAD]
    return {
        "sameTexts": [a == b for a, b in zip(cpu["texts"], gpu["texts"], strict=True)],
        "positions": len(same),
        "top1": sum(same) / len(same) if same else None,
        "clearPositions": len(clear),
        "clearTop1": sum(clear) / len(clear) if clear else None,
        "klMean": sum(divergences) / len(divergences) if divergences else None,
        "klMax": max(divergences, default=None),
        "cosines": [cosine(a, b) for a, b in zip(cpu["vectors"], gpu["vectors"], strict=True)],
    }


def divergence(reference: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Kullback-Leibler divergence of two lists of [token, log probability], the likeliest tokens of each.

    A token that the other list lacks counts as likely as that list's last: its true value is at most that.
    """
    theirs = {int(token): logprob for token, logprob in other}
    floor = min(theirs.values())
    total = 0.0
    p_rest = q_rest = 1.0
    for token, logprob in reference:
        q = theirs.get(int(token), floor)
        p = math.exp(logprob)
        total += p * (logprob - q)
        p_rest -= p
        q_rest -= math.exp(q)
    if p_rest > 1e-9 and q_rest > 1e-9:
        total += p_rest * (math.log(p_rest) - math.log(q_rest))
    return max(total, 0.0)


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
