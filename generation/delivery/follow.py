"""A job's frames as an asynchronous iterator, for code that isn't a consumer."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from channels.layers import get_channel_layer

from generation.delivery import stream
from generation.delivery.hub import hub
from generation.delivery.reader import ENDS, Frame, JobReader
from generation.models import Job

logger = logging.getLogger(__name__)


async def follow(job: Job, after: int = 0) -> AsyncGenerator[Frame, None]:
    """Every frame of the job after seq `after`, up to its end, each token once and in order.

    Close the iterator (`aclosing`) when leaving early. Leaving never stops the job.
    """
    layer = get_channel_layer()
    frames: asyncio.Queue[Frame] = asyncio.Queue()
    reader = JobReader(job.pk, frames.put, after=after, window=None)
    channel = await layer.new_channel()
    await layer.group_add(stream.group(job.pk), channel)

    async def pump() -> None:
        while True:
            message = await layer.receive(channel)
            try:
                await reader.message(message)
            except Exception as error:
                # Redis or the database is away; the hub's tick finds what this message said.
                logger.warning("a message of job %s was left for the next tick: %r", job.pk, error)

    pumping = asyncio.create_task(pump())
    hub().add(reader)
    try:
        await reader.start()
        while True:
            frame = await frames.get()
            yield frame
            if frame["type"] in ENDS:
                return
    finally:
        hub().remove(reader)
        while not pumping.done():
            # Before Python 3.12 a time limit that ends at the same moment swallows a cancellation.
            pumping.cancel()
            await asyncio.wait({pumping}, timeout=0.1)
        await layer.group_discard(stream.group(job.pk), channel)
