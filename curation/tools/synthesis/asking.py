# SPDX-License-Identifier: Apache-2.0
"""Sends the requests that have no answer, several at a time, within the limits of a task."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from curation.base.errors import InputError, RecipeError, counted
from curation.base.system.interrupts import Stop, run_task
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.steps import Count, watching
from curation.tools.synthesis.answers import Answer, Answers
from curation.tools.synthesis.endpoint import POLL_SECONDS, Endpoint, FailedError, Pace
from curation.tools.synthesis.task import AnyTask, Request

MAX_FAILURES = 20  # failures in a row, after which an endpoint counts as broken
END_SECONDS = 3.0  # time for answers to arrive after the end; less than `interrupts.GRACE_SECONDS`


class Asker:
    """Asks an endpoint, and stores each answer as soon as it arrives. Connects at the first request.

    asked      answers that arrived
    failed     keys of requests that failed after all retries; they have no answer, and a rerun asks them again
    fault      message of the last failure
    is_spent   whether the budget of tokens is used up
    """

    def __init__(self, task: AnyTask, answers: Answers) -> None:
        self.task, self.answers = task, answers
        self.asked = 0
        self.failed: set[str] = set()
        self.fault = ""
        self.is_spent = False
        self._endpoint: Endpoint | None = None
        self._pending: dict[Future[Answer], Request] = {}
        self._stop = Stop()
        self._failures = 0  # in a row
        self._is_answering = False  # whether a model has answered in this call
        self._held: list[Answer] = []  # HTTP refusals before the first answer, of one request or of all
        self._pace = Pace(task)

    def ask(self, requests: Iterable[Request]) -> bool:
        """Send the requests that have no answer, and return whether any was sent.

        InputError: the endpoint refuses the key, the model or all requests, or fails MAX_FAILURES times in a row. If
        the endpoint has answered in this call, attempts under way may use the rest of their time, since their answers
        are paid.
        """
        sent: set[str] = set()
        pool = ThreadPoolExecutor(self.task.concurrency)
        try:
            with watching("asking", 0, lambda: Count(self.asked), "answer", is_loop=True):
                for request in requests:
                    if self._pending:
                        self._collect(0)
                    if request.key in self.answers or request.key in self.failed or request.key in sent:
                        continue
                    if not self._is_within_budget(request):
                        self.is_spent = True
                        break
                    self._endpoint = self._endpoint or Endpoint(self.task, self._pace)  # takes seconds
                    self._wait_for_turn(request)
                    sent.add(request.key)
                    self._pending[pool.submit(run_task, self._stop, self._endpoint.answer, request)] = request
                    while len(self._pending) >= self.task.concurrency:
                        self._collect(POLL_SECONDS)
                while self._pending:
                    self._collect(POLL_SECONDS)
                if self._held:
                    raise InputError(f"{self._held[-1].text}. The endpoint has answered no other request")
        except BaseException as error:
            self._stop.set()
            under_way, asked = len(self._pending), self.asked
            self._keep_rest(END_SECONDS)
            if not (isinstance(error, InputError) and self._is_answering):
                raise
            try:
                self._keep_rest(math.inf)
            except KeyboardInterrupt:
                self._keep_rest(END_SECONDS)
                raise
            raise InputError(f"{error}{_waited(under_way, self.asked - asked)}") from None
        finally:
            pool.shutdown(wait=False)
        return bool(sent)

    def close(self) -> None:
        """Close the connections, if a request has opened any."""
        if self._endpoint:
            self._endpoint.close()

    def _is_within_budget(self, request: Request) -> bool:
        """Whether the budget allows a request. Waits if it depends on the size of answers that have not arrived."""
        task, most = self.task, self.task.most_tokens(request)
        while task.budget_tokens and self._used() + most > task.budget_tokens:
            if not self._pending:
                if most > task.budget_tokens:
                    raise RecipeError(
                        f"budget_tokens {task.budget_tokens:,} is below one request, which may use {most:,} tokens. "
                        "Raise it, or lower max_tokens"
                    )
                return False
            self._collect(POLL_SECONDS)
        return True

    def _wait_for_turn(self, request: Request) -> None:
        turn = self._pace.turn(request)
        while (left := turn - time.monotonic()) > 0:
            self._collect(min(POLL_SECONDS, left))

    def _used(self) -> int:
        return self.answers.tokens + sum(map(self.task.most_tokens, self._pending.values()))

    def _collect(self, seconds: float) -> None:
        """Store the answers that have arrived; wait up to `seconds` for one."""
        check_interrupts()
        if not self._pending:
            time.sleep(seconds)
            return
        arrived: list[Answer] = []
        try:
            for future in wait(self._pending, seconds, FIRST_COMPLETED).done:
                request = self._pending.pop(future)
                try:
                    arrived.append(future.result())
                except FailedError as error:
                    self.failed.add(request.key)
                    self.fault, self._failures = str(error), self._failures + 1
        finally:
            self._store(arrived)
        if self._failures + len(self._held) >= MAX_FAILURES:
            fault = self._held[-1].text if self._held else self.fault
            raise InputError(
                f"{fault}. {MAX_FAILURES} requests in a row failed, {counted(len(self.answers), 'answer')} stored. "
                "Rerun the same command to ask for the rest"
            )

    def _store(self, arrived: list[Answer]) -> None:
        paid = [answer for answer in arrived if answer.is_paid]
        self._held += [answer for answer in arrived if not answer.is_paid]
        if paid:
            self._failures, self._is_answering = 0, True
        if paid or (arrived and len(self.answers)):
            self.answers.add(self._held + paid)
            self.asked += len(self._held + paid)
            self._held = []

    def _keep_rest(self, seconds: float) -> None:
        """Store answers that arrive within `seconds` after the end, since they are paid. With `inf`, only a signal ends
        the wait early."""
        ends = time.monotonic() + seconds
        while self._pending and (left := ends - time.monotonic()) > 0:
            if seconds == math.inf:
                check_interrupts()
            done = wait(self._pending, min(left, POLL_SECONDS), FIRST_COMPLETED).done
            for future in done:
                del self._pending[future]
            self._store([future.result() for future in done if not future.exception()])


def _waited(under_way: int, answers: int) -> str:
    """Return the end of a message about requests that were under way."""
    waited = f". The call waited for {counted(under_way, 'request')} under way: {counted(answers, 'answer')} arrived"
    return waited if under_way else ""
