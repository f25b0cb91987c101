"""How much host memory a policy holds, and what it moves there and back. No torch."""


class HostLedger:
    """Bytes of the copies on the host, as they were asked for: an allocator may round them up.

    Attributes:
        live_bytes: on the host now.
        peak_bytes: the most at once since the step began.
        moved_bytes: from the device since the step began.
        returned_bytes: back to the device since the step began.
        over_cap_bytes: left on the device since the step began, because the host's share was full.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self._sums: list[HostLedger] = []
        self.begin_step()

    def begin_step(self) -> None:
        """Count from here; what is on the host stays in the account."""
        self.peak_bytes = self.live_bytes
        self.moved_bytes = self.returned_bytes = self.over_cap_bytes = 0

    def moved(self, nbytes: int) -> None:
        """``nbytes`` of the device are on the host from now on."""
        self.moved_bytes += nbytes
        self.live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        for total in self._sums:
            total.moved(nbytes)

    def freed(self, nbytes: int) -> None:
        """A copy of ``nbytes`` on the host is gone."""
        self.live_bytes -= nbytes
        for total in self._sums:
            total.freed(nbytes)

    def returned(self, nbytes: int) -> None:
        """``nbytes`` were copied back; the host's copy may still be there."""
        self.returned_bytes += nbytes
        for total in self._sums:
            total.returned(nbytes)

    def over_cap(self, nbytes: int) -> None:
        """There was no room for ``nbytes`` on the host."""
        self.over_cap_bytes += nbytes
        for total in self._sums:
            total.over_cap(nbytes)

    def joined(self, other: "HostLedger") -> "HostLedger":
        """One account of what this and another ledger count from now on."""
        total = HostLedger()
        for part in (self, other):
            part._sums.append(total)
        return total

    def figures(self) -> dict[str, float]:
        """Since the step began, by the names that records use."""
        return {
            "host_peak_bytes": self.peak_bytes,
            "host_moved_bytes": self.moved_bytes,
            "host_returned_bytes": self.returned_bytes,
            "host_over_cap_bytes": self.over_cap_bytes,
        }
