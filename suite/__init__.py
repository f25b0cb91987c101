"""WHAT is measured: configuration, cells, records, models, policies and the passes over them.

Importing this package, or anything the parent process needs from it, never imports torch:
the process that schedules children stays small and forks cheaply.
"""

__version__ = "0.1.0"
