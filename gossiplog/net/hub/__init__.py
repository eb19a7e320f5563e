"""Plain WebSocket, for browsers: the server that takes their connections, the client that keeps one, and a single exchange."""
