"""gmqtt: takes one command and answers it. Arguments: HOST:PORT, version (4 or 5), user, filter."""

import asyncio
import sys

import gmqtt

address, version, user, subscription = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
host, port = address.rsplit(":", 1)


async def main():
    answered = asyncio.Event()
    client = gmqtt.Client(f"gmqtt-{user}")

    async def on_message(client, topic, payload, _qos, properties):
        word, tenant, device, request, request_id, _name = topic.split("/")
        assert version == 4 or properties["content_type"] == ["text/plain"], properties
        response = {"q": "s", "req": "res"}[request]
        suffix = "" if version == 5 else "/?content-type=text%2Fplain"
        typed = {"content_type": "text/plain"} if version == 5 else {}
        client.publish(f"{word}/{tenant}/{device}/{response}/{request_id}/200{suffix}", b"did " + payload, qos=1, **typed)
        answered.set()
        return 0

    client.on_message = on_message
    client.set_auth_credentials(f"{user}@default", "pw")
    await asyncio.wait_for(client.connect(host, int(port), version=version), 60)
    client.subscribe(subscription, qos=1)
    await asyncio.wait_for(answered.wait(), 60)

    async def all_acknowledged():
        while not client._persistent_storage.is_empty:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(all_acknowledged(), 60)
    await client.disconnect()


asyncio.run(main())
print("ok gmqtt")
