"""gmqtt: talks to itself in the private space. Arguments: address, version (4 or 5), count."""

import asyncio
import sys

import gmqtt

address, version, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host, port = address.rsplit(":", 1)


async def connected(name):
    client = gmqtt.Client(f"{name}-{version}")
    client.set_auth_credentials("gateway@default", "pw")
    await asyncio.wait_for(client.connect(host, int(port), version=version), 60)
    return client


async def main():
    got, subscribed = asyncio.Queue(), asyncio.Event()
    reader, writer = await connected("gmqtt-reader"), await connected("gmqtt-writer")

    async def on_message(_client, topic, payload, qos, properties):
        got.put_nowait((topic, payload.decode(), qos, dict(properties).get("user_property")))
        return 0

    reader.on_message = on_message
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.subscribe("gmqtt/#", qos=1)
    await asyncio.wait_for(subscribed.wait(), 60)
    extra = {"user_property": [("k", "v")]} if version == 5 else {}
    for at in range(count):
        writer.publish(f"gmqtt/{at}", f"{at}", qos=1, **extra)
    for at in range(count):
        expected = (f"gmqtt/{at}", f"{at}", 1, [("k", "v")] if version == 5 else None)
        message = await asyncio.wait_for(got.get(), 60)
        assert message == expected, (message, expected)
    await reader.disconnect()
    await writer.disconnect()


asyncio.run(main())
print("ok gmqtt")
