"""What all parts stand on: checks, buffers, interrupts, doors, devices and their threads, time, history."""
