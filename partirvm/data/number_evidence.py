"""How a column writes its numbers, by the evidence of all its texts.

Of all pairs of a decimal mark and a thousands separator, those that read the most texts count. If
two of them read some text differently, the column is undecided.

>>> import pyarrow as pa
>>> from partirvm.data.shapes import shaped
>>> from partirvm.data.grammar import read_numbers
>>> texts = shaped(pa.array(["1.974,66 €", "280,07 €", "(12.000 €)"]))
>>> evidence = NumberEvidence()
>>> evidence.add(texts, 0)
>>> grammar = evidence.decision().grammar
>>> str(grammar)
"decimal mark ',', thousands separator '.', unit €"
>>> read_numbers(texts, grammar)[0].tolist()
[1974.66, 280.07, -12000.0]
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.data.composite import (
    FRACTION,
    MOST_PAIRS,
    RANGE,
    Composite,
    are_disjoint,
    are_usual,
    ratio,
)
from partirvm.data.grammar import (
    DOLLARS,
    ONE_SEPARATOR,
    PAIRS,
    SUPERSCRIPTS,
    Pair,
    decimals,
    flags_of,
    has_unit,
    is_constant,
    is_number,
    is_plain,
    numeral,
)
from partirvm.data.shapes import (
    ShapedTexts,
    count_digits,
)
from partirvm.types import Float, Int, NumberGrammar


@dataclass
class ShapeFacts:
    """Facts about the texts of one shape.

    Attributes:
        count: number of texts
        row: row of the first text, from 0
        text: the first text
        leading_zero: True if some text begins with the digit 0
        trailing_zero: True if some text ends with the digit 0
        impossible: number of texts without a value, such as 3/0
    """

    count: int
    row: int
    text: str
    leading_zero: bool = False
    trailing_zero: bool = False
    impossible: int = 0


@dataclass(frozen=True)
class NumberDecision:
    """How a column writes its numbers.

    Attributes:
        grammar: the grammar that reads the most texts
        n_read: number of texts that it reads
        n_numbers: number of texts that are numbers in some grammar
        n_texts: number of texts
        alternative: another grammar that reads as many texts, but not as the same numbers
        facts: the texts that the two grammars read differently
        units: units of the numbers
    """

    grammar: NumberGrammar
    n_read: int
    n_numbers: int
    n_texts: int
    alternative: NumberGrammar | None = None
    facts: ShapeFacts | None = None
    units: tuple[str, ...] = ()


class NumberEvidence:
    """The shapes of a column's texts, merged over batches: at most ``most`` shapes."""

    def __init__(self, most: int = 10_000) -> None:
        self.shapes = dict[str, ShapeFacts]()
        self._most = most
        self._pairs = {RANGE: set[tuple[float, float]](), FRACTION: set[tuple[float, float]]()}

    def add(self, texts: ShapedTexts, row: int) -> None:
        """Add a batch of texts that begins at this row."""
        counts = np.bincount(texts.codes + 1, minlength=len(texts.shapes) + 1)[1:]
        for code, shape in enumerate(texts.shapes):
            facts = self.shapes.get(shape)
            if facts is None:
                if len(self.shapes) >= self._most:
                    continue
                first = int(np.argmax(texts.codes == code))
                facts = ShapeFacts(0, row + first, texts.texts[first].as_py())
                self.shapes[shape] = facts
            facts.count += int(counts[code])
            number = numeral(shape)
            if number is not None and number.composite is not None:
                self._add_composite(number.composite, texts.digits[texts.codes == code], facts)
            elif number is not None and ONE_SEPARATOR.fullmatch(number.core):
                digits = texts.digits[texts.codes == code] // 10**number.extra
                least = 10 ** (count_digits(number.core) - 1)
                facts.leading_zero |= bool((digits < least).any())
                facts.trailing_zero |= bool((digits % 10 == 0).any())

    def _add_composite(self, parts: Composite, digits: Int, facts: ShapeFacts) -> None:
        """Add numbers that consist of several numbers.

        Args:
            parts: the numbers of which they consist
            digits: digits of each text as one integer, (n,)
            facts: facts about the shape
        """
        counts = tuple(decimals(core, ".", ",") or 0 for core in parts.cores)
        facts.impossible += int((~parts.values(digits, counts)[1]).sum())
        pairs = self._pairs.get(parts.unit)
        if pairs is not None and len(pairs) < MOST_PAIRS:
            pairs.update(
                zip(*map(np.ndarray.tolist, parts.numbers(digits, counts)[-2:]), strict=True)
            )

    def described(self, grammar: NumberGrammar) -> str:
        """Return how the numbers are written, without marks if none contains any."""
        found = map(numeral, self.shapes)
        separated = any(not re.fullmatch("9*", number.core) for number in found if number)
        pattern = re.escape(grammar.unit).replace("9", "([23])")
        texts = (facts.text for facts in self.shapes.values())
        powers = {
            match[1].translate(SUPERSCRIPTS)
            for match in (re.search(pattern, text, re.IGNORECASE) for text in texts)
            if match is not None and match.re.groups
        }
        return grammar.described(separated=separated, power="/".join(sorted(powers)) or "²/³")

    def _is_clear(self, unit: str) -> bool:
        """Return False for ranges that overlap, and for pairs such as 120/80 that are no
        fractions."""
        if unit == FRACTION:
            return are_usual({under for _, under in self._pairs[FRACTION]})
        return unit != RANGE or are_disjoint(self._pairs[RANGE])

    def add_plain(self, texts: Any, values: Float, row: int) -> None:
        """Add a batch of texts in plain notation, given with their values (n,).

        Only a fraction can tell the decimal mark: one text is enough unless all look like
        thousands.
        """
        import pyarrow.compute as pc

        fractions = (values != np.trunc(values)) & np.isfinite(values)
        if "9.9" in self.shapes or not fractions.any():
            return
        points = flags_of(pc.match_substring(texts, "."))
        grouped = flags_of(pc.match_substring_regex(texts, r"^\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*$"))
        clear = points & ~grouped
        chosen = clear if clear.any() else grouped
        shape = "9.9" if clear.any() else "9.999"
        if chosen.any() and shape not in self.shapes:
            first = int(chosen.argmax())
            self.shapes[shape] = ShapeFacts(1, row + first, texts[first].as_py())

    def count_bounds(self) -> int:
        """Return the number of texts that are bounds, such as >100."""
        return sum(
            facts.count
            for shape, facts in self.shapes.items()
            if (number := numeral(shape)) and number.bound
        )

    def decision(
        self,
        decimal: str = "",
        thousands: str = "",
        *,
        points: bool = True,
        ranges: bool = True,
    ) -> NumberDecision:
        """Decide how the column writes its numbers.

        Args:
            decimal: decimal mark that settles an undecided column, or ""
            thousands: thousands separator that settles an undecided column, or ""
            points: True if the rest of the file does not use decimal commas, so that numbers such
                as 1.234 have three decimals
            ranges: True if ranges such as 30-39 are numbers
        """
        unclear = [unit for unit in self._pairs if not self._is_clear(unit)]
        if not ranges:
            unclear.append(RANGE)
        numbers = {
            shape: number
            for shape in self.shapes
            if (number := numeral(shape)) and number.unit not in unclear
        }
        units = Counter[str]()
        for shape, number in numbers.items():
            units[number.unit] += self.shapes[shape].count
        unit = _main_unit(units)
        n_numbers = sum(self.shapes[shape].count for shape in numbers if is_number(shape))
        grammar = NumberGrammar(unit=unit)
        cores = {shape: number.core for shape, number in numbers.items() if has_unit(number, unit)}
        pairs = self._best_pairs(cores, unit, points=points)
        pairs = [pair for pair in pairs if _agrees(pair, decimal, thousands)] or pairs
        n_constants = sum(facts.count for shape, facts in self.shapes.items() if is_constant(shape))
        other_pair, facts = self._alternative(pairs, cores)
        return NumberDecision(
            replace(grammar, decimal=pairs[0][0], thousands=pairs[0][1]),
            n_read=self._score(pairs[0], cores) + n_constants,
            n_numbers=n_numbers + n_constants,
            n_texts=sum(facts.count for facts in self.shapes.values()),
            alternative=other_pair
            and replace(grammar, decimal=other_pair[0], thousands=other_pair[1]),
            facts=facts,
            units=tuple(sorted(units)),
        )

    def _best_pairs(self, cores: Mapping[str, str], unit: str, *, points: bool) -> list[Pair]:
        """Return the pairs of marks that read the most texts and that the digits do not contradict.

        Args:
            cores: digits with separators of each shape
            unit: unit of the column
            points: True if plain numbers have decimal points
        """
        scores = {pair: self._score(pair, cores) for pair in PAIRS}
        best = max(scores.values())
        pairs = [pair for pair in PAIRS if scores[pair] == best]
        if points and all(map(is_plain, cores)):
            pairs = [pair for pair in pairs if pair[0] == "."] or pairs
        return [pair for pair in pairs if self._is_plausible(pair, cores, unit)] or pairs

    def _score(self, pair: Pair, cores: Mapping[str, str]) -> int:
        """Return how many texts a pair of marks reads."""
        return sum(
            self.shapes[shape].count - self.shapes[shape].impossible
            for shape, core in cores.items()
            if decimals(core, *pair) is not None
        )

    def _is_plausible(self, pair: Pair, cores: Mapping[str, str], unit: str) -> bool:
        """Return False if the digits contradict a pair of marks: thousands do not begin with 0;
        writers who omit .000 also omit the last zero of .120; and amounts of dollars do not have
        three decimals."""
        has_integers = any(set(core) == {"9"} for core in cores.values())
        for shape, core in cores.items():
            facts = self.shapes[shape]
            if not ONE_SEPARATOR.fullmatch(core):
                continue
            if decimals(core, *pair) == 0 and facts.leading_zero:
                return False
            if decimals(core, *pair) == 3:
                if has_integers and facts.trailing_zero:
                    return False
                if unit in DOLLARS and pair[0] == ",":
                    return False
        return True

    def _alternative(
        self, pairs: Sequence[Pair], cores: Mapping[str, str]
    ) -> tuple[Pair | None, ShapeFacts | None]:
        """Return a pair of marks that reads a text differently from the first pair, and the facts
        about this text, or None twice."""
        for pair in pairs[1:]:
            for shape, core in cores.items():
                counts = (decimals(core, *pairs[0]), decimals(core, *pair))
                if None not in counts and counts[0] != counts[1]:
                    return pair, self.shapes[shape]
        return None, None


def _main_unit(units: Mapping[str, int]) -> str:
    """Return the unit into which the most numbers can be converted and, of those, the most frequent
    one. ``units`` are numbers of texts by unit.

    >>> _main_unit({"": 3, "kb": 2, "mb": 4, "€": 5})
    'mb'
    """

    def weight(unit: str) -> tuple[int, int]:
        alike = [count for other, count in units.items() if ratio(other, unit)]
        return sum(alike), units[unit]

    return max(sorted(units), key=weight, default="")


def _agrees(pair: Pair, decimal: str, thousands: str) -> bool:
    """Return True unless the options name other marks."""
    return (not decimal or pair[0] == decimal) and (not thousands or pair[1] == thousands)
