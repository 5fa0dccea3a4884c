"""The parts of an application: what it declares, runs, shows and keeps. `streamrt.Application` puts them together."""
