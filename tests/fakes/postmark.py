"""Double of Postmark, as far as we use it: POST /email, search of sent mails, GET /server.

Origin of the wire form: documented (Postmark's developer documentation and its list of error
codes); nothing here was captured from the service.
"""

from __future__ import annotations

from uuid import uuid4

from tests.fakes.mail_service import Asked, MailService, Reply


class PostmarkService(MailService):
    """Postmark's API over a real socket.

    `hidden`: so many of the newest mails are not in the search's index yet.
    """

    def __init__(self, keys: tuple[str, ...] = ("pm-for-tests",)) -> None:
        super().__init__(keys)
        self.inactive: set[str] = set()
        self.hidden = 0
        self.refuse: Reply | None = None  # every mail, from now on
        self.delivery_type = "Live"

    def tokens(self) -> list[str]:
        """Return the token of each mail that a recipient would see."""
        return [mail["Metadata"]["criticizer"] for mail in self.accepted]

    def refusal_of(self, asked: Asked) -> Reply | None:
        if asked.headers.get("x-postmark-server-token", "") not in self.keys:
            return _error(401, 10, "Request does not contain a valid Server token.")
        return None

    def send(self, asked: Asked) -> Reply:
        if asked.path != "/email":
            return _error(404, 404, "No such endpoint.")
        if self.refuse is not None:
            return self.refuse
        mail = asked.body
        address = mail["To"].lower()
        if "@" not in address:
            return _error(422, 300, f"Error parsing 'To': Illegal email address '{address}'.")
        if address in self.inactive:
            return _error(
                422,
                406,
                "You tried to send to a recipient that has been marked as inactive.\n"
                f"Found inactive addresses: {address}.\n"
                "Inactive recipients are ones that have generated a hard bounce or a spam complaint.",
            )
        identifier = str(uuid4())
        self.accepted.append({**mail, "MessageID": identifier})
        return 200, {
            "To": mail["To"],
            "SubmittedAt": "2026-03-04T05:06:07.0000000-05:00",
            "MessageID": identifier,
            "ErrorCode": 0,
            "Message": "OK",
        }

    def answer(self, asked: Asked) -> Reply:
        indexed = self.accepted[: len(self.accepted) - self.hidden]
        if asked.path == "/server":
            return 200, {"ID": 1, "Name": "Reviews", "DeliveryType": self.delivery_type}
        if asked.path == "/messages/outbound":
            wanted = {
                name.removeprefix("metadata_"): value
                for name, value in asked.query.items()
                if name.startswith("metadata_")
            }
            if len(wanted) > 1 or not {"count", "offset"} <= set(asked.query):
                return _error(422, 600, "One field of the metadata, count and offset.")
            found = [mail for mail in indexed if wanted.items() <= mail.get("Metadata", {}).items()]
            page = [
                {
                    "MessageID": mail["MessageID"],
                    "Metadata": mail["Metadata"],
                    "Status": "Sent",
                    "Subject": mail["Subject"],
                    "To": [{"Email": mail["To"], "Name": ""}],
                }
                for mail in found[: int(asked.query["count"])]
            ]
            return 200, {"TotalCount": len(found), "Messages": page}
        for mail in indexed:
            if asked.path == f"/messages/outbound/{mail['MessageID']}/details":
                return 200, {"MessageID": mail["MessageID"], "Metadata": mail["Metadata"], "Status": "Sent"}
        return _error(422, 701, "This message was not found.")


def _error(status: int, code: int, message: str) -> Reply:
    return status, {"ErrorCode": code, "Message": message}
