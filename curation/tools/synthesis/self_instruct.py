# SPDX-License-Identifier: Apache-2.0
"""Makes instructions with inputs and outputs from a few tasks: Self-Instruct (Wang et al. 2023, arXiv:2212.10560).

Rounds of requests ask for new instructions; a request shows some seeds and some instructions so far. A round begins
when all answers of the round before are stored, so equal answers give equal requests. Then the model decides for each
instruction whether it is a classification. At last it writes instances: inputs first, or labels first for a
classification.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from curation.base.contract import ID, TEXT
from curation.base.errors import InputError, installation
from curation.tools.synthesis.answers import ANSWERED, CUT, Answer, Answers
from curation.tools.synthesis.task import Fields, Request, SelfInstruct
from curation.tools.synthesis.work import UNPARSABLE, WRITTEN, Document, made_by, outcome_of

SHOWN_SEEDS, SHOWN_NEW, ASKED = 6, 2, 8  # instructions that a prompt shows, and asks for (paper, section 2.2)
ROUND = 16  # requests
IDLE_ROUNDS = 5  # rounds without a new instruction, after which the rounds end
SHOWN_EXAMPLES = 8  # seeds in the other prompts
MIN_WORDS, MAX_WORDS = 4, 150  # of an instruction
WORD = re.compile(r"\w+")
NOT_TEXT = frozenset(
    ("image", "images", "graph", "graphs", "picture", "pictures", "file", "files", "map", "maps", "draw", "plot",
     "video", "audio", "music", "flowchart", "diagram")
)  # fmt: skip
SIMILAR, UNSUITABLE, SURPLUS = "similar", "unsuitable", "surplus"  # reasons
TASK = re.compile(r"^\W*(?:Task )?\d+[.:)] *(.+)$", re.MULTILINE)
INPUT, OUTPUT, LABEL = "Input:", "Output:", "Label:"

NEW = """Come up with a series of tasks that a language model can do with text alone. No two may be alike.

{tasks}

Continue the list with tasks {first} to {last}. Write each on one line, as "Task {first}: ..."."""
IS_CLASSIFICATION = """Is the task a classification, whose output is one of a few fixed labels? Answer Yes or No.

{examples}

Task: {instruction}
Classification:"""
INPUT_FIRST = """Write up to three different examples for the task. Begin each one with a line "Input: ...", \
then a line "Output: ...". If the task needs no input, leave the line "Input: ..." out and write one example.

{examples}

Task: {instruction}"""
LABEL_FIRST = """For the classification task, write one example for each possible label. Begin each one with a line \
"Label: ...", then a line "Input: ..." that has this label.

{examples}

