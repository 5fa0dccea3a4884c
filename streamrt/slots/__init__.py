"""Slots of resident tasks: the processes in which they run, and the link of these to the driver."""
