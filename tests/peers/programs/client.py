"""httpx as a client: ADDRESS CA."""

import asyncio
import ssl
import sys

import httpx

ADDRESS, CA = sys.argv[1:]


def content(size):
    return bytes(n // 7 * 31 % 251 for n in range(size))


async def main(http2):
    context = ssl.create_default_context(cafile=CA)
    async with httpx.AsyncClient(verify=context, http1=not http2, http2=http2, base_url=ADDRESS, timeout=60) as client:
        names = (await client.get("/files/list")).text.split()
        expected = {name: content(int(name)) for name in names}

        async def get(name):
            response = await client.get(f"/files/{name}")
            assert response.http_version == ("HTTP/2" if http2 else "HTTP/1.1"), response.http_version
            assert response.status_code == 200 and response.content == expected[name], name

        for _ in range(5):
            await asyncio.gather(*(get(name) for name in names))

        async def pieces():
            for number in range(50):
                yield bytes([number]) * 10_007

        whole = b"".join([piece async for piece in pieces()])
        echo = await client.post("/app/echo", content=pieces())
        assert echo.content == whole
        echo = await client.post("/app/echo", content=whole)
        assert echo.content == whole
        part = await client.get("/files/100000", headers={"Range": "bytes=10000-19999"})
        assert part.status_code == 206 and part.content == expected["100000"][10000:20000]
        async with client.stream("GET", "/app/events") as events:
            text = "".join([piece async for piece in events.aiter_text()])
        assert text == "".join(f"data: {n}\n\n" for n in range(5)), text
        async with client.stream("GET", "/files/3000000") as left:
            async for _ in left.aiter_bytes(1000):
                break
        assert (await client.get("/files/none")).status_code == 404


for http2 in (False, True):
    asyncio.run(main(http2))
