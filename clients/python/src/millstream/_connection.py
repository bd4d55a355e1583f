"""The settings of a client: addresses of the listeners, headers of every request, TLS and time limits."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from ._request import Params, Request, Scope
from .errors import ConnectionFailed, MillstreamError, ProblemError

DEVICES_PORT = 8080
# The server breaks the silence of a stream every 15 s.
SILENCE_MAX_S = 50.0


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    devices_url: str | None
    headers: dict[str, str] = field(repr=False)
    tls: ssl.SSLContext
    timeout_s: float
    reconnect_s: float
    scope: Scope

    @staticmethod
    def of(
        url: str,
        token: str | None,
        tenant: str | None,
        ca: str | None,
        devices_url: str | None,
        timeout_s: float,
        reconnect_s: float,
    ) -> Settings:
        parts = urlsplit(url)
        # These would show in texts of errors.
        if "@" in parts.netloc:
            raise ValueError("the url holds a login; give a token in its place")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("the token holds characters that no header can; remove line breaks")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url {url!r} is no URL of a server; use http://HOST:PORT or https://HOST:PORT")
        if devices_url is None and parts.scheme == "http":
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            devices_url = f"http://{host}:{DEVICES_PORT}"
        headers = {"User-Agent": "millstream-python"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if tenant is not None:
            headers["Fiware-Service"] = tenant
        return Settings(
            url=url.rstrip("/"),
            devices_url=devices_url.rstrip("/") if devices_url else None,
            headers=headers,
            tls=_tls([url, devices_url or ""], ca),
            timeout_s=timeout_s,
            reconnect_s=reconnect_s,
            scope=Scope(tenant or "default"),
        )

    def build(self, request: Request, *, silence_max_s: float | None = None) -> httpx.Request:
        """Addresses a request to its listener; a device shows its own login there, never the token."""
        headers = {**({} if request.login else self.headers), **request.headers}
        timeout = httpx.Timeout(self.timeout_s + request.waits_s)
        if silence_max_s is not None:
            timeout = httpx.Timeout(self.timeout_s, read=silence_max_s)
        built = httpx.Request(
            request.method,
            self._base(request) + request.path,
            params=httpx.QueryParams(pairs(request.params)) if request.params else None,
            headers=headers,
            content=request.body,
            extensions={"timeout": timeout.as_dict()},
        )
        if request.login:
            return next(httpx.BasicAuth(*request.login).auth_flow(built))
        return built

    def _base(self, request: Request) -> str:
        if not request.login:
            return self.url
        if self.devices_url is None:
            raise ValueError("devices_url is needed to send as a device over TLS; give it to the client")
        return self.devices_url


def _tls(urls: list[str], ca: str | None) -> ssl.SSLContext:
    if any(url.startswith("https") for url in urls):
        return ssl.create_default_context(cafile=ca) if ca else httpx.create_ssl_context()
    # Loading authorities takes longer than a request; without them it trusts nobody.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def pairs(params: Params) -> list[tuple[str, str | int | float | bool | None]]:
    return list(params.items()) if isinstance(params, Mapping) else list(params)


def refusal(response: httpx.Response) -> ProblemError | None:
    """The problem of an answer that has been read, if it is one."""
    return None if response.is_success else ProblemError.of(response)


def failed(error: httpx.RequestError, request: httpx.Request) -> ConnectionFailed:
    host = f"{request.url.scheme}://{request.url.netloc.decode()}"
    return ConnectionFailed(f"{request.method} {host}{request.url.path}: {error or type(error).__name__}")


def broken() -> MillstreamError:
    return ConnectionFailed("the server closed the stream before its end")
