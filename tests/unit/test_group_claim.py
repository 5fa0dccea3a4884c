"""A start looks if a process changes what its group has."""

from collections.abc import Collection

import pytest

from streamrt.errors import InvalidOperationError
from streamrt.kafka import KafkaRequestError
from streamrt.runtime.driver.starting import group_claim
from streamrt.runtime.driver.starting.group_claim import maintenance_group, refuse_claimed


class Groups:
    """Answers in order, the last one for ever."""

    def __init__(self, *answers: Collection[object] | KafkaRequestError) -> None:
        self.answers = list(answers)

    def group_members(self, group: str, timeout: float = 30, *, is_classic: bool = False) -> Collection[object]:
        assert group == maintenance_group("shop--eu") == "-.shop-.-.eu--maintenance"
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaRequestError):
            raise answer
        return answer


@pytest.mark.parametrize("retriable", [True, False])
def test_a1_a_start_goes_on_if_brokers_do_not_say(retriable: bool) -> None:
    refuse_claimed(Groups(KafkaRequestError("no", retriable=retriable)), "shop--eu")


def test_a1_a_claim_that_is_given_back_soon_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_claim, "_LOOK_S", 0.01)
    refuse_claimed(Groups(["member"], ["member"], []), "shop--eu")
    monkeypatch.setattr(group_claim, "_RELEASE_S", 0.05)
    with pytest.raises(
        InvalidOperationError, match=r"repartitions consumer group 'shop--eu'.*killed one counts for 10 s"
    ):
        refuse_claimed(Groups(["member"]), "shop--eu")
