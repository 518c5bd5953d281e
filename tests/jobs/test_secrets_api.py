"""PUT, GET and DELETE /secrets, and the jobs that name one."""

from typing import Any

import pytest
from django.conf import settings

from jobs.models import AuditRecord, Job, Secret, User
from jobs.models.secret import MOST_SECRETS
from jobs.secrets import unseal
from tests.asserts import assert_problem
from tests.factories import IMAGE

pytestmark = pytest.mark.django_db

SECRETS = "/api/v1/secrets"
VALUE = "hf_0123456789abcdef"


def value_of(user: User, name: str) -> str:
    return unseal(Secret.objects.get(owner=user, name=name).sealed, settings.SECRET_KEY)


def set_it(api: Any, user: User, name: str = "HF_TOKEN", value: str = VALUE) -> Any:
    return api(user).put(f"{SECRETS}/{name}", {"value": value})


class TestSetting:
    def test_it_is_kept_sealed_and_never_shown(self, api: Any, alice: User) -> None:
        answer = set_it(api, alice)
        assert answer.status_code == 201
        assert set(answer.json()) == {
            "name",
            "created_at",
            "updated_at",
            "last_used_at",
        }
        assert VALUE not in answer.content.decode()
        assert VALUE not in Secret.objects.get().sealed
        assert value_of(alice, "HF_TOKEN") == VALUE

    def test_twice_it_is_changed(self, api: Any, alice: User) -> None:
        set_it(api, alice)
        assert set_it(api, alice, value="another value").status_code == 200
        assert value_of(alice, "HF_TOKEN") == "another value"
        assert Secret.objects.count() == 1

    def test_the_record_tells_who_and_which_and_not_what(
        self, api: Any, alice: User
    ) -> None:
        set_it(api, alice)
        record = AuditRecord.objects.get(action="secret.written")
        assert (record.actor, record.target) == ("alice@example.org", "HF_TOKEN")
        assert VALUE not in str(record.details)

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ({}, "required"),
            ({"value": ""}, "blank"),
            ({"value": None}, "null"),
            ({"value": 12345678}, "invalid"),
            ({"value": ["12345678"]}, "invalid"),
            ({"value": "1234567"}, "bad_size"),
            ({"value": "x" * 8193}, "bad_size"),
            ({"value": "ä" * 4097}, "bad_size"),
            ({"value": "1234\x00567"}, "bad_text"),
            ({"value": VALUE, "owner": "bob"}, "unknown_field"),
        ],
    )
    def test_no_secret(self, api: Any, alice: User, body: Any, code: str) -> None:
        answer = api(alice).put(f"{SECRETS}/X", body)
        assert_problem(answer, 400, code)
        assert not Secret.objects.exists()

    @pytest.mark.parametrize(
        "value", ["x" * 8192, " spaces kept ", "Ünïcode-8", "a\nb\nc\nd\n"]
    )
    def test_a_value_is_taken_as_it_is(self, api: Any, alice: User, value: str) -> None:
        assert set_it(api, alice, value=value).status_code == 201
        assert value_of(alice, "HF_TOKEN") == value

    @pytest.mark.parametrize("name", ["a-b", "a.b", "x" * 65, "%C3%A9", "a%20b", "%00"])
    def test_no_name(self, api: Any, alice: User, name: str) -> None:
        assert_problem(set_it(api, alice, name), 400, "bad_secret_name")

    def test_a_person_has_a_hundred_at_most(self, api: Any, alice: User) -> None:
        for number in range(MOST_SECRETS):
            Secret.objects.create(owner=alice, name=f"S{number}", sealed="x")
        assert_problem(set_it(api, alice), 400, "too_many_secrets")
        assert set_it(api, alice, "S1").status_code == 200


class TestSeeing:
    def test_each_sees_the_names_of_the_own(
        self, api: Any, alice: User, bob: User, olga: User
    ) -> None:
        set_it(api, alice)
        [shown] = api(alice).get(SECRETS).json()["results"]
        assert shown["name"] == "HF_TOKEN"
        for other in (bob, olga):
            assert api(other).get(SECRETS).json()["results"] == []

    def test_nobody_is_refused(self, api: Any) -> None:
        assert api().get(SECRETS).status_code == 401
        assert api().put(f"{SECRETS}/X", {"value": VALUE}).status_code == 401

    def test_there_is_no_way_to_read_one(self, api: Any, alice: User) -> None:
        set_it(api, alice)
        assert api(alice).get(f"{SECRETS}/HF_TOKEN").status_code == 405


class TestRemoving:
    def test_it_is_gone(self, api: Any, alice: User) -> None:
        set_it(api, alice)
        assert api(alice).delete(f"{SECRETS}/HF_TOKEN").status_code == 204
        assert not Secret.objects.exists()
        assert AuditRecord.objects.filter(action="secret.deleted").count() == 1

    @pytest.mark.parametrize("name", ["HF_TOKEN", "none", "a-b"])
    def test_anothers_is_as_none(
        self, api: Any, alice: User, bob: User, name: str
    ) -> None:
        set_it(api, alice)
        assert_problem(api(bob).delete(f"{SECRETS}/{name}"), 404, "not_found")
        assert Secret.objects.count() == 1


class TestJobs:
    def submit(self, api: Any, user: User, **fields: Any) -> Any:
        body = {"image": IMAGE, "gpu_count": 0, **fields}
        return api(user).post("/api/v1/jobs", body)

    @pytest.mark.parametrize(
        ("asked", "kept"),
        [
            (["HF_TOKEN"], {"HF_TOKEN": "HF_TOKEN"}),
            ({"TOKEN": "HF_TOKEN"}, {"TOKEN": "HF_TOKEN"}),
            ([], {}),
        ],
    )
    def test_a_job_names_them(
        self, api: Any, alice: User, asked: Any, kept: Any
    ) -> None:
        set_it(api, alice)
        answer = self.submit(api, alice, secrets=asked)
        assert answer.status_code == 201
        assert answer.json()["secrets"] == kept
        assert VALUE not in answer.content.decode()

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            ("HF_TOKEN", "bad_secrets"),
            ([1], "bad_secrets"),
            (None, "null"),
            (["NONE"], "no_such_secret"),
            ({"A": "NONE"}, "no_such_secret"),
            ({"A": 1}, "bad_env"),
            ({"A": "a-b"}, "bad_secret_name"),
            ({"NVIDIA_VISIBLE_DEVICES": "HF_TOKEN"}, "env_reserved"),
            ({"a=b": "HF_TOKEN"}, "bad_env_name"),
        ],
    )
    def test_a_job_that_can_not_have_them(
        self, api: Any, alice: User, asked: Any, code: str
    ) -> None:
        set_it(api, alice)
        assert_problem(self.submit(api, alice, secrets=asked), 400, code)
        assert not Job.objects.exists()

    def test_one_of_somebody_else_is_as_none(
        self, api: Any, alice: User, bob: User
    ) -> None:
        set_it(api, alice)
        answer = self.submit(api, bob, secrets=["HF_TOKEN"])
        assert_problem(answer, 400, "no_such_secret")

    def test_a_variable_is_said_once(self, api: Any, alice: User) -> None:
        set_it(api, alice)
        asked = {"env": {"HF_TOKEN": "x"}, "secrets": ["HF_TOKEN"]}
        assert_problem(self.submit(api, alice, **asked), 400, "doubled_variable")
