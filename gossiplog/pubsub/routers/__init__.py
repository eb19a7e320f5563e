"""The routers, from floodsub to episub; each is found by its name in `pubsub.registry`."""
