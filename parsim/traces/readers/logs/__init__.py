"""Logs of gateways, servers and tracing."""
