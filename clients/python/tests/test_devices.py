"""Devices: registry, sending, commands."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from conftest import Face
from server import Server

from millstream import AuthenticationError, Client, Command, ConflictError, NotFoundError, UnavailableError


async def registered(face: Face, client: Any, name: str, **options: Any) -> None:
    await face.done(client.devices.register(name, **options))
    await face.done(client.devices.set_password(name, "hush"))


async def test_a_device_is_registered_read_changed_and_deleted(face: Face, client: Any, name: str) -> None:
    before = datetime.now(UTC)
    await face.done(client.devices.register(name, via=["gateway"], ext={"hall": "west"}))
    device = await face.done(client.devices.get(name))
    assert (device.id, device.is_enabled, device.via, device.ext) == (name, True, ["gateway"], {"hall": "west"})
    assert device.last_seen is None
    assert not device.is_connected
    assert abs((device.created - before).total_seconds()) < 3600
    with pytest.raises(ConflictError, match="the device exists"):
        await face.done(client.devices.register(name))
    await face.done(client.devices.update(name, ext={"hall": "east"}, enabled=False))
    device = await face.done(client.devices.get(name))
    assert (device.is_enabled, device.via, device.ext) == (False, [], {"hall": "east"})
    await face.done(client.devices.delete(name))
    with pytest.raises(NotFoundError):
        await face.done(client.devices.get(name))


async def test_devices_are_found_over_several_pages(face: Face, client: Any, name: str) -> None:
    ids = [f"{name}-{number:03}" for number in range(201)]
    for number, device in enumerate(ids):
        await face.done(client.devices.register(device, ext={"run": name, "even": str(number % 2 == 0)}))
    found = await face.all(client.devices.list({"/ext/run": name}, order_by="-/id"))
    assert [device.id for device in found] == ids[::-1]
    assert len(await face.all(client.devices.list({"/ext/run": name, "/ext/even": "True"}))) == 101
    frame = await face.done(client.devices.list({"/id": f"{name}-00?"}).to_frame())
    assert sorted(frame["id"]) == ids[:10]
    assert await face.all(client.devices.list({"/ext/run": f"{name}-none"})) == []
    assert await face.all(client.devices.list({"/ext/run": name}, gateways=True)) == []


async def test_a_search_in_an_unknown_tenant_is_refused(face: Face, server: Server) -> None:
    client = face.client(server, tenant="nobody")
    with pytest.raises(NotFoundError, match="no such tenant"):
        await face.all(client.devices.list())
    await face.done(client.close())


async def test_telemetry_and_events_arrive_in_their_streams(face: Face, client: Any, name: str) -> None:
    await registered(face, client, name)
    send = client.devices.send
    assert await face.done(send(name, {"temp": 21.5}, password="hush")) is None
    assert await face.done(send(name, "door open", password="hush", kind="event", ttl_s=3600)) is None
    assert await face.done(send(name, b"\x00\xff", password="hush", content_type="application/x-own")) is None
    telemetry = await face.all(client.streams.read("telemetry.default", key=name))
    assert [record.value for record in telemetry] == [{"temp": 21.5}, b"\x00\xff"]
    assert [record.headers["content-type"] for record in telemetry] == ["application/json", "application/x-own"]
    [event] = await face.all(client.streams.read("event.default", key=name))
    assert event.value == "door open"
    assert (await face.done(client.devices.get(name))).last_seen is not None


async def test_a_gateway_sends_for_a_device_and_a_wrong_password_is_refused(face: Face, client: Any, name: str) -> None:
    await registered(face, client, f"{name}-gateway")
    await face.done(client.devices.register(name, via=[f"{name}-gateway"]))
    for qos in (1, 0):
        await face.done(client.devices.send(name, {"qos": qos}, password="hush", auth_id=f"{name}-gateway", qos=qos))
    async with face.opened(client.streams.tail("telemetry.default", start="earliest", key=name)) as tail:
        assert [(await face.next(tail)).value["qos"] for _ in range(2)] == [1, 0]
    with pytest.raises(AuthenticationError, match="do not fit") as refused:
        await face.done(client.devices.send(name, {}, password="wrong", auth_id=f"{name}-gateway"))
    assert "wrong" not in str(refused.value)


async def test_a_command_is_answered_by_its_device(face: Face, client: Any, name: str, server: Server) -> None:
    await registered(face, client, name)

    def act() -> Command | None:
        with Client(server.url, devices_url=server.devices_url) as device:
            command = device.devices.send(name, {"temp": 1}, password="hush", wait_s=50)
            if command is not None:
                device.devices.answer(command, {"done": True}, password="hush", status=201)
            return command

    # The blocking face must not hold up the loop, so each side has a thread.
    sent = asyncio.to_thread(lambda: asyncio.run(_command(face, server, name)))
    command, answer = await asyncio.gather(asyncio.to_thread(act), sent)
    assert command is not None
    assert (command.name, command.payload, command.device_id) == ("set", {"seconds": 60}, name)
    assert (answer.status, answer.payload, answer.outcome) == (201, {"done": True}, "answered")
    assert answer.correlation_id == f"mine-{name}"


async def _command(face: Face, server: Server, name: str) -> Any:
    client = face.client(server)
    answer = await face.done(
        client.devices.command(name, "set", {"seconds": 60}, ttl_s=60, timeout_s=50, correlation_id=f"mine-{name}")
    )
    await face.done(client.close())
    return answer


async def test_a_one_way_command_waits_and_one_to_nobody_is_refused(face: Face, client: Any, name: str) -> None:
    await registered(face, client, name)
    with pytest.raises(UnavailableError, match="nobody listens") as refused:
        await face.done(client.devices.command(name, "blink"))
    assert refused.value.members["outcome"] == "released"
    assert refused.value.retry_after_s == 1
    answer = await face.done(client.devices.command(name, "blink", "twice", one_way=True, ttl_s=60))
    assert (answer.status, answer.payload, answer.outcome) == (202, None, "waiting")
    command = await face.done(client.devices.send(name, {}, password="hush", wait_s=10))
    assert (command.name, command.payload, command.request_id) == ("blink", "twice", None)
    with pytest.raises(ValueError, match="one-way"):
        await face.done(client.devices.answer(command, password="hush"))
