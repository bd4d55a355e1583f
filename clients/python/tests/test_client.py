"""Logins, tenants, TLS, and a server that is not there."""

import logging
from typing import Any

import pytest
from conftest import Face
from server import Server

from millstream import AuthenticationError, ConflictError, ConnectionFailed, NotFoundError, PermissionDeniedError

TOKENS = """
[[applications.tokens]]
name = "shop"
token = "a-whisper-0123456789"
tenant = "acme"
roles = ["reader", "writer"]
"""


async def test_a_token_says_who_one_is_and_shows_nowhere(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server(configuration=TOKENS)
    try:
        client = face.client(server, token="a-whisper-0123456789", tenant="acme")
        await face.done(client.entities.upsert({"id": "r", "type": "Room"}))
        assert [entity["id"] for entity in await face.all(client.entities.list())] == ["r"]
        with pytest.raises(PermissionDeniedError):
            await face.done(client.streams.create("orders"))
        for token in (None, "another-whisper-0123456789"):
            stranger = face.client(server, token=token)
            with pytest.raises(AuthenticationError) as refused:
                await face.done(stranger.entities.get("r"))
            assert "whisper" not in str(refused.value)
            await face.done(stranger.close())
        assert repr(client) == f"{face.kind.__name__}('{server.url}')"
        await face.done(client.close())
    finally:
        server.stop()
    assert "whisper" not in caplog.text


async def test_tenants_see_their_own(face: Face, server: Server, name: str) -> None:
    ours, theirs = face.client(server, tenant="ours"), face.client(server, tenant="theirs")
    await face.done(ours.entities.upsert({"id": name, "type": "Room"}))
    assert [e["id"] for e in await face.all(ours.entities.list(id_pattern=name))] == [name]
    assert await face.all(theirs.entities.list(id_pattern=name)) == []
    for client in (ours, theirs):
        await face.done(client.close())


async def test_a_tenant_is_created_before_its_devices(face: Face, server: Server, name: str) -> None:
    client = face.client(server, tenant=name)
    with pytest.raises(NotFoundError, match="a tenant is created before it is used"):
        await face.done(client.devices.register("sensor"))
    await face.done(client.devices.create_tenant({"ext": {"owner": "shop"}}))
    with pytest.raises(ConflictError):
        await face.done(client.devices.create_tenant())
    await face.done(client.devices.register("sensor"))
    await face.done(client.devices.set_password("sensor", "hush"))
    await face.done(client.devices.send("sensor", {"temp": 1}, password="hush"))
    [record] = await face.all(client.streams.read(f"telemetry.{name}"))
    assert (record.key, record.value) == ("sensor", {"temp": 1})
    await face.done(client.close())


async def test_tls_needs_an_authority_that_is_known(face: Face) -> None:
    server = Server(tls=True)
    try:
        url, devices_url = (f"https://{server.addresses[name]}" for name in ("applications-tls", "devices-http-tls"))
        client = face.client(server, url=url, ca=server.ca, devices_url=devices_url)
        await face.done(client.devices.register("sensor"))
        await face.done(client.devices.set_password("sensor", "hush"))
        await face.done(client.devices.send("sensor", {"temp": 1}, password="hush"))
        assert len(await face.all(client.streams.read("telemetry.default"))) == 1
        stranger = face.client(server, url=url, devices_url=None)
        with pytest.raises(ConnectionFailed, match="certificate verify failed"):
            await face.done(stranger.streams.list())
        with pytest.raises(ValueError, match="devices_url is needed"):
            await face.done(stranger.devices.send("sensor", {}, password="hush"))
        for each in (client, stranger):
            await face.done(each.close())
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", ""])
def test_an_address_that_is_none_is_refused(face: Face, url: str) -> None:
    kind: Any = face.kind
    with pytest.raises(ValueError, match="use http://HOST:PORT"):
        kind(url)


@pytest.mark.parametrize(
    ("url", "token", "remedy"),
    [
        ("http://ann:a-secret@127.0.0.1:8000", None, "give a token in its place"),
        ("http://127.0.0.1:8000", "a-secret\n", "remove line breaks"),
        ("http://127.0.0.1:8000", "a-sécret", "no header can"),
    ],
)
def test_a_login_that_would_show_in_errors_is_refused(face: Face, url: str, token: str | None, remedy: str) -> None:
    kind: Any = face.kind
    with pytest.raises(ValueError, match=remedy) as refused:
        kind(url, token)
    assert "cret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_told_with_its_address(face: Face) -> None:
    kind: Any = face.kind
    async with face.opened(kind("http://127.0.0.1:1")) as client:
        with pytest.raises(ConnectionFailed, match=r"GET http://127\.0\.0\.1:1/v2/entities/r: "):
            await face.done(client.entities.get("r"))
