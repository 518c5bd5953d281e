"""An operator: at the API as a person, and at the forms of the admin."""

import re
from typing import Any

import requests

from tests.e2e.stack import PASSWORD, Person, Stack

# The page that says which field a form refused.
REFUSED = re.compile(r'class="errorlist[^>]*>(.*?)</ul>', re.DOTALL)


class Admin:
    """Fills in the forms of the admin as a browser does."""

    def __init__(self, url: str, email: str) -> None:
        self._url = f"{url}/admin"
        self._session = requests.Session()
        # The site's own form: the admin has none, and sends everybody there.
        self._send(f"{url}/login/", username=email, password=PASSWORD)

    def gpu(self, uuid: str, **changes: Any) -> None:
        """Set its state, reason, time or headroom; what is not named is as new."""
        fields = {"state": "enabled", "headroom_mb": 0, **changes}
        self._change("scheduler/gpu", uuid, fields)

    def node(self, name: str, **changes: Any) -> None:
        self._change("scheduler/node", name, {"state": "up", "labels": "", **changes})

    def allow(self, user_id: object, **limits: int) -> None:
        """A person's quota; one that is there is changed."""
        found = self._find("jobs/quota", "")
        form = f"{found[0]}/change/" if found else "add/"
        self._send(f"{self._url}/jobs/quota/{form}", user=user_id, shares=1, **limits)

    def forget_quota(self) -> None:
        for pk in self._find("jobs/quota", ""):
            self._send(f"{self._url}/jobs/quota/{pk}/delete/", post="yes")

    def _change(self, table: str, name: str, fields: dict[str, Any]) -> None:
        [pk] = self._find(table, name)
        # An empty time is sent as the two fields that a time has.
        empty = {"state_reason": "", "state_until_0": "", "state_until_1": ""}
        self._send(f"{self._url}/{table}/{pk}/change/", **{**empty, **fields})

    def _find(self, table: str, name: str) -> list[str]:
        page = self._session.get(f"{self._url}/{table}/", params={"q": name})
        assert page.status_code == 200, (table, page.status_code)
        # Rows of the table alone: a message about the last change has a link as well.
        return re.findall(rf'<th[^>]*><a href="/admin/{table}/(\d+)/', page.text)

    def _send(self, url: str, **fields: Any) -> None:
        self._session.get(url)
        token = self._session.cookies["csrftoken"]
        body = {"csrfmiddlewaretoken": token, **fields}
        answer = self._session.post(url, data=body, allow_redirects=False)
        errors = REFUSED.findall(answer.text)
        assert answer.status_code == 302, (url, answer.status_code, errors)
        assert "login" not in answer.headers["Location"], url


class Operator(Person):
    def __init__(self, stack: Stack, email: str) -> None:
        # No form makes the first of them.
        stack.shell(
            "from jobs.models import User\n"
            f"User.objects.create_superuser({email!r}, password={PASSWORD!r})"
        )
        super().__init__(stack.url, stack.token(email))
        self.admin = Admin(stack.url, email)

    def cancel_all(self) -> int:
        """Ask everybody's jobs that have not ended to stop; how many there were."""
        states = {"status": ["queued", "starting", "running"], "limit": 200}
        page = self.get("/jobs", **states).json()
        arrays = {job["array_id"] for job in page["results"]} - {None}
        for array_id in arrays:
            self.post(f"/jobs/{array_id}/cancel?array=true")
        for job in page["results"]:
            if job["array_id"] is None:
                self.post(f"/jobs/{job['id']}/cancel")
        return int(page["count"])
