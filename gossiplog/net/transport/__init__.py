"""From bytes to streams: TCP, WebSocket, the muxer, and the agreement on a stream's protocol; `gossiplog.net` exports the names."""
