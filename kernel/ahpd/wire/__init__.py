"""Where sockets end. This folder alone knows ports, frames, heads and deadlines of a connection.

Importing it stays light on purpose: ``http``, the one module that drags hypercorn in, is loaded
in a thread after the daemon has announced itself.
"""
