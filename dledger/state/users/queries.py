"""Questions about users; the other questions to the state are in `dledger/state/queries.py`."""

from dledger.state.producers.registration import refusal_of_another
from dledger.state.producers.table import refusal_of_unknown
from dledger.state.results import Refused
from dledger.state.state import State
from dledger.state.users.values import User


class UserQueries:
    """What may be asked about users."""

    def __init__(self, state: State) -> None:
        self._state = state

    def user(self, name: str) -> User | None:
        """Return the user of a name, or None. It costs nothing."""
        return self._state.users.find(name)

    def users(self, after: str, limit: int) -> list[User]:
        """Return up to `limit` users behind a name, by name."""
        return self._state.users.behind(after, limit)

    @property
    def users_revision(self) -> int:
        """The revision of the newest list of users that is known as a whole; 0: of none."""
        return self._state.users.list_state.revision

    def refusal_of_producer(self, producer_id: bytes, user: str) -> Refused | None:
        """Return why a user may not send as a producer, or None.

        Apply would refuse an unknown one, too, unless somebody registers it before the batch.
        """
        producer = self._state.producers.find(producer_id)
        if producer is None:
            return refusal_of_unknown(producer_id)
        return refusal_of_another(producer_id) if producer.is_anothers(user) else None
