"""How much memory this process has in use. Knows nothing of what it is for."""

import os
import sys
from pathlib import Path


def used_bytes() -> int | None:
    """Resident memory, and what torch keeps of a GPU's; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        resident += sum(torch.cuda.memory_reserved(device) for device in range(torch.cuda.device_count()))
    return resident
