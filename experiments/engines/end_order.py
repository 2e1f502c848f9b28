"""In which order processes end that are not this process's children."""

import os
import select
import threading


class EndOrder:
    """Watches processes of this host through pidfds (pidfd_open(2), Linux 5.3), each from a thread of its own.

    A pidfd tells the end of a process the moment it happens, also when nobody reaps it, which a container's process 1
    often does not, and when its process id is given to another. To look from time to time would find two that end
    within one interval at once.
    """

    def __init__(self) -> None:
        self._watched: set[int] = set()
        self._ended: list[int] = []
        self._is_known = True

    def watch(self, key: int, pid: int) -> None:
        """Has the end of process `pid` noted as that of `key`; once for a key. One already reaped has ended now."""
        if key in self._watched:
            return
        self._watched.add(key)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.append(key)
            return
        except OSError:
            # No pidfds here: an older kernel, or a container's filter refuses the call.
            self._is_known = False
            return
        threading.Thread(target=self._wait, args=(key, descriptor), name=f"end-of-{pid}", daemon=True).start()

    def ended(self) -> list[int]:
        """The keys of the processes that have ended, the first one first; none where this cannot be told."""
        return list(self._ended) if self._is_known else []

    def _wait(self, key: int, descriptor: int) -> None:
        # Not select: its descriptors must be below 1024.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        self._ended.append(key)
        os.close(descriptor)
