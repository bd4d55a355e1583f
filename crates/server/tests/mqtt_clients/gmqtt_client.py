"""gmqtt: sends messages, with the content type as a property in MQTT 5. Arguments: HOST:PORT, version, count."""

import asyncio
import sys

import gmqtt

address, version, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host, port = address.rsplit(":", 1)


async def main():
    client = gmqtt.Client("gmqtt")
    client.set_auth_credentials("gateway@default", "pw")
    await asyncio.wait_for(client.connect(host, int(port), version=version), 60)
    typed = {"content_type": "text/csv"} if version == 5 else {}
    for at in range(count):
        client.publish("t", f"gmqtt-{version}-{at}", qos=1, **typed)
    # What is not acknowledged yet is in its store.
    async def all_acknowledged():
        while not client._persistent_storage.is_empty:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(all_acknowledged(), 60)
    await client.disconnect()


asyncio.run(main())
print("ok gmqtt")
