"""The one thread with trio that serves callers who are not in trio: asyncio's tasks, and plain synchronous code."""
