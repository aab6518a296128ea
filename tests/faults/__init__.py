"""What the engine's own faults do to everybody else: a real site whose model misbehaves when a prompt asks for it."""