Task: {instruction}"""


class SelfInstructWork:
    """The requests for instructions in rounds, then for their instances."""

    def __init__(self, task: SelfInstruct, answers: Answers) -> None:
        self.task, self.answers = task, answers
        self.requests: set[str] = set()
        self.instructions: list[str] = []  # new ones, in their order
        self.left_out: Counter[str] = Counter()
        self._rounds = self._idle = 0
        self._letters: dict[str, str] = {}
        self._compared: list[str] = []

    @cached_property
    def _seeds(self) -> list[Fields]:
        seeds = [*self.task.read()]
        self._compared = [self._as_letters(seed["instruction"]) for seed in seeds]
        return seeds

    def needed(self) -> Iterator[Request]:
        """Yield the requests of the rounds, then two per instruction: whether it is a classification, and its
        instances."""
        requests = self._rest_of_rounds()
        if requests:
            yield from requests
            return
        for instruction in self.instructions:
            asked = self._asked(IS_CLASSIFICATION, instruction)
            yield asked
            if (form := self._form(asked)) is not None:
                yield self._asked(form, instruction)

    # Instructions

    def _rest_of_rounds(self) -> list[Request]:
        """Process the rounds that are complete. Return the requests of the first incomplete round; [] after the last
        round."""
        while len(self.instructions) < self.task.documents and self._idle < IDLE_ROUNDS:
            requests = self._round()
            self.requests.update(request.key for request in requests)
            if any(request.key not in self.answers for request in requests):
                return requests
            before = len(self.instructions)
            for request in requests:
                for instruction in _listed(self.answers.get(request.key)):
                    self._take(instruction)
            self._rounds += 1
            self._idle = 0 if len(self.instructions) > before else self._idle + 1
        return []

    def _round(self) -> list[Request]:
        missing = self.task.documents - len(self.instructions)
        return [self._for_new(number) for number in range(min(ROUND, -(-missing // ASKED)))]

    def _for_new(self, number: int) -> Request:
        chance = random.Random(f"{self.task.seed or 0}/{self._rounds}/{number}")
        new = chance.sample(self.instructions, min(SHOWN_NEW, len(self.instructions)))
        seeds = [seed["instruction"] for seed in self._seeds]
        shown = chance.sample(seeds, min(SHOWN_SEEDS + SHOWN_NEW - len(new), len(seeds))) + new
        chance.shuffle(shown)
        tasks = "\n".join(f"Task {position}: {' '.join(text.split())}" for position, text in enumerate(shown, 1))
        prompt = NEW.format(tasks=tasks, first=len(shown) + 1, last=len(shown) + ASKED)
        return self.task.request(prompt, self._rounds * ROUND + number)

    def _take(self, instruction: str) -> None:
        words = WORD.findall(instruction.lower())
        if not MIN_WORDS <= len(words) <= MAX_WORDS or not NOT_TEXT.isdisjoint(words):
            self.left_out[UNSUITABLE] += 1
        elif len(self.instructions) == self.task.documents:
            self.left_out[SURPLUS] += 1
        elif self._is_similar(letters := self._as_letters(instruction)):
            self.left_out[SIMILAR] += 1
        else:
            self.instructions.append(instruction)
            self._compared.append(letters)

    def _as_letters(self, text: str) -> str:
        """Return a text with one character per word: rapidfuzz compares strings fastest."""
        return "".join(self._letters.setdefault(word, chr(len(self._letters))) for word in WORD.findall(text.lower()))

    def _is_similar(self, letters: str) -> bool:
        """Whether the ROUGE-L with an earlier instruction is too high (F1 by the longest common subsequence of
        words)."""
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import Indel
        except ImportError as error:
            raise InputError(
                f"self_instruct needs the package rapidfuzz ({error}). Run: {installation('llm')}"
            ) from None
        similarity = Indel.normalized_similarity  # 2 LCS / (m + n), which is the F1 of ROUGE-L
        return (
            process.extractOne(letters, self._compared, scorer=similarity, score_cutoff=self.task.similarity)
            is not None
        )

    # Instances

    def _asked(self, form: str, instruction: str) -> Request:
        wanted = {LABEL_FIRST: "true", INPUT_FIRST: "false"}.get(form)
        seeds = [seed for seed in self._seeds if wanted in (None, seed["is_classification"].lower())][:SHOWN_EXAMPLES]
        prompt = form.format(examples="\n\n".join(_example(form, seed) for seed in seeds), instruction=instruction)
        request = self.task.request(prompt)
        self.requests.add(request.key)
        return request

    def _form(self, asked: Request) -> str | None:
        """Return whether the model writes labels or inputs first for an instruction; None if the answer to this
        question is not clear."""
        answer = self.answers.get(asked.key)
        words = WORD.findall(answer.text.lower()) if answer and answer.outcome == ANSWERED else []
        return {"yes": LABEL_FIRST, "no": INPUT_FIRST}.get(words[0]) if words else None

    def documents(self, tally: Counter[str]) -> Iterator[Document]:
        """Yield one document per instance. `tally` counts instructions by outcome, also those that rounds left out."""
        self._rest_of_rounds()
        tally.update(self.left_out)
        for instruction in self.instructions:
            asked = self._asked(IS_CLASSIFICATION, instruction)
            form = self._form(asked)
            request = self._asked(form, instruction) if form else asked
            answer = self.answers.get(request.key)
            outcome = outcome_of(answer)
            instances = _instances(form, answer.text) if form and answer and outcome == WRITTEN else []
            tally[outcome if instances or outcome != WRITTEN else UNPARSABLE] += 1
            for number, (given, output) in enumerate(instances):
                text = "\n\n".join(part for part in (instruction, given, output) if part)
                fields = {"instruction": instruction, "input": given, "output": output}
                yield (
                    {ID: f"{request.key}-{number}", TEXT: text}
                    | fields
                    | {"is_classification": form == LABEL_FIRST}
                    | made_by(self.task)
                )


def _listed(answer: Answer | None) -> list[str]:
    """Return the instructions in an answer. If the answer was cut, its last instruction is left out."""
    if answer is None or answer.outcome not in (ANSWERED, CUT):
        return []
    instructions = [match[1].strip() for match in TASK.finditer(answer.text)]
    return instructions[:-1] if answer.outcome == CUT else instructions


def _example(form: str, seed: Fields) -> str:
    task = f"Task: {seed['instruction']}"
    given = f"\n{INPUT} {seed['input']}" if seed["input"] else ""
    if form == IS_CLASSIFICATION:
        return f"{task}\nClassification: {'Yes' if seed['is_classification'].lower() == 'true' else 'No'}"
    if form == LABEL_FIRST:
        return f"{task}\n{LABEL} {seed['output']}{given}"
    return f"{task}{given}\n{OUTPUT} {seed['output']}"


def _instances(form: str, text: str) -> list[tuple[str, str]]:
    """Return the pairs (input, output) in an answer. Pairs without output are left out, and inputs with several
    outputs."""
    first, second = (LABEL, INPUT) if form == LABEL_FIRST else (INPUT, OUTPUT)
    blocks = re.split(rf"^{first}", text, flags=re.MULTILINE)[1:]
    pairs = [_pair(block, second) for block in blocks] if blocks else [_pair(text, second)]
    different = dict.fromkeys((given, output) if first == INPUT else (output, given) for given, output in pairs)
    outputs = Counter(given for given, _ in different)
    return [(given, output) for given, output in different if output and outputs[given] == 1]


def _pair(block: str, second: str) -> tuple[str, str]:
    before, _, after = (
        block.partition(f"\n{second}") if not block.startswith(second) else ("", "", block.removeprefix(second))
    )
    return before.strip(), after.strip()
