"""What we use of toxiproxy-python."""

from collections.abc import Mapping

class Toxic:
    name: str

class Proxy:
    def toxics(self) -> dict[str, Toxic]: ...
    def add_toxic(
        self,
        *,
        type: str,  # noqa: A002 - the library's name
        name: str,
        stream: str,
        attributes: Mapping[str, int],
    ) -> None: ...
    def destroy_toxic(self, toxic_name: str) -> bool: ...

class Toxiproxy:
    def update_api_consumer(self, host: str, port: int) -> None: ...
    def create(self, *, upstream: str, name: str, listen: str, enabled: bool) -> Proxy: ...
    def get_proxy(self, proxy_name: str) -> Proxy | None: ...
