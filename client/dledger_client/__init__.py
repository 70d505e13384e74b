"""Producers and consumers, asyncio and synchronous."""
