"""What all parts stand on: checks, buffers, interrupts, devices and their threads, time, history."""
