"""HTTP for every endpoint: connections as an ASGI application sees them, who is let in, parsing of requests, and the memory of clients."""
